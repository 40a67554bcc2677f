"""Every data figure of the paper, redrawn from our runs, with the paper's numbers beside them where it prints any.

    figures["scaling_L8"].draw(runs).savefig("scaling_L8.png")

`runs` are finished runs by preset and seed. A figure draws what is there and says what is missing; with nothing to draw
it raises a UserError that says what to train. Needs matplotlib: pip install 'goodness[plots]'.
"""

from __future__ import annotations

from goodness.paper.figures import comparisons, depth, training, weights  # noqa: F401  (they register)
from goodness.paper.figures.sheet import PaperFigure as PaperFigure
from goodness.paper.figures.sheet import figures as figures
