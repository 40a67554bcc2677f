"""How a run gets its name: a function that returns a configuration, or what it changes in another."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from goodness.config import Config, override
from goodness.registry import Registry

presets: Registry[Callable[[], Config]] = Registry("preset")

Changes = dict[str, Any]
"""Dotted fields and their new values, as `override` takes them."""

_bases: dict[str, str] = {}


def preset(name: str) -> Config:
    """The configuration of a named run."""
    return override(presets[name](), {"preset": name})


def variant(name: str, of: str) -> Callable[[Callable[[], Changes]], Callable[[], Changes]]:
    """Decorator: the function returns what `name` changes in the preset `of`, and its docstring says what that is."""
    base = presets[of]

    def register(changes: Callable[[], Changes]) -> Callable[[], Changes]:
        @functools.wraps(changes)
        def config() -> Config:
            return override(base(), changes())

        presets.register(name)(config)
        _bases[name] = of
        return changes

    return register


def add_variants(prefix: str, of: str, rows: Mapping[str, tuple[str, Changes]]) -> None:
    """Register a table of variants too small for functions of their own: end of the name, what it is, what changes."""
    for end, (about, changes) in rows.items():

        def row(changes: Changes = changes) -> Changes:
            return changes

        name = f"{prefix}-{end}"
        row.__doc__, row.__name__, row.__qualname__ = about, name, name  # by which the registry tells rows apart
        variant(name, of=of)(row)


def base_of(name: str) -> str | None:
    """The preset that `name` derives from; None for one that stands alone."""
    presets[name]  # an unknown name is an error
    return _bases.get(name)


def without(*terms: str) -> Changes:
    """The changes that take these terms out of the objective."""
    return {f"objective.{term}": None for term in terms}
