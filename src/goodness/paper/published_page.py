"""The page of a publication: what was run, on what, what came out, what is missing; and the files that it links to."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from goodness.errors import RunError, UserError
from goodness.health.stats import mean_and_std
from goodness.paper import extras, judged
from goodness.paper.filled import Filled, fill
from goodness.paper.measured import from_to
from goodness.paper.pool import Need, Pool, default_pool
from goodness.paper.reproduce import FIGURES, TABLES
from goodness.paper.suites import paper_tables, union
from goodness.paper.writing import FORMATS, csv_text, markdown, title
from goodness.presets import preset as preset_of
from goodness.presets import presets
from goodness.report.words import markdown_line
from goodness.runs.run import Run, environment_of, made_by
from goodness.sweep.cell import CellFolder
from goodness.sweep.collect import SCORES

DOTS = 70
"""Dots an inch of a published figure: a third of a screen's width, tens of kilobytes."""
README = "README.md"


def write_page(pool: Pool, name: str, *, figures: bool = True, earlier: Iterable[str] = ()) -> None:
    """README.md, tables/, figures/ and verdicts of a published pool, from its runs alone. `name` is what commands call
    it, `earlier` are folders of runs that it no longer reads."""
    _clear(pool.path / TABLES, (table.label for table in paper_tables()), FORMATS)
    _clear(pool.path / FIGURES, extras.figures(), extras.FORMATS)
    filled = [one for one in (fill(table, pool) for table in paper_tables()) if _has_numbers(one)]
    for one in filled:
        _write(pool, f"{TABLES}/{one.table.label}.md", markdown(one))
        _write(pool, f"{TABLES}/{one.table.label}.csv", csv_text(one))
    verdicts = judged.judge_all(pool)
    _write(pool, judged.MARKDOWN, judged.markdown(verdicts))
    _write(pool, judged.CSV, judged.csv_text(verdicts))
    drawn, undrawn = _draw(pool) if figures else ([], [])
    parts = [
        _about(pool, name),
        _runs(pool),
        _findings(verdicts),
        _tables(pool, filled),
        _figures(drawn, undrawn) if figures else "",
        _missing(pool),
        _earlier(earlier),
    ]
    _write(pool, README, "\n\n".join(part for part in parts if part) + "\n")


def _clear(folder: Path, names: Iterable[str], endings: Iterable[str]) -> None:
    """An empty folder but for what no command of ours wrote there."""
    require_folder(folder)
    folder.mkdir(exist_ok=True)
    for name, end in itertools.product(names, endings):
        make_way(folder / f"{name}.{end}")


def make_way(file: Path) -> None:
    """Remove what was published under this name before; of a link, what it leads to is left alone."""
    if file.is_dir() and not file.is_symlink():
        raise UserError(f"{file.name} of the publication is a folder, and a file is written there: move it elsewhere")
    file.unlink(missing_ok=True)


def require_folder(folder: Path) -> None:
    """Refuse to write where a link leads to, or where a file lies."""
    if folder.is_file() and not folder.is_symlink():
        raise UserError(f"{folder.name} of the publication is a file, and a folder is made there: move it elsewhere")
    if folder.is_symlink():
        raise UserError(
            f"{folder.name} of the publication is a link to {os.readlink(folder)}, and would be written to: put a "
            "folder in its place"
        )


def runs_by_preset(pool: Pool) -> dict[str, dict[int, Run]]:
    """Every finished run that lies in the pool, presets in the order of their names."""
    found = {preset: pool.runs(preset) for preset in sorted(presets)}
    return {preset: runs for preset, runs in found.items() if runs}


def _has_numbers(filled: Filled) -> bool:
    return any(ours.score is not None for ours in filled.ours.values())


def _write(pool: Pool, name: str, text: str) -> None:
    """A text of the page; no place of this machine in it."""
    make_way(pool.path / name)
    content = text.replace(f"{pool.path}/", "").encode("utf-8", "backslashreplace")  # of a name that is no text
    (pool.path / name).write_bytes(content)


