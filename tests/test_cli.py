"""The command line as a user types it: exit codes, messages, and what is printed as JSON."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from goodness.cli import COMMANDS, listing, main, terminal
from goodness.cli.bench import BenchArgs
from goodness.cli.paper import PaperArgs
from goodness.cli.publish import PublishArgs
from goodness.cli.terminal import parsed
from goodness.startup import is_command

TINY = [
    *("--model.width", "16", "--model.block.heads", "2", "--model.block.hidden", "16"),
    *("--model.stem.channels", "8", "--batch", "120"),
]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(list(arguments))
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tiny run, made by the command itself."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert main(["train", "demo", *TINY, "--epochs", "2", "--seed", "5", "--out", str(folder), "--json"]) == 0
    return folder


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["trian"], "did you mean 'train'"),
        (["train", "gated-dens"], "did you mean 'gated-dense'"),
        (["train", "demo", "--rule", "lcf"], "did you mean 'lcff'"),
        (["train", "demo", "--data", "digit"], "did you mean 'digits'"),
        (["train", "demo", "--augment", "week"], "did you mean 'weak'"),
        (["train", "demo", "--objective.cur.rho", "3"], "did you mean 'curr'"),
        (["train", "demo", "--model.label", "ad"], "did you mean 'add'"),
        (["train", "demo", "--epocs", "3"], "--epochs"),
        (["train", "demo", "--rule.kapa", "3", "--rule", "gated"], "--rule.kappa"),
        (["train", "demo", "--epochs", "many"], "--epochs"),
        (["train", "demo", "--epochs", "0"], "epochs must be at least 1, got 0"),
        (["train", "demo", "--beta", "-1"], "beta must be positive, got -1.0"),
        (["train", "demo", "--beta", "nan"], "beta"),
        (["train", "demo", "--rule", "gated", "--rule.tau", "0"], "rule.tau must be positive"),
        (["train", "demo", "--step.mode", "fuse"], "--step.mode"),
        (["train", "demo", "--device", "cuda:99"], "there is no device 'cuda:99'"),
        (["train", "demo", "--plugin", "no_such_plugin_module"], "no_such_plugin_module"),
        (["train", "demo", "--val", "100000"], "val"),
        (["train", "demo", "--rule.kappa", "3"], "--rule.kappa is a setting of gated"),
        (
            ["train", "demo", "--objective.block.weight", "0", "--objective.aspects.weight", "0"],
            "no term with a weight",
        ),
        (["train", "demo", "--model.block.heads", "5"], "model.width 48 must be a multiple"),
        (["train", "demo", "--split-seed", "1" + 30 * "0"], "split_seed is too large"),
        (["train", "demo", "--plugin", "no_such_file.py"], "no such file"),
        (["train", "--epochs", "3"], "name the preset first"),
        (["resume", "no/such/run"], "no run folder"),
        (["eval", "no/such/run"], "no run folder"),
        (["data", "get", "cifar11"], "did you mean 'cifar10'"),
        (["data", "chek", "digits"], "did you mean 'check'"),
        (["demo", "--sed", "1"], "--seed"),
        (["train", "demo", "--data-dir", "~no-such-user/x"], "~no-such-user/x: there is no home folder ~no-such-user"),
        (["train", "demo", "--data", "folder:~no-such-user/x"], "there is no home folder ~no-such-user"),
        (["data", "list", "--data-dir", "~no-such-user"], "there is no home folder ~no-such-user"),
        (["data", "check", "texts:~no-such-user/x"], "there is no home folder ~no-such-user"),
        (["sweep", "demo", "--seeds", "1", "--data-dir", "~no-such-user"], "there is no home folder ~no-such-user"),
        (["reproduce", "mgc", "--data-dir", "~no-such-user"], "there is no home folder ~no-such-user"),
    ],
)
def test_a_mistake_exits_with_2_and_names_what_was_meant(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = run(capsys, *arguments)
    assert code == 2
    assert expected in " ".join(error.split())
    assert not list(tmp_path.rglob("config.json")), "no work is done before the mistake is told"


def test_a_tilde_is_the_home_folder_in_every_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    args = parsed(PublishArgs, ["~/a", "b", "~", "--out=~/c"], "goodness publish")
    assert args.pools == (tmp_path / "a", Path("b"), tmp_path)
    assert args.out == tmp_path / "c"
    assert parsed(BenchArgs, ["--page", "~/p"], "goodness bench").page == tmp_path / "p"
    own = [file.name for file in Path(terminal.__file__).parent.glob("*.py") if "tyro.cli(" in file.read_text()]
    assert own == ["terminal.py"]  # one place where arguments are read


@pytest.mark.parametrize("command", ["readout", "audit", "resume", "eval"])
def test_a_run_may_lie_in_the_home_folder(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "published.json").write_text("{}")
    assert main([command, "~/run"]) == 2
    assert f"{tmp_path}/run is a published run" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize(
    "arguments",
    [[], ["train"], ["train", "demo"], ["resume"], ["eval"], ["demo"], ["presets"], ["data"], ["data", "get"]],
)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code, output, _ = run(capsys, *arguments, "--help")
    assert code == 0
    assert len(output) > 60


def test_the_help_of_train_lists_every_field_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    _, output, _ = run(capsys, "train", "cp-fair-dense", "--help")
    for option in ("--data-dir", "--deterministic", "--objective.curr.rho", "--optim.warmup", "--keep.tensorboard"):
        assert option in output
    assert "--rule.gamma" in output
    assert "--rule.tau" not in output  # a setting of the gate, which this preset does not have
    assert "--rule.tau" in run(capsys, "train", "cp-fair-dense", "--rule", "gated", "--help")[1]


def test_dotted_options_reach_the_configuration(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ["--rule", "gated", "--rule.kappa", "2", "--objective.curr.rho", "3", "--negatives=random"]
    code, _, error = run(
        capsys, "train", "demo", *TINY, *options, "--model.label", "add", "--epochs", "1", "--out", str(folder)
    )
    assert code == 0, error
    config = json.loads((folder / "config.json").read_text())
    assert config["rule"] == {"kind": "gated", "gamma0": 0.7, "tau": 1.0, "kappa": 2.0, "source": "cumulative"}
    assert config["objective"]["curr"]["rho"] == 3.0
    assert config["negatives"]["kind"] == "random"
    assert config["model"]["label"]["kind"] == "add"


def test_eval_repeats_what_the_run_reported(capsys: pytest.CaptureFixture[str], finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    code, output, _ = run(capsys, "eval", str(finished), "--split", "test", "--json")
    assert code == 0
    found = json.loads(output)
    assert found["accuracy"] == result["reported"]["accuracy"]
    assert 0 <= found["accuracy"] <= found["top5"] <= 1
    assert found["n"] == 597
    _, output, _ = run(capsys, "eval", str(finished), "--blocks", "2", "--json")
    rows = [row for row in result["accuracy"] if row["split"] == "test" and row["blocks"] == 2]
    assert json.loads(output)["accuracy"] in [row["top1"] for row in rows if row["weights"] == "last"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["--blocks", "9"], "1..4"), (["--tta"], "no flip TTA"), (["--split", "tset"], "--split")],
)
def test_eval_refuses_what_cannot_be(
    capsys: pytest.CaptureFixture[str], finished: Path, arguments: list[str], expected: str
) -> None:
    code, _, error = run(capsys, "eval", str(finished), *arguments)
    assert code == 2
    assert expected in " ".join(error.split())


def test_a_second_run_into_the_same_folder_is_refused(capsys: pytest.CaptureFixture[str], finished: Path) -> None:
    code, _, error = run(capsys, "train", "demo", *TINY, "--out", str(finished))
    assert code == 2
    assert "--out" in error


def test_resuming_a_finished_run_says_so_and_changes_nothing(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    before = (finished / "result.json").read_bytes()
    code, output, error = run(capsys, "resume", str(finished), "--json")
    assert code == 0
    assert "finished already" in error
    assert json.loads(output)["weights_sha256"] == json.loads(before)["weights_sha256"]
    assert (finished / "result.json").read_bytes() == before


def test_presets_are_listed_with_their_differences(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = run(capsys, "presets", "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(output)}
    assert {"gamma0-dense", "cp-fair-dense", "lcff-dense", "gated-dense", "mgc-dense", "demo"} <= rows.keys()
    assert rows["lcff-dense"]["changes"]["rule.gamma"] == 1.0
    assert all(row["about"] and row["parameters"] > 1e5 for row in rows.values())
    assert "lcff-dense" in run(capsys, "presets")[1]


def test_presets_are_listed_without_building_a_network(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goodness.nn.network.Stemmed.__init__", lambda *_, **__: pytest.fail("a network was built"))
    assert run(capsys, "presets")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seeds", "42", "--seeds", "123,456", "--json"],
        ["--seeds=42", "--json", "--seeds", "123,456"],
        ["--seeds=42", "123,456", "--json", "--seeds"],
    ],
)
def test_values_of_an_option_that_is_given_twice_are_all_taken(arguments: list[str]) -> None:
    found = parsed(PaperArgs, arguments, "goodness paper")
    assert (found.seeds, found.json) == (("42", "123,456"), True)


@pytest.mark.parametrize(("columns", "words", "changes"), [(80, (), False), (120, (), True), (80, ("lcff",), True)])
def test_presets_fit_the_terminal(
    columns: int,
    words: tuple[str, ...],
    changes: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing.out, "_width", columns)
    shown = run(capsys, "presets", *words)[1]
    assert ("rule.gamma" in shown) == changes
    assert max(map(len, shown.splitlines())) <= columns
    assert "…" not in shown


def test_presets_are_found_by_a_word_in_either_case(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = run(capsys, "presets", "CNN", "--json")
    assert code == 0
    assert {row["name"] for row in json.loads(output)} >= {"cnn-ff", "cnn-bp"}
    assert output == run(capsys, "presets", "cnn", "--json")[1]


def test_data_is_listed_and_digits_check_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, output, _ = run(capsys, "data", "list", "--json", "--data-dir", str(tmp_path))
    rows = {row["name"]: row for row in json.loads(output)}
    assert code == 0
    assert rows["digits"]["present"]
    assert not rows["cifar10"]["present"]
    code, output, _ = run(capsys, "data", "check", "digits", "--json")
    assert code == 0
    assert json.loads(output)["splits"] == {"train": 1080, "val": 120, "test": 597}


def test_missing_data_names_the_file_the_place_and_the_hash(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, error = run(capsys, "train", "gamma0-dense", "--data-dir", str(tmp_path))
    assert code == 2
    assert "cifar-10-binary.tar.gz" in error
    assert str(tmp_path) in error
    assert "goodness data get cifar10" in error


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_says_how_to_go_on_and_resume_finishes(tmp_path: Path, number: int, code: int) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "goodness"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, "train", "demo", *TINY, "--epochs", "300", "--out", str(folder), "--events"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stdout.readline()  # the first step is done
    time.sleep(0.3)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"goodness resume {folder}" in " ".join(error.split())
    assert list((folder / "checkpoints").glob("step-*.safetensors"))
    assert not (folder / "result.json").exists()


def heed_interrupts() -> None:
    """For a child of a test that was started in the background, where a shell has interrupts ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


