"""A filled table as text: Markdown, LaTeX (booktabs) and CSV. Ours and the paper's stand apart, and neither is rounded
into the other."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goodness.data.dataset import OTHER_BYTES
from goodness.durable import write_durably
from goodness.paper.contradictions import in_a_line, of_table
from goodness.paper.derived import HOW_PAIRED, PAIRS
from goodness.paper.filled import CITED, DERIVED, NO_SINGLE_RUN, Filled, Ours, is_near
from goodness.paper.numbers import Cell
from goodness.paper.readers import NO_TTA, NOT_OURS, measured_where
from goodness.report.words import markdown_line

WIDEST = 8
"""Columns of a table that is laid out as the paper has it; a wider one gets a line for every cell."""


@dataclass(frozen=True)
class Grid:
    """Headings and lines of text."""

    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def grid(filled: Filled) -> Grid:
    """The paper's rows, each with the paper's line and ours below it; of a wide or ragged table a line a cell."""
    cells = {(cell.row, cell.column): cell for cell in filled.table.cells}
    rows, columns = dict.fromkeys(row for row, _ in cells), dict.fromkeys(column for _, column in cells)
    if len(columns) > WIDEST or len(cells) < 0.6 * len(rows) * len(columns):
        return by_cell(filled)
    lines: list[tuple[str, ...]] = []
    for row in rows:
        there = [cells.get((row, column)) for column in columns]
        lines.append((row, "paper", *("" if cell is None else printed(cell) for cell in there)))
        ours = ("" if cell is None else shown(cell, filled.ours[cell.row, cell.column]) for cell in there)
        lines.append(("", "ours", *ours))
    return Grid(("", "", *columns), tuple(lines))


def by_cell(filled: Filled) -> Grid:
    """A line a cell: any number of columns fits any page."""
    each = [
        (cell.row, cell.column, printed(cell), shown(cell, filled.ours[cell.row, cell.column]))
        for cell in filled.table.cells
    ]
    return Grid(("row", "column", "paper", "ours"), tuple(each))


def printed(cell: Cell) -> str:
    """What the paper prints, with its unit."""
    if cell.text or cell.unit in ("", "points"):
        return cell.printed
    return f"{cell.printed} {cell.unit}"


def shown(cell: Cell, ours: Ours) -> str:
    """`91.20 ± 0.10 (3)`; with seeds missing `(2 of 3)`; else why there is none."""
    score = ours.score
    if score is None:
        return "" if _is_blank(cell, ours) else ours.why or "not run"
    spread = "" if score.std is None else f" ± {_number(cell, score.std)}"
    wanted = max(1, len(ours.wanted))
    count = f" ({wanted if ours.is_complete else f'{score.n} of {wanted}'})" if ours.wanted else ""
    return f"{_number(cell, score.mean)}{spread}{count}"


def _is_blank(cell: Cell, ours: Ours) -> bool:
    """Whether the cell has no number of ours for want of a measure, not of a run."""
    if ours.score is not None:
        return False
    return cell.metric in NOT_OURS or ours.why == CITED or (cell.value is None and ours.why == NO_SINGLE_RUN)


def _blank(filled: Filled) -> list[tuple[Cell, Ours]]:
    every = [(cell, filled.ours[cell.row, cell.column]) for cell in filled.table.cells]
    return [(cell, ours) for cell, ours in every if ours.why and _is_blank(cell, ours)]


def _number(cell: Cell, value: float) -> str:
    """With as many decimals as the paper has; one where it has a whole number, two where it has none."""
    if not math.isfinite(value):
        return str(value)
    if cell.metric in ("attenuation", "flips"):
        return f"{value:.3g}" if cell.metric == "attenuation" else f"{value:z.0f}"
    if cell.metric == "within_a_point":
        return "Yes" if value else "No"
    decimals = re.search(r"\.(\d+)", cell.printed)
    return f"{value:z.{len(decimals[1]) if decimals else 2 if cell.value is None else 1}f}"


def remarks(filled: Filled) -> list[str]:
    """What a reader of the table must know."""
    scale, table = filled.pool.scale, filled.table
    told = []
    twice = [in_a_line(one) for one in of_table(table.label)]
    if table.without:
        return [f"No runs of ours: {table.without}.", *twice]
    told.append(f"Ours: mean ± standard deviation (runs), at the scale '{scale.name}' ({scale.about}).")
    if not scale.is_papers:
        told.append("At this scale the paper's numbers are not to be expected.")
    if blank := dict.fromkeys(ours.why for cell, ours in _blank(filled)):
        told.append(f"Blank, as no run of ours has it: {'; '.join(blank)} (the CSV says of each).")
    told += [f"{where}." for where in measured_where(filled.table.cells, filled.margins)]
    if table.label in PAIRS:
        told.append(f"Pairs: {HOW_PAIRED}.")
    if any(ours.why == NO_TTA for ours in filled.ours.values()):
        told.append(f"{NO_TTA}: of images that are not mirrored, since a mirrored digit is another, there is one view.")
    told += [f"{line}." for line in (*filled.trouble, *filled.notes)]
    if filled.missing:
        told.append(f"Incomplete: {filled.pool.counted(filled.needs)}.")
    elif (verdict := filled.verdict)[1]:
        near, of = verdict
        told.append(
            f"{near} of {of} learned numbers lie near the paper's: within twice its deviation, at least 1 point, or a "
            "fifth of what is no percentage; differences in points are not counted."
        )
    if filled.unlike:
        told.append(f"Not made alike: {'; '.join(f'{name} {versions}' for name, versions in filled.unlike.items())}.")
    told += [f"Runs on {line}." for line in filled.made_by]
    if any(OTHER_BYTES in line for line in filled.made_by):
        told.append(
            f"{OTHER_BYTES.capitalize()}: files that differ from those of the official archive, be it in the order of "
            "their images alone; goodness data check NAME shows it. Such numbers are compared among themselves."
        )
    return told + twice


def markdown(filled: Filled) -> str:
    """A table with its caption above and remarks below."""
    found = grid(filled)
    lines = [f"**{title(filled)}**", "", markdown_line(found.headings), "|" + "---|" * len(found.headings)]
    lines += [markdown_line(line) for line in found.lines]
    return "\n".join([*lines, "", *(f"- {remark}" for remark in remarks(filled))]) + "\n"


def title(filled: Filled) -> str:
    one = filled.table.about
    return f"Table {one.number}, {one.label}: {one.caption}" if one.number else f"{one.label}: {one.caption}"


_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "→": r"$\to$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "·": r"$\cdot$",
    "γ": r"$\gamma$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
}


def escaped(text: str) -> str:
    """Text that LaTeX sets as it is.

    >>> escaped("5 % & a_b ± 1")
    '5 \\\\% \\\\& a\\\\_b $\\\\pm$ 1'
    """
    return "".join(_TEX.get(letter, letter) for letter in text)


def latex(filled: Filled) -> str:
    """A table environment that needs the package booktabs; a long one is not split over pages."""
    found = grid(filled)
    is_wide = len(found.headings) != 4 or found.headings[0] != "row"
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        rf"  \caption{{{escaped(filled.table.about.caption)} {escaped(' '.join(remarks(filled)))}}}",
        rf"  \label{{tab:ours_{filled.table.label}}}",
        r"  \centering",
        r"  \small",
        rf"  \begin{{tabular}}{{ll{'r' * (len(found.headings) - 2)}}}",
        r"    \toprule",
        f"    {_tex_line(found.headings)}",
        r"    \midrule",
    ]
    for number, line in enumerate(found.lines):
        if is_wide and number and line[1] == "paper":
            lines.append(r"    \addlinespace")
        lines.append(f"    {_tex_line(line)}")
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]) + "\n"


def _tex_line(cells: tuple[str, ...]) -> str:
    return " & ".join(map(escaped, cells)) + r" \\"


CSV_COLUMNS: tuple[str, ...] = (
    "table",
    "row",
    "column",
    "metric",
    "unit",
    "preset",
    "paper",
    "paper_spread",
    "paper_n",
    "ours",
    "ours_std",
    "ours_n",
    "seeds",
    "wanted",
    "is_near",
    "why_not",
    "scale",
)


def csv_text(filled: Filled) -> str:
    """A line a cell, numbers as they are."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in one.items()} for one in records(filled))
    return text.getvalue()


