"""What findings and figures read from finished runs: one number, or a list over blocks or epochs, of one run.

Nothing here fails on a run that lacks something: what is not there is None or empty, and the reader says so.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from goodness.durable import is_number, read_json
from goodness.errors import RunError, UserError
from goodness.health.stats import PairedBootstrap, paired_bootstrap
from goodness.presets import presets
from goodness.runs.predictions import Predicted, read_predicted
from goodness.runs.run import Run, load_config
from goodness.sweep.theory import has_theory

Runs: TypeAlias = Mapping[str, Mapping[int, Run]]
"""Runs by preset and seed."""

ByBlock: TypeAlias = Callable[[Run], list[float]]
"""How a measure is read of a run, block after block; empty where there is none."""


@dataclass(frozen=True)
class WithoutHealth(Run):
    """A run whose block health cannot be held against that of the others: the rest of it can."""

    whole: Run

    @property
    def readout(self) -> Run | None:
        return self.whole.readout


def result(run: Run) -> dict[str, Any]:
    """result.json; empty where the run is not finished or the file is of no use."""
    try:
        return run.result
    except (UserError, RunError):
        return {}


def blocks(run: Run) -> list[dict[str, Any]]:
    """Health of each block on the test images."""
    found = result(run).get("health", {}).get("test")
    return found if isinstance(found, list) and not isinstance(run, WithoutHealth) else []


def health(run: Run) -> dict[str, Any]:
    """health.json: what the blocks' numbers in result.json leave out (early exit, examples of attenuation)."""
    if isinstance(run, WithoutHealth):
        return {}
    try:
        found = read_json(run.path / "health.json")
    except (RunError, OSError):
        return {}
    return found if isinstance(found, dict) else {}


def number(value: Any) -> float | None:
    """A number as it is; None of anything else, of what is not finite too."""
    return float(value) if is_number(value) else None


def numbers(found: Any, name: str) -> list[float]:
    """A number of every block in a list of them; empty where one of them has none."""
    if not isinstance(found, list) or not all(isinstance(block, Mapping) for block in found):
        return []
    values = [number(block.get(name)) for block in found]
    return [] if None in values else [value for value in values if value is not None]


def by_block(run: Run, name: str) -> list[float]:
    """One measure, block after block; empty where a block lacks it."""
    return numbers(blocks(run), name)


def in_training(run: Run, name: str) -> list[float]:
    """One measure, block after block, over the last epoch's training; empty where there is none.

    The paper's tables of blocks are of that, most likely (docs/decisions.md). Each block mines a wrong label of its
    own there, on tokens that carry the one before; on test images, in `by_block`, each candidate label has
    been in all blocks before, as in prediction.
    """
    if name == "g_neg":
        return [g - margin for g, margin in zip(in_training(run, "g_pos"), in_training(run, "sep_cur_mined"))]
    found = over_epochs(run, "train", name)
    is_whole = found and found[-1][0] == result(run).get("epochs") and len(found[-1][1]) == len(blocks(run))
    return found[-1][1] if is_whole else []


def deepest(values: Sequence[float]) -> float | None:
    return values[-1] if values else None


def first_to_last(values: Sequence[float]) -> float | None:
    """The last block's measure over the first's, which may be below zero; None where the first's is not positive."""
    return values[-1] / values[0] if values and values[0] > 0 else None


def separation(run: Run) -> list[float]:
    """What each block separates by itself, sep_cur_nl of the paper's tables."""
    return in_training(run, "sep_cur_mined")


def deepest_separation(run: Run) -> float | None:
    return deepest(separation(run))


def margins(runs: Iterable[Run]) -> ByBlock:
    """How m of Theorem 1 is read of these runs, of all in the same way: the paper's table of it is of test images.
    Where one of them is older than that measure, it is read from training."""
    return separation if any(map(_is_older, runs)) else mined_anew


