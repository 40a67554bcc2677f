"""Commands that diagnose: health, report, watch, compare, theory, audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from torch import Tensor

from goodness import api
from goodness.cli.terminal import err, import_plugins, out, parsed, print_json
from goodness.config import Config, rule_name
from goodness.data import sources
from goodness.draws import Draws
from goodness.durable import write_json
from goodness.errors import DAMAGE, RunError, UserError
from goodness.health.locality import audit_locality
from goodness.health.method_audit import audit_method
from goodness.health.of_runs import convergence, health
from goodness.health.theory import theory_of_run
from goodness.health.theory_report import theory_table_rows
from goodness.methods.build import build_method
from goodness.nn.network import Network
from goodness.paper import measured
from goodness.parts import ImageFacts
from goodness.paths import from_home
from goodness.presets import preset, presets
from goodness.report import health_tables
from goodness.report.compare_runs import compare
from goodness.report.figure_files import figure_files, refuse_foreign_figures
from goodness.runs.run import Run
from goodness.sweep.published import is_in_publication, is_published, refuse_published
from goodness.sweep.theory import THEORY, examples_kept
from goodness.training.trainer import Trainer

MOST_FOLDS = 1_000_000
"""Resamples of a bootstrap, at most."""


@dataclass(kw_only=True)
class HealthArgs:
    """Which blocks of a finished run work and which ride for free, from its weights and images. Of a published run,
    which has no weights, what was measured when it ended."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    split: Literal["test", "val", "train"] = "test"
    """Which images."""
    tta: bool = False
    """Average every image with its mirror image."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    plugin: tuple[str, ...] = ()
    """Python modules or files to import first."""
    json: bool = False
    """Print one JSON object with everything measured; `convergence` is the epoch, counted from 0, that first had 95 and
    99 % of the best validation accuracy."""


@dataclass(kw_only=True)
class ReportArgs:
    """Write one self-contained HTML page about one or several runs, and each figure as PNG and SVG beside it.

    Runs that are unfinished, damaged or of another kind are shown as far as they go.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs."""
    out: Path | None = None
    """The HTML file, or a folder for it; RUN/report.html of the first run by default, and for a published run
    report-NAME/report.html in the current folder."""
    figures: bool = True
    """Whether PNG and SVG files are written too."""
    device: str = "cpu"
    """Where health is computed."""
    plugin: tuple[str, ...] = ()
    """Python modules or files to import first."""


@dataclass(kw_only=True)
class WatchArgs:
    """Show the page of a run while it trains, on this machine alone (loopback). Ctrl-C ends it."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    port: int = 0
    """Port; 0 takes a free one."""
    plugin: tuple[str, ...] = ()
    """Python modules or files to import first."""


@dataclass(kw_only=True)
class CompareArgs:
    """Hold runs beside each other: mean and spread over seeds, paired differences, where predictions differ."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs; those that differ in their seed alone form a group."""
    tta: bool = False
    """Compare the predictions with flip TTA."""
    folds: int = 5000
    """Resamplings of the paired bootstrap."""
    figure: Path | None = None
    """Where to write the margin-band picture (PNG and SVG)."""
    plugin: tuple[str, ...] = ()
    """Python modules or files to import first."""
    json: bool = False
    """Print one JSON object."""


@dataclass(kw_only=True)
class TheoryArgs:
    """Check the paper's theorems on a finished run's own blocks, example by example, in float64. What the test images
    say is kept in RUN/theory.json, where the findings of goodness paper read it; a check of fewer images does not take
    the place of one of more."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    split: Literal["test", "val", "train"] = "test"
    """Which images."""
    examples: int = 64
    """Images whose gradients are compared."""
    coverage: int = 500
    """Images over which the theorem's assumptions are counted."""
    figure: Path | None = None
    """Where to write the attenuation figure (PNG and SVG); RUN/attenuation by default."""
    data_dir: Path | None = None
    """Where data sets are kept; by default where the run found them."""
    device: str = "cpu"
    """Where goodness is computed; gradients are taken on the CPU."""
    plugin: tuple[str, ...] = ()
    """Python modules or files to import first."""
    json: bool = False
    """Print one JSON object."""


@dataclass(kw_only=True)
class AuditArgs:
    """Prove that no gradient crosses a block: each block's loss, against every parameter that is not its own.

    A preset is audited with new weights on random images, a finished run with its own weights. Of other methods than
    the paper's it also says which blocks learn together, and whether labels, later blocks and a readout have a part.
    The exit code is 1 where a single foreign gradient is not exactly zero, or the method does what it declares away.
    """

    what: tyro.conf.Positional[str]
    """A preset's name, or a run's folder."""
    batch: int = 8
    """Images."""
    plugin: tuple[str, ...] = ()
    """Python modules or files to import first."""
    json: bool = False
    """Print one JSON object."""


