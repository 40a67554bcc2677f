"""How findings are judged: each function takes the runs and what to compare, and gives a verdict.

Claims about training have seeds as their unit: numbers of one seed are paired, and intervals are Student's over seeds.
Claims about a trained network have its test images as their unit. A verdict says which.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from goodness.health.stats import (
    Interval,
    difference_interval,
    mean_interval,
    ratio_of_shares,
    slope_interval,
)
from goodness.paper import measured as of
from goodness.paper.measured import Runs
from goodness.paper.verdicts import (
    FAILS,
    HOLDS,
    IDLE,
    LEAST,
    LOST,
    OPEN,
    Verdict,
    counted,
    measured,
    not_to_be_told,
    nothing_yet,
    told,
    too_few,
    written,
)
from goodness.runs.run import Run

# One part less


def costs(runs: Runs, whole: str, without: str, paper: float | None) -> Verdict:
    """What the removal of a part costs in points, paired over seeds."""
    missing = [preset for preset in (whole, without) if not of.present(runs, [preset])]
    lost = of.differences(runs, whole, without, of.accuracy)
    what = f"accuracy of {whole} minus that of {without}, points"
    if missing or not lost:
        return nothing_yet(missing or [f"{whole} and {without} with the same seed"], what=what, paper=paper)
    found = mean_interval(list(lost.values()))
    if found.low is None or found.high is None:
        outcome, sentence = OPEN, f"Removing it costs {found.estimate:+.2f} points; {too_few(found)}."
    elif found.high < IDLE:
        outcome, sentence = FAILS, f"Removing it costs {written(found)} points, less than {IDLE}."
    elif found.low > 0:
        outcome, sentence = HOLDS, f"Removing it costs {written(found)} points."
    else:
        outcome, sentence = OPEN, f"Removing it costs {written(found)} points: the interval has room for both."
    return told(outcome, sentence.replace("-", "−"), what, found, paper=paper)


def wrong_labels(runs: Runs, both: str, labels: str, wrong_images: str, paper: float | None) -> Verdict:
    """Wrong labels alone against wrong images alone, and against both."""
    missing = [preset for preset in (labels, wrong_images) if not of.present(runs, [preset])]
    ahead = of.differences(runs, labels, wrong_images, of.accuracy)
    what, details = f"accuracy of {labels} minus that of {wrong_images}, points", []
    if missing or not ahead:
        return nothing_yet(missing or [f"{labels} and {wrong_images} with the same seed"], what=what, paper=paper)
    found = mean_interval(list(ahead.values()))
    kept = of.differences(runs, labels, both, of.accuracy)
    of_both = mean_interval(list(kept.values())) if kept else None
    if of_both is not None:
        details.append(measured(f"accuracy of {labels} minus that of {both}, points", of_both, paper=0.0))
    if found.low is None or found.high is None:
        sentence = f"Wrong labels alone are {written(found)} points from wrong images alone; {too_few(found)}."
        return told(OPEN, sentence, what, found, paper=paper, details=details)
    ahead_of_images = f"Wrong labels alone lead wrong images alone by {written(found)} points"
    if found.high <= 0:
        outcome, sentence = FAILS, f"{ahead_of_images}: they are not."
    elif of_both and of_both.n >= LEAST and of_both.high is not None and of_both.high < -LOST:
        outcome, sentence = FAILS, f"{ahead_of_images}, but both together by {written(of_both)}."
    elif found.low > 0 and of_both and of_both.n >= LEAST and of_both.low is not None and of_both.low > -LOST:
        outcome, sentence = HOLDS, f"{ahead_of_images} and lose nothing to both together: {written(of_both)} points."
    else:
        outcome, sentence = OPEN, f"{ahead_of_images}; the intervals have room for both answers."
    return told(outcome, sentence, what, found, paper=paper, details=details)


# Depth


def truncation(runs: Runs, presets: Sequence[str], keep: int, share: float) -> Verdict:
    """The first blocks' accuracy over that of all, network by network; the worst decides. Images are the unit."""
    found: list[tuple[str, Interval, Interval]] = []
    networks = [
        (preset, seed, run)
        for preset in presets
        for seed, run in sorted(runs.get(preset, {}).items())
        if len(of.truncation(run)) > keep and of.images(run)
    ]
    for preset, seed, run in networks:
        curve, n = [value / 100 for value in of.truncation(run)], of.images(run) or 1
        if curve[-1] <= 0:
            continue
        few, whole = max(curve[keep - 1], 1 / n), curve[-1]
        strict = 1 - 0.05 / len(networks)  # that one of many falls short by chance is likely: Bonferroni
        name = f"{preset}, seed {seed}"
        found.append((name, ratio_of_shares(few, whole, n), ratio_of_shares(few, whole, n, confidence=strict)))
    what = f"least share of the accuracy that the first {keep} blocks keep"
    if not found:
        return nothing_yet(presets[:3], what=what, paper=share)
    worst_name, worst, _ = min(found, key=lambda one: one[1].estimate)
    details = [
        measured(f"accuracy of {keep} blocks over that of all, {name}", ratio, "images") for name, ratio, _ in found
    ]
    short = [name for name, _, strict in found if strict.high is not None and strict.high < share]
    unsure = [name for name, ratio, _ in found if ratio.low is not None and ratio.low < share]
    least = f"The least of {len(found)} networks ({worst_name}) keeps {100 * worst.estimate:.1f} %"
    if short:
        outcome, sentence = FAILS, f"{least}; {len(short)} fall short of {100 * share:.0f} % beyond doubt."
    elif not unsure and (absent := [preset for preset in presets if not any(one == preset for one, _, _ in networks)]):
        outcome, sentence = OPEN, f"{least}; cannot be told yet of {', '.join(absent)}."
    elif not unsure:
        outcome, sentence = HOLDS, f"{least}; all are above {100 * share:.0f} % with their intervals."
    else:
        below = sum(ratio.high is not None and ratio.high < share for _, ratio, _ in found)
        wholly = f"{below} it lies wholly below, as one of many may by chance" if below else "none it lies wholly below"
        sentence = (
            f"{least}; for {len(unsure)} of {len(found)} networks the 95 % interval includes values below "
            f"{100 * share:.0f} %, for {wholly}."
        )
        outcome = OPEN
    return told(outcome, sentence, what, worst, "images", share, details)


