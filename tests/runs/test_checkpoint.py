"""Checkpoints survive kills, full disks and flipped bits; what comes back is what went in, bit for bit."""

from __future__ import annotations

import copy
import json
import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from goodness import durable, tensor_file
from goodness.durable import (
    append_line,
    read_json,
    read_lines,
    truncate_lines,
    write_durably,
    write_json,
)
from goodness.errors import RunError
from goodness.runs.checkpoint import Checkpoints, flatten_state, unflatten_state
from goodness.tensor_file import weights_sha256

torch.set_num_threads(1)

# What the child processes share: a checkpoint whose content follows from its step, and the check of one.
PRELUDE = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from goodness.errors import RunError
from goodness import durable
from goodness.runs.checkpoint import Checkpoints

torch.set_num_threads(1)

def content(step, size=20_000):
    return {"w": torch.full((size,), float(step)), "n": torch.tensor(step)}, {"step": step, "lr": step / 7}

def check(folder, acknowledged):
    store = Checkpoints(folder)
    tensors, state = store.latest()
    expected, expected_state = content(state["step"])
    assert state == expected_state and state["step"] >= acknowledged, (state, acknowledged)
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)
    assert store.notes == [], store.notes
    return state["step"]
"""


def run_python(script: str, *arguments: str, timeout: float = 120) -> str:
    """The output of a Python process with the package on its path; its failure is the test's."""
    source = str(Path(durable.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script, *arguments],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def some_tensors() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {
        "float32": torch.randn(3, 4),
        "float64": torch.randn(5, dtype=torch.float64),
        "bfloat16": torch.randn(2, 3).bfloat16(),
        "float16": torch.randn(2, 3).half(),
        "int64": torch.tensor([-(2**63), 2**63 - 1]),
        "uint8": torch.get_rng_state(),
        "bool": torch.tensor([True, False]),
        "zero_dim": torch.tensor(3.5),
        "empty": torch.empty(0, 7),
        "minus_zero": torch.tensor([-0.0]),
    }


def assert_same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype, name
        assert one[name].shape == other[name].shape, name
        ours, theirs = (
            tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (one[name], other[name])
        )
        assert torch.equal(ours, theirs), name


def restored(store: Checkpoints) -> tuple[dict[str, Tensor], dict]:
    found = store.latest()
    assert found is not None
    return found


# What comes back


def test_every_dtype_and_shape_comes_back_bit_for_bit(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    state = {
        "epoch": 3,
        "lr": 0.1 + 0.2,
        "best": None,
        "done": False,
        "who": "é☃",
        "parts": [1, [2.5e-308, "x"], {}],
    }
    path = store.save(123, some_tensors(), state)
    assert path.name == "step-000000123.safetensors"
    tensors, found = restored(Checkpoints(tmp_path))
    assert_same_bits(tensors, some_tensors())
    assert found == state
    assert found["lr"].hex() == (0.1 + 0.2).hex()


def test_any_safetensors_reader_can_open_a_checkpoint(tmp_path: Path) -> None:
    from safetensors import safe_open

    path = Checkpoints(tmp_path).save(1, {"w": torch.arange(6.0)}, {"epoch": 2})
    with safe_open(str(path), "pt") as file:
        assert json.loads(file.metadata()["state"]) == {"epoch": 2}
        assert torch.equal(file.get_tensor("w"), torch.arange(6.0))


def test_views_tied_and_transposed_tensors_are_saved_as_their_values(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "tied": base,
        "again": base,
        "row": base[1],
        "transposed": base.T,
        "expanded": torch.tensor(2.0).expand(3),
        "parameter": nn.Parameter(base[:, 1]),
    }
    Checkpoints(tmp_path).save(0, tensors, {})
    found, _ = restored(Checkpoints(tmp_path))
    assert_same_bits(found, {name: tensor.detach().clone() for name, tensor in tensors.items()})


def test_restored_tensors_stay_valid_when_their_file_is_gone_and_can_be_written_to(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    path = store.save(0, {"w": torch.arange(1000.0)}, {})
    tensors, _ = restored(store)
    path.write_bytes(b"")
    path.unlink()
    assert torch.equal(tensors["w"].add_(1), torch.arange(1000.0) + 1)


finite_or_not = st.floats(allow_nan=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite_or_not | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)


@given(state=st.dictionaries(st.text(), json_values, max_size=5))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_state_comes_back_exactly(tmp_path: Path, state: dict) -> None:
    store = Checkpoints(tmp_path)
    store.save(1, {"w": torch.zeros(1)}, state)
    # repr tells -0.0 from 0.0, True from 1, and holds nan equal to nan
    assert repr(restored(store)[1]) == repr(state)


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"a": {1: 2}}, "state.a"),
        ({"a": [(1, 2)]}, r"state\.a\[0\]"),
        ({"a": {"b": torch.zeros(1)}}, "state.a.b"),
    ],
)
def test_a_state_that_json_would_change_is_refused_with_its_place(tmp_path: Path, state: dict, place: str) -> None:
    with pytest.raises(TypeError, match=place):
        Checkpoints(tmp_path).save(1, {}, state)
    assert list(tmp_path.iterdir()) == []


