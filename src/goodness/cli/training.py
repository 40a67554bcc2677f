"""Commands that train and score: train, resume, readout, eval, demo."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from goodness import api
from goodness.cli.options import choose_parts
from goodness.cli.terminal import (
    called,
    err,
    import_plugins,
    out,
    parsed,
    print_json,
    progress_of,
    take_name,
    values_of,
)
from goodness.config import Config, Keep, Readout
from goodness.demo import RULES, demo_sentence, run_demo
from goodness.errors import UserError, nearest
from goodness.paths import from_home
from goodness.presets import preset, presets
from goodness.report import tables
from goodness.report.progress import Progress
from goodness.runs.run import Run, load_config, place_of_run
from goodness.sweep.published import refuse_published

_READOUT = "goodness readout RUN"


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
    keep: Keep
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


def train_command(arguments: list[str]) -> int:
    name, rest = take_name(arguments)
    if name is None:
        if rest and rest[0] not in ("-h", "--help"):
            raise UserError(f"name the preset first: goodness train PRESET [options]; {nearest('', presets)}")
        out.print(f"usage: goodness train PRESET [options]\n\npresets: {', '.join(presets)}\n", markup=False)
        out.print("`goodness presets` says what each is; `goodness train PRESET --help` lists every setting.")
        return 0 if rest else 2
    import_plugins(values_of("--plugin", rest))
    config, rest = choose_parts(preset(name), rest)
    args = parsed(TrainArgs, rest, f"goodness train {name}", default=TrainArgs(config=config))
    if args.config.preset != name:
        raise UserError("a run's preset is the name after `train`, not an option")
    with progress_of(args.events, args.json) as progress:
        run = api.train(
            args.config,
            out=args.out,
            data_dir=args.data_dir,
            device=args.device,
            listen=progress.listen,
        )
    return show_run(run, args.json, args.events, values_of("--plugin", rest))


def resume_command(arguments: list[str]) -> int:
    args = parsed(ResumeArgs, arguments, "goodness resume")
    import_plugins(args.plugin)
    refuse_published(args.run)
    run = Run(place_of_run(args.run))
    if run.is_finished and (run.readout is None or run.readout.is_finished):
        err.print(f"{run.path} is finished already", markup=False, soft_wrap=True)
    with progress_of(args.events, args.json) as progress:
        run = api.resume(run.path, device=args.device, data_dir=args.data_dir, listen=progress.listen)
    return show_run(run, args.json, args.events, args.plugin)


def readout_command(arguments: list[str]) -> int:
    name, rest = take_name(arguments)
    if name is None:
        if rest and rest[0] not in ("-h", "--help"):
            raise UserError("name the run first: goodness readout RUN [options]")
        if rest:
            parsed(ReadoutArgs, rest, _READOUT, default=ReadoutArgs(readout=Readout(), keep=Keep()))
        out.print(f"usage: {_READOUT} [options]   (goodness readout --help lists them)", markup=False)
        return 2
    import_plugins(values_of("--plugin", rest))
    name = str(place_of_run(from_home(name)))
    refuse_published(name)
    config = load_config(name)
    default = ReadoutArgs(readout=config.readout, keep=config.keep)
    args = parsed(ReadoutArgs, rest, f"goodness readout {name}", default=default)
    with progress_of(args.events, args.json) as progress:
        run = api.readout(
            name,
            out=args.out,
            data_dir=args.data_dir,
            device=args.device,
            listen=progress.listen,
            changes=_changed(args, default),
        )
    return show_run(run, args.json, args.events, values_of("--plugin", rest))


def _changed(args: ReadoutArgs, default: ReadoutArgs) -> dict[str, Any]:
    """The settings of a readout that were given, by dotted name."""
    pairs = {"readout": (args.readout, default.readout), "keep": (args.keep, default.keep)}
    return {
        f"{group}.{one.name}": getattr(given, one.name)
        for group, (given, before) in pairs.items()
        for one in dataclasses.fields(given)
        if getattr(given, one.name) != getattr(before, one.name)
    }


def eval_command(arguments: list[str]) -> int:
    args = parsed(EvalArgs, arguments, "goodness eval")
    import_plugins(args.plugin)
    wanted = {one.name: getattr(args, one.name) for one in dataclasses.fields(args)}
    path, as_json = wanted.pop("run"), wanted.pop("json")
    del wanted["plugin"]
    refuse_published(path)
    found = api.evaluate(path, **wanted)
    if as_json:
        print_json(found)
    else:
        out.print(tables.evaluation_table(found))
    return 0


def demo_command(arguments: list[str]) -> int:
    args = parsed(DemoArgs, arguments, "goodness demo")
    with Progress(err, total_runs=len(RULES)) as progress:
        result, folder = run_demo(args.out, seed=args.seed, epochs=args.epochs, listen=progress.listen)
    console = err if args.json else out
    console.print(tables.demo_table(result))
    figure = folder / "demo.png"
    if figure.is_file():
        console.print(f"figure: {figure}    runs: {folder}", markup=False, soft_wrap=True)
        names = " ".join(shlex.quote(str(folder / name)) for name in RULES)
        console.print(f"see all of it: {called()} report {names}", markup=False, soft_wrap=True)
    else:
        console.print(f"runs: {folder}    (no figure: pip install 'goodness[plots]')", markup=False, soft_wrap=True)
    console.print(f"\n{demo_sentence(result)}", soft_wrap=True)
    if args.json:
        print(json.dumps(result))
    return 0


def show_run(run: Run, as_json: bool, events: bool, plugins: Sequence[str] = ()) -> int:
    if events:
        return 0
    if as_json:
        print_json({"run": str(run.path), **run.result})
    else:
        out.print(tables.result_table(run.result))
        out.print(
            f"run: {run.path}    score it again: goodness eval {shlex.quote(str(run.path))}"
            + "".join(f" --plugin {shlex.quote(plugin)}" for plugin in plugins),
            markup=False,
            soft_wrap=True,
        )
    return 0