def reversal(runs: Runs, shallow: str, deep: str, paper: tuple[float, float]) -> Verdict:
    """The last block's goodness over the first's: below one in the shallow network, above one in the deep."""
    missing = [preset for preset in (shallow, deep) if not of.present(runs, [preset])]
    sides = [
        list(of.over_seeds(runs, preset, lambda run: of.first_to_last(of.goodness(run))).values())
        for preset in (shallow, deep)
    ]
    what, papers = f"last block's goodness over the first's, {deep} minus {shallow}", paper[1] - paper[0]
    if missing or not all(sides):
        return nothing_yet(missing or [shallow, deep], what=what, paper=papers)
    flat, steep = (mean_interval(side) for side in sides)
    details = [
        measured(f"last block's goodness over the first's, {preset}", found, paper=value)
        for preset, found, value in zip((shallow, deep), (flat, steep), paper)
    ]
    both = f"{shallow} has {written(flat, sign=False)}, {deep} {written(steep, sign=False)}"
    change = difference_interval(sides[1], sides[0])._replace(n=min(flat.n, steep.n))
    if flat.high is None or steep.low is None or steep.high is None or flat.low is None:
        outcome, sentence = OPEN, f"{both}; {too_few(min(flat, steep, key=lambda one: one.n))}."
    elif flat.high < 1 < steep.low:
        outcome, sentence = HOLDS, f"{both}: from riding to working."
    elif flat.low > 1 or steep.high < 1 or (change.high is not None and change.high < 0):
        outcome, sentence = FAILS, f"{both}: no reversal."
    else:
        outcome, sentence = OPEN, f"{both}: the intervals reach over one."
    return told(outcome, sentence, what, change, paper=papers, details=details)