# What is refused, kept and removed


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_tensor_that_is_not_finite_is_named_and_never_written(tmp_path: Path, bad: float, dtype: torch.dtype) -> None:
    store = Checkpoints(tmp_path)
    store.save(1, {"w": torch.ones(3)}, {})
    weights = torch.ones(3, dtype=dtype)
    weights[1] = bad
    with pytest.raises(RunError, match=r"'block\.2\.weight' has 1 of 3 values"):
        store.save(2, {"fine": torch.ones(2), "block.2.weight": weights}, {})
    with pytest.raises(RunError, match="not finite"):
        store.save_weights("best", {"block.2.weight": weights}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001.safetensors"]


@pytest.mark.parametrize(("keep", "left"), [(1, [5]), (2, [4, 5]), (9, [1, 2, 3, 4, 5])])
def test_only_the_newest_are_kept(tmp_path: Path, keep: int, left: list[int]) -> None:
    store = Checkpoints(tmp_path, keep=keep)
    for step in range(1, 6):
        store.save(step, {"w": torch.tensor(step)}, {})
    assert store.steps() == left


def test_the_previous_checkpoint_is_there_until_the_new_one_has_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Checkpoints(tmp_path)
    store.save(1, {"w": torch.zeros(3)}, {"step": 1})
    seen = []
    original = tensor_file.read_tensors

    def watching(path: Path, meant: str | None = None) -> tuple[dict[str, Tensor], dict]:
        seen.append(store.steps())
        return original(path, meant)

    monkeypatch.setattr(tensor_file, "read_tensors", watching)
    store.save(2, {"w": torch.ones(3)}, {"step": 2})
    assert seen == [[1]]
    assert store.steps() == [2]


@pytest.mark.parametrize("step", [7, 8])
def test_a_disk_that_garbles_what_it_is_given_costs_no_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Also when the new checkpoint has the step of the old one, and so its name."""
    store = Checkpoints(tmp_path)
    store.save(7, {"w": torch.zeros(300)}, {"step": 7})

    def garble(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)

    monkeypatch.setattr(durable, "_forget_cached", garble)
    with pytest.raises(RunError, match="did not read back"):
        store.save(step, {"w": torch.ones(300)}, {"step": step})
    monkeypatch.undo()
    assert restored(store)[1] == {"step": 7}
    assert len(list(tmp_path.iterdir())) == 1


def test_any_flipped_bit_is_noticed(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    path = store.save(1, {"weight": torch.randn(40), "mask": torch.tensor([True, False])}, {"lr": 1e-05, "s": "é"})
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    flips = [(byte, byte % 8) for byte in range(len(whole))] + [(byte, 5) for byte in range(header)]
    for byte, bit in flips:
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << bit
        path.write_bytes(damaged)
        assert Checkpoints(tmp_path).latest() is None, (byte, bit)
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert Checkpoints(tmp_path).latest() is None, length
    path.write_bytes(whole)
    assert Checkpoints(tmp_path).latest() is not None


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_note_and_does_not_come_back(
    tmp_path: Path,
) -> None:
    store = Checkpoints(tmp_path, keep=2)
    store.save(100, {"w": torch.zeros(9)}, {"step": 100})
    newest = store.save(200, {"w": torch.ones(9)}, {"step": 200})
    newest.write_bytes(newest.read_bytes()[:-3])
    assert restored(store)[1] == {"step": 100}
    assert len(store.notes) == 1
    assert newest.name in store.notes[0]
    store.save(150, {"w": torch.ones(9)}, {"step": 150})
    assert store.steps() == [100, 150]
    assert restored(store)[1] == {"step": 150}


def test_no_folder_and_an_empty_folder_have_no_checkpoint(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").latest() is None
    assert Checkpoints(tmp_path).latest() is None


def test_what_killed_writers_left_is_ignored_and_swept_away(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    leftover = tmp_path / f".step-000000009.safetensors.abcd{durable.PARTIAL}"
    leftover.write_bytes(b"half")
    assert store.latest() is None
    store.save(1, {"w": torch.zeros(1)}, {"step": 1})
    assert not leftover.exists()
    assert restored(store)[1] == {"step": 1}


def test_weight_files_come_back_are_not_pruned_and_go_when_told(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    for epoch in (3, 12):
        store.save_weights(f"best-{epoch:06d}", {"w": torch.tensor(epoch)}, {"epoch": epoch, "accuracy": 0.1})
    store.save(1, {}, {})
    store.save(2, {}, {})
    tensors, metadata = store.load_weights("best-000003")
    assert (int(tensors["w"]), metadata) == (3, {"epoch": 3, "accuracy": 0.1})
    assert store.load_weights("best-000012.safetensors")[1]["epoch"] == 12
    store.discard_weights_except(["best-000012"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best-000012.safetensors",
        "step-000000002.safetensors",
    ]
    with pytest.raises(RunError, match="did you mean 'best-000012'"):
        store.load_weights("best-000003")


def test_damaged_weights_are_an_error_and_strange_names_are_refused(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    path = store.save_weights("best", {"w": torch.ones(9)}, {})
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    with pytest.raises(RunError, match=r"best\.safetensors cannot be used"):
        store.load_weights("best")
    for name in ("../best", "a/b", "step-000000001", "", ".hidden"):
        with pytest.raises(ValueError, match="cannot name"):
            store.save_weights(name, {}, {})


# Kills


def test_a_writer_killed_at_random_moments_never_loses_an_acknowledged_checkpoint(tmp_path: Path) -> None:
    script = """
folder, rng = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
step, leftovers = 0, 0
for trial in range(30):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        store = Checkpoints(folder)
        while True:
            step += 1
            store.save(step, *content(step))
            os.write(writing, step.to_bytes(8, "little"))
    os.close(writing)
    first = os.read(reading, 8)  # at least one save is through, so the kill falls into a later one
    time.sleep(rng.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    rest = b""
    while part := os.read(reading, 65536):
        rest += part
    os.close(reading)
    acknowledged = int.from_bytes((first + rest)[-8:], "little")
    leftovers += any(folder.glob(".*.partial"))
    step = check(folder, acknowledged)
print(leftovers)
"""
    leftovers = int(run_python(script, str(tmp_path), str(random.randrange(10**6))))
    assert leftovers > 0, "no kill fell into a write: the test has lost its teeth"


def test_a_writer_that_dies_before_any_of_its_system_calls_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    """Every call by which a save changes the disk, one after the other, is made the last one."""
    script = """
import builtins
folder = Path(sys.argv[1])

def die_at(last):
    calls = 0
    def wrap(function):
        def wrapped(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == last:
                os._exit(77)
            return function(*arguments, **options)
        return wrapped
    for name in ("fsync", "replace", "unlink"):
        setattr(os, name, wrap(getattr(os, name)))
    Path.unlink = wrap(Path.unlink)
    durable.open = wrap(open)

step, last, ends = 1, 0, 0
Checkpoints(folder).save(step, *content(step))
while ends == 0:
    last += 1
    child = os.fork()
    if child == 0:
        store = Checkpoints(folder)
        die_at(last)
        store.save(step + 1, *content(step + 1))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 77), code
    ends += code == 0
    reached = check(folder, step + 1 if code == 0 else step)
    step = reached
print(last)
"""
    assert int(run_python(script, str(tmp_path))) > 5


# Full disks


def test_a_file_that_grows_past_the_limit_leaves_the_old_checkpoint_and_a_clear_error(tmp_path: Path) -> None:
    script = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
store = Checkpoints(folder / "checkpoints")
store.save(1, *content(1))
lines = folder / "metrics.jsonl"
durable.append_line(lines, {"epoch": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
messages = []
for attempt in (
    lambda: store.save(2, *content(2, size=1_000_000)),
    lambda: store.save(1, *content(1, size=1_000_000)),
    lambda: durable.append_line(lines, {"long": "x" * 200_000}),
    lambda: durable.write_json(folder / "config.json", ["y" * 200_000]),
):
    try:
        attempt()
    except RunError as error:
        messages.append(str(error))
    else:
        raise AssertionError("a write past the limit went unnoticed")
assert check(store.folder, 1) == 1
assert lines.read_bytes() == b'{"epoch": 1}\\n'
durable.append_line(lines, {"epoch": 2})
assert durable.read_lines(lines) == [{"epoch": 1}, {"epoch": 2}]
assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
    "metrics.jsonl", "step-000000001.safetensors"]
store.save(2, *content(2))
assert check(store.folder, 2) == 2
print(messages[0])
"""
    message = run_python(script, str(tmp_path))
    assert "step-000000002.safetensors" in message
    assert "4.0 MB needed" in message
    assert "free on that disk" in message
    assert "ulimit -f" in message


def test_a_disk_without_room_is_noticed_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Checkpoints(tmp_path)
    store.save(1, {"w": torch.zeros(9)}, {"step": 1})
    usage = durable.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(durable.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(RunError, match=r"No space left.*4\.\d kB needed, 1\.0 kB free.*free some space"):
        store.save(2, {"w": torch.zeros(1000)}, {"step": 2})
    assert restored(store)[1] == {"step": 1}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failing_system_call_leaves_the_old_file_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"old": 1})

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable.os, failing, fail)
    with pytest.raises(RunError, match=r"result\.json: No space left"):
        write_json(path, {"new": 2})
    assert read_json(path) == {"old": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the folder does not exist"):
        write_durably(tmp_path / "none" / "file", b"x")


def test_an_interrupt_while_writing_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, b"old")

    def interrupted(file: object) -> None:
        file.write(b"new")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_durably(path, interrupted)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_written_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_durably(tmp_path / "durable", lambda file: file.write(b"x"), needed=1)
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "durable")}
    assert len(modes) == 1