def _draw(pool: Pool) -> tuple[list[extras.Extra], list[str]]:
    """The figures that runs are there for, as PNG; and the names of the others."""
    drawn, undrawn = [], []
    for figure in extras.figures().values():
        try:
            figure.of(pool).savefig(pool.path / FIGURES / f"{figure.name}.png", dpi=DOTS)
        except (UserError, RunError):
            undrawn.append(figure.name)
        else:
            drawn.append(figure)
    return drawn, undrawn


# The parts of the page


def _about(pool: Pool, name: str) -> str:
    runs = [run for by_seed in runs_by_preset(pool).values() for run in by_seed.values()]
    facts = [environment_of(run) for run in runs]
    stages = [stage for run in runs for stage in (run, run.readout) if stage is not None and stage.is_finished]
    hours = sum(float(stage.result.get("seconds", 0)) for stage in stages) / 3600
    days = sorted(str(one.get("started", ""))[:10] for one in facts)
    mixed = " --mixed-versions" if pool.mixed_versions else ""
    called = shlex.quote(name)
    lines = [
        f"# The paper's tables at the scale `{pool.scale.name}`",
        "",
        *_how_short(pool, runs),
        f"Made by `goodness publish`, from the runs; nothing here is written by hand.{_in_words(pool)}",
        "",
        f"- scale: `{pool.scale.name}`, {pool.scale.about}"
        + ("" if pool.scale.is_comparable else "; the numbers and what is concluded from them mean nothing"),
        f"- runs: {len(runs)}, {len(stages) - len(runs)} of them with Stage 2",
        f"- needed by all tables, figures and findings: {_needed(pool)}",
        f"- time: {hours:.1f} hours of training{_sharing(runs)}",
        f"- seeds: {', '.join(map(str, sorted({run.config.seed for run in runs})))}",
        f"- hardware: {_counted(one.get('device_name') for one in facts)}",
        f"- versions: {_counted(_versions(one) for one in facts)}",
        f"- methods: {', '.join(sorted({f'{made.method} {made.method_version}' for made in map(made_by, stages)}))}",
        f"- begun: {days[0]} to {days[-1]}" if days else "",
        "",
        "Made again, and read, by these; the first trains these runs and all the others that the tables need:",
        "",
        f"    goodness reproduce all --scale {pool.scale.name}",
        f"    goodness publish {default_pool(pool.scale.name).as_posix()} --out {called}{mixed}",
        f"    goodness paper --scale {pool.scale.name} --out {called}",
        "",
        "A run's folder has every number that a table, figure or finding reads. It has no weights and no class scores: "
        "its `published.json` has the SHA-256 of the full predictions, its `result.json` that of the weights.",
    ]
    return "\n".join(lines)


def _how_short(pool: Pool, runs: Iterable[Run]) -> list[str]:
    """How many epochs the runs have, and how many their presets; nothing of runs that are as long as these."""
    epochs = [(run.config.epochs, preset_of(run.config.preset).epochs) for run in runs]
    if all(here == whole for here, whole in epochs):
        return []
    ours, whole = (from_to(column) for column in zip(*epochs))
    limits = ": rows of a table may be compared with each other, not with the paper" if pool.scale.is_comparable else ""
    return [f"**{ours} epochs where the presets have {whole}{limits}.**", ""]


WORDS = "../../docs/ours-and-the-paper.md"


def _in_words(pool: Pool) -> str:
    """A link to the page that tells ours from the paper's, of a publication that lies in this project's results/."""
    return f" Where ours and the paper part, in words: [{Path(WORDS).name}]({WORDS})." * (pool.path / WORDS).is_file()


def _sharing(runs: Iterable[Run]) -> str:
    shared = sum(CellFolder(run.path.parent).shared_path.exists() for run in runs)
    return f", by each run's own clock; {shared} shared their device with others" if shared else ""


def _versions(facts: Mapping[str, Any]) -> str:
    named = {name: facts.get(name) for name in ("goodness", "torch", "python")}
    return ", ".join([*(f"{name} {version}" for name, version in named.items()), str(facts.get("dtype"))])


def _counted(words: Iterable[Any]) -> str:
    """Each word once, with the number of runs where there are several."""
    counts: dict[str, int] = {}
    for word in map(str, words):
        counts[word] = counts.get(word, 0) + 1
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{word} ({count} runs)" for word, count in sorted(counts.items()))


