"""Runs test programs that want kernels which are compiled: the other tests interpret them."""

import os
import subprocess
import sys
from pathlib import Path


def outcome_of(program: str) -> str:
    """What pytest says of a program beside this file, in a process whose kernels are not interpreted."""
    script = Path(__file__).with_name(program)
    command = [sys.executable, "-m", "pytest", "-v", "-rs", "-p", "no:xdist", "-p", "no:cacheprovider", str(script)]
    found = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "0"}, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-3000:]
    return found.stdout[-3000:]
