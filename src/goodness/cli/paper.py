"""Commands for the paper's tables, figures and findings: paper, which shows where they stand, and reproduce, which
makes them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from goodness.cli.sweep import seeds_of_words
from goodness.cli.terminal import err, out, parsed, print_json
from goodness.errors import UserError
from goodness.paper import extras, judged
from goodness.paper.filled import Filled, fill
from goodness.paper.names import Named, named
from goodness.paper.pool import Pool, refuse_another_scale
from goodness.paper.reproduce import FIGURES, Taken, found_in, plan, reproduce
from goodness.paper.suites import PaperTable, paper_tables, union
from goodness.paper.writing import as_dict, remarks
from goodness.report.paper_tables import filled_table, findings_table, overview
from goodness.report.sweep_progress import SweepProgress, duration
from goodness.sweep.published import about_publication, is_published


@dataclass(kw_only=True)
class PoolArgs:
    """Which runs."""

    scale: str = "full"
    """full: the presets as they are; short: about two minutes a run on one H200; tiny: seconds on a CPU, to see that
    all of it works."""
    seeds: tuple[str, ...] = ()
    """Seeds, as 42,123,456; by default as many as the paper has for each number."""
    out: Path | None = None
    """Folder of the runs; runs/paper/SCALE by default. All tables share it."""
    mixed_versions: bool = False
    """Accept runs that other versions of a method or torch made; the tables say so."""
    json: bool = False
    """Print one JSON object."""


@dataclass(kw_only=True)
class PaperArgs(PoolArgs):
    """List the paper's tables, figures and findings with what each needs and where it stands; with names, print tables,
    ours beside the paper's, of figures what they need and where they lie, of findings the rule, the runs and the
    verdict. Nothing is trained: that is goodness reproduce."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Labels of tables and figures, such as freeriding (tab:LABEL or fig:LABEL for one of the two where both have it),
    and names of findings, such as mgc (finding:NAME where a table has the same); none for the list."""


@dataclass(kw_only=True)
class ReproduceArgs(PoolArgs):
    """Train what tables, figures and findings of the paper lack, then write them: tables as Markdown, LaTeX and CSV,
    ours beside the paper's, and the verdicts on the findings. The same command again goes on where it was; Ctrl-C saves
    every run. `all` is everything."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Labels of tables and figures, such as freeriding or main_dissociation (tab:LABEL or fig:LABEL for one of the two
    where both have it); names of findings, such as mgc (finding:NAME where a table has the same); or all."""
    only: tuple[str, ...] = ()
    """Train runs of these presets alone, names or wildcards such as 'l8-gated-*'; others are taken where publications
    have them, and said to be missing elsewhere."""
    jobs: int | None = None
    """Runs at once. By default one per core; on a GPU one, and more where a measurement says that it pays."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    data_dir: Path | None = None
    """Where data sets are kept; else $GOODNESS_DATA, else the user's cache folder."""
    published: tuple[Path, ...] = ()
    """Publications, such as results/paper-short, whose runs are taken as they are instead of being trained again."""
    dry_run: bool = False
    """List the runs and what they would take; train nothing."""


def _say_what_was_taken(taken: Taken) -> None:
    for note in taken.notes:
        err.print(note, markup=False, soft_wrap=True)
    if taken.folders:
        err.print(f"{len(taken.folders)} runs from publications")


def paper_command(arguments: list[str]) -> int:
    args = parsed(PaperArgs, arguments, "goodness paper")
    if args.out is not None and not args.out.is_dir():
        raise UserError(f"there is no folder {args.out}; goodness reproduce --out {args.out} makes one")
    pool, seeds = _pool(args), seeds_of_words(args.seeds) or None
    if not args.names:
        return _list(pool, seeds, args)
    asked: list[Named] = []
    for one in (one for name in args.names for one in named(name).each()):
        asked += [one] if one not in asked else []
    if args.json:
        print_json([_as_dict(one, pool, seeds) for one in asked])
        return 0
    for one in asked:
        if one.table:
            _print_table(fill(one.table, pool, seeds))
        elif one.figure:
            _print_figure(one.figure, pool, seeds)
        elif one.finding:
            _print_lines(judged.lines(judged.judge(one.finding, pool, seeds)))
    needs = union(part.needs(pool.scale, seeds) for one in asked for part in one)
    if needs and len(pool.missing(needs)) == len(needs) and not pool.without_stage_2(needs):
        _print_lines(_publications(args, args.names))
        if args.out is not None:
            _print_lines([f"{args.out} has no finished run of these at the scale '{pool.scale.name}'"])
    return 0


