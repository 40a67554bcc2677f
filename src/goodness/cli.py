"""The command line: `goodness presets | train | resume | readout | eval | demo | data`; alone in knowing a terminal."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import io
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch

from goodness import __version__, api, parts
from goodness.config import Config, Model, Readout, differences, named_part, override, part_fields
from goodness.data import sources
from goodness.demo import RULES, demo_sentence, run_demo
from goodness.errors import RunError, UserError, nearest
from goodness.model.network import Network
from goodness.model.stripped import StrippedNetwork
from goodness.paper.accuracies import PAPER
from goodness.presets import base_of, preset, presets, section_of
from goodness.runs import Run, load_config

try:
    import tyro
    from rich.console import Console

    from goodness.report import tables
    from goodness.report.progress import Progress
except ImportError as missing:  # the library needs neither, the command line does
    sys.exit(f"the goodness command needs {missing.name}: pip install tyro rich")

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

ABOUT = """Forward-Forward networks, trained block by block, and a clear view of which blocks work.

  goodness demo               see blocks ride for free, on digits, in a few minutes on a laptop
  goodness presets            the named runs
  goodness train PRESET       train one (--help lists every setting)
  goodness resume RUN         go on with a run that was stopped or killed
  goodness readout RUN        Stage 2: train an attentive readout on a finished run
  goodness eval RUN           score a finished run again
  goodness data list          the data sets; also: data get NAME, data check NAME

Each command takes --help. Docs: README.md, docs/decisions.md."""


@dataclass(kw_only=True)
class PresetsArgs:
    """List the named runs: what each is, how it differs from the one it derives from, what the paper has for it."""

    like: tyro.conf.Positional[tuple[str, ...]] = ()
    """Only presets with one of these words in their name: goodness presets d128 cnn."""
    json: bool = False
    """Print one JSON array instead of a table."""


@dataclass(kw_only=True)
class RunOptions:
    """What `train` and `resume` share: where and how, never what is learned."""

    data_dir: Path | None = None
    """Where data sets are kept. Default: where a resumed run found them, $GOODNESS_DATA, the user's cache folder."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    plugin: tuple[str, ...] = ()
    """Python modules or files to import first: where your own rules, terms and blocks register."""
    json: bool = False
    """End with the result as one JSON object."""
    events: bool = False
    """Print progress as JSON lines, for programs."""


@dataclass(kw_only=True)
class TrainArgs(RunOptions):
    """Train a preset. Every field of its configuration is an option under its dotted name.

    Parts are chosen by name (--rule gated, --negatives random, --model.label add) and then set
    (--rule.kappa 4). Naming a term that the preset lacks adds it (--objective.curr.rho 3);
    a weight of 0 switches one off.
    """

    config: Annotated[Config, tyro.conf.arg(name="")]
    out: Path | None = None
    """Folder of the run; runs/PRESET-DATA-sSEED-N by default."""


@dataclass(kw_only=True)
class ResumeArgs(RunOptions):
    """Go on with a run from its newest checkpoint. With --deterministic runs, to the same bits."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""


@dataclass(kw_only=True)
class ReadoutArgs(RunOptions):
    """Stage 2: train an attentive readout, by backpropagation, on a finished run's frozen network.

    It lies in RUN/readout unless --out says other, is resumed like a run and scored by goodness eval RUN --stage s2.
    """

    readout: Readout
    out: Path | None = None
    """Folder of the readout; RUN/readout by default."""


@dataclass(kw_only=True)
class EvalArgs:
    """Score a finished run's weights on a split, from the images: accuracy, top-5, block health."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    split: Literal["test", "val", "train"] = "test"
    """Which images."""
    stage: Literal["s1", "s2", "bp"] | None = None
    """s2 scores the run's readout; by default what the folder holds."""
    weights: Literal["best", "last"] | None = None
    """Best on validation, or last; by default those the run reports."""
    blocks: int | None = None
    """Use the first so many blocks only."""
    tta: bool = False
    """Average every image with its mirror image."""
    data_dir: Path | None = None
    """Where data sets are kept; by default where the run found them."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    plugin: tuple[str, ...] = ()
    """Python modules or files to import first."""
    json: bool = False
    """Print one JSON object."""


@dataclass(kw_only=True)
class DemoArgs:
    """Train one small network on digits under four collaboration rules, and show which blocks ride for free."""

    out: Path | None = None
    """Folder of the four runs, the figure and the table; runs/demo-N by default. An unfinished one goes on."""
    seed: int = 1
    """Seed of all four runs."""
    epochs: int | None = None
    """Epochs of each run; the preset's own by default."""
    json: bool = False
    """End with one JSON object."""


