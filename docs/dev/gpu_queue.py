#!/usr/bin/env python3
"""Runs for the GPU, one a line of gpu-queue.csv, taken from the top.

On the GPU machine, for as many seconds as are left there:

    python docs/dev/gpu_queue.py run --left 1500 --commit COMMIT
    python docs/dev/gpu_queue.py pack OUT.tar.xz

and at home, with the archive:

    python docs/dev/gpu_queue.py collect OUT.tar.xz

`run` starts lines that are `ready` or `cut`, side by side as their `share` of the GPU allows, as long as their forecast
fits the time left. Runs still going when the time is up are stopped and saved. Killed or stopped, the same command goes
on where it was: what is done is told by the run folders, and the queue file is not written. `pack` archives what a run
leaves without its weights. `collect` adds finished runs to the store of results and updates the queue file.

Columns: order (of the plan, for people), preset, options (of `goodness train`), seed, epochs, stage2 (options of
`goodness readout`; empty for none), share (of the GPU: 0.5 for two at once), forecast_s, state (`ready`, `cut`, `done`,
`failed`, or `waiting: reason`; checkpoints stay on the GPU machine, so a line that was cut begins anew on another),
measured_s, accuracy (percent, test, single view), commit, note.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
COLUMNS = ["order", "preset", "options", "seed", "epochs", "stage2", "share", "forecast_s"]
COLUMNS += ["state", "measured_s", "accuracy", "commit", "note"]
SHARED = "shared"
"""A file in a run's folder that says that other runs used the GPU meanwhile, so that its seconds mean little."""
LEFT_BEHIND = {"checkpoints", "run.lock", "predictions_test.npz", "predictions_test_tta.npz"}
"""What stays on the GPU machine: weights, and class scores, of which predictions_blocks.npz has what is needed."""
FAILED = "$ failed with exit status "
"""How the log of a run ends that failed."""
SAVING = 20.0
"""Seconds kept free at the end, for runs that are stopped to save."""


@dataclass
class Line:
    """One run of the queue."""

    fields: dict[str, str]

    @property
    def can_start(self) -> bool:
        return self.fields["state"] in ("ready", "cut")

    @property
    def name(self) -> str:
        """The folder of its run: the same for the same preset, options, seed and epochs."""
        told = " ".join(self.fields[name] for name in ("options", "epochs", "stage2"))
        return f"{self.fields['preset']}-{hashlib.sha256(told.encode()).hexdigest()[:6]}-s{self.fields['seed']}"

    @property
    def share(self) -> float:
        return float(self.fields["share"] or 1)

    @property
    def forecast(self) -> float:
        return float(self.fields["forecast_s"])

    def next_command(self, folder: Path, machine: list[str]) -> list[str] | None:
        """What takes this run a step further; None when nothing is left."""
        run, readout = folder / self.name, folder / self.name / "readout"
        if not (run / "config.json").is_file():
            fixed = ["--seed", self.fields["seed"], "--epochs", self.fields["epochs"], "--out", str(run)]
            return ["train", self.fields["preset"], *shlex.split(self.fields["options"]), *fixed, *machine]
        if not (run / "result.json").is_file() or (readout / "config.json").is_file():
            is_done = (run / "result.json").is_file() and (readout / "result.json").is_file()
            return None if is_done else ["resume", str(run), *machine]
        if self.fields["stage2"]:
            return ["readout", str(run), *shlex.split(self.fields["stage2"]), *machine]
        return None

    def is_finished(self, folder: Path) -> bool:
        return (folder / self.name / "result.json").is_file() and self.next_command(folder, []) is None

    def done_share(self, folder: Path) -> float:
        """How much of it is done, by its finished epochs."""
        metrics = folder / self.name / "metrics.jsonl"
        epochs = sum(1 for _ in metrics.open()) if metrics.is_file() else 0
        return min(1.0, epochs / int(self.fields["epochs"]))


class Queue:
    """The lines of a queue file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        if not rows or list(rows[0]) != COLUMNS:
            sys.exit(f"{path}: expected lines with the columns {','.join(COLUMNS)}")
        self.lines = [Line(row) for row in rows]
        names = [line.name for line in self.lines]
        if twins := {name for name in names if names.count(name) > 1}:
            sys.exit(f"{path}: the same run stands there twice: {', '.join(sorted(twins))}")

    def write(self) -> None:
        new = self.path.with_suffix(".partial")
        with new.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(line.fields for line in self.lines)
        new.replace(self.path)


class Worker:
    """A line's run under way: its processes, one after the other."""

    def __init__(self, line: Line, folder: Path, machine: list[str], environment: dict[str, str]) -> None:
        self.line, self.folder, self.machine, self.environment = line, folder, machine, environment
        self.log = folder / f"{line.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.is_failed = self.is_stopping = False
        self.begun = time.monotonic()

    def go_on(self) -> bool:
        """Start what comes next if nothing is running; whether something is running then."""
        if self.process is not None:
            code = self.process.poll()
            if code is None:
                return True
            self.is_failed = code != 0 and not self.is_stopping
            if self.is_failed:
                with self.log.open("a") as log:
                    log.write(f"{FAILED}{code}\n")
        command = None if self.is_failed or self.is_stopping else self.line.next_command(self.folder, self.machine)
        if command is None:
            return False
        with self.log.open("ab") as log:
            log.write(f"$ goodness {shlex.join(command)}\n".encode())
            log.flush()
            words = [sys.executable, "-m", "goodness", *command]
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )
        return True

    def mark_shared(self) -> None:
        run = self.folder / self.line.name
        if (run / "config.json").is_file():
            (run / SHARED).touch()

    def stop(self) -> None:
        self.is_stopping = True
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)