def health_command(arguments: list[str]) -> int:
    args = parsed(HealthArgs, arguments, "goodness health")
    import_plugins(args.plugin)
    run = api.load(args.run)
    if not is_published(run.path):
        found = health(run, split=args.split, tta=args.tta, device=str(api.choose_device(args.device)))
    else:
        found = _published_health(args, run)
    if args.json:
        reached = {str(share): convergence(run.metrics, share / 100) for share in (95, 99)}
        print_json({**found, "convergence": reached})
    else:
        folder = run.path.parent.name if run.path.name == "run" else run.path.name  # a sweep's runs are all called run
        kind = rule_name(run.config.rule) if run.config.is_cumulative else run.config.method.kind
        name = f"{folder} ({run.config.preset}, {kind})"
        try:
            if len(found["blocks"]) != len(found["verdict"]):
                raise ValueError("it has not a verdict for every block")
            table, lines = health_tables.blocks_table(found, name), list(health_tables.verdict_lines(found))
        except DAMAGE as trouble:
            what = f"{type(trouble).__name__}: {trouble}"
            raise RunError(f"health.json in {run.path} is damaged ({what})") from trouble
        out.print(table)
        for line in lines:
            out.print(line, markup=False, soft_wrap=True)
    return 0


def _published_health(args: HealthArgs, run: Run) -> dict[str, Any]:
    """What a run measured as it ended, where that is what was asked for."""
    found, kept = measured.health(run), run.path / "health.json"
    if not found and kept.is_file():
        raise RunError(f"{kept} is damaged: restore it, or publish the run again")
    if not found or (found.get("split"), found.get("tta")) != (args.split, args.tta):
        refuse_published(args.run)
    return found


def _report_place(run: Run) -> Path:
    """Beside the run's files; of a published run, whose folder stays as it was published, in runs/."""
    if not is_in_publication(run.path):
        return run.path / "report.html"
    names = [name for name in run.path.resolve().parts[-3:] if name not in ("run", "readout")]
    return Path("runs") / f"report-{names[-1]}"


def report_command(arguments: list[str]) -> int:
    from goodness.report.page import write_report

    args = parsed(ReportArgs, arguments, "goodness report")
    import_plugins(args.plugin)
    runs = [api.load(path) for path in args.runs]
    if not runs:
        raise UserError("name at least one run: goodness report RUN [RUN ...]")
    if args.out is not None and is_in_publication(args.out):
        raise UserError(f"{args.out} lies in a publication, which stays as it was published: choose another --out")
    page = write_report(runs, args.out or _report_place(runs[0]), figures=args.figures, device=args.device)
    out.print(f"{page}", markup=False, soft_wrap=True)
    return 0


def watch_command(arguments: list[str]) -> int:
    from goodness.report.watch import serve

    args = parsed(WatchArgs, arguments, "goodness watch")
    import_plugins(args.plugin)
    run = api.load(args.run)
    serve(run.path, args.port, announce=lambda url: out.print(f"{url}   (Ctrl-C ends it)", markup=False))
    return 0


def compare_command(arguments: list[str]) -> int:
    args = parsed(CompareArgs, arguments, "goodness compare")
    import_plugins(args.plugin)
    if not args.runs:
        raise UserError("name the runs: goodness compare RUN RUN [...]")
    if args.folds < 100:
        raise UserError(f"--folds must be at least 100 for an interval, got {args.folds}")
    if args.folds > MOST_FOLDS:
        raise UserError(f"--folds must be at most {MOST_FOLDS:,}, got {args.folds}: more tell nothing more")
    refuse_foreign_figures(args.figure)
    runs = [api.load(path) for path in args.runs]
    found = compare(runs, tta=args.tta, folds=args.folds)
    published = [str(run.path) for run in runs if is_published(run.path)]
    if published:
        told = [line for line in found["missing"] if not line.startswith(tuple(f"{path}: " for path in published))]
        found["missing"] = [*told, *(f"{path}: its class scores were not published" for path in published)]
    if args.figure is not None:
        from goodness.report.compare_figure import margin_figure

        margin_figure(found, args.figure)
    if args.json:
        print_json(found)
        return 0
    out.print(health_tables.groups_table(found))
    if found["pairs"]:
        out.print(health_tables.pairs_table(found))
    for line in found["missing"]:
        out.print(f"note: {line}", markup=False, soft_wrap=True)
    return 0


