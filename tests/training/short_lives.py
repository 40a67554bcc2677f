"""Runs that are struck by a signal at a chosen call or moment, again and again, until they finish.

Reads plans, one JSON object a line: `{"out": ..., "changes": {...}, "lives": [{"at": "fsync", "call": 3}, {}]}`, and
answers each with a line on how its lives ended. Each life is a forked child of a process that has imported everything
and computed nothing, so a life costs what the run costs. A life without a blow goes on to the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import goodness
from goodness.methods.cumulative import evidence
from goodness.runs.checkpoint import Checkpoints
from goodness.training import loop, stage1
from goodness.training.step import Stepper
from tiny_runs import register_blobs, shrunk

PLACES: dict[str, tuple[Any, str]] = {
    "step": (Stepper, "step"),
    "update": (Stepper, "update"),  # between the blocks of one step
    "evaluation": (stage1, "goodness_of"),
    "chunk": (evidence, "block_goodness"),  # within one evaluation
    "metrics": (loop, "append_line"),
    "saving": (Checkpoints, "save"),
    "fsync": (os, "fsync"),  # written, not renamed
    "rename": (os, "replace"),
    "removal": (Path, "unlink"),  # of the older checkpoint, or of an unfinished file
    "predictions": (loop.RunFolder, "write_predictions"),
    "weights": (Checkpoints, "save_weights"),
    "result": (loop, "write_json"),
}


def strike_at(life: dict[str, Any], calls: Counter[str]) -> None:
    """Count the calls at every place, and send the signal before or after the chosen one."""

    def watch(place: str, owner: Any, name: str) -> None:
        plain: Callable[..., Any] = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            calls[place] += 1
            is_now = life.get("at") == place and life["call"] == calls[place]
            if is_now and not life.get("after"):
                os.kill(os.getpid(), getattr(signal, life.get("signal", "SIGKILL")))
            found = plain(*arguments, **named)
            if is_now and life.get("after"):
                os.kill(os.getpid(), getattr(signal, life.get("signal", "SIGKILL")))
            return found

        setattr(owner, name, watched)

    for place, (owner, name) in PLACES.items():
        watch(place, owner, name)


def live(out: Path, changes: dict[str, Any], life: dict[str, Any]) -> dict[str, Any]:
    """One life of the run, to its end or to the blow."""
    calls: Counter[str] = Counter()
    strike_at(life, calls)
    try:
        if (out / "config.json").is_file():
            goodness.resume(out, device="cpu")
        else:
            goodness.train(shrunk("cp-fair-dense", changes), device="cpu", out=out)
    except loop.Interrupted as stopped:
        found = Checkpoints(out / "checkpoints").latest()
        position = None if found is None else found[1]["position"]
        return {"end": "stopped", "message": str(stopped), "code": stopped.exit_code, "position": position}
    return {"end": "finished", "calls": dict(calls)}


def in_a_child(out: Path, changes: dict[str, Any], life: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(live(out, changes, life)).encode())
        except BaseException as trouble:
            os.write(writing, json.dumps({"end": "failed", "why": repr(trouble)}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    if "seconds" in life:
        time.sleep(life["seconds"])
        os.kill(child, signal.SIGKILL)  # a child that has ended is still there until it is waited for
    with os.fdopen(reading) as pipe:
        report = pipe.read()
    os.waitpid(child, 0)
    return json.loads(report) if report else {"end": "killed"}


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)  # imports half of torch: once here, not in every life
    register_blobs()
    evidence.chunk_sizes = lambda network, _: (10, network.classes)  # so that an evaluation has several chunks
    for line in sys.stdin:
        plan = json.loads(line)
        ends = [in_a_child(Path(plan["out"]), plan["changes"], life) for life in plan["lives"]]
        print(json.dumps(ends), flush=True)


if __name__ == "__main__":
    main()