def leaving_early(runs: Runs, pairs: Sequence[tuple[str, str]]) -> Verdict:
    """How much of the blocks' work early exit saves at half a point's cost, the gate against a constant gamma."""
    details, verdicts = [], []
    for gated, constant in pairs:
        for preset in (gated, constant):
            saved = of.over_seeds(runs, preset, saved_by_leaving)
            if saved:
                what = f"share of the blocks' work saved at {LOST} points lost, {preset}"
                details.append(measured(what, mean_interval(list(saved.values()))))
            left = of.over_seeds(runs, preset, left_early)
            if left:
                what = f"share of images that leave before the last block at {LOST} points lost, {preset}"
                details.append(measured(what, mean_interval(list(left.values()))))
        apart = of.differences(runs, gated, constant, saved_by_leaving)
        if apart:
            verdicts.append((gated, constant, apart))
    if not verdicts:
        return nothing_yet([preset for pair in pairs for preset in pair], details)
    differ = [one for one in verdicts if not _all_leave_at_once(runs, one)]
    if not differ:
        gated, constant, _ = verdicts[0]
        why = f"in every run of {gated} and {constant} all images may leave after the first block at no more than"
        return not_to_be_told(f"{why} {LOST} points lost, so that nothing tells the rules apart", details)
    gated, constant, apart = next((one for one in differ if len(one[2]) >= LEAST), differ[0])
    found = mean_interval(list(apart.values()))
    saves = f"{gated} saves {written(found.scaled(100), 1)} points more of the work than {constant}"
    if found.low is None or found.high is None:
        outcome, sentence = OPEN, f"{saves}; {too_few(found)}."
    elif found.low > 0:
        outcome, sentence = HOLDS, f"{saves}."
    elif found.high < 0:
        outcome, sentence = FAILS, f"{saves}: it does not."
    else:
        outcome, sentence = OPEN, f"{saves}: the interval has room for both."
    what = f"share of the work saved, {gated} minus {constant}"
    return told(outcome, sentence, what, found, details=details)


def _all_leave_at_once(runs: Runs, pair: tuple[str, str, dict[int, float]]) -> bool:
    gated, constant, apart = pair
    return all(leave_at_once(runs[preset][seed]) for preset in (gated, constant) for seed in apart)


def earliest_exit(run: Run) -> dict[str, float]:
    """The point of the early-exit curve that saves most at no more than half a point lost; empty where there is none.

    Half a point of the whole network's accuracy, with room for rounding.
    """
    curve = of.health(run).get("early_exit") or []
    kept = [point for point in curve if point["accuracy"] >= curve[-1]["accuracy"] - LOST / 100 - 1e-9]
    return max(kept, key=lambda point: point["saved"], default={})


def saved_by_leaving(run: Run) -> float | None:
    """The share of the blocks' work that is not done there."""
    return earliest_exit(run).get("saved")


def left_early(run: Run) -> float | None:
    """The share of images that leave before the last block there; older runs do not have it on record."""
    return earliest_exit(run).get("left")


def leave_at_once(run: Run) -> bool:
    """Whether every image leaves after the first block there: no more can be saved, whatever the rule."""
    return earliest_exit(run).get("blocks") == 1


# Stage 2 and batch size


