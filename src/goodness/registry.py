"""Named parts. A registry maps a name to a class; a configuration refers to the class by that name.

Every kind of part that a user may add (collaboration rule, term, negatives, goodness, block, label injection,
data set) has one registry, and adding a part is one decorator, inside this package or outside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from goodness.errors import ConfigError, UnknownName, nearest

Part = TypeVar("Part")


T = TypeVar("T")


class Registry(Generic[T]):
    """An ordered mapping from name to part, with errors that offer the nearest names."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}

    def register(self, name: str) -> Callable[[Part], Part]:
        """A decorator that files a class or function under `name`, and tells it its name."""

        def add(part: Part) -> Part:
            known = self._parts.get(name)
            if known is not None and _identity(known) != _identity(part):
                raise ConfigError(f"a {self.kind} named '{name}' exists already: {known!r}")
            self._parts[name] = part  # type: ignore[assignment]
            if isinstance(part, type):
                part.kind = name  # type: ignore[attr-defined]
            return part

        return add

    def __getitem__(self, name: str) -> T:
        try:
            return self._parts[name]
        except KeyError:
            raise UnknownName(f"unknown {self.kind} '{name}': {nearest(name, self._parts)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def items(self) -> Iterator[tuple[str, T]]:
        return iter(self._parts.items())


def _identity(part: object) -> tuple[str, str]:
    """Module and name: the same class imported twice (a reloaded notebook cell) may replace itself."""
    return getattr(part, "__module__", ""), getattr(part, "__qualname__", repr(part))
