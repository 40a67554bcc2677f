"""The demo: one small network on digits under four collaboration rules, each an ordinary run of its own."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from goodness.api import make_config
from goodness.config import Config, differences, override
from goodness.durable import read_json, write_json
from goodness.errors import RunError, UserError
from goodness.runs.run import load_config
from goodness.training.loop import Interrupted
from goodness.training.signals import StopRequest

RULES = ("local", "gated", "constant", "lcff")
COLLAPSED = 1 / 3
"""A deepest block with less than this share of the local rule's separation rides for free."""

Listener = Callable[[dict[str, Any]], None]


def run_demo(
    out: Path | None = None,
    *,
    seed: int = 1,
    epochs: int | None = None,
    listen: Listener | None = None,
) -> tuple[dict[str, Any], Path]:
    """Train the four rules, two at a time on two cores; the result and the folder it lies in.

    Each rule is `goodness train demo --rule RULE` in a process of its own. A folder with unfinished runs goes on
    where they stopped.
    """
    started = time.monotonic()
    folder = out or _free_folder(Path("runs"))
    wanted = make_config("demo", {"seed": seed} | ({} if epochs is None else {"epochs": epochs}))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as trouble:
        raise UserError(f"cannot use {folder}: {trouble.strerror}; choose another --out") from trouble
    known = {*RULES, *(f"{rule}.log" for rule in RULES), "demo.json", "demo.png", "demo.svg"}
    strange = sorted(child.name for child in folder.iterdir() if child.name not in known)
    if strange:
        raise UserError(f"{folder} holds other things ({', '.join(strange[:3])}); choose another --out")
    for rule in RULES:
        _refuse_other_settings(folder / rule, override(wanted, {"rule": rule}))
    _run_all(folder, seed, epochs, listen or (lambda event: None))
    rules = []
    for rule in RULES:
        result = read_json(folder / rule / "result.json")
        kept = ("sep_cur", "sep_rate", "attenuation", "accuracy")
        blocks = [{name: block[name] for name in kept} for block in result["health"]["test"]]
        rules.append({"name": rule, "accuracy": result["reported"]["accuracy"], "blocks": blocks})
    outcome = {"rules": rules, "seconds": round(time.monotonic() - started, 1)}
    write_json(folder / "demo.json", outcome)
    with contextlib.suppress(ImportError):  # the table tells the same without matplotlib
        from goodness.report.figures import demo_figure

        demo_figure(outcome, folder / "demo.png", shows_free_riding(outcome))
    return outcome, folder


def shows_free_riding(result: dict[str, Any]) -> bool:
    """Whether the deepest block works under both healthy rules and has collapsed under LCFF, at about one accuracy."""
    deepest = {rule["name"]: rule["blocks"][-1]["sep_cur"] for rule in result["rules"]}
    accuracies = [rule["accuracy"] for rule in result["rules"]]
    healthy = min(deepest["local"], deepest["gated"])
    return healthy >= 1 and deepest["lcff"] < COLLAPSED * healthy and max(accuracies) - min(accuracies) <= 0.05


def demo_sentence(result: dict[str, Any]) -> str:
    """What the reader sees, in one sentence, from the numbers."""
    deepest = {rule["name"]: rule["blocks"][-1]["sep_cur"] for rule in result["rules"]}
    accuracies = [100 * rule["accuracy"] for rule in result["rules"]]
    same = f"all four classify {min(accuracies):.1f} to {max(accuracies):.1f} % of the test digits correctly"
    numbers = (
        f"the last block separates the right digit from the strongest wrong one by {deepest['local']:.2f} when it "
        f"learns on its own and {deepest['gated']:.2f} behind the gate, but by {deepest['constant']:.2f} with "
        f"gamma = 0.7 and {deepest['lcff']:.2f} with gamma = 1"
    )
    if shows_free_riding(result):
        return (
            f"What you see: {numbers}: there it rides for free on what earlier blocks have settled. "
            f"Yet {same}: free-riding is real and repairable, and the accuracy does not show it{_of_one_block(result)}."
        )
    return f"What you see: {numbers}; {same}. These runs were too short or too few to show free-riding."


def _of_one_block(result: dict[str, Any]) -> str:
    """Why the accuracy could hardly show it on so easy a data set, where the first block alone is as good."""
    firsts = [rule["blocks"][0].get("accuracy") for rule in result["rules"]]
    known = [100 * first for first in firsts if first is not None]
    least = min(100 * rule["accuracy"] for rule in result["rules"])
    if len(known) < len(firsts) or min(known) < least - 1:
        return ""
    return f" (nor could it on digits: the first block alone has {min(known):.1f} % already)"


def _run_all(folder: Path, seed: int, epochs: int | None, listen: Listener) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    waiting = list(RULES)
    running: dict[str, subprocess.Popen[str]] = {}
    events: queue.Queue[dict[str, Any]] = queue.Queue()
    threads: list[threading.Thread] = []
    with StopRequest() as stop:
        try:
            while waiting or running:
                while waiting and len(running) < min(cores, len(RULES)):
                    rule = waiting.pop(0)
                    running[rule] = _start(folder / rule, rule, seed, epochs)
                    reader = threading.Thread(target=_read_events, args=(rule, running[rule], events), daemon=True)
                    reader.start()
                    threads.append(reader)
                with contextlib.suppress(queue.Empty):
                    listen(events.get(timeout=0.1))
                    for _ in range(events.qsize()):
                        listen(events.get_nowait())
                if stop.requested:
                    raise Interrupted(
                        f"stopped; go on with: goodness demo --out {shlex.quote(str(folder))}", stop.exit_code
                    )
                for rule, process in list(running.items()):
                    if process.poll() is not None:
                        del running[rule]
                        _require_success(rule, process, folder)
        finally:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait()


def _start(folder: Path, rule: str, seed: int, epochs: int | None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "goodness"]
    if (folder / "config.json").is_file():
        command += ["resume", str(folder)]
    else:
        command += ["train", "demo", "--rule", rule, "--seed", str(seed), "--out", str(folder)]
        command += [] if epochs is None else ["--epochs", str(epochs)]
    # One thread each: these tensors are too small to share, and two processes keep two cores busy.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [*command, "--device", "cpu", "--events"],
        stdout=subprocess.PIPE,
        stderr=(folder.parent / f"{rule}.log").open("w"),  # a pipe that nobody empties would block the run
        text=True,
        env=environment,
    )


def _refuse_other_settings(folder: Path, wanted: Config) -> None:
    """A run that lies there already may go on, but only as the run that was asked for."""
    if not (folder / "config.json").is_file():
        return
    changed = differences(wanted, load_config(folder))
    if changed:
        words = ", ".join(f"{name} {old}, not {new}" for name, (old, new) in changed.items())
        raise UserError(f"{folder} holds a run with {words}; choose another --out")


def _read_events(rule: str, process: subprocess.Popen[str], events: queue.Queue[dict[str, Any]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        with contextlib.suppress(json.JSONDecodeError):
            events.put({**json.loads(line), "run": rule})


def _require_success(rule: str, process: subprocess.Popen[str], folder: Path) -> None:
    if process.returncode == 0:
        (folder / f"{rule}.log").unlink(missing_ok=True)
        return
    trouble = (folder / f"{rule}.log").read_text().strip()
    raise RunError(f"the run '{rule}' ended with {process.returncode}: {trouble or 'no message'} ({folder / rule})")


def _free_folder(root: Path) -> Path:
    number = 1
    while (root / f"demo-{number}").exists():
        number += 1
    return root / f"demo-{number}"
