"""The judge of the dissociation: the deepest block's separation differs many times between rules, accuracy does not.

Families of runs are judged each for itself; the families together give the verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from goodness.paper import measured as of
from goodness.paper.measured import Runs
from goodness.paper.verdicts import (
    FAILS,
    HOLDS,
    LEAST,
    OPEN,
    POINT,
    SPREAD,
    Measured,
    Outcome,
    Verdict,
    measured,
    nothing_yet,
    ratio_interval,
    told,
    too_few,
    written,
)
from goodness.stats import Equivalence, Interval, equivalence, paired_bootstrap


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
    compared = [one for family in families if (one := _compare(runs, family)) is not None]
    if not compared:
        papers = [
            Measured(what=f"{family.name}: spread of the deepest separation", paper=max(values) / min(values))
            for family in families
            if (values := list(family.deepest.values()))
        ]
        return nothing_yet([family.presets[0] for family in families], papers)
    judged = [_judge(one) for one in compared]
    deciding = [one for one in judged if one.n >= LEAST] or judged
    outcomes = {one.outcome for one in deciding}
    outcome: Outcome = FAILS if FAILS in outcomes else OPEN if OPEN in outcomes else HOLDS
    chosen = next(one for one in deciding if one.outcome == outcome)
    details = tuple(row for one in judged for row in one.details)
    beside = tuple(one.sentence for one in judged if one is not chosen)
    return replace(chosen, outcome=outcome, beside=beside, details=details)


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """A family's runs, rule against rule."""

    family: Family
    most: str
    """The rule whose deepest block separates most, of those that have more than one seed where two have."""
    least: str
    spread: Interval | None
    """The deepest separation of `most` over that of `least`; None where one is not above zero."""
    is_wide: bool
    """Whether the two are shown to differ `SPREAD` times."""
    is_narrow: bool
    """Whether they are shown to differ less."""
    pairs: Mapping[tuple[str, str], Equivalence]
    """Every pair's accuracies, in points."""
    apart: Interval
    """Accuracy of `most` minus that of `least`, in points, over seeds."""
    on_images: Interval | None
    """The same over images: of these networks."""
    thin: tuple[str, ...]
    """Rules of one seed, which are no extremes."""


def _compare(runs: Runs, family: Family) -> _Compared | None:
    """None where there are no two rules with a common seed."""
    there = {preset: of.over_seeds(runs, preset, of.deepest_separation) for preset in family.presets}
    known = {preset: float(np.mean(list(values.values()))) for preset, values in there.items() if values}
    if len(known) < 2:
        return None
    told_by = [preset for preset in known if len(there[preset]) > 1]
    told_by = told_by if len(told_by) > 1 else list(known)  # a rule of one seed has no interval to tell by
    most, least = max(told_by, key=lambda one: known[one]), min(told_by, key=lambda one: known[one])
    pairs = {
        (a, b): equivalence(list(points.values()), POINT)
        for a, b in itertools.combinations(known, 2)
        if (points := of.differences(runs, a, b, of.accuracy))
    }
    apart = of.differences(runs, most, least, of.accuracy)
    if not apart:
        return None
    shared = [(value, there[least][seed]) for seed, value in there[most].items() if seed in there[least]]
    has_ratios = bool(shared) and all(min(pair) > 0 for pair in shared)
    is_from_below = known[least] <= 0 < known[most]
    spread = ratio_interval([high / low for high, low in shared]) if has_ratios and not is_from_below else None
    return _Compared(
        family=family,
        most=most,
        least=least,
        spread=spread,
        is_wide=is_from_below or (spread is not None and spread.low is not None and spread.low >= SPREAD),
        is_narrow=spread is not None and spread.high is not None and spread.high < SPREAD,
        pairs=pairs,
        apart=equivalence(list(apart.values()), POINT).difference,
        on_images=_on_images(runs, most, least),
        thin=tuple(preset for preset in known if preset not in told_by),
    )


def _judge(one: _Compared) -> Verdict:
    """One family's verdict, and the numbers behind it."""
    family, most, least = one.family, one.most, one.least
    outcome, why = _outcome(one)
    times = f"{one.spread.estimate:.1f} times" if one.spread is not None else "from below zero to above"
    images = f", {written(one.on_images)} on the same images" if one.on_images is not None else ""
    asides = [family.note] if family.note else []
    if one.thin:
        asides.append(f"{', '.join(one.thin)}: one seed, not among these extremes")
    aside = f" ({'; '.join(asides)})" if asides else ""
    sentence = (
        f"{family.name}: the deepest separation spreads {times} ({most} against {least}), accuracy by "
        f"{written(one.apart)} points{images}{why}{aside}."
    )
    what = f"{family.name}: accuracy of {most} minus that of {least}, points"
    paper = family.apart.get((most, least))
    return told(outcome, sentence, what, one.apart, paper=paper, details=_details(one))


def _outcome(one: _Compared) -> tuple[Outcome, str]:
    """What follows, and the words for it."""
    few = min(pair.difference.n for rules, pair in one.pairs.items() if not set(one.thin) & set(rules))
    are_near = all(pair.is_shown for pair in one.pairs.values())
    if any(pair.is_refuted for pair in one.pairs.values()):
        return FAILS, f": accuracies differ by more than {POINT:g} point"
    if one.is_narrow and not one.thin:
        return FAILS, ": the separations hardly differ, so there is nothing to dissociate"
    if one.is_wide and are_near:
        return HOLDS, f": every pair lies within ±{POINT:g} point (TOST over seeds)"
    if few < 2:
        return OPEN, f"; {too_few(Interval(0, None, None, few))}"
    wide = "" if one.is_wide else f"that separations differ {SPREAD:g} times"
    near = "" if are_near else f"that every pair lies within ±{POINT:g} point"
    return OPEN, f"; it is not shown {' nor '.join(filter(None, (wide, near)))}"


def _details(one: _Compared) -> list[Measured]:
    name, most, least = one.family.name, one.most, one.least
    found = []
    if one.spread is not None:
        what = f"{name}: deepest separation, {most} over {least}"
        found.append(measured(what, one.spread, paper=one.family.ratio(most, least)))
    for (a, b), pair in one.pairs.items():
        found.append(measured(f"{name}: accuracy, {a} minus {b}, points", pair.difference))
    if one.on_images is not None:
        what = f"{name}: accuracy, {most} minus {least}, points, on the same images (these networks)"
        found.append(measured(what, one.on_images, "images"))
    return found


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
