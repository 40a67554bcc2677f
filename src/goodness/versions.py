"""Versions that decide which runs may be averaged. They are raised by hand.

Raise a method's version when an unchanged configuration trains to other numbers, and `HEALTH_VERSION` when a column of
block health changes its meaning. Code that is moved, renamed or made faster raises nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

METHOD_VERSION = {"cumulative": 1, "backprop": 1, "readout": 1}
"""Stage 1 by Forward-Forward, the backpropagation control, Stage 2."""
HEALTH_VERSION = 1

METHOD = {"s1": "cumulative", "bp": "backprop", "s2": "readout"}
"""The method of each stage."""

# Older runs have a hash of the source code instead. These are the published ones, which all count as version 1:
# git grep -hoE '"source": "[0-9a-f]{12}' -- 'results/**/environment.json' | sort -u
_SOURCES_OF_VERSION_1 = frozenset(
    ["2427444b842f", "47fce91752c5", "556a2f5758de", "61b6972a7917", "986991523436", "e5725e0800c3", "fb84d3316f57"]
)


class Made(NamedTuple):
    """By which method and versions a run was made."""

    method: str
    method_version: int | str
    """A text where there is no number, as of an unknown source."""
    health_version: int | str


def version_of(method: str, own: int) -> int:
    """The version of a method by name; methods other than the paper's bring their own."""
    return METHOD_VERSION.get(method, own)


def recorded(stage: str, method: str = "cumulative", version: int | None = None) -> dict[str, Any]:
    """What the environment.json of a run of this stage says of its method, if it is made now. Methods other than the
    paper's bring their version."""
    name = METHOD[stage] if version is None else method
    return Made(name, METHOD_VERSION[name] if version is None else version, HEALTH_VERSION)._asdict()


def method_of(environment: Mapping[str, Any], stage: str) -> Made:
    """The method and versions of an environment.json; `1 then 2` where a run of version 1 was resumed by version 2.

    `stage` is that of `Run.stage`: older files do not name the method.
    """
    lives = [environment, *environment.get("resumed", ())]
    method = str(environment.get("method", METHOD[stage]))
    return Made(method, *(_joined(_version(life, name) for life in lives) for name in Made._fields[1:]))


def _version(life: Mapping[str, Any], name: str) -> int | str:
    if name in life:
        return life[name]
    source = str(life.get("source", "unknown"))[:12]
    return 1 if source in _SOURCES_OF_VERSION_1 else f"source {source}"


def _joined(versions: Iterable[int | str]) -> int | str:
    each = list(dict.fromkeys(versions))
    return each[0] if len(each) == 1 else " then ".join(map(str, each))
