"""The margin-band picture: how many predictions are close calls, run by run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from goodness.report.figure_files import write_figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#000000")


def margin_figure(found: dict[str, Any], path: Path) -> tuple[Path, Path]:
    """CDF of the cumulative margin for every group, with its bands, and what each pair disagrees on. PNG and SVG."""
    from matplotlib.figure import Figure

    groups = [group for group in found["groups"] if group["margins"]]
    figure = Figure(figsize=(8.5, 4.6), layout="constrained")
    axes = figure.subplots()
    shares = np.linspace(0, 100, 201)
    for colour, group in zip(COLOURS * len(groups), groups):
        margins = np.maximum(np.asarray(group["margins"]), 1e-3)
        axes.plot(margins, shares, color=colour, linewidth=2, label=group["name"])
    for width in (0.05, 0.1, 0.2, 0.5, 1.0):
        axes.axvline(width, color="0.85", linewidth=1, zorder=0)
    for style, pair in zip(("--", ":", "-.", (0, (1, 3))) * len(found["pairs"]), found["pairs"][:4]):
        differ = 100 * pair["predictions_differ"]
        label = f"{differ:.1f} % differ: {pair['a']} / {pair['b']}"
        axes.axhline(differ, color="0.35", linestyle=style, linewidth=1, label=label)
    axes.set_xscale("log")
    axes.set_xlabel("margin: best class's score minus the second's (log scale; lines at 0.05, 0.1, 0.2, 0.5, 1)")
    axes.set_ylabel("share of test images with at most that margin (%)")
    axes.set_title("How close the calls are: only predictions with a small margin can flip")
    axes.set_ylim(0, 100)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return write_figure(figure, path)
