"""The check of the paper's theorems that a run keeps: made where its weights are, and read where they are not."""

from __future__ import annotations

import os
from typing import Any

from goodness.durable import read_json, write_json
from goodness.errors import RunError, UserError
from goodness.health.theory import theory_of_run
from goodness.runs.run import Run
from goodness.runs.run_folder import WEIGHTS_SHA256

THEORY = "theory.json"
"""In a run's folder: what `goodness theory RUN --json` prints."""
GRADIENTS, IMAGES = 32, 300
"""How many images' gradients are taken, and over how many the means go: seconds where goodness is computed on a GPU,
half a minute at the paper's size without one."""


def kept_theory(run: Run) -> dict[str, Any] | str:
    """The check that a run keeps, as plain data; a sentence where it keeps none, or that of another run."""
    place = run.path / THEORY
    if not is_kept(run):
        return "the theorems were not checked on it, which goodness theory RUN does"
    try:
        found = read_json(place)
        known = found.get(WEIGHTS_SHA256) if isinstance(found, dict) else None  # older ones do not say
        here = run.result.get(WEIGHTS_SHA256) if known else None
    except (UserError, RunError) as trouble:
        return str(trouble)
    if not isinstance(found, dict) or not isinstance(found.get("blocks"), list):
        return f"{place} is no check of the theorems"
    if known != here:
        return f"{place} was made on other weights than this run has; goodness theory RUN makes it anew"
    return found


def is_kept(run: Run) -> bool:
    """Whether it keeps one, of use or not."""
    return (run.path / THEORY).is_file()


def has_theory(run: Run) -> bool:
    """Whether it keeps a check of its own that can be read."""
    return isinstance(kept_theory(run), dict)


def examples_kept(run: Run) -> int:
    """On how many images' gradients the check that a run keeps was made; 0 without one of its own."""
    found = kept_theory(run)
    examples = found.get("examples") if isinstance(found, dict) else None
    return examples if isinstance(examples, int) else 0


def keep_theory(run: Run, *, device: str = "auto", data_dir: str | os.PathLike[str] | None = None) -> None:
    """Check the theorems on a finished Stage 1 and its test images, and leave the result in its folder."""
    report = theory_of_run(run, examples=GRADIENTS, coverage=IMAGES, device=device, data_dir=data_dir)
    write_json(run.path / THEORY, report.as_dict())