def gain_grows(runs: Runs, by_classes: dict[int, tuple[str, ...]], least: int, paper: dict[int, float]) -> Verdict:
    """Stage 2 minus Stage 1 in points, against the number of classes: the slope over tenfold classes.

    least is how many runs every number of classes must have.
    """

    def gain(run: Run) -> float | None:
        one, two = of.accuracy(run, tta=True), of.readout_accuracy(run, tta=True)
        if one is None or two is None:
            one, two = of.accuracy(run), of.readout_accuracy(run)
        return None if one is None or two is None else two - one

    points: list[tuple[int, float]] = []
    for classes, presets in by_classes.items():
        for preset in presets:
            points += [(classes, value) for value in of.over_seeds(runs, preset, gain).values()]
    details = [
        measured(
            f"gain of Stage 2 with {classes} classes, points",
            mean_interval([y for x, y in points if x == classes]),
            paper=paper.get(classes),
        )
        for classes in by_classes
        if any(x == classes for x, _ in points)
    ]
    what, slope = "points of gain for ten times the classes", _paper_slope(paper)
    seen = Counter(classes for classes, _ in points)
    if len(seen) < 2:
        wanted = [f"{presets[0]} with its readout" for classes, presets in by_classes.items() if classes not in seen]
        return nothing_yet(wanted, details, what, slope)
    found = slope_interval([math.log10(x) for x, _ in points], [y for _, y in points])
    means = [one.estimate or 0.0 for one in details]
    fewest = min(seen, key=lambda classes: seen[classes])
    says = f"The gain grows by {written(found)} points for ten times the classes"
    if found.low is None or found.high is None:
        outcome, sentence = OPEN, f"{says}; {too_few(found, 'runs')}."
    elif seen[fewest] < least:
        few = counted(seen[fewest], "runs")
        outcome, sentence = OPEN, f"{says}; cannot be told yet: n = {few} with {fewest} classes, and it takes {least}."
    elif absent := [classes for classes in by_classes if classes not in seen]:
        outcome, sentence = OPEN, f"{says}; cannot be told yet with {' and '.join(map(str, absent))} classes."
    elif found.high <= 0:
        outcome, sentence = FAILS, f"{says}: it does not."
    elif found.low > 0 and means == sorted(means):
        outcome, sentence = HOLDS, f"{says}, from data set to data set."
    else:
        outcome, sentence = OPEN, f"{says}; the interval or the order of the data sets leaves it open."
    return told(outcome, sentence, what, found, "runs", slope, details)


def _paper_slope(paper: dict[int, float]) -> float:
    return slope_interval([math.log10(classes) for classes in paper], list(paper.values())).estimate


def batch_size(runs: Runs, presets: Sequence[str], paper: float) -> Verdict:
    """sep_ni as a rate at the deepest block: runs of batch 512 against runs of batch 128, presets as units."""
    by_batch: dict[int, list[float]] = {}
    epochs: dict[int, set[int]] = {}
    there: list[str] = []
    for preset in presets:
        rate = of.mean_of(runs, preset, lambda run: of.deepest(of.by_block(run, "sep_ni_rate")))
        if rate is not None:
            run = next(iter(runs[preset].values()))
            there.append(preset)
            by_batch.setdefault(run.config.batch, []).append(100 * rate)
            epochs.setdefault(run.config.batch, set()).add(run.config.epochs)
    details = [
        measured(f"wrong-image separation with batch {batch}, %", mean_interval(values), "variants")
        for batch, values in sorted(by_batch.items())
    ]
    what = "wrong-image separation, batch 512 minus 128, points"
    if 512 not in by_batch or 128 not in by_batch:
        wanted = "variants of batch 512 and of batch 128 (fixed-nl, block0-label) that see wrong images"
        return nothing_yet([wanted], details, what, paper)
    found = difference_interval(by_batch[512], by_batch[128])
    confounded = (
        f"the variants of batch 128 also have gamma = 1, and learn for {of.from_to(epochs[128])} epochs, the others "
        f"for {of.from_to(epochs[512])}"
    )
    says = f"The right image leads in {written(found)} points more with batch 512 than with 128"
    if found.low is None or found.high is None:
        outcome, sentence = OPEN, f"{says}; {too_few(found, 'variants')} ({confounded})."
    elif short := of.long_enough(runs, there)[1]:
        why = f"{', '.join(short)} learned for less than half as many epochs as most, which alone would do it"
        outcome, sentence = OPEN, f"{says}; cannot be told yet: {why} ({confounded})."
    elif found.high < 1:
        outcome, sentence = FAILS, f"{says}: less than a point ({confounded})."
    elif found.low > 0:
        outcome, sentence = HOLDS, f"{says} ({confounded})."
    else:
        outcome, sentence = OPEN, f"{says}: the interval has room for both ({confounded})."
    return told(outcome, sentence, what, found, "variants", paper, details)