def records(filled: Filled) -> list[dict[str, Any]]:
    """The cells as plain data."""
    found = []
    for cell in filled.table.cells:
        ours = filled.ours[cell.row, cell.column]
        score = ours.score
        found.append(
            {
                "table": cell.table,
                "row": cell.row,
                "column": cell.column,
                "metric": cell.metric,
                "unit": cell.unit,
                "preset": cell.preset,
                "paper": cell.printed if cell.value is None else cell.value,
                "paper_spread": cell.spread,
                "paper_n": cell.n,
                "ours": None if score is None else score.mean,
                "ours_std": None if score is None else score.std,
                "ours_n": None
                if score is None
                else (score.n if DERIVED not in ours.values else len(ours.wanted) or None),
                "seeds": " ".join(str(seed) for seed in ours.values if seed != DERIVED),
                "wanted": " ".join(map(str, ours.wanted)),
                "is_near": is_near(cell, ours) if filled.pool.scale.is_papers else None,
                "why_not": "" if score is not None and ours.is_complete else ours.why or "not run",
                "scale": filled.pool.scale.name,
            }
        )
    return found


def as_dict(filled: Filled) -> dict[str, Any]:
    """Everything, as plain JSON data."""
    one, (near, of) = filled.table.about, filled.verdict
    done, half = len(filled.needs) - len(filled.missing), filled.pool.without_stage_2(filled.needs)
    return {
        "kind": "table",
        "label": one.label,
        "number": one.number,
        "section": one.section,
        "caption": one.caption,
        "scale": filled.pool.scale.name,
        "state": filled.state,
        "without": filled.table.without,
        "runs": {"needed": len(filled.needs), "done": done, "without_stage_2": half},
        "near": near,
        "judged": of,
        "cells": records(filled),
        "remarks": remarks(filled),
    }


FORMATS = ("md", "tex", "csv")


def write_table(filled: Filled, folder: Path) -> list[Path]:
    """LABEL.md, LABEL.tex and LABEL.csv in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = (markdown(filled), latex(filled), csv_text(filled))
    paths = {folder / f"{filled.table.label}.{end}": text for end, text in zip(FORMATS, texts)}
    for path, text in paths.items():
        write_durably(path, text.encode())
    return list(paths)
