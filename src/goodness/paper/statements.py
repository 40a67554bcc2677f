"""What a contradiction is made of: statements of the paper, each with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from goodness.paper.numbers import about

Kind = Literal["number", "label", "claim", "setting", "cited"]


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One of the things said."""

    says: float | str
    where: str
    cell: tuple[str, str, str] | None = None
    """Table, row and column, if it stands in a table."""


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """Statements that cannot all hold, or that a reader would take for one another."""

    name: str
    what: str
    statements: tuple[Statement, ...]
    ours: str
    """What we take, or how we read it."""
    kind: Kind
    """Two values of one number; one value under two labels; a sentence that its table does not bear out; two settings
    of one run; the paper against the work that it cites."""


def at(label: str, row: str, column: str, says: float | str) -> Statement:
    return Statement(says=says, where=about(label).where, cell=(label, row, column))


def said(where: str, says: float | str) -> Statement:
    return Statement(says=says, where=where)