# JSON and JSON lines


def test_json_keeps_the_order_of_its_keys_and_refuses_nan_by_place(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_json(path, {"b": 1, "a": {"z": [0.1], "y": "é"}})
    assert path.read_text().index('"b"') < path.read_text().index('"a"')
    assert read_json(path) == {"b": 1, "a": {"z": [0.1], "y": "é"}}
    with pytest.raises(RunError, match=r"'blocks\[1\]\.sep_cur' \(nan\)"):
        write_json(path, {"blocks": [{"sep_cur": 1.0}, {"sep_cur": float("nan")}]})
    assert read_json(path)["b"] == 1
    path.write_text("{")
    with pytest.raises(RunError, match=r"config\.json is not valid JSON"):
        read_json(path)


def test_a_line_torn_at_any_byte_costs_that_line_only_and_not_the_next(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_line(path, {"epoch": 1, "note": "é"})
    first = len(path.read_bytes())
    append_line(path, {"epoch": 2, "note": "{}é"})
    whole = path.read_bytes()
    for length in range(first, len(whole) + 1):
        path.write_bytes(whole[:length])
        survivors = [1, 2] if length >= len(whole) - 1 else [1]  # without its newline a line is still whole
        assert [record["epoch"] for record in read_lines(path)] == survivors
        append_line(path, {"epoch": 3})
        assert [record["epoch"] for record in read_lines(path)] == [*survivors, 3]
        assert path.read_bytes().endswith(b'{"epoch": 3}\n')


def test_damage_that_no_kill_explains_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"epoch": 1}\n{"epo\n{"epoch": 3}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 2"):
        read_lines(path)


def test_resuming_drops_the_lines_after_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_lines(path) == []
    truncate_lines(path, lambda record: True)
    assert not path.exists()
    for epoch in range(5):
        append_line(path, {"epoch": epoch, "loss": 1 / (epoch + 3)})
    with path.open("ab") as file:
        file.write(b'{"epoch": 5, "lo')
    before = path.read_bytes()
    truncate_lines(path, lambda record: record["epoch"] < 3)
    assert path.read_bytes() == b"".join(before.splitlines(keepends=True)[:3])


# Hashes and trees


def test_the_hash_ignores_order_and_layout_and_sees_every_other_difference() -> None:
    tensors = some_tensors()
    reference = weights_sha256(tensors)
    assert weights_sha256(dict(reversed(tensors.items()))) == reference
    transposed = tensors["float32"].T.contiguous().T
    assert not transposed.is_contiguous()
    assert weights_sha256({**tensors, "float32": transposed}) == reference
    changes = [
        {**tensors, "minus_zero": torch.tensor([0.0])},
        {**tensors, "float32": tensors["float32"].reshape(4, 3)},
        {**tensors, "empty": torch.empty(7, 0)},
        {**tensors, "bool": tensors["bool"].to(torch.uint8)},
        {**tensors, "more": torch.zeros(0)},
        {("renamed" if name == "bool" else name): tensor for name, tensor in tensors.items()},
    ]
    assert len({reference, *map(weights_sha256, changes)}) == len(changes) + 1


trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | finite_or_not
    | st.text(max_size=5)
    | st.lists(st.floats(width=32, allow_nan=False), max_size=3).map(torch.tensor),
    lambda children: (
        st.lists(children, max_size=4)
        | st.lists(children, max_size=4).map(tuple)
        | st.dictionaries(
            st.integers() | st.text(max_size=3) | st.sampled_from(["1", "a.b", "tensor"]),
            children,
            max_size=4,
        )
    ),
    max_leaves=15,
)


