"""Judges of Theorem 1: gradients against its formula, images against its assumptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from goodness.health.stats import share_interval
from goodness.paper import measured as of
from goodness.paper.measured import Runs
from goodness.paper.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    Measured,
    Verdict,
    measured,
    nothing_yet,
    told,
)
from goodness.sweep.theory import is_kept, kept_theory


def theorem(runs: Runs, presets: Sequence[str]) -> Verdict:
    """Measured gradients against the formula, of every run that keeps them; a unit is one image's gradient at one
    block."""
    follow, total, broken, trouble = 0, 0, 0, []
    details: list[Measured] = []
    for preset in of.present(runs, presets):
        kept = {f"{preset}, seed {seed}": (run, kept_theory(run)) for seed, run in sorted(runs[preset].items())}
        told_of = [(name, found) for name, (_, found) in kept.items() if isinstance(found, dict)]
        wrong = [f"{name}: {found}" for name, (run, found) in kept.items() if isinstance(found, str) and is_kept(run)]
        name, (_, first) = next(iter(kept.items()))
        trouble += wrong or ([] if told_of else [f"{name}: {first}"])
        for name, found in told_of:
            for block in found["blocks"]:
                identity, cover = block["identity"], block["coverage"]
                follow += identity["measured"] - identity["violations"]
                total += identity["measured"]
                broken += block["sandwich"]["violations"]
                details.append(
                    Measured(
                        what="R at the mean margins of test images, each against the hardest wrong label, kept through "
                        f"all blocks; {name}, block {block['block']}",
                        estimate=cover["ratio_at_means"],
                        n=cover["examples"],
                        unit="images",
                    )
                )
    what = "share of gradients that follow the formula"
    if not total:
        open_ = nothing_yet(presets[:2], details, what, 1.0)
        if not trouble:
            return open_
        return replace(open_, sentence=f"Cannot be told yet, no gradient could be measured: {trouble[0]}.")
    found = share_interval(max(follow, 0), total)
    says = f"{max(follow, 0)} of {total} gradients are R times the local one to nine digits"
    if follow == total and not broken:
        outcome, sentence = HOLDS, f"{says}, and R is within its bounds wherever they apply."
    else:
        outcome, sentence = FAILS, f"{says}; {broken} leave the bounds of the theorem."
    verdict = told(outcome, sentence, what, found, "gradients", 1.0, details)
    return replace(verdict, beside=(f"Not counted: {'; '.join(trouble)}.",)) if trouble else verdict


def coverage(runs: Runs, presets: Sequence[str]) -> Verdict:
    """The share of test images on which the theorem's assumptions hold, network by network and block by block; the
    least decides."""
    counts = [
        (f"{preset}, seed {seed}, block {depth}", [m >= 0 and past >= 0 for m, past, _ in points])
        for preset in presets
        for seed, run in sorted(runs.get(preset, {}).items())
        for depth, points in enumerate(of.health(run).get("attenuation_points") or [])
        if depth and points
    ]
    if not counts:
        return nothing_yet(presets)
    strict = 1 - 0.05 / len(counts)  # that one of many falls short by chance is likely: Bonferroni
    found = [(where, share_interval(sum(inside), len(inside))) for where, inside in counts]
    short = [share_interval(sum(inside), len(inside), confidence=strict) for _, inside in counts]
    name, least = min(found, key=lambda one: one[1].estimate)
    details = [measured(f"share with m ≥ 0 and P ≥ 0, {where}", one, "images") for where, one in found]
    says = f"Where they hold least ({name}), the assumptions hold on {100 * least.estimate:.0f} % of the images"
    absent = [preset for preset in presets if not any(where.startswith(f"{preset},") for where, _ in counts)]
    if any(one.high is not None and one.high < 0.5 for one in short):
        outcome, sentence = FAILS, f"{says}: less than half."
    elif all(one.low is not None and one.low > 0.5 for _, one in found):
        outcome, sentence = HOLDS, f"{says}: on most, at every block."
        if absent:
            outcome, sentence = OPEN, f"{says}; cannot be told yet of {', '.join(absent)}."
    else:
        below = least.high is not None and least.high < 0.5
        why = (
            f"below a half at 95 %, as one of {len(found)} may be by chance" if below else "the interval reaches a half"
        )
        outcome, sentence = OPEN, f"{says}: {why}."
    return told(
        outcome, sentence, "least share of images inside the theorem's assumptions", least, "images", details=details
    )
