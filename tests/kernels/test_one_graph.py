"""With kernels in it, a compiled block is still one graph: a break would cost fusion and pace the GPU by Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


def test_stem_block_and_scoring_are_one_graph_each() -> None:
    script = Path(__file__).with_name("one_graph.py")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:xdist", "-p", "no:cacheprovider", str(script)]
    found = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "0"}, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-3000:]
    assert "3 passed" in found.stdout, found.stdout[-3000:]
