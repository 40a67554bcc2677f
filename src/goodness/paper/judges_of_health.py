"""Judges of findings on block health: who rides, whether accuracy follows, what goes along with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from goodness.paper import measured as of
from goodness.paper.measured import Runs
from goodness.paper.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    POINT,
    SEEDS,
    SPREAD,
    Measured,
    Outcome,
    Verdict,
    measured,
    not_to_be_told,
    nothing_yet,
    ratio_interval,
    told,
    too_few,
    written,
)
from goodness.runs import Run
from goodness.stats import (
    Interval,
    correlation,
    equivalence,
    mean_interval,
    paired_bootstrap,
)

LEAST = 3
"""Seeds that a pair of rules must share to count."""
WITH_ACCURACY = "Pearson's r with test accuracy"


@dataclass(frozen=True, kw_only=True)
class Family:
    """Runs that differ in their rule; `note` says in what else."""

    name: str
    presets: tuple[str, ...]
    deepest: Mapping[str, float] = field(default_factory=dict)
    """The deepest separation of each as the paper has it."""
    apart: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """The paper's difference of two accuracies, in points, the first minus the second."""
    note: str = ""

    def ratio(self, a: str, b: str) -> float | None:
        """The paper's separations of two, one over the other."""
        return self.deepest[a] / self.deepest[b] if {a, b} <= self.deepest.keys() else None


def dissociation(runs: Runs, families: Sequence[Family]) -> Verdict:
    """The deepest separation spreads, the accuracies do not: by family, and together."""
    judged = [one for family in families if (one := _dissociation_of(runs, family)) is not None]
    if not judged:
        papers = [
            Measured(what=f"{family.name}: spread of the deepest separation", paper=max(values) / min(values))
            for family in families
            if (values := list(family.deepest.values()))
        ]
        return nothing_yet([family.presets[0] for family in families], papers)
    deciding = [one for one in judged if one.n >= LEAST] or judged
    outcomes = {one.outcome for one in deciding}
    outcome: Outcome = FAILS if FAILS in outcomes else OPEN if OPEN in outcomes else HOLDS
    chosen = next(one for one in deciding if one.outcome == outcome)
    details = tuple(row for one in judged for row in one.details)
    beside = tuple(one.sentence for one in judged if one is not chosen)
    return replace(chosen, outcome=outcome, beside=beside, details=details)


def _dissociation_of(runs: Runs, family: Family) -> Verdict | None:
    """One family's verdict: extremes of the deepest separation, and equivalence of every pair of accuracies."""

    there = {preset: of.mean_of(runs, preset, of.deepest_separation) for preset in family.presets}
    known = {preset: value for preset, value in there.items() if value is not None}
    if len(known) < 2:
        return None
    seen = {preset: len(of.over_seeds(runs, preset, of.deepest_separation)) for preset in known}
    told_by = [preset for preset in known if seen[preset] > 1]
    told_by = told_by if len(told_by) > 1 else list(known)  # a rule of one seed has no interval to tell by
    most, least = max(told_by, key=lambda one: known[one]), min(told_by, key=lambda one: known[one])
    of_most, of_least = (of.over_seeds(runs, one, of.deepest_separation) for one in (most, least))
    shared = {seed: (value, of_least[seed]) for seed, value in of_most.items() if seed in of_least}
    details: list[Measured] = []
    ratios = [high / low for high, low in shared.values() if low > 0 and high > 0]
    is_wide, is_narrow = known[least] <= 0 < known[most], False
    spread = ratio_interval(ratios) if ratios and len(ratios) == len(shared) and not is_wide else None
    if spread is not None:
        is_wide = spread.low is not None and spread.low >= SPREAD
        is_narrow = spread.high is not None and spread.high < SPREAD
        details.append(
            measured(f"{family.name}: deepest separation, {most} over {least}", spread, paper=family.ratio(most, least))
        )
    pairs = {
        (a, b): equivalence(list(points.values()), POINT)
        for a, b in itertools.combinations(known, 2)
        if (points := of.differences(runs, a, b, of.accuracy))
    }
    for (a, b), one in pairs.items():
        details.append(measured(f"{family.name}: accuracy, {a} minus {b}, points", one.difference))
    on_images = _on_images(runs, most, least)
    if on_images is not None:
        what = f"{family.name}: accuracy, {most} minus {least}, points, on the same images (these networks)"
        details.append(measured(what, on_images, "images"))
    extreme = pairs.get((most, least)) or pairs.get((least, most))
    if extreme is None:
        return None
    sign = 1 if (most, least) in pairs else -1
    found = extreme.difference.scaled(sign)
    if sign < 0:
        found = Interval(found.estimate, found.high, found.low, found.n)
    times = f"{spread.estimate:.1f} times" if spread is not None else "from below zero to above"
    apart = f"{family.name}: the deepest separation spreads {times} ({most} against {least}), accuracy by"
    apart = f"{apart} {written(found)} points"
    if on_images is not None:
        apart += f", {written(on_images)} on the same images"
    thin = [preset for preset in known if preset not in told_by]
    few = min(one.difference.n for pair, one in pairs.items() if not set(thin) & set(pair))
    if any(one.is_refuted for one in pairs.values()):
        outcome, sentence = FAILS, f"{apart}: accuracies differ by more than {POINT:g} point."
    elif is_narrow and not thin:
        outcome, sentence = FAILS, f"{apart}: the separations hardly differ, so there is nothing to dissociate."
    elif is_wide and all(one.is_shown for one in pairs.values()):
        outcome, sentence = HOLDS, f"{apart}: every pair lies within ±{POINT:g} point (TOST over seeds)."
    elif few < 2:
        outcome, sentence = OPEN, f"{apart}; {too_few(Interval(0, None, None, few))}."
    else:
        outcome = OPEN
        wide = "" if is_wide else f"that separations differ {SPREAD:g} times"
        near = "" if all(one.is_shown for one in pairs.values()) else f"that every pair lies within ±{POINT:g} point"
        sentence = f"{apart}; it is not shown {' nor '.join(one for one in (wide, near) if one)}."
    asides = [family.note] if family.note else []
    if thin:
        asides.append(f"{', '.join(thin)}: one seed, not among these extremes")
    sentence = f"{sentence[:-1]} ({'; '.join(asides)})." if asides else sentence
    what = f"{family.name}: accuracy of {most} minus that of {least}, points"
    return told(outcome, sentence, what, found, paper=family.apart.get((most, least)), details=details)