def theory_command(arguments: list[str]) -> int:
    args = parsed(TheoryArgs, arguments, "goodness theory")
    import_plugins(args.plugin)
    refuse_published(args.run)
    run = api.load(args.run)
    refuse_foreign_figures(args.figure)
    err.print(f"checking {args.examples} images' gradients in float64, block by block ...", markup=False)
    report = theory_of_run(
        run,
        split=args.split,
        examples=args.examples,
        coverage=args.coverage,
        device=str(api.choose_device(args.device)),
        data_dir=args.data_dir,
    )
    kept = examples_kept(run)
    if args.split == "test" and report.examples >= kept:
        write_json(run.path / THEORY, report.as_dict())
    elif args.split == "test":
        err.print(
            f"not kept: {run.path / THEORY} has a check of {kept} images, this one is of {report.examples}; "
            "remove it to keep this one",
            markup=False,
            soft_wrap=True,
        )
    figure = args.figure or run.path / "attenuation"
    drawn = _draw_attenuation(report, figure)
    if args.json:
        print_json({**report.as_dict(), "holds": report.holds})
    else:
        out.print(health_tables.theory_table(theory_table_rows(report)))
        if report.note:
            out.print(report.note, markup=False, soft_wrap=True)
        words = "holds: no example contradicts the theorems" if report.holds else "DOES NOT HOLD on this run"
        out.print(f"{words}{f'    figure: {figure_files(figure)[0]}' if drawn else ''}", markup=False, soft_wrap=True)
    return 0 if report.holds else 1


def _draw_attenuation(report: Any, figure: Path) -> bool:
    try:
        from goodness.report.theory_figure import attenuation_figure

        attenuation_figure(report, figure)
    except ImportError:
        return False
    return True


def audit_command(arguments: list[str]) -> int:
    args = parsed(AuditArgs, arguments, "goodness audit")
    import_plugins(args.plugin)
    if args.batch < 2:
        raise UserError(f"--batch must be at least 2, got {args.batch}")
    config, run = _to_audit(args.what)
    facts = _facts_to_audit(config, run)
    draws = torch.Generator().manual_seed(0)
    labels = torch.randint(facts.classes, (args.batch,), generator=draws)
    if config.is_cumulative:
        images = torch.rand(args.batch, *facts.shape, generator=draws)
        return _audit_blocks(args, config, run, images, labels)
    make = _trainers(config, run, facts)
    views = torch.rand(make().method.views, args.batch, *facts.shape, generator=draws)
    audit = audit_method(make, views, labels)
    if args.json:
        print_json({"what": args.what, **audit.as_dict()})
    else:
        out.print(health_tables.method_audit_table(args.what, audit.as_dict()))
    return 0 if audit.is_as_declared else 1


def _audit_blocks(args: AuditArgs, config: Config, run: Run | None, images: Tensor, labels: Tensor) -> int:
    """Of the paper's method."""
    facts = _facts_to_audit(config, run)
    shape = facts.shape[0], facts.shape[1], facts.shape[2]
    network = Network(config.model, shape, facts.classes, terms=config.objective)
    if run is not None:
        network.load_state_dict(run.network().state_dict(), strict=False)
    network.requires_grad_(True)
    leaks = audit_locality(network, config, images, labels)
    rows = []
    total = sum(1 for _ in network.parameters())
    for depth in range(len(network.blocks)):
        mine = [leak for leak in leaks if leak.loss_of_block == depth]
        rows.append(
            {
                "block": depth,
                "own": len(network.owned(depth)),
                "foreign": total - len(network.owned(depth)),
                "leaks": [{"parameter": leak.parameter, "largest": leak.largest_gradient} for leak in mine],
            }
        )
    if args.json:
        tag = "leaking" if leaks else "strict"
        print_json({"what": args.what, "tag": tag, "is_local": not leaks, "blocks": rows})
    else:
        out.print(health_tables.audit_table(args.what, rows))
        out.print("every foreign gradient is zero" if not leaks else f"{len(leaks)} gradients cross a block")
    return 0 if not leaks else 1


def _trainers(config: Config, run: Run | None, facts: ImageFacts) -> Callable[[], Trainer]:
    """A maker of trainers that are all the same: of new weights, or of a run's own."""
    state = None if run is None else run.method().state_dict()

    def make() -> Trainer:
        method = build_method(config, facts, config.seed)
        if state is not None:
            method.load_state_dict(state)
        return Trainer(method, config.optim, config.step, draws=Draws(torch.device("cpu"), config.seed))

    return make


def _facts_to_audit(config: Config, run: Run | None) -> ImageFacts:
    """Shape and classes of a run's images, or of a preset's data set; colours do not matter here."""
    if run is None:
        data = sources.find(config.data)
        shape, classes = data.shape or (3, 32, 32), data.class_count or 10
    else:
        shape, classes = run.shape, len(run.class_names)
    return ImageFacts(shape, classes, (0.0,) * shape[0], (1.0,) * shape[0])


def _to_audit(what: str) -> tuple[Config, Run | None]:
    """A preset's configuration, or a run with its own."""
    if what in presets and not Path(what, "config.json").is_file():
        config = preset(what)
        if config.trainer != "ff":
            raise UserError(f"preset '{what}' is trained by backpropagation: its gradients cross blocks by design")
        return config, None
    what = str(from_home(what))
    if not Path(what).exists():
        presets[what]  # names the nearest preset
    refuse_published(what)
    run: Run = api.load(what)
    if run.stage != "s1":
        raise UserError(f"{what} is not a Stage 1: its gradients are not meant to stay within blocks")
    return run.config, run
