"""Figures, drawn with matplotlib from the same numbers as the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from goodness.report.ink import COOL, RIDES, WARM, WORKS
from goodness.report.names import DEMO_NAMES

COLOURS = {"local": WORKS, "gated": COOL[1], "constant": RIDES, "lcff": WARM[1]}
"""Those that the report gives four such runs."""
MARKERS = {"local": "o", "gated": "s", "constant": "^", "lcff": "v"}


def demo_figure(result: dict[str, Any], path: Path, collapsed: bool) -> None:
    """Left: what each block separates by itself. Right: accuracy when blocks 0..d vote. PNG, and SVG beside it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 3.9), layout="constrained")
    health, accuracy = figure.subplots(1, 2)
    for rule in result["rules"]:
        name = rule["name"]
        depths = range(len(rule["blocks"]))
        style = {"color": COLOURS[name], "marker": MARKERS[name], "linewidth": 2, "label": DEMO_NAMES[name]}
        health.plot(depths, [block["sep_cur"] for block in rule["blocks"]], **style)
        accuracy.plot(depths, [100 * block["accuracy"] for block in rule["blocks"]], **style)
    health.axhline(0, color="0.6", linewidth=0.8)
    verdict = "cumulative rules starve the later blocks" if collapsed else "no collapse in these runs"
    health.set_title(f"What each block separates by itself:\n{verdict}")
    health.set_ylabel("sep_cur: right digit's goodness minus\nthe strongest wrong digit's")
    final = [100 * rule["accuracy"] for rule in result["rules"]]
    accuracy.set_title(f"Accuracy when blocks 0..d vote:\n{min(final):.1f} to {max(final):.1f} % with all four blocks")
    accuracy.set_ylabel("test accuracy (%)")
    accuracy.set_ylim(min(80, min(final) - 5), 100)
    for axes in (health, accuracy):
        axes.set_xticks(range(len(result["rules"][0]["blocks"])))
        axes.set_xlabel("block d")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9")
    health.legend(frameon=False)
    for ending in (".png", ".svg"):
        figure.savefig(path.with_suffix(ending), dpi=150)
