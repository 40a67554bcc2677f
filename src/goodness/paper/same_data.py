"""Whether runs of one data set may stand beside each other in a table, a figure or a finding."""

from __future__ import annotations

from goodness.paper.pool import Pool
from goodness.sweep.collect import DATA, TEST_ORDER

WORDS = {TEST_ORDER: "other test images, or in another order, than", DATA: "other data or another split than"}


class SameData:
    """Runs are compared only on the same data, and on the same test images in one order: those of the first run of a
    data set that is looked at."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._first: dict[str, tuple[dict[str, str], str]] = {}  # of each data set: its facts, and the run's name

    def difference(self, preset: str, seed: int) -> str:
        """In what a finished run is not as the first of its data set; empty where it is."""
        name, facts = f"{preset}, seed {seed}", self._pool.facts(preset, seed)
        if not facts:  # it is not finished, or of no use, which others tell
            return ""
        mine = {key: str(facts.get(key)) for key in WORDS}
        theirs, other = self._first.setdefault(self._pool.cell(preset, seed).config.data, (mine, name))
        wrong = next((key for key in WORDS if mine[key] != theirs[key]), None)
        return "" if wrong is None else f"{WORDS[wrong]} {other}"
