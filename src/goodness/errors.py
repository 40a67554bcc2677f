"""What can go wrong, sorted by whose it is to mend: exit 2 for the user's mistake, 1 for the run's own trouble."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in what was asked for; the command line prints it and exits with 2."""

    exit_code = 2


class ConfigError(UserError):
    """A configuration field with an unknown name, a wrong type or a value out of range."""


class UnknownName(ConfigError):
    """No part, preset, data set, ... is registered under that name."""


class DataError(UserError):
    """A data set that is missing, damaged or not what its name says."""


class MissingRuns(UserError):
    """What was asked for reads runs that are not there."""


class RunError(Exception):
    """A run that cannot go on (a full disk, a loss that is not finite); exits with 1."""

    exit_code = 1


DAMAGE = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a reader of files may stumble over where they hold other things than we write."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """The end of an error message: the names closest to `name`, or all of them when nothing is close; 1 is the same.

    >>> nearest("gated-dens", ["gated-dense", "lcff-dense", "demo"])
    "did you mean 'gated-dense'?"
    """
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=3, cutoff=cutoff)
    if close:
        return "did you mean " + " or ".join(f"'{one}'" for one in close) + "?"
    return "known: " + ", ".join(names)


def tells_of_full_memory(trouble: Exception) -> bool:
    """Whether an error, torch's too, is about memory that is used up, and not, say, about an illegal access to it."""
    words = ("out of memory", "not enough memory", "can't allocate memory")
    return isinstance(trouble, MemoryError) or (
        isinstance(trouble, RuntimeError) and any(one in str(trouble).lower() for one in words)
    )