AS_SCRIPT = "import sys; sys.argv = ['/usr/bin/goodness', '--version']; from goodness.cli import main"


@pytest.mark.parametrize(
    ("start", "where", "code"),
    [
        (["-m", "goodness", "--version"], "torch", 130),
        (["-m", "goodness", "--version"], "tyro", 130),
        (["-c", AS_SCRIPT], "torch", 130),
        (["-c", AS_SCRIPT], "tyro", 130),
        (["-c", "import goodness"], "torch", None),  # a program that imports the library has its own way
        (["-c", "import goodness.cli"], "tyro", None),
    ],
)
def test_an_interrupt_while_the_command_is_being_imported_ends_it_quietly(
    start: list[str], where: str, code: int | None, tmp_path: Path
) -> None:
    (tmp_path / f"{where}.py").write_text(
        "import os, signal, time\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "time.sleep(5)\n"
        "raise ImportError('the interrupt was lost')\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *start],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
        preexec_fn=heed_interrupts,
    )
    if code is None:
        assert "KeyboardInterrupt" in done.stderr
    else:
        assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.parametrize(
    ("argv", "orig_argv", "expected"),
    [
        (["/usr/bin/goodness", "presets"], ["python", "/usr/bin/goodness", "presets"], True),
        (["-m", "presets"], ["python", "-m", "goodness", "presets"], True),
        (["-m", "presets"], ["python", "-mgoodness", "presets"], True),
        (["/lib/goodness/__main__.py", "presets"], ["python", "-m", "goodness", "presets"], True),
        (["/lib/pytest/__main__.py", "-m", "goodness"], ["python", "-m", "pytest", "-m", "goodness"], False),
        (["-m"], ["python", "-m", "my_study"], False),
        (["study.py", "-m", "goodness"], ["python", "study.py", "-m", "goodness"], False),
        (["/usr/bin/pytest", "-m", "goodness"], ["python", "/usr/bin/pytest", "-m", "goodness"], False),
        (["-c"], ["python", "-c", "import goodness"], False),
    ],
)
def test_a_program_that_imports_the_library_is_not_the_command(
    argv: list[str], orig_argv: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", argv)
    monkeypatch.setattr("sys.orig_argv", orig_argv)
    assert is_command() == expected


def test_after_the_imports_an_interrupt_is_pythons_own_again() -> None:
    script = f"{AS_SCRIPT}\nimport signal\nassert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", script], check=True, preexec_fn=heed_interrupts)


