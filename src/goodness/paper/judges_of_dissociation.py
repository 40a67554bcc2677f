"""The judge of the dissociation: the deepest block's separation differs many times between rules, accuracy does not.

Families of runs are judged each for itself; the families together give the verdict.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from goodness.health.stats import Interval, equivalence, mean_interval
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
from goodness.report.words import named_seeds


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
    strict = 1 - 0.05 / len(families)  # that one of many is narrow by chance is likely: Bonferroni
    compared = [one for family in families if (one := _compare(runs, family, strict)) is not None]
    if not compared:
        papers = [
            Measured(what=f"{family.name}: spread of the deepest separation", paper=max(values) / min(values))
            for family in families
            if (values := list(family.deepest.values()))
        ]
        return nothing_yet([family.presets[0] for family in families], papers)
    tested = sum(len(one.enough) for one in compared)
    judged = [_judge(one, tested) for one in compared]
    enough = [len(one.extremes) >= LEAST for one in compared]
    deciding = [one for one, is_enough in zip(judged, enough) if is_enough]
    outcomes = {one.outcome for one in deciding}
    outcome: Outcome = FAILS if FAILS in outcomes else OPEN if OPEN in outcomes or not deciding else HOLDS
    chosen = next((one for one in deciding if one.outcome == outcome), judged[0])
    there = {one.family.name for one, is_enough in zip(compared, enough) if is_enough}
    absent = [family.name for family in families if family.name not in there]
    wanting = f"Two rules with {LEAST} common seeds are wanting in: {'; '.join(absent)}."
    details = tuple(row for one in judged for row in one.details)
    if absent and (outcome == HOLDS or not deciding):
        chosen = next((one for one, is_enough in zip(judged, enough) if not is_enough), chosen)
        beside = [chosen.sentence, *(one.sentence for one in judged if one is not chosen)]
        return replace(chosen, outcome=OPEN, sentence=wanting, beside=tuple(beside), details=details)
    beside = [one.sentence for one in judged if one is not chosen] + ([wanting] if absent else [])
    return replace(chosen, outcome=outcome, beside=tuple(beside), details=details)


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """A family's runs, rule against rule."""

    family: Family
    most: str
    """The rule whose deepest block separates most, of those that have more than one seed where two have."""
    least: str
    deepest: tuple[float, float]
    """What their deepest blocks separate, mean over seeds."""
    spread: Interval | None
    """The first over the second; None where a seed of one is not above zero."""
    is_wide: bool
    """Whether the two are shown to differ `SPREAD` times, though they are the extremes of so many pairs."""
    is_narrow: bool
    """Whether they are shown to differ less."""
    pairs: Mapping[tuple[str, str], list[float]]
    """Every pair's difference in accuracy, in points, by seed."""
    on_images: Interval | None
    """That of `most` and `least` over images: of these networks."""
    thin: tuple[str, ...]
    """Rules of one seed, which are no extremes."""
    absent: tuple[str, ...]
    """Rules that were not run."""
    silent: Mapping[str, list[int]]
    """Rules with seeds whose accuracy is known, and not what their blocks separate."""

    @property
    def extremes(self) -> list[float]:
        """Accuracy of `most` minus that of `least`, in points, by seed."""
        if (self.most, self.least) in self.pairs:
            return self.pairs[self.most, self.least]
        return [-value for value in self.pairs.get((self.least, self.most), [])]

    @property
    def enough(self) -> dict[tuple[str, str], list[float]]:
        """The pairs that can decide: those of three seeds."""
        return {rules: points for rules, points in self.pairs.items() if len(points) >= LEAST}

    @property
    def uncompared(self) -> list[tuple[str, str]]:
        """The others of all that the family's rules make."""
        return [rules for rules in itertools.combinations(self.family.presets, 2) if rules not in self.enough]

    @property
    def strangers(self) -> list[tuple[str, str]]:
        """Of those the ones whose rules both were run, and more than once."""
        return [rules for rules in self.uncompared if not set(rules) & {*self.thin, *self.absent}]