def mined_anew(run: Run) -> list[float]:
    """What each block separates on test images against a wrong label that it mines itself, as in training; empty where
    a block lacks it."""
    found = numbers(health(run).get("blocks"), "sep_stream")
    return found if len(found) == len(blocks(run)) else []


def _is_older(run: Run) -> bool:
    """Whether a run was made before that was measured; a damaged report of one that was is another thing."""
    found = health(run).get("blocks")
    if not isinstance(found, list) or len(found) != len(blocks(run)) or not found:
        return False
    return all(isinstance(block, Mapping) and "sep_stream" not in block for block in found)


def goodness(run: Run) -> list[float]:
    """Each block's own goodness under the right label, g+_cur of the paper's tables."""
    return in_training(run, "g_pos")


def accuracy(run: Run, *, tta: bool = False) -> float | None:
    """Reported test accuracy in per cent."""
    value = number(result(run).get("reported", {}).get("accuracy_tta" if tta else "accuracy"))
    return None if value is None else 100 * value


def readout_accuracy(run: Run, *, tta: bool = False) -> float | None:
    """The same of its Stage 2, where it has a finished one."""
    try:
        stage2 = run.readout
    except (UserError, RunError):
        return None
    return None if stage2 is None else accuracy(stage2, tta=tta)


def truncation(run: Run) -> list[float]:
    """Accuracy of the first block, the first two, ... in per cent."""
    return [100 * value for value in by_block(run, "accuracy")]


def images(run: Run) -> int | None:
    """How many test images there were."""
    reported = result(run).get("reported", {})
    for row in result(run).get("accuracy", []):
        if row.get("split") == reported.get("split") and row.get("weights") == reported.get("weights"):
            n = number(row.get("n"))
            return None if n is None else int(n)
    return None


def lines(run: Run) -> list[dict[str, Any]]:
    """metrics.jsonl, an entry an epoch."""
    try:
        return run.metrics
    except (UserError, RunError, OSError):
        return []


def over_epochs(run: Run, part: str, name: str) -> list[tuple[int, list[float]]]:
    """Epoch (from 1) and one measure by block; `part` is train or val."""
    found = []
    if isinstance(run, WithoutHealth):
        return found
    for line in lines(run):
        epoch, of_part = line.get("epoch"), line.get(part)
        values = numbers(of_part.get("blocks"), name) if isinstance(of_part, Mapping) else []
        if values and isinstance(epoch, int):
            found.append((epoch + 1, values))
    return found


def validation(run: Run) -> list[tuple[int, float]]:
    """Epoch (from 1) and validation accuracy in per cent; for Tiny ImageNet, which has none, nothing."""
    found = []
    for line in lines(run):
        epoch, of_part = line.get("epoch"), line.get("val")
        value = number(of_part.get("accuracy")) if isinstance(of_part, Mapping) else None
        if value is not None and isinstance(epoch, int):
            found.append((epoch + 1, 100 * value))
    return found


def predicted(run: Run | None) -> Predicted | None:
    """The class that each test image was given, one view."""
    if run is None:
        return None
    try:
        return read_predicted(run)
    except (UserError, RunError):
        return None


def image_by_image(left: Sequence[Predicted], right: Sequence[Predicted]) -> PairedBootstrap:
    """Two rules on the same images, network by network; the bootstrap pools the networks."""
    if not all(a.is_of_same_images(b) for a, b in zip(left, right)):
        raise RunError("other test images")
    return paired_bootstrap(
        np.concatenate([one.correct for one in left]), np.concatenate([one.correct for one in right])
    )


def checked(runs: Mapping[int, Run]) -> Run:
    """Of one preset's runs that on which the theorems were checked; of several the lowest seed, and so where none
    was."""
    return min(((seed, run) for seed, run in runs.items() if has_theory(run)), default=min(runs.items()))[1]