def as_text(tree: object) -> str:
    """A form in which equal means equal: types, key types, order, and every bit of every tensor."""
    if isinstance(tree, Tensor):
        return f"tensor({tree.dtype}, {tree.tolist()!r})"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {as_text(part)}" for key, part in tree.items()) + "}"
    if isinstance(tree, (list, tuple)):
        return f"{type(tree).__name__}[" + ", ".join(map(as_text, tree)) + "]"
    return repr(tree)


@given(tree=trees)
@settings(max_examples=150, deadline=None)
def test_any_tree_comes_back_from_tensors_and_json(tree: object) -> None:
    tensors, skeleton = flatten_state("adamw", tree)
    through_json = json.loads(json.dumps(skeleton))
    assert as_text(unflatten_state(tensors, through_json)) == as_text(tree)
    assert all(name.startswith("adamw") for name in tensors)


def test_keys_that_look_alike_keep_their_own_tensors() -> None:
    tree = {1: torch.tensor(1), "1": torch.tensor(2), "a.b": torch.tensor(3), "a": {"b": torch.tensor(4)}}
    tensors, skeleton = flatten_state("t", tree)
    assert as_text(unflatten_state(tensors, json.loads(json.dumps(skeleton)))) == as_text(tree)


def test_what_a_tree_cannot_hold_is_named_with_its_place() -> None:
    with pytest.raises(TypeError, match=r"t\.a\.0 is a set"):
        flatten_state("t", {"a": [{1}]})
    with pytest.raises(TypeError, match=r"key \(1, 2\) at t"):
        flatten_state("t", {(1, 2): 3})
    tensors, skeleton = flatten_state("t", {"a": torch.zeros(1)})
    with pytest.raises(RunError, match=r"lacks the tensor 't\.a'; did you mean 't\.b'"):
        unflatten_state({"t.b": tensors["t.a"]}, skeleton)