def _compare(runs: Runs, family: Family, strict: float) -> _Compared | None:
    """None where there are no two rules with a common seed. `strict` is the confidence that refutes by a spread."""
    there = {preset: of.over_seeds(runs, preset, of.deepest_separation) for preset in family.presets}
    known = {preset: float(np.mean(list(values.values()))) for preset, values in there.items() if values}
    if len(known) < 2:
        return None
    told_by = [preset for preset in known if len(there[preset]) > 1]
    told_by = told_by if len(told_by) > 1 else list(known)  # a rule of one seed has no interval to tell by
    most, least = max(told_by, key=lambda one: known[one]), min(told_by, key=lambda one: known[one])
    shared = [(value, there[least][seed]) for seed, value in there[most].items() if seed in there[least]]
    one_of = 1 - 0.05 / math.comb(len(told_by), 2)  # the extremes of many pairs spread by chance: Bonferroni
    ratios = [high / low for high, low in shared] if shared and min(map(min, shared)) > 0 else []
    beyond = [high - SPREAD * low for high, low in shared]  # of any sign
    spread, is_wide, is_narrow = None, False, False
    if ratios:
        spread = ratio_interval(ratios)
        is_wide = (low := ratio_interval(ratios, confidence=one_of).low) is not None and low >= SPREAD
        is_narrow = (high := ratio_interval(ratios, confidence=strict).high) is not None and high < SPREAD
    elif beyond:
        low = mean_interval(beyond, confidence=one_of).low
        is_wide = low is not None and low > 0 and known[most] > 0
        is_narrow = (high := mean_interval(beyond, confidence=strict).high) is not None and high < 0
    found = _Compared(
        family=family,
        most=most,
        least=least,
        deepest=(known[most], known[least]),
        spread=spread,
        is_wide=is_wide and len(shared) >= LEAST,
        is_narrow=is_narrow and len(shared) >= LEAST,
        pairs={
            (a, b): list(points.values())
            for a, b in itertools.combinations(known, 2)
            if (points := of.differences(runs, a, b, of.accuracy))
        },
        on_images=_on_images(runs, most, least),
        thin=tuple(preset for preset in known if preset not in told_by),
        absent=tuple(preset for preset in family.presets if preset not in known),
        silent={
            preset: lacking
            for preset in family.presets
            if (lacking := sorted(of.over_seeds(runs, preset, of.accuracy).keys() - there[preset].keys()))
        },
    )
    return found if found.extremes else None


def _judge(one: _Compared, tested: int) -> Verdict:
    """One family's verdict, and the numbers behind it; `tested` is how many pairs could refute it by chance."""
    family, most, least = one.family, one.most, one.least
    pair, apart = (most, least), mean_interval(one.extremes)
    outcome, why = _outcome(one, refuted := _refuted(one, tested), tested)
    if outcome == FAILS and refuted:
        pair = max(refuted, key=lambda rules: refuted[rules].beyond_zero)
        apart = mean_interval(one.pairs[pair])
    ours, theirs = one.deepest
    times = f"spreads {one.spread.estimate:.1f} times" if one.spread is not None else f"is {ours:.2f} and {theirs:.2f}"
    images = ""
    if one.on_images is not None and pair == (most, least):
        images = f", {written(one.on_images, unit='images')} on the same images"
    asides = [family.note] if family.note else []
    if one.thin:
        asides.append(f"{', '.join(one.thin)}: one seed, not among these extremes")
    if one.absent:
        asides.append(f"not run: {', '.join(one.absent)}")
    asides += [f"{preset}: no separation on record in {named_seeds(seeds)}" for preset, seeds in one.silent.items()]
    if one.strangers:
        asides.append(f"fewer than {LEAST} common seeds: {', '.join(map(' and '.join, one.strangers))}")
    aside = f" ({'; '.join(asides)})" if asides else ""
    whose = "" if pair == (most, least) else f" ({pair[0]} against {pair[1]})"
    sentence = (
        f"{family.name}: the deepest separation {times} ({most} against {least}), accuracy by "
        f"{written(apart)} points{whose}{images}{why}{aside}."
    )
    what = f"{family.name}: accuracy of {pair[0]} minus that of {pair[1]}, points"
    return told(outcome, sentence, what, apart, paper=family.apart.get(pair), details=_details(one))