def _on_images(runs: Runs, a: str, b: str) -> Interval | None:
    """Difference of accuracies in points, paired bootstrap over all shared seeds' test images."""
    right: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for seed in sorted(runs[a].keys() & runs[b].keys()):
        of_a, of_b = of.predicted(runs[a][seed]), of.predicted(runs[b][seed])
        if of_a is not None and of_b is not None and of_a.is_of_same_images(of_b):
            right[0].append(of_a.correct)
            right[1].append(of_b.correct)
    if not right[0]:
        return None
    found = paired_bootstrap(np.concatenate(right[0]), np.concatenate(right[1]))
    n = sum(len(one) for one in right[0])
    return Interval(100 * found.mean, 100 * found.low, 100 * found.high, n)


def _shares(runs: Runs, preset: str, local: str) -> dict[int, float]:
    """The deepest mined separation as a share of the local rule's, by seed, wherever that one has any to lose.

    It may be below zero. Hence its mean and interval are not taken over logarithms, in which shares near zero,
    whatever they are, lie endlessly far apart."""
    mine, theirs = (of.over_seeds(runs, one, of.deepest_separation) for one in (preset, local))
    return {seed: mine[seed] / theirs[seed] for seed in mine if theirs.get(seed, 0) > 0}


def riding(runs: Runs, pairs: Sequence[tuple[str, str]], paper: dict[str, float]) -> Verdict:
    """The deepest block's separation under accumulation over that under the local rule; below one in every pair."""

    details, found = [], []
    for local, cumulative in pairs:
        if shares := _shares(runs, cumulative, local):
            one = mean_interval(list(shares.values()))
            found.append((local, cumulative, one))
            what = f"deepest separation, {cumulative} over {local}"
            details.append(measured(what, one, paper=paper.get(cumulative)))
    if not found:
        papers = [
            Measured(what=f"deepest separation, {cumulative} over {local}", paper=paper[cumulative])
            for local, cumulative in pairs
            if cumulative in paper
        ]
        if any(len(of.present(runs, pair)) == 2 for pair in pairs):
            why = "in no pair of rules that share a seed does the deepest block separate under the local one"
            return not_to_be_told(why, papers)
        return nothing_yet([preset for pair in pairs for preset in pair], papers)
    enough = [one for one in found if one[2].n >= LEAST]
    against = [one for one in enough if one[2].low is not None and one[2].low > 1]
    unsure = [one for one in enough if one[2].high is None or one[2].high >= 1]
    local, cumulative, most = max(against or unsure or enough or found, key=lambda one: one[2].estimate)
    says = f"The deepest block separates {written(most, sign=False)} times as much under {cumulative} as under {local}"
    others = f", and less in {len(enough) - 1} other pairs" if len(enough) > 1 else ""
    if against:
        outcome, sentence = FAILS, f"{says}: it is no less."
    elif not enough:
        outcome, sentence = OPEN, f"{says}; {too_few(most)}, and it takes {LEAST}."
    elif unsure:
        outcome, sentence = OPEN, f"{says}: the interval reaches one."
    elif few := [one for one in found if one not in enough]:  # every pair counts
        thin = ", ".join(f"{theirs} over {ours} {written(one, sign=False)}" for ours, theirs, one in few)
        outcome, sentence = OPEN, f"{says}{others}; cannot be told yet of pairs with fewer than {LEAST} seeds: {thin}."
    else:
        outcome, sentence = HOLDS, f"{says}{others}."
    return told(
        outcome,
        sentence,
        f"deepest separation, {cumulative} over {local}",
        most,
        paper=paper.get(cumulative),
        details=details,
    )