def reproduce_command(arguments: list[str]) -> int:
    args = parsed(ReproduceArgs, arguments, "goodness reproduce")
    if not args.names:
        raise UserError("name what to make: goodness reproduce NAME ..., or all; goodness paper lists them")
    pool, seeds = _pool(args), seeds_of_words(args.seeds) or None
    if args.dry_run:
        return _show_plan(args, pool, seeds)
    with SweepProgress(err, quiet=args.json) as progress:
        made = reproduce(
            args.names,
            pool,
            seeds=seeds,
            only=args.only,
            jobs=args.jobs,
            device=args.device,
            data_dir=args.data_dir,
            watch=progress.show,
            again=f"goodness reproduce {shlex.join(arguments)}",
            published=args.published,
        )
    if args.json:
        found = [judged.as_dict(one) for one in made.findings]
        files = [str(file) for file in made.files]
        print_json({"tables": [as_dict(one) for one in made.tables], "findings": found, "files": files})
    else:
        for one in made.tables if len(made.tables) == 1 else ():
            _print_table(one)
        for one in made.findings if len(made.findings) == 1 else ():
            _print_lines(judged.lines(one))
        for folder in dict.fromkeys(file.parent for file in made.files):
            count = sum(file.parent == folder for file in made.files)
            out.print(f"{count} files in {folder}", markup=False, soft_wrap=True)
        if len(made.findings) > 1:
            counts = Counter(one.verdict.outcome for one in made.findings)
            told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
            beware = judged.at_this_scale(pool.scale)
            _print_lines([f"Findings: {told}; {pool.path / judged.MARKDOWN} has each. {beware}".rstrip()])
        if len(made.tables) + len(made.findings) > 1:
            _print_lines([f"All of it: goodness paper {pool.options(seeds)}"])
    _say_what_was_taken(made.taken)
    for (preset, seed), why in list(made.failed.items())[:5]:
        err.print(f"missing: {preset}, seed {seed} ({why})", markup=False, soft_wrap=True)
    if made.failed:
        finished = sum(pool.standing(*need).state == "done" for need in made.failed)
        stuck = f", but for {finished} that lie there finished and are refused" if finished else ""
        err.print(f"{len(made.failed)} runs are missing; the same command tries them again{stuck}", soft_wrap=True)
    refused = [one.table.label for one in made.tables if one.is_refused]
    if refused:
        err.print(f"not all runs could be used, the tables say why: {', '.join(refused)}", markup=False, soft_wrap=True)
    for name, why in made.undrawn.items():
        err.print(f"not drawn: {name}: {why}", markup=False, soft_wrap=True)
    if made.unready:
        which = f"goodness paper fig:{made.unready[0]} {pool.options(seeds)}"
        names = f"{', '.join(made.unready)}; {which} says which"
        err.print(f"not drawn for want of runs: {names}", markup=False, soft_wrap=True)
    is_undrawn = (made.undrawn or made.unready) and not args.only  # what was left untrained cannot be drawn
    return 1 if made.failed or refused or is_undrawn else 0


def _pool(args: PoolArgs) -> Pool:
    known = about_publication(args.out).get("scale") if args.out else None
    if known not in (None, args.scale):
        raise UserError(f"{args.out} holds runs at the scale '{known}': add --scale {known}")
    pool = Pool.at(args.scale, args.out, mixed_versions=args.mixed_versions)
    if known is None:
        refuse_another_scale(pool)
    return pool


def _list(pool: Pool, seeds: list[int] | None, args: PoolArgs) -> int:
    tables = [_standing_of_table(one, pool, seeds) for one in paper_tables()]
    figures = [_standing_of_figure(one, pool, seeds) for one in extras.figures().values()]
    if args.json:
        verdicts = [judged.as_dict(one) for one in judged.judge_all(pool, seeds)]
        print_json({"scale": pool.scale.name, "tables": tables, "figures": figures, "findings": verdicts})
        return 0
    _print_lines(_publications(args))
    out.print(overview([*tables, *figures], pool.scale.name, pool.scale.machine, out.width))
    if verdicts := judged.judge_all(pool, seeds):  # behind the overview: some take a while to judge
        out.print(findings_table([judged.as_dict(one) for one in verdicts]))
        _print_lines(filter(None, [judged.at_this_scale(pool.scale)]))
    needs = union(one.needs(pool.scale, seeds) for one in extras.everything())
    missing = pool.missing(needs)
    left = (
        f"; the rest take about {duration(pool.seconds(missing))} on {pool.scale.machine}. Make one: goodness "
        f"reproduce NAME {pool.options(seeds)}"
    )
    out.print(
        f"In {pool.path}: {pool.counted(needs)}, each once however many need it{left if missing else '.'}",
        markup=False,
        soft_wrap=True,
    )
    return 0


def _publications(args: PoolArgs, names: Iterable[str] = ()) -> Iterator[str]:
    """Commands that show the same of the publications in this folder's results/, unless a place was named."""
    for place in filter(is_published, sorted(Path("results").glob("*")) if args.out is None else ()):
        scale = about_publication(place).get("scale")
        words = ["goodness", "paper", *names, "--scale", str(scale), "--out", str(place)]
        yield f"Published: {shlex.join(words)}"


