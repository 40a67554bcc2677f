"""Numbers and lists in words, as page and figures write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from goodness.report.theory_figure import in_words

SMALLEST = 1e-12
"""Where the attenuation axis ends: whatever is below is drawn on its edge."""


def number(value: float) -> str:
    """
    >>> number(-0.12812), number(2.0), number(98.15745)
    ('−0.13', '2', '98.16')
    """
    text = f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"
    text = text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
    return ("0" if text in ("-0", "") else text).replace("-", "−")


def named_blocks(depths: Sequence[int]) -> str:
    """
    >>> named_blocks([3]), named_blocks([1, 2, 3]), named_blocks([0, 2])
    ('block 3', 'blocks 1, 2 and 3', 'blocks 0 and 2')
    """
    return f"block{'s' * (len(depths) > 1)} {listed([str(depth) for depth in depths])}"


def named_seeds(seeds: Sequence[int]) -> str:
    """
    >>> named_seeds([42]), named_seeds([42, 123])
    ('seed 42', 'seeds 42, 123')
    """
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


COSTS = 0.01
"""Accuracy that the later blocks must cost before anything is said of it."""


def what_later_blocks_cost(accuracies: Sequence[float]) -> str:
    """A sentence where the network would be more accurate without its last blocks, from the accuracies of blocks 0..d;
    empty where it would not.

    >>> what_later_blocks_cost([0.918, 0.921, 0.879, 0.831])
    'blocks 2 and 3 cost accuracy: 92.1 % without them, 83.1 % with them'
    >>> what_later_blocks_cost([0.9, 0.92, 0.915])
    ''
    """
    if not accuracies or max(accuracies) - accuracies[-1] <= COSTS:
        return ""
    best = max(range(len(accuracies)), key=lambda depth: accuracies[depth])
    later = list(range(best + 1, len(accuracies)))
    verb, them = ("costs", "it") if len(later) == 1 else ("cost", "them")
    before, after = percent(accuracies[best], 1), percent(accuracies[-1], 1)
    return f"{named_blocks(later)} {verb} accuracy: {before} without {them}, {after} with {them}"


def listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def percent(share: float, digits: int = 0) -> str:
    return "under 1 %" if not digits and 0 < share < 0.01 else f"{100 * share:.{digits}f} %"


def kept_in_words(share: float) -> str:
    """
    >>> kept_in_words(1.0), kept_in_words(0.57), kept_in_words(0.0005), kept_in_words(0.0)
    ('all', '57 %', '1 part in 2,000', 'next to nothing')
    """
    if share <= SMALLEST:
        return "next to nothing"
    if share < 0.995:
        return in_words(share)
    return "all" if share < 1.005 else f"{number(share)} times as much"


def short(name: str, most: int = 14) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def part_of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def markdown_line(cells: Iterable[str]) -> str:
    """A row of a table of Markdown."""
    return "| " + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells) + " |"