def related(runs: Runs, presets: Sequence[str], of_run: Callable[[Run], float | None]) -> Interval | None:
    """Pearson's r with accuracy over presets, each the mean of its seeds; None where there are too few."""
    points = [
        (x, y)
        for preset in presets
        if (x := of.mean_of(runs, preset, of_run)) is not None
        and (y := of.mean_of(runs, preset, of.accuracy)) is not None
    ]
    try:
        return correlation([x for x, _ in points], [y for _, y in points]) if len(points) > 2 else None
    except ValueError:
        return None


def predicts(runs: Runs, presets: Sequence[str], of_run: Callable[[Run], float | None], paper: float) -> Verdict:
    """Whether a measure goes along with accuracy: r above zero with its interval."""

    def judge(low: float, high: float) -> tuple[Outcome, str]:
        if low > 0:
            return HOLDS, "above zero"
        if high < 0.3:
            return FAILS, "a weak relation at most"
        return OPEN, "the interval reaches zero"

    return _by_correlation(related(runs, presets, of_run), presets, judge, paper)


def does_not_predict(
    runs: Runs, presets: Sequence[str], of_run: Callable[[Run], float | None], paper: float
) -> Verdict:
    """No relation: shown where the interval of r lies within +-0.5, refuted where it leaves out zero."""

    def judge(low: float, high: float) -> tuple[Outcome, str]:
        if low > 0 or high < 0:
            return FAILS, "there is a relation"
        if low > -0.5 and high < 0.5:
            return HOLDS, "no more than a weak relation"
        return OPEN, "none is seen, but the interval has room for a strong one"

    return _by_correlation(related(runs, presets, of_run), presets, judge, paper)


def _by_correlation(
    found: Interval | None, presets: Sequence[str], judge: Callable[[float, float], tuple[Outcome, str]], paper: float
) -> Verdict:
    """The verdict that follows from the ends of r's interval."""
    if found is None:
        return nothing_yet([f"at least four of {', '.join(presets[:6])}, ..."], what=WITH_ACCURACY, paper=paper)
    says = f"r = {written(found)} over variants"
    if found.low is None or found.high is None:
        outcome, sentence = OPEN, f"{says}; {too_few(found, 'variants')}."
    else:
        outcome, why = judge(found.low, found.high)
        sentence = f"{says}: {why}."
    return told(outcome, sentence, WITH_ACCURACY, found, "variants", paper)


def compensated(runs: Runs, mgc: str, local: str, cumulative: str, twin: str) -> Verdict:
    """The paper's own target: a loss that cancels the attenuation and yet moves accuracy would refute it.

    Cancelled means that the deepest block separates at least half as much as under the local rule. The twin has no
    compensation and is told beside it, where it was run; the verdict does without.
    """
    missing = [preset for preset in (mgc, local, cumulative) if not of.present(runs, [preset])]
    if missing:
        return nothing_yet(missing)
    there = of.over_seeds(runs, local, of.deepest_separation)
    if any(value <= 0 for value in there.values()):
        why = f"the deepest block of {local} does not separate, so that there is nothing to be given back"
        return not_to_be_told(why)
    health = list(_shares(runs, mgc, local).values())
    moved = {other: of.differences(runs, mgc, other, of.accuracy) for other in (local, cumulative)}
    if not health or not all(moved.values()):
        return nothing_yet([f"{mgc}, {local} and {cumulative} with the same seeds"])
    repaired = mean_interval(health)
    pairs = {other: equivalence(list(values.values()), POINT) for other, values in moved.items()}
    details = [measured(f"deepest separation, {mgc} over {local}", repaired)]
    details += [measured(f"accuracy, {mgc} minus {other}, points", one.difference) for other, one in pairs.items()]
    farthest = max(pairs, key=lambda other: abs(pairs[other].difference.estimate))
    found = pairs[farthest].difference
    says = f"MGC's deepest block separates {written(repaired, sign=False)} times as much as the local rule's"
    if alone := list(_shares(runs, twin, local).values()):
        without = mean_interval(alone)
        details.append(measured(f"deepest separation, {twin} over {local}", without))
        says += f" (without the compensation {written(without, sign=False)} times)"
    moves = f"accuracy moves by {written(found)} points against {farthest}"
    few = min(repaired.n, *(one.difference.n for one in pairs.values()))
    if few < 2:
        outcome, sentence = OPEN, f"{says}, {moves}; {too_few(Interval(0, None, None, few))}."
    elif repaired.low is None or repaired.low < 1 / 2:
        outcome, sentence = OPEN, f"{says}: the attenuation is not shown to be cancelled, so {moves} decides nothing."
    elif any(one.is_refuted for one in pairs.values()):
        outcome, sentence = FAILS, f"{says}, and yet {moves}: the dissociation is refuted."
    elif all(one.is_shown for one in pairs.values()):
        outcome, sentence = HOLDS, f"{says}, and {moves}, within ±{POINT:g} point of both."
    else:
        outcome, sentence = OPEN, f"{says}; {moves}, not shown to lie within ±{POINT:g} point of both."
    return told(outcome, sentence, f"accuracy of {mgc} minus that of {farthest}, points", found, SEEDS, None, details)
