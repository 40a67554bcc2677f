"""Runs held beside each other: mean and spread over seeds, and whether two of them predict differently.

Runs that differ in their seed alone form a group. Two groups are compared on the seeds they share, image by image:
which one is right where the other is wrong, with a confidence interval (paired bootstrap), and how far the
prediction-stability bound (Prop. prediction_stability) is from the disagreement that was measured.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from goodness.config import Config, Readout, differences, override, rule_name
from goodness.errors import DAMAGE, RunError, UserError
from goodness.health.stats import best_stability_bound, mean_and_std, paired_bootstrap
from goodness.runs.consistency import has_predictions, refuse_mixed_files
from goodness.runs.run import Run, environment_of, health_versions, software_of, unlike
from goodness.runs.run_folder import RunFolder

BANDS = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Widths of the margin bands, in units of the cumulative score."""


@dataclass(frozen=True)
class Predictions:
    """What a run said of the test images."""

    scores: np.ndarray  # [n, classes]
    labels: np.ndarray
    indices: np.ndarray

    @property
    def correct(self) -> np.ndarray:
        return self.scores.argmax(axis=1) == self.labels

    @property
    def margins(self) -> np.ndarray:
        """The best class's score minus the second's, `[n]`."""
        best = np.partition(self.scores, -2, axis=1)
        return best[:, -1] - best[:, -2]


def compare(runs: list[Run], *, tta: bool = False, folds: int = 5000) -> dict[str, Any]:
    """Groups, pairs of groups and what is missing, as plain JSON data."""
    if not runs:
        raise UserError("name at least one run to compare")
    missing: list[str] = []
    groups = {name: _of_one_kind(name, members, tta, missing) for name, members in _groups(runs).items()}
    groups = {name: members for name, members in groups.items() if members}
    found = {name: _predictions(members, tta, missing) for name, members in groups.items()}
    described = [_describe(name, members, found[name], tta, missing) for name, members in groups.items()]
    pairs = []
    for a, b in itertools.combinations(groups, 2):
        pair = _pair(a, b, found[a], found[b], groups, folds, missing)
        if pair is not None:
            pairs.append(pair)
    return {"tta": tta, "groups": described, "pairs": pairs, "missing": missing}


def _groups(runs: list[Run]) -> dict[str, list[Run]]:
    """Runs by name of their group: the preset and data, and where several have these, the settings they differ in."""
    seen: list[tuple[Any, str, list[Run]]] = []
    for run in runs:
        alike = _settings(run), run.stage
        for known, _, members in seen:
            if known == alike:
                members.append(run)
                break
        else:
            seen.append((alike, f"{run.config.preset} on {run.config.data}", [run]))
    names = [name for _, name, _ in seen]
    groups = {}
    for place, (alike, name, members) in enumerate(seen):
        if names.count(name) > 1:
            others = [other[0] for other, other_name, _ in seen if other_name == name]
            words = ", ".join(_apart(alike[0], others)[:3])
            name = f"{name} ({words})" if words else name
            name = name if name not in groups else f"{name} #{place + 1}"
        groups[name] = members
    return groups


def _settings(run: Run) -> Config:
    """What makes two runs the same but for the seed; of a Stage 1 not what Stage 2 was to follow."""
    config = override(run.config, {"seed": 0})
    return config if run.stage == "s2" else replace(config, readout=Readout())


def _apart(config: Config, others: list[Config]) -> list[str]:
    """What tells a configuration from these others, in words; its rule by name."""
    fields = list(dict.fromkeys(field for other in others for field in differences(config, other)))
    told = [rule_name(config.rule)] if any(field.startswith("rule.") for field in fields) else []
    flat = {field: mine for other in others for field, (_, mine) in differences(config, other).items()}
    return told + [f"{field} {flat[field]}" for field in fields if not field.startswith("rule.")]


def _of_one_kind(name: str, members: list[Run], tta: bool, missing: list[str]) -> list[Run]:
    """Runs that may be averaged: whole ones, on the data of the first, no training twice, one of each seed; what is
    left out is named. Other versions are named too, and stay."""
    sound = [run for run in members if not run.is_finished or _is_sound(run, tta, missing)]
    kept: list[Run] = []
    first: Run | None = None
    trained: dict[str, Run] = {}
    for run in _one_of_each_seed(sound, missing):
        if not run.is_finished:
            kept.append(run)  # which is told where its accuracy is wanted
            continue
        weights = run.result.get("weights_sha256")
        first = first or run
        if weights is not None and (twin := trained.setdefault(weights, run)) is not run:
            missing.append(f"{run.path} is left out: it has the weights of {twin.path}, so they are one training")
        elif _data_of(run) != _data_of(first):
            missing.append(f"{run.path} is left out: its data are not those of {first.path}")
        else:
            kept.append(run)
    for version, seen in unlike(software_of(run) for run in kept if run.is_finished).items():
        missing.append(f"{name}: its runs are of different versions ({version}: {seen})")
    return kept


def _is_sound(run: Run, tta: bool, missing: list[str]) -> bool:
    """Whether a finished run's files are of one training, as far as they are there and looked at."""
    wanted = "accuracy_tta" if tta else "accuracy"
    try:
        refuse_mixed_files(run, _backbone_of(run), views=[wanted] if has_predictions(run, wanted) else [])
    except (UserError, RunError) as trouble:
        missing.append(f"{run.path} is left out: {trouble}")
        return False
    except DAMAGE:
        missing.append(f"{run.path} is left out: its result.json is not what a run writes")
        return False
    return True