def _refuted(one: _Compared, tested: int) -> dict[tuple[str, str], Interval]:
    """The pairs that lie beyond a point though so many were tested (Bonferroni), with the stricter interval."""
    strict = {rules: mean_interval(points, confidence=1 - 0.05 / tested) for rules, points in one.enough.items()}
    return {rules: found for rules, found in strict.items() if found.beyond_zero > POINT}


def _outcome(one: _Compared, refuted: Mapping[tuple[str, str], Interval], tested: int) -> tuple[Outcome, str]:
    """What follows, and the words for it."""
    if refuted:
        return FAILS, f": accuracies differ by more than {POINT:g} point"
    if one.is_narrow and not one.thin and not one.absent:
        return FAILS, ": the separations hardly differ, so there is nothing to dissociate"
    few = min(len(points) for rules, points in one.pairs.items() if not set(one.thin) & set(rules))
    if few < 2:
        return OPEN, f"; {too_few(Interval(0, None, None, few))}"
    are_near = bool(one.enough) and all(equivalence(points, POINT).is_shown for points in one.enough.values())
    if one.is_wide and are_near:
        shown, left = f"within ±{POINT:g} point (TOST over seeds)", len(one.uncompared)
        if not left:
            return HOLDS, f": every pair lies {shown}"
        n = len(one.enough)
        which = f"the one pair of {LEAST} seeds lies" if n == 1 else f"the {n} pairs of {LEAST} seeds lie"
        return OPEN, f": {which} {shown}, {left} more {'is' if left == 1 else 'are'} not compared"
    wide = "" if one.is_wide else f"that separations differ {SPREAD:g} times"
    near = "" if are_near else f"that every pair lies within ±{POINT:g} point"
    found = {" against ".join(rules): mean_interval(points) for rules, points in one.enough.items()}
    beyond = [f"{rules} {written(apart)}" for rules, apart in found.items() if apart.beyond_zero > POINT]
    chance = f"; beyond it at 95 %, as one of {tested} pairs may be by chance: {', '.join(beyond)}" if beyond else ""
    return OPEN, f"; it is not shown {' nor '.join(filter(None, (wide, near)))}{chance}"


def _details(one: _Compared) -> list[Measured]:
    name, most, least = one.family.name, one.most, one.least
    found = []
    if one.spread is not None:
        what = f"{name}: deepest separation, {most} over {least}"
        found.append(measured(what, one.spread, paper=one.family.ratio(most, least)))
    for (a, b), points in one.pairs.items():
        found.append(measured(f"{name}: accuracy, {a} minus {b}, points", mean_interval(points)))
    if one.on_images is not None:
        what = f"{name}: accuracy, {most} minus {least}, points, on the same images (these networks)"
        found.append(measured(what, one.on_images, "images"))
    return found


def _on_images(runs: Runs, a: str, b: str) -> Interval | None:
    """Difference of accuracies in points over the images of all shared seeds whose predictions are there."""
    shared = [(runs[a][seed], runs[b][seed]) for seed in sorted(runs[a].keys() & runs[b].keys())]
    seen = [(of_a, of_b) for one, other in shared if (of_a := of.predicted(one)) and (of_b := of.predicted(other))]
    if not seen:
        return None
    found = of.image_by_image(*zip(*seen))
    n = sum(len(one.labels) for one, _ in seen)
    return Interval(100 * found.mean, 100 * found.low, 100 * found.high, n)
