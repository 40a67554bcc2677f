"""The TensorBoard sink writes the same numbers as metrics.jsonl."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
log = EventAccumulator(sys.argv[1])
log.Reload()
print(json.dumps({tag: [event.value for event in log.Scalars(tag)] for tag in log.Tags()["scalars"]}))
"""


def test_tensorboard_holds_the_numbers_of_metrics_jsonl(tmp_path: Path) -> None:
    options = ["--model.width", "16", "--model.block.heads", "2", "--model.block.hidden", "16", "--batch", "120"]
    command = [sys.executable, "-m", "goodness", "train", "demo", *options, "--epochs", "2", "--out", "run", "--json"]
    done = subprocess.run(
        [*command, "--keep.tensorboard", "--keep.evaluate-every", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "run" / "tensorboard")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert read.returncode == 0, read.stderr
    logged = json.loads(read.stdout)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    for tag, pick in {
        "train/loss/block3": lambda line: line["train"]["blocks"][3]["loss"],
        "val/accuracy": lambda line: line["val"]["accuracy"],
        "val/sep_cur/block0": lambda line: line["val"]["blocks"][0]["sep_cur"],
    }.items():
        assert logged[tag] == pytest.approx([pick(line) for line in lines], rel=1e-6)
