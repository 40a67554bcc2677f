"""Draws the two diagrams of docs/design.md: `python docs/figures/draw.py` writes them beside this file.

Names and numbers in them are read from the code where it has them, so that they cannot fall behind it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goodness.config import Config
from goodness.methods.cumulative.negatives import Teacher
from goodness.nn.head import AspectHead
from goodness.presets import preset

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT = "#333333", "#8a8a8a"
DATA, LEARNS, FIXED, LOSS, CUT = "#e8eef4", "#cfe3f3", "#eeeeea", "#fbe3d0", "#c2410c"
"""Tensors, what learns, what only computes, losses, and where the gradient ends."""


def canvas(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    """A sheet whose coordinates are inches, from the bottom left."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=100, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.axis("off")
    axes.text(0.2, height - 0.3, title, fontsize=13, fontweight="bold", color=INK, va="center")
    return figure, axes


def box(
    axes: Axes, x: float, y: float, w: float, h: float, words: str, colour: str = FIXED, size: float = 9, **style: Any
) -> tuple[float, float, float, float]:
    """A rounded box with words in its middle; gives its place back."""
    from matplotlib.patches import FancyBboxPatch

    shape = FancyBboxPatch(
        (x + 0.04, y + 0.04),
        w - 0.08,
        h - 0.08,
        boxstyle="round,pad=0.04,rounding_size=0.08",
        facecolor=colour,
        edgecolor=style.pop("edge", INK),
        linewidth=style.pop("line", 1.0),
        linestyle=style.pop("dash", "-"),
        zorder=style.pop("zorder", 2),
    )
    axes.add_patch(shape)
    anchor = style.pop("at", "middle")
    if anchor == "top":
        axes.text(x + 0.12, y + h - 0.2, words, fontsize=size, color=INK, va="center", ha="left", zorder=3, **style)
    else:
        axes.text(
            x + w / 2,
            y + h / 2,
            words,
            fontsize=size,
            color=INK,
            va="center",
            ha="center",
            zorder=3,
            linespacing=1.25,
            **style,
        )
    return x, y, w, h


def arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    words: str = "",
    *,
    colour: str = INK,
    dash: str = "-",
    bend: float = 0.0,
    shift: tuple[float, float] = (0.0, 0.12),
    size: float = 8,
) -> None:
    from matplotlib.patches import FancyArrowPatch

    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=11,
            linewidth=1.3,
            color=colour,
            linestyle=dash,
            connectionstyle=f"arc3,rad={bend}",
            shrinkA=0,
            shrinkB=0,
            zorder=4,
        )
    )
    if words:
        x, y = (start[0] + end[0]) / 2 + shift[0], (start[1] + end[1]) / 2 + shift[1]
        axes.text(x, y, words, fontsize=size, color=colour, ha="center", va="center", zorder=5)


def cut(axes: Axes, x: float, y: float, height: float = 0.3) -> None:
    """Two strokes across an arrow: no gradient passes."""
    for offset in (-0.035, 0.035):
        axes.plot([x + offset] * 2, [y - height / 2, y + height / 2], color=CUT, linewidth=2, zorder=6)


