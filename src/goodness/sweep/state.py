"""How a cell stands, from its folder alone, and whether what lies there is what the cell asks for."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from goodness.config import STAGE_2, Config, differences
from goodness.durable import is_number, read_json, sync_folder, write_json
from goodness.errors import RunError, UserError
from goodness.own_parts import own_sources
from goodness.runs.lock import LOCK, is_held
from goodness.runs.run import Run, environment_of, load_config, software_of
from goodness.runs.run_folder import RunFolder
from goodness.sweep.cell import Cell, CellFolder
from goodness.versions import METHOD, version_of

State = Literal["waiting", "running", "stopped", "failed", "done"]
"""Not begun; a process works on it; begun, and can go on; its last process ended badly; all stages finished."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A cell's state, and how far it has come."""

    state: State
    epoch: int = 0
    """Epochs done, of all stages."""
    epochs: int
    accuracy: float | None = None
    """The reported test accuracy where a stage is finished, the last validation accuracy before."""
    seconds: float = 0.0
    """Training so far, as the run counts it."""
    error: str = ""


def standing(cell: Cell, path: Path) -> Standing:
    """How the cell in this folder stands. Whether it is the right one is for `refuse_another` to say."""
    folder = CellFolder(path)
    stages = {"s1": folder.run, "bp": folder.run, "s2": folder.readout}
    seen = [_progress(stages[name]) for name in cell.stages]
    damage = next((one.damage for one in seen if one.damage), "")
    state, error = _state(folder, all(one.is_finished for one in seen), damage)
    return Standing(
        state=state,
        epoch=sum(one.epochs for one in seen),
        epochs=cell.epochs,
        accuracy=next((one.accuracy for one in reversed(seen) if one.accuracy is not None), None),
        seconds=sum(one.seconds for one in seen),
        error=error,
    )


def refuse_another(
    cell: Cell, path: Path, data: str | None, *, mixed_versions: bool = False, instead: str = ""
) -> None:
    """Refuse a run that lies there and is not the one asked for, naming the first difference and what to do instead.

    `data` is the hash that its images must have; None accepts any. `mixed_versions` accepts other software than
    today's. A Stage 2 that is not asked for may be whatever it is.
    """
    folder = CellFolder(path)
    asked = [("s1", folder.run, path)]
    asked += [("s2", folder.readout, folder.readout.path)] if "s2" in cell.stages else []
    for stage, run, removed in asked:
        if not (run.path / "config.json").is_file():
            continue
        trouble = difference(cell.config, run, data, stage, mixed_versions=mixed_versions)
        if trouble:
            instead = instead or f"choose another --out, or remove it (rm -r {shlex.quote(str(removed))})"
            raise UserError(
                f"{run.path} holds a run with {trouble}. It is not taken for the cell '{cell.group}', seed "
                f"{cell.seed}: {instead}"
                + (", or accept it with --mixed-versions" if trouble.startswith(VERSION) else "")
            )


VERSION = "another version: "
"""How the difference begins that --mixed-versions accepts."""


def difference(asked: Config, run: Run, data: str | None, stage: str = "s1", *, mixed_versions: bool = False) -> str:
    """The first thing in which a run is not this stage of what is asked for, in words; empty where there is none.

    Whatever Stage 2 is to follow, Stage 1 is the same: its settings for it do not count. Where versions count, so do
    the files of the user's own parts, as they are now.
    """
    changed = differences(asked, load_config(run.path))
    if (run.stage == "s2") != (stage == "s2"):
        return f"stage {run.stage}, not {stage}"
    if stage != "s2":
        changed = {name: values for name, values in changed.items() if not name.startswith(STAGE_2)}
    if changed:
        name, (old, new) = next(iter(changed.items()))
        return f"{name} {old}, not {new}"
    facts = environment_of(run)
    if not facts and run.is_finished:
        return "no environment.json that can be read, which says how it was made"
    if facts and not mixed_versions:
        made, method = software_of(run), METHOD[run.stage] if asked.is_cumulative else asked.method.kind
        now = {
            method: version_of(method, asked.method.version),
            "torch": torch.__version__,
            "parts": own_sources(asked),
        }
        for name, wanted in now.items():
            if made.get(name) != str(wanted):
                about = " (the files of your own parts)" if name == "parts" else ""
                return f"{VERSION}{name} {_short(made.get(name))}{about}, not {_short(wanted)}"
    found = facts.get("data", {}).get("sha256") if facts else data
    if data is not None and found != data:
        return f"other data: images, labels, split or order have the hash {_short(found)}, not {_short(data)}"
    return ""


