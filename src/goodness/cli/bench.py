"""The command that times: bench."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from goodness.bench import bench
from goodness.cli.terminal import err, import_plugins, out, print_json
from goodness.errors import UserError
from goodness.report import bench_tables
from goodness.training.durable import write_json


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
    """Write everything as JSON to this file too."""
    figure: Path | None = None
    """Write the figure (PNG and SVG)."""
    plugin: tuple[str, ...] = ()
    """Python modules or files to import first."""
    json: bool = False
    """Print one JSON object instead of tables."""


def bench_command(arguments: list[str]) -> int:
    args = tyro.cli(BenchArgs, args=arguments, prog="goodness bench")
    import_plugins(args.plugin)
    if any(count < 2 for count in args.classes):
        raise UserError(f"--classes must be at least 2 each, got {' '.join(map(str, args.classes))}")
    found = bench(
        args.presets,
        device=args.device,
        batch=args.batch,
        steps=args.steps,
        repeats=args.repeats,
        classes=args.classes,
        say=lambda line: None if args.json else err.print(line, markup=False, style="dim"),
    )
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(args.out, found)
    if args.figure is not None:
        from goodness.report.bench_figure import bench_figure

        bench_figure(found, args.figure)
    if args.json:
        print_json(found)
        return 0
    out.print(bench_tables.training_table(found))
    if found["prediction"]:
        out.print(bench_tables.prediction_table(found))
    out.print(bench_tables.where(found), markup=False, soft_wrap=True)
    return 0
