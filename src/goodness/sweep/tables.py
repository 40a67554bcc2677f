"""A sweep's results as text: Markdown, CSV, JSON. Nothing in them depends on how often the sweep was interrupted."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from goodness.durable import write_durably, write_json
from goodness.health.stats import MeanAndStd
from goodness.sweep.collect import SCORES, Results, Row
from goodness.versions import METHOD_VERSION

RESULTS = "results.md"


def markdown(results: Results) -> str:
    """A table with a row a group, and below it what is missing and what made the numbers."""
    columns = shown(results)
    lines = ["| " + " | ".join(["run", "seeds", *columns.values()]) + " |", "|" + "---|" * (len(columns) + 2)]
    for row in results.rows:
        found = row.scores
        cells = [row.name, seeds(row), *(mean(row, found.get(name)) for name in columns)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    told = remarks(results)
    return "\n".join([*lines, "", *(f"- {line}" for line in told)]).rstrip() + "\n"


def csv_text(results: Results) -> str:
    """A line a group; fractions, not per cent."""
    text = io.StringIO()
    scores = [f"{name}_{part}" for name in SCORES for part in ("mean", "std")]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "preset", "data", "epochs", "status", "n", "wanted", "seeds", *scores, "trouble"])
    for row in results.rows:
        found = row.scores
        numbers = [_number(found.get(name), part) for name in SCORES for part in ("mean", "std")]
        counts = [row.status, len(row.found), len(row.cells), " ".join(str(cell.seed) for cell in row.found)]
        about = [row.name, row.preset, row.data, row.epochs]
        writer.writerow([*about, *counts, *numbers, "; ".join((*row.trouble, *row.notes))])
    return text.getvalue()


def as_dict(results: Results) -> dict[str, Any]:
    """Everything, as plain JSON data."""
    return {
        "is_complete": results.is_complete,
        "rows": [
            {
                "name": row.name,
                "preset": row.preset,
                "overrides": dict(row.overrides),
                "data": row.data,
                "epochs": row.epochs,
                "status": row.status,
                "scores": {name: score._asdict() for name, score in row.scores.items()},
                "trouble": list(row.trouble),
                "notes": list(row.notes),
                "cells": [{**vars(cell), "scores": dict(cell.scores), "facts": dict(cell.facts)} for cell in row.cells],
            }
            for row in results.rows
        ],
    }


def write_results(results: Results, folder: Path) -> None:
    """results.md, results.csv and results.json, each whole or as it was."""
    write_durably(folder / RESULTS, markdown(results).encode())
    write_durably(folder / "results.csv", csv_text(results).encode())
    write_json(folder / "results.json", as_dict(results))


def shown(results: Results) -> dict[str, str]:
    """The columns that some row has a number for."""
    found = [row.scores for row in results.rows]
    return {name: title for name, title in SCORES.items() if name == "s1" or any(name in one for one in found)}


def seeds(row: Row) -> str:
    return " ".join(str(cell.seed) for cell in row.found) or "-"


def mean(row: Row, score: MeanAndStd | None) -> str:
    """
    `98.77 ± 0.12 % (n = 3)`; with seeds missing `98.77 ± 0.12 % (2 of 3, incomplete)`.
    """
    if score is None:
        return "refused" if row.trouble else "-"
    spread = "" if score.std is None else f" ± {100 * score.std:.2f}"
    count = f"n = {score.n}" if row.status == "complete" else f"{score.n} of {len(row.cells)}, incomplete"
    return f"{100 * score.mean:.2f}{spread} % ({count})"


def remarks(results: Results) -> list[str]:
    """What is missing, what was refused, and what made the numbers."""
    told = []
    for row in results.rows:
        told += [f"{row.name}: not averaged, its runs are not of one kind ({words})" for words in row.trouble]
        told += [f"{row.name}: its runs are not of one version ({words})" for words in row.notes]
    told += [f"{row.name}, seed {cell.seed}: missing ({cell.trouble})" for row, cell in results.missing]
    common = in_every_row(results)
    made = {}
    for row in results.rows:
        for cell in row.found:
            facts = cell.facts
            words = ", ".join(f"{name} {facts[name]}" for name in (*METHOD_VERSION, "torch") if name in facts)
            words += f", {facts['dtype']}, on {cell.device}"
            made.setdefault(words, set()).add(f"{row.data}, {row.epochs} epochs")
    told += [f"every run with {', '.join(common)}"] if common else []
    told += [f"{', '.join(sorted(of))}: {words}" for words, of in made.items()]
    return told


def in_every_row(results: Results) -> list[str]:
    """The changes that all rows have, which are in no row's name."""
    changes = [row.overrides for row in results.rows]
    first = changes[0].items() if changes else ()
    return [f"{path} {value}" for path, value in first if all(path in one and one[path] == value for one in changes)]


def _number(score: MeanAndStd | None, part: str) -> str:
    value = None if score is None else getattr(score, part)
    return "" if value is None else repr(value)
