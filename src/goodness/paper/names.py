"""What a name means: a table of the paper, a figure, both of them, or a finding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from goodness.errors import UserError, nearest
from goodness.paper.extras import Extra, figures, findings
from goodness.paper.suites import PaperTable, paper_tables

KINDS: Mapping[str, str] = {"tab": "table", "fig": "figure", "finding": "finding"}
"""What may stand before a name and a colon, to say which is meant."""


@dataclass(frozen=True)
class Named:
    """What has a name."""

    table: PaperTable | None = None
    figure: Extra | None = None
    finding: Extra | None = None

    def __iter__(self) -> Iterator[PaperTable | Extra]:
        return (one for one in (self.table, self.figure, self.finding) if one is not None)

    def each(self) -> Iterator[Named]:
        """Table, figure and finding apart."""
        return (Named(**{kind: getattr(self, kind)}) for kind in KINDS.values() if getattr(self, kind) is not None)


def named(label: str, also: Iterable[str] = ()) -> Named:
    """The table and the figure of this name; the finding where neither has it, or with `finding:` before it.

    A table may be named by its number in the paper: `3`, `tab:3`, `Table 3`. A name that nothing has is refused with
    the nearest; `also` are words that would have been understood too.
    """
    kind, _, name = label.rpartition(":")
    if kind in ("", "tab") and (numbered := re.fullmatch(r"(?:table )?(\d{1,4})", name.lower())):
        kind, name = "tab", next((one.label for one in paper_tables() if one.about.number == int(numbered[1])), name)
    known: dict[str, Mapping[str, Any]] = {
        "tab": {one.label: one for one in paper_tables()},
        "fig": figures(),
        "finding": findings(),
    }
    if kind not in known:
        found = Named(known["tab"].get(name), known["fig"].get(name)) if not kind else Named()
        if any(found):
            return found
        if not kind and name in known["finding"]:
            return Named(finding=known["finding"][name])
        names = [*(one for group in known.values() for one in group), *also]
        raise UserError(f"the paper has no table, figure or finding '{label}': {nearest(name, names)}")
    if kind == "tab" and name.isdigit():
        numbers = [one.about.number for one in paper_tables() if one.about.number]
        raise UserError(f"the paper has no table '{name}': its tables are {min(numbers)} to {max(numbers)}")
    if name not in known[kind] and (others := [KINDS[one] for one in known if name in known[one]]):
        raise UserError(f"the paper has no {KINDS[kind]} '{name}', but a {others[0]}: goodness paper {name}")
    if name not in known[kind]:
        raise UserError(f"the paper has no {KINDS[kind]} '{name}': {nearest(name, known[kind])}")
    return Named(**{KINDS[kind]: known[kind][name]})
