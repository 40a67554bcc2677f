"""Judges of findings on block health: who rides, what goes along with it, what giving the gradient back does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from goodness.health.stats import (
    Interval,
    correlation,
    equivalence,
    mean_interval,
)
from goodness.paper import measured as of
from goodness.paper.measured import Runs
from goodness.paper.verdicts import (
    FAILS,
    HOLDS,
    LEAST,
    OPEN,
    POINT,
    SEEDS,
    Measured,
    Outcome,
    Verdict,
    measured,
    not_to_be_told,
    nothing_yet,
    told,
    too_few,
    written,
)
from goodness.report.words import named_seeds
from goodness.runs.run import Run

WITH_ACCURACY = "Pearson's r with test accuracy"


def _shares(runs: Runs, preset: str, local: str) -> dict[int, float]:
    """The deepest mined separation as a share of the local rule's, by seed, wherever that one has any to lose.

    It may be below zero. Hence its mean and interval are not taken over logarithms, in which shares near zero,
    whatever they are, lie endlessly far apart."""
    mine, theirs = (of.over_seeds(runs, one, of.deepest_separation) for one in (preset, local))
    return {seed: mine[seed] / theirs[seed] for seed in mine if theirs.get(seed, 0) > 0}


def _without_share(runs: Runs, preset: str, local: str) -> list[int]:
    """Seeds that both rules have and that have no share: the local rule's deepest block separates nothing there."""
    mine, theirs = (of.over_seeds(runs, one, of.deepest_separation) for one in (preset, local))
    return [seed for seed in mine if theirs.get(seed, 1) <= 0]


def _is_above_one(runs: Runs, local: str, cumulative: str, tested: int) -> bool:
    """Whether the share is above one though so many pairs were tested (Bonferroni)."""
    strict = mean_interval(list(_shares(runs, cumulative, local).values()), confidence=1 - 0.05 / tested)
    return strict.low is not None and strict.low > 1


def _with_seeds(one: tuple[str, str, Interval]) -> str:
    ours, theirs, share = one
    return f"{theirs} over {ours} {written(share, sign=False)}"


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
    against = [one for one in enough if _is_above_one(runs, one[0], one[1], len(enough))]
    unsure = [one for one in enough if one[2].high is None or one[2].high >= 1]
    local, cumulative, most = max(against or unsure or enough or found, key=lambda one: one[2].estimate)
    says = f"The deepest block separates {written(most, sign=False)} times as much under {cumulative} as under {local}"
    others = f"; the other {len(enough) - 1} pairs are lower still" if len(enough) > 1 else ""
    known = {one[:2] for one in found}
    absent = [
        f"{theirs} over {ours} {'without a ratio' if len(of.present(runs, (ours, theirs))) == 2 else 'not run'}"
        for ours, theirs in pairs
        if (ours, theirs) not in known
    ]
    absent += [
        f"{theirs} over {ours} without a ratio in {named_seeds(seeds)}"
        for ours, theirs in known
        if (seeds := _without_share(runs, theirs, ours))
    ]
    if against:
        outcome, sentence = FAILS, f"{says}: it is no less."
    elif not enough:
        outcome, sentence = OPEN, f"{says}; {too_few(most)}, and it takes {LEAST}."
    elif unsure:
        above = most.low is not None and most.low > 1
        why = (
            f"above one at 95 %, as one of {len(enough)} pairs may be by chance"
            if above
            else "the interval reaches one"
        )
        outcome, sentence = OPEN, f"{says}: {why}."
    elif thin := [*map(_with_seeds, (one for one in found if one not in enough)), *absent]:  # every pair counts
        outcome, sentence = OPEN, f"{says}{others}; cannot be told yet of pairs that lack some of {LEAST} seeds: "
        sentence += f"{', '.join(thin)}."
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
    """Pearson's r with accuracy over presets, each the mean of the seeds that have both; None where there are too
    few."""
    points = [point for one in presets if (point := of.means_of_both(runs, one, of_run, of.accuracy)) is not None]
    try:
        return correlation([x for x, _ in points], [y for _, y in points]) if len(points) > 2 else None
    except ValueError:
        return None


def predicts(runs: Runs, presets: Sequence[str], of_run: Callable[[Run], float | None], paper: float) -> Verdict:
    """Whether a measure goes along with accuracy: r above zero with its interval."""

    def judge(low: float, high: float) -> tuple[Outcome, str]:
        if high < 0.3:
            return FAILS, "a weak relation at most"
        if low > 0:
            return HOLDS, "above zero"
        return OPEN, "the interval reaches zero"

    return _by_correlation(runs, presets, of_run, judge, paper)


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

    return _by_correlation(runs, presets, of_run, judge, paper)


def _by_correlation(
    runs: Runs,
    presets: Sequence[str],
    of_run: Callable[[Run], float | None],
    judge: Callable[[float, float], tuple[Outcome, str]],
    paper: float,
) -> Verdict:
    """The verdict that follows from the ends of r's interval, over the variants that learned for long enough."""
    there = [preset for preset in of.present(runs, presets) if of.mean_of(runs, preset, of_run) is not None]
    kept, short = of.long_enough(runs, there)
    found = related(runs, kept, of_run)
    if found is None:
        return nothing_yet([f"at least four of {', '.join(presets[:6])}, ..."], what=WITH_ACCURACY, paper=paper)
    says = f"r = {written(found)} over variants"
    if found.low is None or found.high is None:
        outcome, sentence = OPEN, f"{says}; {too_few(found, 'variants')}."
    else:
        outcome, why = judge(found.low, found.high)
        sentence = f"{says}: {why}."
    verdict = told(outcome, sentence, WITH_ACCURACY, found, "variants", paper)
    with_all = related(runs, there, of_run) if short else None
    if with_all is None:
        return verdict
    left_out = f"Left out, as they learned for less than half as many epochs as most: {', '.join(short)}"
    return replace(verdict, beside=(f"{left_out}; with them r = {written(with_all)}.",))


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
    strict = {o: mean_interval(list(values.values()), confidence=1 - 0.05 / len(moved)) for o, values in moved.items()}
    refuted = [o for o, one in strict.items() if one.n >= LEAST and one.beyond_zero > POINT]
    farthest = max(refuted or pairs, key=lambda other: abs(pairs[other].difference.estimate))
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
    elif repaired.low is None or repaired.low < 1 / 2 or repaired.n < LEAST:
        outcome = OPEN
        sentence = f"{says}: the attenuation is not shown to be cancelled, and {moves}, which decides nothing."
    elif refuted:
        outcome, sentence = FAILS, f"{says}, and yet {moves}: the dissociation is refuted."
    elif all(one.is_shown for one in pairs.values()) and few >= LEAST:
        outcome, sentence = HOLDS, f"{says}, and {moves}, within ±{POINT:g} point of both."
    else:
        outcome, sentence = OPEN, f"{says}; {moves}, not shown to lie within ±{POINT:g} point of both."
    return told(outcome, sentence, f"accuracy of {mgc} minus that of {farthest}, points", found, SEEDS, None, details)
