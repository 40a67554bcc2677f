"""The check of the paper's theorems that a run keeps: made where its weights are, and read where they are not."""

from __future__ import annotations

import os
from typing import Any

from goodness.diagnostics.theory import theory_of_run
from goodness.durable import read_json, write_json
from goodness.errors import RunError
from goodness.runs import Run

THEORY = "theory.json"
"""In a run's folder: what `goodness theory RUN --json` prints."""
GRADIENTS, IMAGES = 32, 300
"""How many images' gradients are taken, and over how many the means go: seconds where goodness is computed on a GPU,
half a minute at the paper's size without one."""


def has_theory(run: Run) -> bool:
    """Whether it keeps a check that can be read."""
    return _kept(run) is not None


def examples_kept(run: Run) -> int:
    """On how many images' gradients the check that a run keeps was made; 0 without one that can be read."""
    examples = (_kept(run) or {}).get("examples")
    return examples if isinstance(examples, int) else 0


def _kept(run: Run) -> dict[str, Any] | None:
    try:
        found = read_json(run.path / THEORY)
    except RunError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("blocks"), list) else None


def keep_theory(run: Run, *, device: str = "auto", data_dir: str | os.PathLike[str] | None = None) -> None:
    """Check the theorems on a finished Stage 1 and its test images, and leave the result in its folder."""
    report = theory_of_run(run, examples=GRADIENTS, coverage=IMAGES, device=device, data_dir=data_dir)
    write_json(run.path / THEORY, report.as_dict())
