"""Commands for many runs: sweep, and cell, which is what a sweep runs."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

import goodness.paper.suites  # noqa: F401  (registers the paper's tables)
from goodness.cli.terminal import err, import_plugins, out, parsed, print_json, progress_of
from goodness.cli.training import RunOptions, show_run
from goodness.errors import UserError
from goodness.report.sweep_progress import SweepProgress
from goodness.report.sweep_tables import results_table
from goodness.sweep.collect import REFUSED
from goodness.sweep.plan import Plan
from goodness.sweep.published import refuse_published
from goodness.sweep.run import resume_sweep, sweep
from goodness.sweep.suites import suites
from goodness.sweep.tables import as_dict, remarks
from goodness.sweep.work import work


@dataclass(kw_only=True)
class SweepArgs:
    """Train suites or presets over several seeds, each run in a folder of its own, and average what belongs together.

    The same command again goes on where it was: finished runs are skipped, stopped ones resumed. A run that fails is
    tried once more, then shown as missing. Ctrl-C saves every run. The results lie in FOLDER/results.md, .csv, .json.
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Suites and presets."""
    seeds: tuple[str, ...] = ()
    """Seeds, as 42,123,456; by default a suite's own, and the one of a preset."""
    out: Path | None = None
    """Folder of the sweep; runs/sweep-NAMES by default."""
    resume: Path | None = None
    """Go on with the sweep in this folder as it was asked for, instead of naming it again."""
    jobs: int | None = None
    """Runs at once. By default one per core; on a GPU one, and more where a measurement says that it pays."""
    set: tuple[str, ...] = ()
    """Fields to change in every run: --set epochs=60 optim.lr=2e-3 rule=gated rule.kappa=4. Values are JSON or plain
    words; null takes a term away."""
    scale: str | None = None
    """One of a suite's scales; its first by default."""
    readout: bool = False
    """Train Stage 2 too."""
    device: str | None = None
    """auto, cpu, cuda, cuda:1, ..."""
    data_dir: Path | None = None
    """Where data sets are kept; else $GOODNESS_DATA, else the user's cache folder."""
    mixed_versions: bool = False
    """Accept runs that other versions of a method or torch made; the results say so."""
    plugin: tuple[str, ...] = ()
    """Python modules or files to import first: where your own parts and suites register."""
    json: bool = False
    """End with the results as one JSON object."""


@dataclass(kw_only=True)
class CellArgs(RunOptions):
    """Train what is left of one cell of a sweep: what a sweep, or any scheduler, runs. Safe to run again and again."""

    folder: tyro.conf.Positional[Path]
    """The cell's folder."""


def sweep_command(arguments: list[str]) -> int:
    args = parsed(SweepArgs, arguments, "goodness sweep")
    import_plugins(args.plugin)
    changes, seeds = _changes(args.set), seeds_of_words(args.seeds)
    with SweepProgress(err, quiet=args.json) as progress:
        shared = {
            "jobs": args.jobs,
            "data_dir": args.data_dir,
            "mixed_versions": args.mixed_versions,
            "watch": progress.show,
        }
        if args.resume is not None:
            if args.names or seeds or changes or args.scale or args.readout or args.out or args.plugin:
                raise UserError("--resume goes on with a sweep as it was asked for; to add to it, name it all again")
            try:
                import_plugins(Plan.read(args.resume).how.plugins)
            except UserError as trouble:
                raise UserError(
                    f"{trouble}; if it was moved, name the whole sweep again with --out and its new --plugin"
                ) from None
            results = resume_sweep(args.resume, device=args.device, **shared)
        else:
            if not args.names:
                known = f"; suites: {', '.join(suites)}" if list(suites) else ""
                raise UserError(f"name what to run: goodness sweep SUITE|PRESET ... --seeds 42,123,456{known}")
            results = sweep(
                args.names,
                seeds=seeds or None,
                out=args.out,
                changes=changes,
                scale=args.scale,
                readout=args.readout,
                device=args.device or "auto",
                plugins=args.plugin,
                **shared,
            )
    if args.json:
        print_json(as_dict(results))
    else:
        out.print(results_table(results))
        for line in remarks(results):
            out.print(line, markup=False, soft_wrap=True)
        out.print(f"results: {results.folder / 'results.md'}", markup=False, soft_wrap=True)
    if results.missing:
        again = f"goodness sweep --resume {shlex.quote(str(results.folder))}"
        logs = ", ".join(str(results.folder / cell.folder / "log.txt") for _, cell in results.missing[:3])
        finished = sum(cell.state == REFUSED for _, cell in results.missing)
        stuck = f", but for {finished} that lie there finished and are refused" if finished else ""
        err.print(
            f"cells that are missing: {len(results.missing)} (see {logs}); try them again with: {again}{stuck}",
            markup=False,
            soft_wrap=True,
        )
    return 0 if results.is_complete else 1


def cell_command(arguments: list[str]) -> int:
    args = parsed(CellArgs, arguments, "goodness cell")
    import_plugins(args.plugin)
    refuse_published(args.folder)
    with progress_of(args.events, args.json) as progress:
        run = work(args.folder, device=args.device, data_dir=args.data_dir, listen=progress.listen)
    return show_run(run.readout or run, args.json, args.events, args.plugin)


def seeds_of_words(given: tuple[str, ...]) -> list[int]:
    words = [word for one in given for word in one.replace(",", " ").split()]
    wrong = [word[:40] for word in words if not word.isdecimal() or len(word) > 18]
    if wrong:
        raise UserError(f"--seeds takes whole numbers of at most 18 digits, as 42,123,456; got '{wrong[0]}'")
    if given and not words:
        raise UserError("--seeds needs at least one seed, as 42,123,456")
    return [int(word) for word in words]


def _changes(given: tuple[str, ...]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for one in given:
        path, equals, value = one.partition("=")
        if not path.startswith("objective."):  # a term's name may have a hyphen, a field's may be typed with one
            path = path.replace("-", "_")
        if not equals or not path:
            raise UserError(f"--set takes field=value, such as epochs=60; got '{one}'")
        if path == "seed":
            raise UserError("seeds are given by --seeds, not by --set")
        changes[path] = _value(value)
    return changes


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # of brackets without end
        return text