def _standing_of_table(one: PaperTable, pool: Pool, seeds: list[int] | None) -> dict[str, Any]:
    filled = fill(one, pool, seeds)
    near, judged = filled.verdict
    words = {
        "no runs": f"no runs of ours: {one.without}",
        "complete": f"complete: {near} of {judged} numbers near the paper's" if judged else "complete",
        "partial": f"{pool.counted(filled.needs)}",
        "running": f"running, {pool.counted(filled.needs)}",
    }
    told = as_dict(filled)
    del told["cells"]
    return {
        **told,
        "seconds": pool.seconds(filled.needs),
        "seconds_left": pool.seconds(filled.missing),
        "is_refused": filled.is_refused,
        "stands": words.get(filled.state, filled.state) + ("; some are refused" if filled.is_refused else ""),
    }


def _standing_of_figure(one: extras.Extra, pool: Pool, seeds: list[int] | None) -> dict[str, Any]:
    needs = one.needs(pool.scale, seeds)
    missing = pool.missing(needs)
    done = len(needs) - len(missing)
    half = pool.without_stage_2(needs)
    return {
        "label": one.name,
        "kind": "figure",
        "number": None,
        "caption": one.about,
        "state": "complete" if not missing else "partial" if done or half else "not run",
        "runs": {"needed": len(needs), "done": done, "without_stage_2": half},
        "seconds": pool.seconds(needs),
        "seconds_left": pool.seconds(missing),
        "stands": "complete" if not missing else pool.counted(needs) if done or half else "not run",
    }


def _as_dict(one: Named, pool: Pool, seeds: list[int] | None) -> dict[str, Any]:
    """A table, a figure or a finding, as plain JSON data."""
    if one.table:
        return as_dict(fill(one.table, pool, seeds))
    if one.figure:
        return _figure(one.figure, pool, seeds)
    assert one.finding is not None, "a name means something"
    return judged.as_dict(judged.judge(one.finding, pool, seeds))


def _figure(one: extras.Extra, pool: Pool, seeds: list[int] | None) -> dict[str, Any]:
    """What a figure needs, where it stands, and its files where it was drawn."""
    needs = one.needs(pool.scale, seeds)
    files = [pool.path / FIGURES / f"{one.name}.{end}" for end in extras.FORMATS]
    return {
        **_standing_of_figure(one, pool, seeds),
        "scale": pool.scale.name,
        "needs": [
            {"preset": preset, "seed": seed, "stands": pool.look(preset, seed, readout).why or "done"}
            for (preset, seed), readout in needs.items()
        ],
        "not_read": one.read(pool, seeds)[1],
        "files": [str(file) for file in files if file.is_file()],
        "make": f"goodness reproduce fig:{one.name} {pool.options(seeds)}",
    }


def _print_figure(figure: extras.Extra, pool: Pool, seeds: list[int] | None) -> None:
    told = _figure(figure, pool, seeds)
    lines = [f"Figure {told['label']}: {told['caption']}"]
    lines += [f"  {line}" for line in pool.standings(figure.shown(pool, seeds))]
    lines += [f"Not read: {why}." for why in told["not_read"]]
    left = f", the rest take about {duration(told['seconds_left'])} on {pool.scale.machine}"
    lines.append(f"{told['stands']}{left if told['seconds_left'] else ''}")
    lines.append(f"drawn: {', '.join(told['files'])}" if told["files"] else f"not drawn yet: {told['make']}")
    _print_lines(lines)


def _print_table(filled: Filled) -> None:
    out.print(filled_table(filled, out.width))
    _print_lines(remarks(filled))


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _show_plan(args: ReproduceArgs, pool: Pool, seeds: list[int] | None) -> int:
    asked = plan(args.names, pool, seeds, args.only)
    known = found_in(args.published, pool, asked.needs)
    _say_what_was_taken(known)
    states = {
        need: "published" if pool.cell(*need).folder_name in known.folders else pool.look(*need, readout).why or "done"
        for need, readout in asked.trained.items()
    }
    missing = {need: readout for need, readout in asked.trained.items() if states[need] not in ("published", "done")}
    if args.json:
        cells = [
            {
                "preset": preset,
                "seed": seed,
                "readout": readout,
                "folder": pool.cell(preset, seed).folder_name,
                "is_done": states[preset, seed] == "done",
                "state": states[preset, seed],
                "seconds": pool.scale.estimate(preset, readout),
            }
            for (preset, seed), readout in asked.trained.items()
        ]
        print_json({"folder": str(pool.path), "cells": cells, "seconds_left": pool.seconds(missing)})
        return 0
    for (preset, seed), readout in asked.trained.items():
        seconds = duration(pool.scale.estimate(preset, readout))
        stages = "Stage 1 and 2" if readout and len(pool.cell(preset, seed, True).stages) > 1 else "Stage 1"
        out.print(
            f"{preset}, seed {seed}: {stages}, about {seconds}, {states[preset, seed]}", markup=False, soft_wrap=True
        )
    if missing and is_published(pool.path):
        err.print(
            f"{pool.path} is a publication, and nothing is trained there; take its runs with {pool.options(seeds)}",
            markup=False,
            soft_wrap=True,
        )
    out.print(
        f"{len(missing)} of {len(asked.trained)} runs to do in {pool.path}, about {duration(pool.seconds(missing))} on "
        f"{pool.scale.machine}",
        markup=False,
        soft_wrap=True,
    )
    return 0