def test_adamw_goes_on_from_a_checkpoint_with_the_same_bits_as_if_never_stopped(tmp_path: Path) -> None:
    def build() -> tuple[nn.Module, torch.optim.AdamW, torch.optim.lr_scheduler.LRScheduler]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
        groups = [
            {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
        ]
        optimiser = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), amsgrad=True)
        return model, optimiser, torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=40)

    def train(model, optimiser, schedule, steps: range) -> None:
        for step in steps:
            generator = torch.Generator().manual_seed(step)
            batch = torch.randn(16, 6, generator=generator)
            optimiser.zero_grad()
            model(batch).square().mean().backward()
            optimiser.step()
            schedule.step()

    straight = build()
    train(*straight, range(30))

    stopped = build()
    train(*stopped, range(11))
    optimiser_tensors, optimiser_tree = flatten_state("optimiser", stopped[1].state_dict())
    schedule_tensors, schedule_tree = flatten_state("schedule", stopped[2].state_dict())
    weights, weight_tree = flatten_state("model", dict(stopped[0].state_dict()))
    Checkpoints(tmp_path).save(
        11,
        {**weights, **optimiser_tensors, **schedule_tensors},
        {"model": weight_tree, "optimiser": optimiser_tree, "schedule": schedule_tree},
    )
    train(*stopped, range(11, 13))  # the checkpoint must not follow the run that wrote it

    model, optimiser, schedule = build()
    tensors, state = restored(Checkpoints(tmp_path))
    model.load_state_dict(unflatten_state(tensors, state["model"]))
    optimiser.load_state_dict(unflatten_state(tensors, state["optimiser"]))
    schedule.load_state_dict(unflatten_state(tensors, state["schedule"]))
    at_eleven = copy.deepcopy(model.state_dict())
    train(model, optimiser, schedule, range(11, 30))

    assert weights_sha256(model.state_dict()) == weights_sha256(straight[0].state_dict())
    assert weights_sha256(model.state_dict()) != weights_sha256(at_eleven)
    assert as_text(optimiser.state_dict()) == as_text(straight[1].state_dict())
