"""The command that times: bench."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from goodness.bench import bench, notes, tables
from goodness.bench.page import HEADING, page
from goodness.cli.terminal import err, import_plugins, out, parsed, print_json
from goodness.durable import read_json, require_place, write_durably, write_json
from goodness.errors import RunError, UserError
from goodness.report.figure_files import figure_files, refuse_foreign_figures


@dataclass(kw_only=True)
class BenchArgs:
    """Time training and prediction on this machine, with made-up images: nothing is downloaded, nothing is kept.

    The first preset is timed in every way to train it: Forward-Forward fused and sequential, backpropagation plain,
    with activations computed again and in pieces of a batch; further presets are timed as they are.
    """

    presets: tyro.conf.Positional[tuple[str, ...]] = ()
    """gamma0-dense on a GPU and demo elsewhere, unless named."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    batch: int | None = None
    """Images a step; the preset's own by default."""
    steps: int | None = None
    """Steps per measurement: 20 on a GPU, 3 elsewhere."""
    repeats: int = 5
    """Measurements; the table has their median and range."""
    classes: tuple[int, ...] = (10, 100, 200)
    """Numbers of classes to predict for."""
    out: Path | None = None
    """Write everything as JSON to this file too, and as a page of Markdown beside it."""
    page: Path | None = None
    """Write the page of Markdown to this file; with --from, without measuring again."""
    figure: Path | None = None
    """Write the figure (PNG and SVG)."""
    from_file: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Measure nothing: show and draw what an earlier --out wrote."""
    plugin: tuple[str, ...] = ()
    """Python modules or files to import first."""
    json: bool = False
    """Print one JSON object instead of tables."""


MOST_CLASSES = 10_000


def _page_place(args: BenchArgs) -> Path | None:
    """Where the page goes: where it was asked for, or beside the JSON. It takes no other page's place."""
    place = args.page
    if place is None and args.out is not None:
        place = args.out.with_suffix(".md")
    if place is None:
        return None
    if place in (args.out, args.from_file):
        raise UserError(f"{place} cannot be both the JSON and the page; give the JSON a name that ends in .json")
    require_place(place)
    if place.is_file() and not place.read_bytes().startswith(f"{HEADING}: ".encode()):
        raise UserError(f"{place} is there and is no page of goodness bench; name another file with --page or --out")
    return place


def _measured(args: BenchArgs) -> dict[str, Any]:
    return bench(
        args.presets,
        device=args.device,
        batch=args.batch,
        steps=args.steps,
        repeats=args.repeats,
        classes=args.classes,
        say=lambda line: None if args.json else err.print(line, markup=False, style="dim"),
    )


def _read(place: Path, presets: tuple[str, ...]) -> dict[str, Any]:
    """What an earlier benchmark wrote."""
    if presets:
        raise UserError(f"--from shows what {place} holds and measures nothing; leave out {' '.join(presets)}")
    if not place.is_file():
        raise UserError(f"there is no file {place}; goodness bench --out {place} writes one")
    found = _of_bench(place)
    if found is None:
        raise UserError(f"{place} is not of goodness bench; take a file that its --out wrote")
    return found


def _of_bench(place: Path) -> dict[str, Any] | None:
    """What a benchmark wrote there, if all that is shown of one can be made of it."""
    try:
        found = read_json(place)
        for shown in (page, tables.time_table, tables.work_table, tables.prediction_table):
            shown(found)
    except (RunError, KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError):
        return None
    return found


def bench_command(arguments: list[str]) -> int:
    args = parsed(BenchArgs, arguments, "goodness bench")
    import_plugins(args.plugin)
    if any(not 2 <= count <= MOST_CLASSES for count in args.classes):
        raise UserError(f"--classes must be 2 to {MOST_CLASSES:,} each, got {' '.join(map(str, args.classes))}")
    refuse_foreign_figures(args.figure)
    for place in (args.out, args.figure):
        require_place(place)
    if args.out is not None and args.out.is_file() and _of_bench(args.out) is None:
        raise UserError(f"{args.out} is there and is not of goodness bench; name another file with --out")
    page_place = _page_place(args)
    if args.figure is not None and importlib.util.find_spec("matplotlib") is None:
        raise UserError("--figure needs matplotlib: pip install 'goodness[plots]'")
    found = _measured(args) if args.from_file is None else _read(args.from_file, args.presets)
    if args.json:
        print_json(found)
    else:
        out.print(tables.time_table(found))
        out.print(tables.work_table(found))
        if found["prediction"]:
            out.print(tables.prediction_table(found))
        out.print(notes.machine(found), markup=False, soft_wrap=True)
    if args.out is not None:
        write_json(args.out, found)
    if page_place is not None:
        write_durably(page_place, page(found).encode())
    if args.figure is not None:
        from goodness.report.bench_figure import bench_figure

        bench_figure(found, args.figure)
    written = [place for place in (args.out, page_place) if place is not None]
    written += figure_files(args.figure) if args.figure is not None else []
    if written and not args.json:
        out.print(f"written: {', '.join(map(str, written))}", markup=False, soft_wrap=True)
    return 0