def test_after_the_imports_garbage_is_collected_again() -> None:
    subprocess.run([sys.executable, "-c", f"{AS_SCRIPT}\nimport gc\nassert gc.isenabled()"], check=True)


def test_the_library_imports_without_the_command_line_packages() -> None:
    script = (
        "import sys\n"
        "for name in ('tyro', 'rich', 'matplotlib', 'sklearn', 'PIL', 'safetensors'): sys.modules[name] = None\n"
        "import goodness\n"
        "print(goodness.preset('gamma0-dense').beta)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "4.0"


def test_output_that_cannot_be_written_does_not_cost_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "goodness", "train", "demo", *TINY, "--epochs", "2", "--out", str(folder)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*command, "--events"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (folder / "result.json").is_file(), done.stderr


def test_a_plugin_that_fails_is_the_users_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for text in ("1 / 0", "import sys; sys.exit(0)", "def"):
        (tmp_path / "broken.py").write_text(text)
        code, _, error = run(capsys, "train", "demo", "--plugin", str(tmp_path / "broken.py"))
        assert code == 2
        assert "cannot be imported" in " ".join(error.split())


def test_eval_refuses_data_whose_classes_have_other_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from PIL import Image

    data = tmp_path / "data"
    for part in ("train", "test"):
        for name, shade in (("cat", 40), ("dog", 200)):
            folder = data / part / name
            folder.mkdir(parents=True)
            for i in range(20):
                Image.new("L", (8, 8), shade + i).save(folder / f"{i}.png")
    options = ["--data", f"folder:{data}", "--epochs", "1", "--out", str(tmp_path / "run"), "--json"]
    assert run(capsys, "train", "demo", *TINY, *options)[0] == 0
    assert run(capsys, "eval", str(tmp_path / "run"), "--json")[0] == 0
    for part in ("train", "test"):
        (data / part / "cat").rename(data / part / "zebra")
    code, _, error = run(capsys, "eval", str(tmp_path / "run"), "--json")
    assert code == 2
    assert "cat is now dog" in " ".join(error.split())


def test_weights_that_run_away_are_told_by_block_and_not_saved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ["--optim.lr", "1e30", "--optim.warmup", "0", "--optim.clip", "0", "--batch", "1080", "--epochs", "1"]
    code, _, error = run(capsys, "train", "demo", *TINY, *options, "--out", str(tmp_path / "run"))
    assert code == 1
    assert "block 0" in error
    assert not list((tmp_path / "run" / "checkpoints").glob("*"))


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("train", "Try a smaller --batch, --model.width or --keep.memory-mb"),
        ("readout", "Try a smaller --readout.batch, --readout.width or --keep.memory-mb"),
        ("eval", "take another --device"),
    ],
)
def test_memory_that_ends_is_told_with_the_commands_own_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, advice: str
) -> None:
    def too_much(arguments: list[str]) -> int:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setitem(COMMANDS, command, too_much)
    code, _, error = run(capsys, command)
    assert code == 1
    assert f"can't allocate memory. {advice}" in " ".join(error.split()).replace("Close what else is running, or ", "")


