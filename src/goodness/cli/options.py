"""Options that choose a part by name, acted on before all others are read."""

from __future__ import annotations

import dataclasses

from goodness import parts
from goodness.config import CHOOSING, Config, named_part, override, part_fields
from goodness.errors import UserError, nearest


def choose_parts(config: Config, arguments: list[str]) -> tuple[Config, list[str]]:
    """Act on the options that choose a part by name, and add the terms that are named; the rest is left.

    The type of a part decides which options exist below it, so these come before all others are read.
    """
    bases = part_fields(config)
    arguments = _method_first(arguments)
    rest: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        flag, equals, value = argument.partition("=")
        path = flag.removeprefix("--").replace("-", "_")
        if flag.startswith("--") and path in bases:
            if not equals:
                if not waiting or waiting[0].startswith("--"):
                    raise UserError(f"{flag} needs a name; {nearest('', parts.REGISTRIES[bases[path]])}")
                value = waiting.pop(0)
            config = override(config, {path: named_part(bases[path], value)})
            bases = part_fields(config)
            continue
        _hint_at_other_parts(config, flag, path, bases)
        if flag.startswith("--objective."):
            term = flag.split(".")[1]
            if term not in config.objective:
                config = dataclasses.replace(config, objective={**config.objective, term: parts.terms[term]()})
        rest.append(argument)
    return config, rest


def _method_first(arguments: list[str]) -> list[str]:
    """The options --method and --network before all others: choosing one resets what a preset says of another."""
    first: list[str] = []
    rest = list(arguments)
    for flag in (f"--{name}" for name in CHOOSING):
        for place, argument in enumerate(rest):
            width = 1 if argument.startswith(f"{flag}=") else 2 if argument == flag and place + 1 < len(rest) else 0
            if width:
                first += rest[place : place + width]
                del rest[place : place + width]
                break
    return first + rest


def _hint_at_other_parts(config: Config, flag: str, path: str, bases: dict[str, type[parts.Part]]) -> None:
    """`--rule.kappa` on a constant rule: say whose setting that is, which the parser below cannot know."""
    parent, _, leaf = path.rpartition(".")
    if not flag.startswith("--") or parent not in bases:
        return
    part = config
    for name in parent.split("."):
        part = getattr(part, name)
    if hasattr(part, leaf):
        return
    owners = [name for name, kind in parts.REGISTRIES[bases[parent]].items() if leaf in _field_names(kind)]
    if owners:
        chosen = part.kind  # type: ignore[union-attr]
        raise UserError(
            f"{flag} is a setting of {' and '.join(owners)}, and {parent} is {chosen} here; choose one first: "
            f"--{parent} {owners[0]} {flag} ..."
        )


def _field_names(kind: type) -> set[str]:
    return {one.name for one in dataclasses.fields(kind)}