def architecture() -> Figure:
    """From an image and a label to a goodness per block; below, one block in detail."""
    config = preset("gamma0")
    blocks, width = config.model.blocks, config.model.width
    figure, axes = canvas(12.6, 7.6, "The network: every block scores an image under a label, and their scores add up")
    y = 5.35
    box(axes, 0.2, y, 1.25, 0.95, "image\n[C, H, W]", DATA)
    box(axes, 1.85, y, 1.7, 0.95, "stem: conv, conv\n(stride 2), patch conv\nlearns with block 0", LEARNS, 8.5)
    arrow(axes, (1.45, y + 0.48), (1.85, y + 0.48))
    x, step = 4.3, 1.95
    for d in range(blocks):
        left = x + d * step
        begin = left - (0.75 if d == 0 else step - 1.15)
        arrow(axes, (begin, y + 0.48), (left, y + 0.48))
        if d:
            cut(axes, left - 0.42, y + 0.48)
        box(axes, left, y, 1.15, 0.95, f"block {d}", LEARNS, 10, fontweight="bold")
        arrow(axes, (left + 0.3, y + 1.32), (left + 0.3, y + 0.95))
        axes.text(left + 0.3, y + 1.42, "label k", fontsize=8, color=INK, ha="center")
        arrow(axes, (left + 0.58, y), (left + 0.58, y - 0.5))
        axes.text(left + 0.68, y - 0.24, f"$g^{{({d})}}$", fontsize=10, color=INK, va="center")
    axes.text(3.92, y + 0.62, f"tokens\n[64, {width}]", fontsize=7.5, color=INK, ha="center", va="bottom")
    axes.text(x + 1.15 + 0.4, y - 0.12, "ReLU, norm,\ndetach", fontsize=7.5, color=CUT, ha="center", va="top")
    box(
        axes,
        x,
        y - 0.98,
        (blocks - 1) * step + 1.15,
        0.48,
        "sum over the blocks under each label k: the prediction is the label with the largest sum",
        FIXED,
        9,
    )
    # one block
    top = 3.85
    box(axes, 0.2, 0.55, 12.2, top - 0.55, "inside one block", "white", 9.5, at="top", dash="--", edge=SOFT, zorder=0)
    y = 2.2
    box(axes, 0.4, y, 1.35, 0.95, "tokens in", DATA)
    box(axes, 2.15, y, 1.6, 0.95, "label enters:\ntokens × (1 + e$_k$)", LEARNS, 8.5)
    box(axes, 4.15, y, 1.75, 0.95, "RMSNorm,\nself-attention\n(2-D rotary), +", LEARNS, 8.5)
    box(axes, 6.3, y, 1.3, 0.95, "memory, +\n(off by\ndefault)", LEARNS, 8, dash="--")
    experts, top_k = (getattr(config.model.block, name) for name in ("experts", "top_k"))
    box(
        axes,
        8.0,
        y,
        1.95,
        0.95,
        f"RMSNorm, GEGLU, +\ndense, or {experts} experts,\n{top_k} a token",
        LEARNS,
        8.5,
    )
    box(axes, 10.4, y, 1.8, 0.95, "tokens out: ReLU,\nscaled to one norm,\ndetached", DATA, 8.5)
    for a, b in ((1.75, 2.15), (3.75, 4.15), (5.9, 6.3), (7.6, 8.0), (9.95, 10.4)):
        arrow(axes, (a, y + 0.48), (b, y + 0.48))
    cut(axes, 10.17, y + 0.48)
    y = 0.8
    arrow(axes, (8.97, 2.2), (8.97, y + 0.8))
    box(axes, 8.1, y, 1.75, 0.8, "attention pool", LEARNS, 8.5)
    explained = {
        "align": "align: cosine to\nthe label's prototype",
        "energy": "energy: mean\nsquare of tokens",
        "sharpness": "sharpness: of memory\nattention, else 0",
        "learned": "learned:\na small MLP",
    }
    box(axes, 2.2, y - 0.12, 5.65, 1.04, "", "white", dash=":", edge=SOFT, zorder=1)
    place = 7.77
    for name in reversed(AspectHead.names):
        box(axes, place - 1.36, y, 1.36, 0.8, explained[name], LEARNS if name != "energy" else FIXED, 7.2)
        place -= 1.385
    arrow(axes, (8.1, y + 0.4), (7.85, y + 0.4))
    box(axes, 0.4, y, 1.5, 0.8, "goodness $g^{(d)}$:\nsoftmax(α) · aspects", LOSS, 8)
    arrow(axes, (2.2, y + 0.4), (1.9, y + 0.4))
    _legend(axes, 0.2, 0.22)
    return figure


def _legend(axes: Axes, x: float, y: float) -> None:
    for words, colour in (("tensor", DATA), ("learns", LEARNS), ("nothing learned", FIXED), ("score or loss", LOSS)):
        box(axes, x, y - 0.1, 0.28, 0.24, "", colour, line=0.8)
        axes.text(x + 0.36, y + 0.02, words, fontsize=8, color=INK, va="center")
        x += 0.36 + 0.09 * len(words) + 0.35
    cut(axes, x + 0.1, y + 0.02, 0.22)
    axes.text(x + 0.25, y + 0.02, "no gradient passes", fontsize=8, color=CUT, va="center")