def _needs(pool: Pool) -> dict[Need, bool]:
    return union(one.needs(pool.scale) for one in extras.everything())


def _needed(pool: Pool) -> str:
    """How many runs are there of those needed, and how many others: together as many as there are."""
    needs = _needs(pool)
    others = sum((preset, seed) not in needs for preset, runs in runs_by_preset(pool).items() for seed in runs)
    return pool.counted(needs) + (f", and {others} of seeds or presets beyond these" if others else "")


def _runs(pool: Pool) -> str:
    """A row a preset: mean ± standard deviation in per cent (how many runs)."""
    lines = ["## Runs", "", "Test accuracy in per cent: mean ± standard deviation (runs).", ""]
    lines += [f"| preset | data | epochs | seeds | {' | '.join(SCORES.values())} |", "|---" * (4 + len(SCORES)) + "|"]
    for preset, runs in runs_by_preset(pool).items():
        config = next(iter(runs.values())).config
        seeds = " ".join(map(str, sorted(runs)))
        scores = (_score(runs.values(), name) for name in SCORES)
        lines.append(f"| {preset} | {config.data} | {config.epochs} | {seeds} | {' | '.join(scores)} |")
    return "\n".join(lines)


def _score(runs: Iterable[Run], name: str) -> str:
    stage, _, tta = name.partition("_")
    read = [run if stage == "s1" else run.readout for run in runs]
    reported = [one.result["reported"] for one in read if one is not None and one.is_finished]
    values = [100 * one[key] for one in reported if (key := "accuracy_tta" if tta else "accuracy") in one]
    if not values:
        return "-"
    mean, std, n = mean_and_std(values)
    return f"{mean:.2f}{'' if std is None else f' ± {std:.2f}'} ({n})"


def _missing(pool: Pool) -> str:
    """What tables, figures and findings need and nobody has run."""
    lacking: dict[str, list[str]] = {}
    for (preset, seed), readout in pool.missing(_needs(pool)).items():
        stage = ", Stage 2" if readout and pool.run(preset, seed) is not None else ""
        lacking.setdefault(preset, []).append(f"{seed}{stage}")
    if not lacking:
        return "## Not run\n\nNothing is missing."
    return "\n".join(
        ["## Not run", "", *(f"- {preset}: seed {'; '.join(seeds)}" for preset, seeds in sorted(lacking.items()))]
    )


def _earlier(folders: Iterable[str]) -> str:
    lines = [f"- {folder}" for folder in folders]
    if not lines:
        return ""
    return "\n".join(
        [
            "## Of earlier settings",
            "",
            "Published before the scale or preset changed; read by nothing here.",
            "",
            *lines,
        ]
    )


def _tables(pool: Pool, filled: Iterable[Filled]) -> str:
    lines = ["## Tables", "", "Those that have a number of ours, beside the paper's.", ""]
    for one in filled:
        near, judged = one.verdict
        verdict = f"; {near} of {judged} numbers near the paper's" if judged else ""
        label = one.table.label
        lines.append(
            f"- [{title(one)}]({TABLES}/{label}.md) ([CSV]({TABLES}/{label}.csv)): {pool.counted(one.needs)}{verdict}"
        )
    return "\n".join(lines)


def _figures(drawn: Iterable[extras.Extra], undrawn: list[str]) -> str:
    lines = ["## Figures", ""]
    lines += [f"- [{figure.name}]({FIGURES}/{figure.name}.png): {figure.about}" for figure in drawn]
    if undrawn:
        lines += ["", f"Not drawn, for want of runs: {', '.join(undrawn)}."]
    return "\n".join(lines)


def _findings(verdicts: Iterable[judged.Judged]) -> str:
    numbers = f"What decides each; [estimates, intervals, n and all else]({judged.MARKDOWN}) ([CSV]({judged.CSV}))."
    lines = ["## Findings", "", numbers, "", "| finding | outcome | what the runs say |", "|---|---|---|"]
    lines += [markdown_line((one.finding.name, one.verdict.outcome, one.verdict.sentence)) for one in verdicts]
    return "\n".join(lines)
