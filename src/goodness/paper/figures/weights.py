"""Figures of the learning signal: what history leaves of it, and what a block's loss is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from goodness.health.measures import attenuation_bounds
from goodness.paper import measured as of
from goodness.paper.figures.depth import SEPARATION
from goodness.paper.figures.sheet import Sheet, block_axis, colour_of, name_of, paper_figure, zero_line
from goodness.report.ink import COLOURS, kept_axis
from goodness.runs.run import Run
from goodness.sweep.theory import kept_theory

LEAST = 1e-10
"""Where the axis of the attenuation ends."""


@paper_figure(
    "grad_attenuation",
    "Margins by block, and what the earlier blocks' evidence leaves of the deepest block's gradient.",
    ("d128-gamma0", "d128-cumulative", "d128-lcff"),
    theory=True,
)
def grad_attenuation(sheet: Sheet) -> None:
    left, right = sheet.panels(
        "The more the earlier blocks have settled, the less the deepest one learns", columns=2, size=(11.5, 4.8)
    )
    margins = of.margins(run for name in sheet.presets for run in sheet.runs[name].values())
    drawn = sheet.by_block(left, sheet.presets, margins, metric="margin")
    sheet.need(drawn, "margins by block")
    block_axis(left)
    left.set_ylabel(SEPARATION)
    zero_line(left)
    furthest, smallest, is_measured = 0.5, 0.1, False
    for name in sheet.presets:
        run, colour = of.checked(sheet.runs[name]), colour_of(name)
        points, measured = _deepest_points(run)
        is_measured = is_measured or measured
        for inside in (False, True):
            some = [(past, max(ratio, LEAST)) for is_inside, past, ratio in points if is_inside == inside]
            if some:
                fill: dict[str, Any] = {"color": colour} if inside else {"mfc": "none", "mec": colour, "alpha": 0.45}
                right.plot(*zip(*some), "o", markersize=3.5, linestyle="", **fill)
                furthest = max(furthest, *(past for past, _ in some))
                smallest = min(smallest, *(ratio for _, ratio in some))
    for name in sheet.presets:
        _envelope(right, of.checked(sheet.runs[name]), furthest, colour_of(name))
    right.set_yscale("log")
    right.set_xlim(None, 1.03 * furthest)
    kept_axis(right, LEAST)
    right.set_ylim(smallest / 5, 30)
    right.set_xlabel("P: margin that the earlier blocks have, added up")
    right.set_ylabel("what is left of the deepest block's\ngradient (with history ÷ without)")
    how = "measured from its gradients" if is_measured else "by the formula R, from its margins"
    right.set_title(f"a point is a test image, {how}", fontsize=10)
    where = "on test images, each block mining anew" if margins is of.mined_anew else "over the last epoch's training"
    sheet.notes.append(
        f"Left: ours {where}, the paper's on test images. Right: one seed; band: Theorem 1; "
        "filled: block and past both right, where it applies; hollow: not."
    )
    sheet.legend(left)


def _deepest_points(run: Run) -> tuple[list[tuple[bool, float, float]], bool]:
    """(inside the theorem's assumptions, P, R) of some images at the deepest block, and whether R was measured."""
    checked = kept_theory(run)
    if isinstance(checked, dict) and checked["blocks"]:
        examples: list[dict[str, Any]] = checked["blocks"][-1].get("examples", [])
        found = [
            (one["margin"] >= 0 and one["past"] >= 0, one["past"], one["measured"])
            for one in examples
            if one["measured"] is not None
        ]
        if found:
            return found, True
    points = (of.health(run).get("attenuation_points") or [[]])[-1]
    return [(m >= 0 and past >= 0, past, ratio) for m, past, ratio in points], False


def _envelope(axes: Any, run: Run, furthest: float, colour: str) -> None:
    """The theorem's band for a constant gamma; a gate has none over P alone."""
    gamma = getattr(run.config.rule, "gamma", None)
    if gamma is None:
        return
    x = np.linspace(0, furthest, 200)
    low, high = attenuation_bounds(x, gamma, run.config.beta)
    axes.fill_between(x, np.maximum(low, LEAST), np.maximum(high, LEAST), color=colour, alpha=0.18, lw=0, zorder=1)


@paper_figure("loss_decomposition", "What a block's loss is made of at the end of training.", ("cp-fair", "gamma0"))
def loss_decomposition(sheet: Sheet) -> None:
    found = {name: parts for name in sheet.presets if (parts := _parts(min(sheet.runs[name].items())[1]))}
    sheet.need(found, "losses by term (metrics.jsonl)")
    panels = sheet.panels(
        "What is a block's loss made of? Each term times its weight", columns=len(found), share_y=True
    )
    terms = list(dict.fromkeys(term for parts in found.values() for term in parts))
    for axes, (name, parts) in zip(panels, found.items()):
        depth = max(len(values) for values in parts.values())
        base = np.zeros(depth)
        for term, values in parts.items():
            colour = COLOURS[terms.index(term) % len(COLOURS)]
            hatch = "//" if terms.index(term) >= len(COLOURS) else None
            axes.bar(range(depth), values, bottom=base, width=0.65, color=colour, hatch=hatch, label=term)
            base += np.array(values)
        axes.set_title(name_of(name), fontsize=10)
        axes.set_xticks(range(depth))
        block_axis(axes)
    panels[0].set_ylabel("training loss, last epoch")
    sheet.is_of_one_seed = True
    sheet.legend(panels[0], title="term")


def _parts(run: Run) -> dict[str, list[float]]:
    """Every term's weighed loss by block in the last epoch; a term that a block lacks is zero there."""
    lines = of.lines(run)
    blocks = lines[-1].get("train", {}).get("blocks", []) if lines else []
    config, found = run.config, dict[str, list[float]]()
    for name, term in config.objective.items():
        values = [
            float(term.coefficient(d, len(blocks), 1.0)) * block.get(f"loss_{name}", 0.0)
            for d, block in enumerate(blocks)
        ]
        if any(values):
            found[name] = values
    return found
