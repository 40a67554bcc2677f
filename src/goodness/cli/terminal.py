"""What the commands share: two consoles, JSON, plugins, and the little parsing that comes before the full one."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from goodness.errors import UserError
from goodness.paths import from_home

try:
    import tyro
    from rich.console import Console

    from goodness.report.progress import Progress
except ImportError as missing:  # the library needs neither, the command line does
    sys.exit(f"the goodness command needs {missing.name}: pip install tyro rich")

Args = TypeVar("Args")

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def called() -> str:
    """How the command can be called again: by its name where the shell finds it, else by its place."""
    place = Path(sys.argv[0])
    by_name = shutil.which("goodness")
    return "goodness" if by_name or place.name != "goodness" else shlex.quote(os.path.relpath(place))


def print_json(value: Any) -> None:
    print(json.dumps(_plain(value), indent=2))


def _plain(value: Any) -> Any:
    """The same without NaN and infinities, which JSON does not know: null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def escape(text: str) -> str:
    return text.replace("[", "\\[")


def progress_of(events: bool, as_json: bool) -> Progress:
    if events:
        return Progress(None, lines=lambda event: print(json.dumps(event), flush=True))
    return Progress(err, quiet=as_json)


def parsed(kind: type[Args], arguments: list[str], prog: str, *, default: Args | None = None) -> Args:
    """The arguments of a command. An option that takes several values may be given several times. In every path, `~` at
    the beginning is a home folder: the shell leaves it as it is in quotes and behind an equals sign."""
    given: dict[str, Any] = {} if default is None else {"default": default}
    assert is_dataclass(kind)
    lists = [one.name for one in fields(kind) if str(one.type).startswith("tuple[")]
    for name in lists:
        arguments = gathered(f"--{name.replace('_', '-')}", arguments)
    args = tyro.cli(kind, args=arguments, prog=prog, **given)
    for name, value in vars(args).items():
        if isinstance(value, Path):
            setattr(args, name, from_home(value))
        elif isinstance(value, tuple):
            setattr(args, name, tuple(from_home(one) if isinstance(one, Path) else one for one in value))
    return args


def take_name(arguments: list[str]) -> tuple[str | None, list[str]]:
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    return None, arguments


def values_of(flag: str, arguments: list[str]) -> list[str]:
    """The values that follow a flag, before the full parse."""
    values: list[str] = []
    taking = False
    for argument in arguments:
        if argument.startswith("--"):
            taking = argument == flag or argument.startswith(f"{flag}=")
            if argument.startswith(f"{flag}="):
                values.append(argument.partition("=")[2])
        elif taking:
            values.append(argument)
    return values


def gathered(flag: str, arguments: list[str]) -> list[str]:
    """The same arguments with all values of a flag behind its first place: parsed as they are, the last would win."""
    places = [at for at, one in enumerate(arguments) if one == flag or one.startswith(f"{flag}=")]
    if len(places) < 2:
        return arguments
    others: list[str] = []
    taking = False
    for argument in arguments[places[0] :]:
        if argument.startswith("--"):
            taking = argument == flag or argument.startswith(f"{flag}=")
        if not taking:
            others.append(argument)
    return [*arguments[: places[0]], flag, *values_of(flag, arguments), *others]


def import_plugins(names: Sequence[str]) -> None:
    """Import a module by name, or a file by path; what it registers is then known by name."""
    for name in names:
        try:
            if name.endswith(".py"):
                path = from_home(name)
                if not path.is_file():
                    raise UserError(f"--plugin {name}: there is no such file")
                spec = importlib.util.spec_from_file_location(path.stem, path)
                assert spec is not None
                assert spec.loader is not None
                module = importlib.util.module_from_spec(spec)
                sys.modules[path.stem] = module  # dataclasses look their module up
                spec.loader.exec_module(module)
            else:
                importlib.import_module(name)
        except UserError:
            raise
        except (Exception, SystemExit) as trouble:  # whatever a plugin does while it loads
            reason = f"{type(trouble).__name__}: {trouble}"
            raise UserError(f"--plugin {name!r} cannot be imported: {reason}") from trouble