def test_a_folder_whose_name_is_not_utf8_is_like_any_other(
    capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/r\xff")
    shutil.copytree(finished, folder)
    monkeypatch.setattr(sys, "argv", ["goodness", "readout", folder])  # kept in environment.json
    code, _, error = run(capsys, "readout", folder, *SMALL_READOUT, "--out", f"{folder}far")
    assert code == 0, error
    assert json.loads(Path(f"{folder}far", "backbone.json").read_bytes())["run"] == folder
    assert json.loads(Path(f"{folder}far", "environment.json").read_bytes())["command"].endswith("r\udcff'")
    assert run(capsys, "eval", f"{folder}far")[0] == 0
    code, _, error = run(capsys, "resume", f"{folder}no")
    assert code == 2
    assert "r?no" in error


# Stage 2

SMALL_READOUT = ["--readout.width", "16", "--readout.heads", "2", "--readout.epochs", "1"]


def test_readout_without_a_run_says_what_it_wants(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = run(capsys, "readout")
    assert code == 2
    assert "usage: goodness readout RUN" in output
    code, output, _ = run(capsys, "readout", "--help")
    assert code == 0
    for option in ("--readout.epochs", "--readout.weights", "--keep.memory-mb", "--out", "--device"):
        assert option in output
    code, _, error = run(capsys, "readout", *SMALL_READOUT)
    assert code == 2
    assert "name the run first: goodness readout RUN" in " ".join(error.split())


def test_the_help_of_readout_lists_its_settings_with_the_runs_own_as_defaults(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    code, output, _ = run(capsys, "readout", str(finished), "--help")
    assert code == 0
    for option in ("--readout.epochs", "--readout.mixup", "--readout.weights", "--out", "--data-dir"):
        assert option in output
    epochs = json.loads((finished / "config.json").read_text())["readout"]["epochs"]
    assert f"(default: {epochs})" in output
    assert "--model.width" not in output, "a readout takes its run as it is"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--readout.epochs", "0"], "readout.epochs must be at least 1 to train a readout, got 0"),
        (["--readout.width", str(2**40)], "take a smaller --readout.width"),
        (["--readout.heads", "5"], "readout.width 16 must be a multiple of readout.heads (5)"),
        (["--readout.augment", "week"], "did you mean 'weak'"),
        (["--readout.epocs", "3"], "--readout.epochs"),
        (["--readout.weights", "frist"], "--readout.weights"),
        (["--epochs", "3"], "--epochs"),
        (["--device", "cuda:99"], "there is no device 'cuda:99'"),
    ],
)
def test_a_mistake_in_a_readout_exits_with_2_before_a_folder_is_made(
    capsys: pytest.CaptureFixture[str], finished: Path, options: list[str], expected: str
) -> None:
    code, _, error = run(capsys, "readout", str(finished), *SMALL_READOUT, *options)
    assert code == 2
    assert expected in " ".join(error.split())
    assert not (finished / "readout").exists()


def test_a_readout_of_a_run_that_is_not_there_exits_with_2(
    capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path
) -> None:
    code, _, error = run(capsys, "readout", str(tmp_path / "nothing"))
    assert code == 2
    assert "there is no run folder" in " ".join(error.split())
    code, _, error = run(capsys, "readout", str(finished.parent / "rum"))
    assert "did you mean 'run'" in " ".join(error.split())
    assert not (tmp_path / "nothing").exists()


def test_eval_of_a_stage_2_that_is_not_there_says_how_to_train_it(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    code, _, error = run(capsys, "eval", str(finished), "--stage", "s2")
    assert code == 2
    assert f"has no Stage 2; train one with: goodness readout {finished}" in " ".join(error.split())


def test_a_readout_is_trained_shown_and_scored_again(
    capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "readout"
    code, output, error = run(capsys, "readout", str(finished), *SMALL_READOUT, "--out", str(folder), "--json")
    assert code == 0, error
    result = json.loads(output)
    assert (result["run"], result["reported"]["stage"], result["epochs"]) == (str(folder), "s2", 1)
    assert json.loads((folder / "config.json").read_text())["readout"]["width"] == 16
    code, output, _ = run(capsys, "eval", str(folder), "--json")
    assert code == 0
    assert json.loads(output)["accuracy"] == result["reported"]["accuracy"]
    code, output, _ = run(capsys, "eval", str(folder), "--split", "val")
    assert code == 0
    assert "Stage 2 val accuracy" in output
    code, output, error = run(capsys, "resume", str(folder))
    assert code == 0
    assert "finished already" in error
    assert "Stage 2 test accuracy" in output


@pytest.mark.parametrize(
    ("command", "answer"), [("helth", "did you mean 'health'?"), ("nosuch", "known: audit, bench, ")]
)
def test_a_command_that_is_not_there_is_answered_with_one_that_is_like_it_or_with_all(
    command: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command]) == 2
    assert answer in capsys.readouterr().err
