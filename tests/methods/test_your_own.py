"""The page on a method of one's own: its file trains, resumes, is audited and reported, by command and from Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the repository with the page's file."""
    page = (ROOT / "docs" / "methods" / "your-own.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    place = tmp_path_factory.mktemp("own")
    (place / "my_method.py").write_text(example)
    return place


def goodness(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "goodness", *arguments)


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def test_by_command(folder: Path) -> None:
    plugin = ("--plugin", "my_method.py")
    train = ("train", "demo", *plugin, "--method", "spread", "--network", "mlp", "--network.widths", "200", "200")
    done = goodness(folder, *train, "--epochs", "10", "--out", "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reported"]["accuracy"] > 0.9
    assert goodness(folder, "resume", "run", *plugin).returncode == 0
    audit = goodness(folder, "audit", "run", *plugin, "--json")
    assert audit.returncode == 0, audit.stderr
    assert json.loads(audit.stdout)["tag"] == "strict"
    assert goodness(folder, "report", "run", *plugin).returncode == 0
    assert (folder / "run" / "report.html").is_file()
    without = goodness(folder, "eval", "run")
    assert without.returncode == 2
    assert "spread" in without.stderr


def test_a_sweep_over_a_method_goes_on(folder: Path) -> None:
    sweep = (
        "sweep",
        "demo",
        "--seeds",
        "1,2",
        "--set",
        "method=mono-forward",
        "network=mlp",
        "epochs=1",
        "--out",
        "sw",
    )
    assert goodness(folder, *sweep).returncode == 0
    again = goodness(folder, "sweep", "--resume", "sw")
    assert again.returncode == 0, again.stderr


def test_from_python(folder: Path) -> None:
    code = """
import goodness, my_method
run = goodness.train("demo", method="spread", network="mlp", epochs=2, out="from-python")
assert goodness.resume(run.path).accuracy == run.accuracy
assert len(goodness.health(run.path)["blocks"]) == 2
"""
    done = python(folder, "-c", code)
    assert done.returncode == 0, done.stderr