def training_step() -> Figure:
    """What one batch does to one block, and what it hands on."""
    config: Config = preset("gamma0")
    mining = config.negatives if isinstance(config.negatives, Teacher) else Teacher()
    figure, axes = canvas(
        12.6, 6.95, "One training step: each block learns from its own loss, and no gradient crosses to another"
    )
    # streams
    box(axes, 0.2, 4.95, 1.35, 1.2, "batch:\nimages x,\nlabels y", DATA)
    arrow(axes, (1.55, 5.55), (1.95, 5.55))
    box(axes, 1.95, 4.95, 1.3, 1.2, "augment:\nthree views,\ndrawn per\nimage", FIXED, 8.5)
    arrow(axes, (3.25, 5.55), (3.65, 5.55))
    box(axes, 3.65, 4.95, 1.35, 1.2, "stem\n(learns with\nblock 0)", LEARNS)
    arrow(axes, (5.0, 5.55), (5.6, 5.55), "tokens", shift=(-0.02, 0.14))
    streams = (
        ("pos1", "view 1, right label"),
        ("pos2", "view 2, right label"),
        ("nl", "view 3, mined wrong label"),
        ("ni", "view 3 of another image, right label"),
    )
    for place, (name, words) in enumerate(streams):
        y = 6.18 - 0.42 * place
        box(axes, 5.6, y - 0.2, 3.0, 0.4, "", DATA if place < 2 else LOSS)
        axes.text(5.75, y, name, fontsize=9, fontweight="bold", va="center", color=INK, zorder=5)
        axes.text(6.25, y, words, fontsize=8.3, va="center", color=INK, zorder=5)
    axes.plot([8.6, 9.1, 9.1, 1.2], [5.55, 5.55, 4.58, 4.58], color=INK, linewidth=1.3)
    arrow(axes, (1.2, 4.58), (1.2, 3.85))
    words = "four streams; then, for each\nblock d from first to last:"
    axes.text(9.3, 5.1, words, fontsize=9, color=INK, style="italic", va="center")
    # block d
    box(axes, 0.2, 0.6, 12.2, 3.75, "", "white", dash="--", edge=SOFT, zorder=0)
    axes.text(12.25, 4.2, "block d", fontsize=9.5, color=INK, ha="right", va="center")
    box(
        axes,
        0.4,
        2.85,
        1.75,
        1.0,
        f"mine: of {mining.k_first} to {mining.k_last} drawn\nwrong labels the one that\nteacher block d scores best",
        FIXED,
        7.4,
    )
    box(axes, 0.4, 1.25, 1.75, 0.75, "teacher: moving\naverage of block d", FIXED, 8)
    arrow(axes, (1.27, 2.0), (1.27, 2.85))
    box(axes, 2.6, 2.85, 1.6, 1.0, "block d,\nall streams,\neach under its label", LEARNS, 8.3, fontweight="bold")
    arrow(axes, (2.15, 3.35), (2.6, 3.35))
    box(axes, 4.75, 2.85, 1.85, 1.0, "goodness\ng$_+$ = mean(pos1, pos2)\ng$_-$ of nl, g$_-$ of ni", DATA, 8.3)
    arrow(axes, (4.2, 3.35), (4.75, 3.35))
    box(axes, 7.1, 2.85, 1.55, 1.0, "margin\nm = g$_+$ − g$_-$", DATA, 9)
    arrow(axes, (6.6, 3.35), (7.1, 3.35))
    box(
        axes,
        9.15,
        2.85,
        3.0,
        1.0,
        "loss of block d: barrier\nsoftplus(−β (m + w P))\n+ aspects, contrast, reconstruction, ...",
        LOSS,
        8.3,
    )
    arrow(axes, (8.65, 3.35), (9.15, 3.35))
    box(axes, 6.2, 1.25, 2.45, 0.85, "ledger: P = Σ margins of\nblocks 0 .. d−1, as numbers", FIXED, 8.3)
    box(axes, 9.15, 1.25, 3.0, 0.85, "rule: w per image\n0 (local), γ (constant),\nγ σ(τ (κ − s)) (gate)", FIXED, 8)
    arrow(axes, (8.65, 1.68), (9.15, 1.68))
    arrow(axes, (10.65, 2.1), (10.65, 2.85), "w P", shift=(0.25, 0.0), size=9)
    arrow(axes, (6.0, 2.85), (6.75, 2.1), "detach", colour=CUT, shift=(-0.32, -0.05))
    # gradient
    box(axes, 2.6, 1.25, 2.75, 0.75, "optimiser of block d alone\n(AdamW; SAM: gradient taken twice)", FIXED, 8)
    axes.plot([11.9, 11.9], [3.85, 4.08], color=CUT, linewidth=1.4, linestyle="--")
    axes.plot([11.9, 3.4], [4.08, 4.08], color=CUT, linewidth=1.4, linestyle="--")
    arrow(axes, (3.4, 4.08), (3.4, 3.85), colour=CUT)
    axes.text(
        7.4,
        4.2,
        "gradient: into block d (and the stem if d = 0), no further",
        fontsize=8.3,
        color=CUT,
        ha="center",
        va="center",
    )
    arrow(axes, (3.4, 2.85), (3.4, 2.0), colour=CUT, dash="--")
    arrow(axes, (2.6, 1.63), (2.15, 1.63))
    # hand on
    axes.text(0.4, 0.88, "To block d + 1:", fontsize=9, color=INK, va="center", fontweight="bold")
    axes.text(
        1.85,
        0.88,
        "tokens: ReLU, each scaled to one norm, detached.   Ledger: one more entry, numbers only.   "
        "The nl stream mines a new wrong label on its own tokens.",
        fontsize=8.5,
        color=INK,
        va="center",
    )
    _legend(axes, 0.2, 0.26)
    return figure


DIAGRAMS = {"architecture": architecture, "training_step": training_step}


def main(folder: Path) -> None:
    import matplotlib

    for name, draw in DIAGRAMS.items():
        with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
            draw().savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