def run(queue: Queue, folder: Path, left: float, machine: list[str], commit: str) -> None:
    """Take lines from the top until the time is up or none is left that fits."""
    deadline = time.monotonic() + left - SAVING
    environment = {**os.environ, **({"GOODNESS_COMMIT": commit} if commit else {})}
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [line for line in queue.lines if line.can_start and line.next_command(folder, machine) is not None]
    working: list[Worker] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopped)
    try:
        while True:
            for worker in list(working):
                if not worker.go_on():
                    working.remove(worker)
                    took = time.monotonic() - worker.begun
                    report(worker.line.name, "failed" if worker.is_failed else "finished", f"{took:.0f} s")
            remaining = deadline - time.monotonic()
            fitting = [line for line in waiting if line.forecast * (1 - line.done_share(folder)) <= remaining]
            used = sum(worker.line.share for worker in working)
            for worker in working if len(working) > 1 else []:
                worker.mark_shared()
            if fitting and used + fitting[0].share <= 1.001:
                line = fitting[0]
                waiting.remove(line)
                working.append(Worker(line, folder, machine, environment))
                report(line.name, "starts", f"forecast {line.forecast:.0f} s, {remaining:.0f} s left")
                continue
            if not working or remaining <= 0:
                break
            time.sleep(0.2)
    except KeyboardInterrupt:
        report("queue", "stopped", "runs save and stop")
    for worker in working:
        worker.stop()
    until = time.monotonic() + SAVING
    for worker in working:
        if worker.process is not None:
            try:
                worker.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:  # its last checkpoint stands
                worker.process.kill()
                worker.process.wait()
            report(worker.line.name, "cut", f"{worker.line.done_share(folder):.0%} of the epochs done")
    for line in waiting:
        report(line.name, "not started", f"forecast {line.forecast:.0f} s")


def _stopped(*_: object) -> None:
    raise KeyboardInterrupt


def report(name: str, what: str, more: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {name}: {what} ({more})", flush=True)


def pack(queue: Queue, folder: Path, archive: Path) -> None:
    """Put what goes home into one archive: finished runs without weights, and the logs of all."""
    with tarfile.open(archive, "w:xz") as tar:
        for line in queue.lines:
            run, log = folder / line.name, folder / f"{line.name}.log"
            if line.is_finished(folder):
                for file in sorted(run.rglob("*")):
                    inside = file.relative_to(folder)
                    if file.is_file() and not LEFT_BEHIND & set(inside.parts):
                        tar.add(file, arcname=str(inside))
            if log.is_file():
                tar.add(log, arcname=log.name)
    print(f"{archive}: {archive.stat().st_size / 2**20:.2f} MiB")


def collect(queue: Queue, folder: Path, archive: Path, store: Path, scale: str) -> None:
    """Unpack an archive, add its finished runs to the store, and write into the queue what became of each line."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    ended = [line for line in queue.lines if line.can_start and line.is_finished(folder)]
    if ended:
        named = ["--scale", scale] if scale else []
        words = [sys.executable, "-m", "goodness", "results", "add", *(str(folder / line.name) for line in ended)]
        subprocess.run([*words, "--store", str(store), *named])
    stored: set[str] = set()
    if (store / "runs.csv").is_file():
        with (store / "runs.csv").open(newline="") as file:
            stored = {row["weights_sha256"] for row in csv.DictReader(file)}
    for line in queue.lines:
        run, log = folder / line.name, folder / f"{line.name}.log"
        if line in ended and read_json(run / "result.json")["weights_sha256"] in stored:
            line.fields |= measured(run, "readout" if line.fields["stage2"] else "")
        elif line.can_start and log.is_file():
            last = (log.read_text(errors="replace").splitlines() or [""])[-1]
            line.fields["state"] = "failed" if last.startswith(FAILED) else "cut"
    queue.write()


def measured(run: Path, stage2: str) -> dict[str, str]:
    """What the queue says of a finished run."""
    result, environment = read_json(run / "result.json"), read_json(run / "environment.json")
    seconds = result["seconds"] + (read_json(run / stage2 / "result.json")["seconds"] if stage2 else 0)
    return {
        "state": "done",
        "measured_s": f"{seconds:.0f}",
        "accuracy": f"{100 * result['reported']['accuracy']:.2f}",
        "commit": str(environment.get("commit") or "")[:12],
    }


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queue", type=Path, default=HERE / "gpu-queue.csv")
    parser.add_argument("--folder", type=Path, default=Path("runs/queue"), help="where the runs lie")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("run")
    start.add_argument("--left", type=float, required=True, help="seconds until everything must have stopped")
    start.add_argument("--commit", default="", help="the full commit of this source, where git cannot tell")
    start.add_argument("--data-dir", type=Path)
    start.add_argument("--device", default="auto")
    commands.add_parser("pack").add_argument("archive", type=Path)
    home = commands.add_parser("collect")
    home.add_argument("archive", type=Path)
    home.add_argument("--store", type=Path, default=Path("results"))
    home.add_argument("--scale", default="")
    args = parser.parse_args(arguments)
    queue = Queue(args.queue)
    if args.command == "run":
        machine = ["--device", args.device, *(["--data-dir", str(args.data_dir)] if args.data_dir else [])]
        run(queue, args.folder, args.left, machine, args.commit)
    elif args.command == "pack":
        pack(queue, args.folder, args.archive)
    else:
        collect(queue, args.folder, args.archive, args.store, args.scale)


if __name__ == "__main__":
    main()