def _backbone_of(run: Run) -> Run | None:
    """None of a Stage 1, and where the run that a readout read was moved: its own files are enough here."""
    try:
        return run.backbone if run.stage == "s2" else None
    except (UserError, RunError):
        return None


def _data_of(run: Run) -> Any:
    return environment_of(run).get("data", {}).get("sha256")


def _one_of_each_seed(members: list[Run], missing: list[str]) -> list[Run]:
    """Of two runs with one seed the first counts, and the other is named."""
    kept: dict[int, Run] = {}
    for run in members:
        if kept.setdefault(run.config.seed, run) is not run:
            missing.append(f"{run.path}: seed {run.config.seed} is there already; left out")
    return list(kept.values())


def _predictions(members: list[Run], tta: bool, missing: list[str]) -> dict[int, Predictions]:
    """By seed."""
    found: dict[int, Predictions] = {}
    for run in members:
        seed = run.config.seed
        try:
            arrays = RunFolder.open(run.path, for_writing=False).read_predictions("test_tta" if tta else "test")
        except (UserError, RunError) as trouble:
            missing.append(f"{run.path}: {trouble}")
            continue
        scores, labels, indices = arrays["scores"].astype(np.float64), arrays["labels"], arrays["indices"]
        if scores.ndim != 2 or not len(scores) or not len(scores) == len(labels) == len(indices):
            missing.append(f"{run.path}: its predictions are of no use: {scores.shape} scores, {labels.shape} labels")
        elif not np.isfinite(scores).all():
            missing.append(f"{run.path}: its predictions have scores that are not finite")
        else:
            found[seed] = Predictions(scores, labels, indices)
    return found


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e300:
        raise ValueError(f"not a number: {value!r}")
    return float(value)


def _describe(
    name: str, members: list[Run], found: dict[int, Predictions], tta: bool, missing: list[str]
) -> dict[str, Any]:
    key = "accuracy_tta" if tta else "accuracy"
    accuracies, deepest = [], []
    for run in members:
        if not run.is_finished:
            missing.append(f"{run.path} is not finished; go on with: goodness resume {run.path}")
            continue
        reported = run.result["reported"]
        if key not in reported:
            missing.append(f"{run.path} has no accuracy with TTA")
            continue
        try:
            accuracies.append(_finite(reported[key]))
            blocks = run.result["health"].get("test")
            if blocks:
                deepest.append([_finite(block["sep_cur"]) for block in blocks])
        except (TypeError, KeyError, AttributeError, ValueError):
            missing.append(f"{run.path}: its result.json is not what a run writes")
    if deepest and (versions := health_versions(run for run in members if run.is_finished)):
        missing.append(f"{name}: block health of different versions is not averaged ({' and '.join(versions)})")
        deepest = []
    margins = np.concatenate([one.margins for one in found.values()]) if found else None
    return {
        "name": name,
        "runs": [str(run.path) for run in members],
        "seeds": sorted(run.config.seed for run in members),
        "accuracy": mean_and_std(accuracies)._asdict() if accuracies else None,
        "sep_cur": [mean_and_std(values)._asdict() for values in zip(*deepest, strict=False)] if deepest else None,
        "bands": None if margins is None else {str(width): float((margins <= width).mean()) for width in BANDS},
        "margins": None if margins is None else np.quantile(margins, np.linspace(0, 1, 201)).tolist(),
    }


def _pair(
    a: str,
    b: str,
    of_a: dict[int, Predictions],
    of_b: dict[int, Predictions],
    groups: dict[str, list[Run]],
    folds: int,
    missing: list[str],
) -> dict[str, Any] | None:
    """Two groups on the seeds they share; None, and a word on why, where they cannot be paired."""
    if groups[a][0].config.data != groups[b][0].config.data:
        missing.append(f"{a} and {b} are of different data sets; not compared")
        return None
    shared = sorted(of_a.keys() & of_b.keys())
    if not shared:
        if of_a and of_b:
            missing.append(f"{a} and {b} share no seed; not compared: train both with the same --seed")
        return None
    for seed in shared:
        same = np.array_equal(of_a[seed].indices, of_b[seed].indices)
        if not same or not np.array_equal(of_a[seed].labels, of_b[seed].labels):
            missing.append(f"{a} and {b}, seed {seed}: other test images, or in another order; not compared")
            return None
    result = paired_bootstrap(
        np.concatenate([of_a[seed].correct for seed in shared]),
        np.concatenate([of_b[seed].correct for seed in shared]),
        folds,
    ).as_dict()
    scores_a = np.concatenate([of_a[seed].scores for seed in shared])
    scores_b = np.concatenate([of_b[seed].scores for seed in shared])
    bound = best_stability_bound(scores_a, scores_b)
    return {
        "a": a,
        "b": b,
        "seeds": shared,
        "n": len(scores_a),
        **result,
        "predictions_differ": float(bound.disagreement),
        "stability_bound": float(bound.bound),
        "stability_t": float(bound.t),
    }