def record_failure(path: Path, exit_code: int) -> str:
    """Write down how the cell's process ended: its exit code and the last line it printed; that line."""
    folder = CellFolder(path)
    error = last_words(folder.log_path) or f"ended with {exit_code} and no word"
    if exit_code < 0:
        name = signal.Signals(-exit_code).name if -exit_code in set(signal.Signals) else str(-exit_code)
        error = f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    write_json(folder.failed_path, {"exit_code": exit_code, "error": error})
    return error


def last_words(log: Path) -> str:
    """The last line that the last process printed; each begins with its command after `$`."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:500] if said and not said[-1].startswith("$ ") else ""


def make_ready(path: Path) -> None:
    """Clear the way for another try: what can go on stays, what cannot is set aside under another name."""
    folder = CellFolder(path)
    if folder.failed_path.is_file():
        broken = folder.readout if _is_whole(folder.run) else folder.run
        if os.path.lexists(broken.path) and not _can_go_on(broken):
            set_aside(path, broken)
        folder.failed_path.unlink()
        sync_folder(path)


def set_aside(path: Path, run: Run) -> None:
    """Give a run of this cell that cannot be gone on with another name."""
    number = 1
    while os.path.lexists(aside := path / f"failed-{number}"):
        number += 1
    run.path.rename(aside)
    CellFolder(path).shared_path.unlink(missing_ok=True)  # the next may have the device to itself
    sync_folder(path)


def _state(folder: CellFolder, is_done: bool, damage: str) -> tuple[State, str]:
    if is_done:
        return "done", ""
    locks = (folder.lock_path, folder.run.path / LOCK, folder.readout.path / LOCK)
    if any(is_held(lock) for lock in locks):
        return "running", ""
    if folder.failed_path.is_file():
        error = ""
        with contextlib.suppress(RunError, TypeError, KeyError):
            error = str(read_json(folder.failed_path)["error"])
        return "failed", error
    return ("stopped" if (folder.run.path / "config.json").is_file() else "waiting"), damage


class _Progress(NamedTuple):
    """How far one stage has come."""

    epochs: int
    accuracy: float | None
    seconds: float
    is_finished: bool = False
    damage: str = ""
    """What is wrong with the result of one that ended."""


def _progress(run: Run) -> _Progress:
    result, damage = _result(run)
    if result is not None:
        epochs, seconds = (result.get(name) for name in ("epochs", "seconds"))
        counted, spent = epochs if isinstance(epochs, int) else 0, seconds if is_number(seconds) else 0.0
        return _Progress(counted, result["reported"]["accuracy"], spent, is_finished=True)
    epoch, accuracy, seconds = 0, None, 0.0
    for line in _last_records(run.path / "metrics.jsonl"):
        if not epoch:
            epoch, seconds = line["epoch"] + 1, line["seconds"]
        if isinstance(line.get("val"), dict) and is_number(line["val"].get("accuracy")):
            accuracy = line["val"]["accuracy"]
            break
    return _Progress(epoch, accuracy, seconds, damage=damage)


def _last_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file that may be growing, the last one first; what is torn, or no record, is left out."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    for raw in reversed(lines):
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(raw)
            if isinstance(found, dict) and isinstance(found.get("epoch"), int) and is_number(found.get("seconds")):
                yield found


def _result(run: Run) -> tuple[dict[str, Any] | None, str]:
    """The result of a finished stage that is still a run, else None; and what is wrong with it where it cannot be
    read."""
    try:
        result = run.result if run.is_finished else None
    except (UserError, RunError) as trouble:
        return None, str(trouble)
    return result if (run.path / "config.json").is_file() else None, ""


def _is_whole(run: Run) -> bool:
    return _result(run)[0] is not None


def drop_torn_result(run: Run) -> None:
    """Remove a result that cannot be read where the checkpoint is there from which it is written again in seconds;
    refuse to go on where it is not."""
    _, damage = _result(run)
    if damage and _can_go_on(run):
        RunFolder(run.path, None).result_path.unlink()
    elif damage:
        raise RunError(damage)


def _can_go_on(run: Run) -> bool:
    """Whether there is a checkpoint to go on from, an intact one."""
    with contextlib.suppress(UserError, RunError):
        load_config(run.path)
        return RunFolder.open(run.path, for_writing=False).checkpoints.latest() is not None
    return False


def _short(value: Any) -> str:
    """A hash by its first letters, a version as it is."""
    text = str(value)
    return f"{text[:12]}…" if len(text) == 64 else text