def long_enough(runs: Runs, presets: Iterable[str]) -> tuple[list[str], list[str]]:
    """Of the presets that were run those that learned for at least half as many epochs as most, and the others, which
    are not to be held against them."""
    known = {preset: [setting(run) for run in runs[preset].values()] for preset in presets}
    epochs = {preset: max((one[1] for one in found if one), default=0) for preset, found in known.items()}
    counts = Counter(epochs.values())
    usual = max(counts, key=lambda one: (counts[one], one), default=0)
    short = [preset for preset, count in epochs.items() if 2 * count < usual]
    return [preset for preset in epochs if preset not in short], short


def setting(run: Run) -> tuple[str, int] | None:
    """Data set and epochs of a run."""
    try:
        return _setting(run.path, (run.path / "config.json").stat().st_mtime_ns)
    except (UserError, RunError, OSError):
        return None


@functools.lru_cache(maxsize=4096)
def _setting(path: Path, written: int) -> tuple[str, int]:
    """Each file is read once: many findings ask for it, and to check a configuration takes a while."""
    config = load_config(path)
    return config.data, config.epochs


def settings(runs: Runs) -> str:
    """On what data and for how long these runs learned: `cifar10, 180 epochs`."""
    found = [one for by_seed in runs.values() for run in by_seed.values() if (one := setting(run)) is not None]
    if not found:
        return ""
    data, epochs = sorted({one for one, _ in found}), {one for _, one in found}
    return f"{' and '.join(data)}, {from_to(epochs)} epoch{'s' if max(epochs) > 1 else ''}"


def from_to(numbers: Collection[int]) -> str:
    """12, or 3 to 12."""
    first, last = min(numbers), max(numbers)
    return f"{first}" if first == last else f"{first} to {last}"


def is_papers_size(preset: str, run: Run) -> bool:
    """Whether a run learned on its preset's own data, and as long."""
    own = presets[preset]() if preset in presets else None
    return own is None or setting(run) in (None, (own.data, own.epochs))


# Over seeds


def over_seeds(runs: Runs, preset: str, of: Callable[[Run], float | None]) -> dict[int, float]:
    """A number of every run of a preset that has it, by seed."""
    found = {seed: of(run) for seed, run in sorted(runs.get(preset, {}).items())}
    return {seed: value for seed, value in found.items() if value is not None}


def differences(runs: Runs, a: str, b: str, of: Callable[[Run], float | None]) -> dict[int, float]:
    """a minus b on the seeds that both have."""
    of_a, of_b = over_seeds(runs, a, of), over_seeds(runs, b, of)
    return {seed: of_a[seed] - of_b[seed] for seed in of_a if seed in of_b}


def mean(values: Iterable[float]) -> float | None:
    given = list(values)
    return sum(given) / len(given) if given else None


def mean_of(runs: Runs, preset: str, of: Callable[[Run], float | None]) -> float | None:
    return mean(over_seeds(runs, preset, of).values())


def means_of_both(
    runs: Runs, preset: str, one: Callable[[Run], float | None], other: Callable[[Run], float | None]
) -> tuple[float, float] | None:
    """Two measures, each the mean over the seeds that have both; None where none has."""
    xs, ys = over_seeds(runs, preset, one), over_seeds(runs, preset, other)
    both = [seed for seed in xs if seed in ys]
    return (sum(xs[seed] for seed in both) / len(both), sum(ys[seed] for seed in both) / len(both)) if both else None


def mean_by_block(runs: Runs, preset: str, of: Callable[[Run], list[float]]) -> list[float]:
    """Block by block, the mean over the seeds that have as many blocks as most."""
    found = [values for run in runs.get(preset, {}).values() if (values := of(run))]
    depth = max((len(values) for values in found), default=0)
    return [sum(column) / len(column) for column in zip(*(values for values in found if len(values) == depth))]


def present(runs: Runs, presets: Iterable[str]) -> list[str]:
    """Those of the presets that have a finished run."""
    return [preset for preset in presets if any(result(run) for run in runs.get(preset, {}).values())]
