"""A run folder takes one run at a time, and says where the run took place."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import goodness
from goodness.durable import PARTIAL, write_json
from goodness.errors import RunError, UserError
from goodness.runs import run_folder as run
from goodness.runs.lock import release
from goodness.runs.run_folder import RunFolder, choose_device, choose_dtype, default_run_path, environment

torch.set_num_threads(1)

SOURCE = str(Path(run.__file__).parents[2])


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of tmp_path/run, and has a forked child that outlives it."""
    script = """
import os, signal, sys, time
from goodness.runs.run_folder import RunFolder
folder = RunFolder.create(sys.argv[1])
folder.config_path.write_text("{}")
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    os.kill(child, signal.SIGKILL)


def test_a_second_process_is_refused_by_name_until_the_first_is_killed(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    path = tmp_path / "run"
    for attempt in (RunFolder.create, RunFolder.open):
        with pytest.raises(UserError, match=f"in use by process {holder.pid} on .*, started 2"):
            attempt(path)
    reader = RunFolder.open(path, for_writing=False)
    assert not reader.is_locked
    holder.kill()
    holder.wait()
    with RunFolder.open(path) as folder:
        assert folder.is_locked
        assert str(os.getpid()) in (path / "run.lock").read_text()


def test_one_process_cannot_open_a_folder_twice_and_can_after_closing(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "a") as first:
        write_json(first.config_path, {})
        with pytest.raises(UserError, match=f"process {os.getpid()}"):
            RunFolder.open(tmp_path / "a")
    first.close()
    RunFolder.open(tmp_path / "a").close()


def test_the_lock_lasts_as_long_as_the_process_even_if_the_object_does_not(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a")
    lock = folder._lock
    assert lock is not None
    del folder
    with pytest.raises(UserError, match="in use"):
        RunFolder.create(tmp_path / "a")
    release(lock)


def test_a_folder_with_a_run_is_refused_with_the_way_on(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with RunFolder.create(path) as folder:
        assert (path / "checkpoints").is_dir()
        write_json(folder.config_path, {})
    with pytest.raises(UserError, match=f"`goodness resume {path}`.*--out") as refusal:
        RunFolder.create(path)
    assert refusal.value.exit_code == 2
    with RunFolder.open(path) as folder:
        assert not folder.is_finished
        write_json(folder.result_path, {})
        assert folder.is_finished
    with pytest.raises(UserError, match=r"finished run.*choose another --out"):
        RunFolder.create(path)
    (path / "run.lock").unlink()  # as in a copy
    with pytest.raises(UserError, match="finished run"):
        RunFolder.create(path)


def test_a_refusal_does_not_keep_the_lock(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "a") as folder:
        write_json(folder.config_path, {})
    with pytest.raises(UserError, match="unfinished"):
        RunFolder.create(tmp_path / "a")
    RunFolder.open(tmp_path / "a").close()


def test_a_run_that_died_before_its_first_file_leaves_the_folder_free(tmp_path: Path) -> None:
    path = tmp_path / "a"
    RunFolder.create(path).close()
    (path / f".config.json.0123{PARTIAL}").write_text("{")
    RunFolder.create(path).close()
    assert sorted(entry.name for entry in path.iterdir()) == ["checkpoints", "run.lock"]


def test_a_strange_folder_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    (tmp_path / "config.json").touch()
    with pytest.raises(UserError, match="not empty"):
        RunFolder.create(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["config.json", "thesis.tex"]
    with pytest.raises(UserError, match="is a file"):
        RunFolder.create(tmp_path / "thesis.tex")
    with pytest.raises(UserError, match="cannot use"):
        RunFolder.create(tmp_path / "thesis.tex" / "below")


def test_opening_what_is_no_run_says_so_and_offers_the_nearest(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "demo-digits-s1-1") as folder:
        write_json(folder.config_path, {})
    with pytest.raises(UserError, match="did you mean 'demo-digits-s1-1'"):
        RunFolder.open(tmp_path / "demo-digits-s1-2")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no config\.json"):
        RunFolder.open(tmp_path / "empty")


def test_the_next_free_number_follows_the_highest(tmp_path: Path) -> None:
    assert default_run_path("demo", "digits", 1) == Path("runs/demo-digits-s1-1")
    for name in (
        "demo-digits-s1-1",
        "demo-digits-s1-9",
        "demo-digits-s1-10",
        "demo-digits-s11-40",
        "demo-digits-s1-x",
    ):
        (tmp_path / name).mkdir()
    assert default_run_path("demo", "digits", 1, tmp_path).name == "demo-digits-s1-11"
    assert default_run_path("demo", "digits", 2, tmp_path).name == "demo-digits-s2-1"
    own = default_run_path("demo", "folder:/home/me/my pictures/", 1, tmp_path)
    assert own.parent == tmp_path
    assert own.name == "demo-folder-home-me-my-pictures-s1-1"


def test_predictions_come_back_as_plain_arrays(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a")
    scores = torch.randn(4, 3, requires_grad=True)
    folder.write_predictions("test_last", scores, torch.tensor([0, 1, 2, 0]), [3, 1, 0, 2])
    found = folder.read_predictions("test_last")
    assert np.array_equal(found["scores"], scores.detach().numpy())
    assert found["scores"].dtype == np.float32
    assert found["labels"].tolist() == [0, 1, 2, 0]
    assert found["indices"].tolist() == [3, 1, 0, 2]
    folder.write_predictions("half", scores.bfloat16(), [0] * 4, range(4))
    assert np.array_equal(folder.read_predictions("half")["scores"], scores.bfloat16().float().detach().numpy())
    with pytest.raises(UserError, match="did you mean 'test_last'"):
        folder.read_predictions("test_best")
    folder.close()


def test_predictions_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a")
    with pytest.raises(ValueError, match=r"labels \[n\]"):
        folder.write_predictions("test", np.zeros((4, 3)), [0] * 3, range(4))
    with pytest.raises(ValueError, match="file name"):
        folder.write_predictions("../test", np.zeros((4, 3)), [0] * 4, range(4))
    folder.close()


def test_predictions_with_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a")
    hostile = np.array([{"run": "code"}], dtype=object)
    np.savez(folder.predictions_path("test"), scores=hostile, labels=hostile, indices=hostile)
    with pytest.raises(RunError, match="cannot be read"):
        folder.read_predictions("test")
    folder.close()


def test_the_environment_is_json_and_names_versions_device_and_dtype(tmp_path: Path) -> None:
    device = choose_device("cpu")
    dtype, reason = choose_dtype(device)
    facts = environment(device, dtype, reason)
    write_json(tmp_path / "environment.json", facts)
    assert json.loads((tmp_path / "environment.json").read_text()) == facts
    assert facts["torch"] == torch.__version__
    assert facts["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert (facts["device"], facts["dtype"], facts["cuda"]) == ("cpu", "float32", None)
    assert "cpu" in facts["dtype_reason"]
    assert facts["threads"] == 1
    assert facts["cpu"]


def test_the_version_is_that_of_the_source_installed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", not_installed)
    assert environment(torch.device("cpu"), torch.float32, "")["goodness"] == goodness.__version__
    project = tomllib.loads((Path(SOURCE).parent / "pyproject.toml").read_text())["project"]
    assert project["version"] == goodness.__version__


def test_the_driver_is_read_where_linux_tells_it_and_asked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_output", lambda command: f"asked {command[0]}")
    monkeypatch.setattr(run, "_DRIVER", tmp_path / "version")
    assert run._driver_version() == "asked nvidia-smi"
    (tmp_path / "version").write_text("580.159.04\n")
    assert run._driver_version() == "580.159.04"


def test_the_command_is_kept_as_one_types_it_on_any_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    main = str(Path(SOURCE) / "goodness" / "__main__.py")
    typed = ["bench", "lean", "--out", f"{here}/a/b.json", f"--figure={tmp_path}/c d.png", "--data-dir", "data"]
    as_typed = "goodness bench lean --out a/b.json '--figure=c d.png' --data-dir data"
    for program in (main, "/somewhere/.venv/bin/goodness"):
        monkeypatch.setattr(sys, "argv", [program, *typed])
        assert environment(torch.device("cpu"), torch.float32, "")["command"] == as_typed
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "own.py"), "--set", "a=1"])
    assert environment(torch.device("cpu"), torch.float32, "")["command"] == "own.py --set a=1"


def test_the_commit_is_that_of_the_source_and_of_no_other_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
        command = ["git", *identity, "-C", str(tmp_path), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    package = tmp_path / "src" / "goodness"
    installed = tmp_path / ".venv" / "goodness"
    for folder in (package, installed):
        folder.mkdir(parents=True)
        (folder / "errors.py").touch()
    monkeypatch.setattr(run, "_PACKAGE", package)
    assert run._source_commit() == (None, None)
    try:
        git("init")
    except FileNotFoundError:
        return  # no git: what is above was the whole claim
    assert run._source_commit() == (None, None)  # a repository without a commit
    git("add", ".")
    git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD")
    assert run._source_commit() == (commit, False)
    (package / "errors.py").write_text("changed")
    assert run._source_commit() == (commit, True)
    monkeypatch.setattr(run, "_PACKAGE", installed)
    assert run._source_commit() == (None, None)
    monkeypatch.setattr(run, "_PACKAGE", package)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run._source_commit() == (None, None)


def test_a_device_that_is_not_there_is_refused_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    for name in ("cuda", "cuda:3", "gpu", "meta", ""):
        with pytest.raises(UserError, match=f"no device '{name}' here.*auto, cpu"):
            choose_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(UserError, match="cuda:0, cuda:1"):
        choose_device("cuda:2")


@pytest.mark.parametrize(
    ("argument", "typed"),
    [
        ("data=folder:/home/user/pics", "data=folder:pics"),
        ("~/ada/d", "d"),
        ("~ada/d", "d"),
        ("--out=../../home/user/r", "--out=r"),
        ("runs/one", "runs/one"),
        ("https://x.org/a/b", "https://x.org/a/b"),
        ("--optim.lr=2e-3", "--optim.lr=2e-3"),
    ],
)
def test_the_recorded_command_names_no_folder_of_this_machine(argument: str, typed: str) -> None:
    assert run._without_folder(argument) == typed