@dataclass(kw_only=True)
class DataListArgs:
    """List the data sets: size, splits, where they are kept and whether they are there."""

    data_dir: Path | None = None
    """Where data sets are kept; else $GOODNESS_DATA, else the user's cache folder."""
    json: bool = False
    """Print one JSON array."""


@dataclass(kw_only=True)
class DataGetArgs:
    """Download a data set from its official place; resumable, size and hash verified."""

    name: tyro.conf.Positional[str]
    """Which data set."""
    data_dir: Path | None = None
    """Where data sets are kept; else $GOODNESS_DATA, else the user's cache folder."""


@dataclass(kw_only=True)
class DataCheckArgs:
    """Verify a data set that is here: sizes, hashes, label ranges, images per class."""

    name: tyro.conf.Positional[str]
    """Which data set, or folder:PATH."""
    data_dir: Path | None = None
    """Where data sets are kept; else $GOODNESS_DATA, else the user's cache folder."""
    json: bool = False
    """Print one JSON object."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 when all is well, 2 for a mistake in what was asked, 1 for a run's own trouble."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal of few letters shows '?', not a traceback
    command = arguments[0] if arguments else ""
    if command in ("", "-h", "--help", "help"):
        out.print(ABOUT, markup=False, soft_wrap=True)
        return 0 if command else 2
    if command == "--version":
        out.print(f"goodness {__version__}")
        return 0
    try:
        if command not in COMMANDS:
            raise UserError(f"unknown command '{command}': {nearest(command, COMMANDS)}")
        return COMMANDS[command](arguments[1:])
    except (UserError, RunError) as trouble:
        err.print(f"[bold red]goodness:[/] {_escape(str(trouble))}", soft_wrap=True)
        return trouble.exit_code
    except KeyboardInterrupt:
        err.print("interrupted at once; the last checkpoint stands")
        return 130
    except BrokenPipeError:
        return 1
    except (PermissionError, IsADirectoryError, NotADirectoryError) as trouble:
        err.print(f"goodness: {trouble.filename}: {trouble.strerror}", markup=False, soft_wrap=True)
        return 2
    except OSError as trouble:
        err.print(f"goodness: {trouble}", markup=False, soft_wrap=True)
        return 1
    except (MemoryError, RuntimeError) as trouble:
        if not isinstance(trouble, MemoryError) and "memory" not in str(trouble).lower():
            raise
        err.print(
            f"goodness: it does not fit in memory: {str(trouble).splitlines()[0]}. Try a smaller --batch, "
            "--model.width or --keep.memory-mb",
            markup=False,
            soft_wrap=True,
        )
        return 1


def presets_command(arguments: list[str]) -> int:
    args = tyro.cli(PresetsArgs, args=arguments, prog="goodness presets")
    chosen = [name for name in presets if not args.like or any(word in name for word in args.like)]
    if not chosen:
        raise UserError(f"no preset has '{args.like[0]}' in its name; {nearest(args.like[0], presets)}")
    rows = [_preset_row(name) for name in chosen]
    if args.json:
        _print_json(rows)
    else:
        out.print(tables.presets_table(rows))
    return 0


def train_command(arguments: list[str]) -> int:
    name, rest = _take_name(arguments)
    if name is None:
        if rest and rest[0] not in ("-h", "--help"):
            raise UserError(f"name the preset first: goodness train PRESET [options]; {nearest('', presets)}")
        out.print(f"usage: goodness train PRESET [options]\n\npresets: {', '.join(presets)}\n", markup=False)
        out.print("`goodness presets` says what each is; `goodness train PRESET --help` lists every setting.")
        return 0 if rest else 2
    _import_plugins(_values_of("--plugin", rest))
    config, rest = choose_parts(preset(name), rest)
    args = tyro.cli(TrainArgs, args=rest, default=TrainArgs(config=config), prog=f"goodness train {name}")
    if args.config.preset != name:
        raise UserError("a run's preset is the name after `train`, not an option")
    with _progress(args.events, args.json) as progress:
        run = api.train(
            args.config,
            out=args.out,
            data_dir=args.data_dir,
            device=args.device,
            listen=progress.listen,
        )
    return _show_run(run, args.json, args.events)


def resume_command(arguments: list[str]) -> int:
    args = tyro.cli(ResumeArgs, args=arguments, prog="goodness resume")
    _import_plugins(args.plugin)
    run = Run(args.run)
    if run.is_finished and (run.readout is None or run.readout.is_finished):
        err.print(f"{args.run} is finished already", markup=False, soft_wrap=True)
    with _progress(args.events, args.json) as progress:
        run = api.resume(args.run, device=args.device, data_dir=args.data_dir, listen=progress.listen)
    return _show_run(run, args.json, args.events)


def readout_command(arguments: list[str]) -> int:
    name, rest = _take_name(arguments)
    if name is None:
        if rest and rest[0] not in ("-h", "--help"):
            raise UserError("name the run first: goodness readout RUN [options]")
        out.print("usage: goodness readout RUN [options]   (goodness readout RUN --help lists them)", markup=False)
        return 0 if rest else 2
    _import_plugins(_values_of("--plugin", rest))
    default = ReadoutArgs(readout=load_config(name).readout)
    args = tyro.cli(ReadoutArgs, args=rest, default=default, prog=f"goodness readout {name}")
    with _progress(args.events, args.json) as progress:
        run = api.readout(
            name,
            out=args.out,
            data_dir=args.data_dir,
            device=args.device,
            listen=progress.listen,
            changes={"readout": args.readout},
        )
    return _show_run(run, args.json, args.events)


def eval_command(arguments: list[str]) -> int:
    args = tyro.cli(EvalArgs, args=arguments, prog="goodness eval")
    _import_plugins(args.plugin)
    wanted = {one.name: getattr(args, one.name) for one in dataclasses.fields(args)}
    path, as_json = wanted.pop("run"), wanted.pop("json")
    del wanted["plugin"]
    found = api.evaluate(path, **wanted)
    if as_json:
        _print_json(found)
    else:
        out.print(tables.evaluation_table(found))
    return 0


def demo_command(arguments: list[str]) -> int:
    args = tyro.cli(DemoArgs, args=arguments, prog="goodness demo")
    with Progress(err, total_runs=len(RULES)) as progress:
        result, folder = run_demo(args.out, seed=args.seed, epochs=args.epochs, listen=progress.listen)
    console = err if args.json else out
    console.print(tables.demo_table(result))
    figure = folder / "demo.png"
    if figure.is_file():
        console.print(f"figure: {figure}    runs: {folder}", markup=False, soft_wrap=True)
    else:
        console.print(f"runs: {folder}    (no figure: pip install 'goodness[plots]')", markup=False, soft_wrap=True)
    console.print(f"\n{demo_sentence(result)}", soft_wrap=True)
    if args.json:
        print(json.dumps(result))
    return 0


def data_command(arguments: list[str]) -> int:
    actions: dict[str, Callable[[list[str]], int]] = {"list": _data_list, "get": _data_get, "check": _data_check}
    if not arguments or arguments[0] in ("-h", "--help"):
        out.print("usage: goodness data list | get NAME | check NAME   (each takes --help)")
        return 0 if arguments else 2
    if arguments[0] not in actions:
        raise UserError(f"unknown action 'data {arguments[0]}': {nearest(arguments[0], actions)}")
    return actions[arguments[0]](arguments[1:])


def _data_list(arguments: list[str]) -> int:
    args = tyro.cli(DataListArgs, args=arguments, prog="goodness data list")
    rows = sources.listing(args.data_dir)
    if args.json:
        _print_json(rows)
    else:
        out.print(tables.data_table(rows))
        out.print("Your own images: --data folder:PATH, with PATH/train/<class>/* and PATH/test/<class>/*.")
    return 0


def _data_get(arguments: list[str]) -> int:
    args = tyro.cli(DataGetArgs, args=arguments, prog="goodness data get")
    with Progress(err) as progress:
        place = sources.get(args.name, args.data_dir, progress.bytes_listener(args.name))
    out.print(f"{args.name} is at {place}", markup=False, soft_wrap=True)
    return 0


def _data_check(arguments: list[str]) -> int:
    args = tyro.cli(DataCheckArgs, args=arguments, prog="goodness data check")
    facts = sources.check(args.name, args.data_dir)
    if args.json:
        _print_json(facts)
    else:
        out.print(tables.facts_table(f"{args.name}: everything checks out", facts))
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "demo": demo_command,
    "presets": presets_command,
    "train": train_command,
    "resume": resume_command,
    "readout": readout_command,
    "eval": eval_command,
    "data": data_command,
}


def choose_parts(config: Config, arguments: list[str]) -> tuple[Config, list[str]]:
    """Act on the options that choose a part by name, and add the terms that are named; the rest is left.

    The type of a part decides which options exist below it, so these come before all others are read.
    """
    bases = part_fields(config)
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
            continue
        _hint_at_other_parts(config, flag, path, bases)
        if flag.startswith("--objective."):
            term = flag.split(".")[1]
            if term not in config.objective:
                config = dataclasses.replace(config, objective={**config.objective, term: parts.terms[term]()})
        rest.append(argument)
    return config, rest


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


def _take_name(arguments: list[str]) -> tuple[str | None, list[str]]:
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    return None, arguments


def _values_of(flag: str, arguments: list[str]) -> list[str]:
    """The values that follow a flag, before the full parse."""
    values: list[str] = []
    taking = False
    for argument in arguments:
        if argument.startswith("--"):
            taking = argument == flag
            if argument.startswith(f"{flag}="):
                values.append(argument.partition("=")[2])
        elif taking:
            values.append(argument)
    return values


def _import_plugins(names: Sequence[str]) -> None:
    """Import a module by name, or a file by path; what it registers is then known by name."""
    for name in names:
        try:
            if name.endswith(".py"):
                path = Path(name)
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


def _progress(events: bool, as_json: bool) -> Progress:
    if events:
        return Progress(None, lines=lambda event: print(json.dumps(event), flush=True))
    return Progress(err, quiet=as_json)


def _show_run(run: Run, as_json: bool, events: bool) -> int:
    if events:
        return 0
    if as_json:
        _print_json({"run": str(run.path), **run.result})
    else:
        out.print(tables.result_table(run.result))
        out.print(
            f"run: {run.path}    score it again: goodness eval {shlex.quote(str(run.path))}",
            markup=False,
            soft_wrap=True,
        )
    return 0


def _preset_row(name: str) -> dict[str, Any]:
    config, base = preset(name), base_of(name)
    changed = {} if base is None else differences(config, preset(base))
    changed.pop("preset", None)
    return {
        "name": name,
        "section": section_of(name),
        "about": (presets[name].__doc__ or "").strip(),
        "base": base,
        "changes": {key: new for key, (_, new) in changed.items()},
        "data": config.data,
        "epochs": config.epochs,
        "paper": dataclasses.asdict(PAPER[name]) if name in PAPER else None,
        "parameters": _parameters(config),
    }


def _parameters(config: Config) -> int:
    """Of the network for its own data set's images and classes, terms included; nothing is allocated."""
    data = sources.find(config.data)
    shape, classes = data.shape or (3, 32, 32), data.class_count or 10
    return _counted(config.model, shape, classes, config.trainer, tuple(config.objective.items()))


@functools.cache
def _counted(
    model: Model, shape: tuple[int, int, int], classes: int, trainer: str, terms: tuple[tuple[str, parts.Term], ...]
) -> int:
    with torch.device("meta"):
        if trainer == "backprop":
            return StrippedNetwork(model, shape, classes).parameter_count()
        return Network(model, shape, classes, terms=dict(terms)).parameter_count()


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def _escape(text: str) -> str:
    return text.replace("[", "\\[")


if __name__ == "__main__":
    sys.exit(main())
