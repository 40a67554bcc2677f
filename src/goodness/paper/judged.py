"""The paper's findings on the runs of a pool: each with its verdict and the runs behind it, and all of them as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from goodness.durable import write_durably
from goodness.errors import RunError
from goodness.paper.extras import Extra, findings
from goodness.paper.pool import Need, Pool
from goodness.paper.scales import Scale
from goodness.paper.verdicts import Measured, Verdict, counted, not_to_be_told
from goodness.report.words import markdown_line

MARKDOWN, CSV = "findings.md", "findings.csv"
"""Files of the pool that hold the verdicts on all findings."""
NOT_THE_PAPERS = "At this scale the paper's numbers are not to be expected."
MEANS_NOTHING = "At this scale no verdict says anything of the paper; it shows that the way from data to verdict works."


def at_this_scale(scale: Scale) -> str:
    """What a reader must know of all verdicts at a scale; empty at the paper's."""
    return "" if scale.is_papers else NOT_THE_PAPERS if scale.is_comparable else MEANS_NOTHING


@dataclass(frozen=True)
class Judged:
    """A finding, the runs that it needs, and what those that are there say."""

    finding: Extra
    pool: Pool
    needs: dict[Need, bool]
    missing: dict[Need, bool]
    verdict: Verdict
    seeds: Sequence[int] | None = None
    """Those asked for; None takes all."""

    @property
    def done(self) -> int:
        return len(self.needs) - len(self.missing)

    @property
    def make(self) -> str:
        """The command that trains what is missing."""
        return f"goodness reproduce finding:{self.finding.name} {self.pool.options(self.seeds)}"


def judge(finding: Extra, pool: Pool, seeds: Sequence[int] | None = None) -> Judged:
    """By all runs that the pool has for it, or by those of these seeds."""
    needs = finding.needs(pool.scale, seeds)
    runs, left_out = finding.read(pool, seeds)
    try:
        verdict = finding.made_of(runs, pool)
    except RunError as trouble:
        verdict = not_to_be_told(str(trouble))
    if left_out:
        verdict = replace(verdict, beside=(*verdict.beside, f"Not read: {'; '.join(left_out)}."))
    return Judged(finding, pool, needs, pool.missing(needs), verdict, seeds)


def judge_all(pool: Pool, seeds: Sequence[int] | None = None) -> list[Judged]:
    return [judge(one, pool, seeds) for one in findings().values()]


def as_dict(judged: Judged) -> dict[str, Any]:
    """Everything, as plain JSON data."""
    one, pool = judged.finding, judged.pool
    return {
        "kind": "finding",
        "name": one.name,
        "says": one.about,
        "where": one.where,
        "rule": one.rule,
        "scale": pool.scale.name,
        "runs": {"needed": len(judged.needs), "done": judged.done},
        "seconds_left": pool.seconds(judged.missing),
        "needs": [
            {"preset": preset, "seed": seed, "stands": pool.look(preset, seed, readout).why or "done"}
            for (preset, seed), readout in judged.needs.items()
        ],
        **judged.verdict.as_dict(),
        "make": judged.make,
    }


# One finding, line by line


def lines(judged: Judged) -> list[str]:
    """What it says, the verdict and the numbers behind it; then its rule and its runs."""
    one, pool, verdict = judged.finding, judged.pool, judged.verdict
    told = [f"Finding {one.name}: {one.about}", f"Verdict: {verdict.outcome}", verdict.sentence]
    told += [f"  {more}" for more in verdict.beside]
    told += [*verdict.caveats, *filter(None, [at_this_scale(pool.scale)])]
    if verdict.what:
        papers = "" if verdict.paper is not None else "; the paper has no number for it"
        told.append(f"{verdict.what}: {_in_full(verdict)}{papers}")
    if verdict.details:
        told.append("In detail:")
        told += [f"  {detail.what}: {_in_full(detail)}" for detail in verdict.details]
    left = f"; the rest: {judged.make}" if judged.missing else ""
    told += [f"Rule: {one.rule}", f"In the paper: {one.where}"]
    told.append(f"Runs: {judged.done} of {len(judged.needs)} done{left}")
    return told + [f"  {line}" for line in pool.standings(one.shown(pool, judged.seeds))]


def _in_full(one: Verdict | Measured) -> str:
    """`0.35 (0.1 to 0.6), n = 3 seeds; the paper: 0.4`."""
    count = f", n = {counted(one.n, one.unit)}" if one.n else ""
    return f"{estimate(one)}{count}{'' if one.paper is None else f'; the paper: {_number(one.paper)}'}"


def estimate(one: Verdict | Measured) -> str:
    """`0.35 (0.1 to 0.6)`: the estimate and its 95 % interval."""
    if one.estimate is None:
        return "none yet"
    ends = "" if one.low is None else f" ({_number(one.low)} to {_number(one.high)})"
    return f"{_number(one.estimate)}{ends}"


def _number(value: float | None) -> str:
    """Three digits; what is left of rounding is zero."""
    return "" if value is None else f"{0.0 if abs(value) < 1e-12 else value:.3g}"


# All of them


def markdown(all_judged: Sequence[Judged]) -> str:
    """A page with a row a finding, and below what the runs say of each in words."""
    if not all_judged:
        return ""
    scale = all_judged[0].pool.scale
    headings = ("finding", "verdict", "estimate (95 % interval)", "n", "paper", "of what", "runs")
    text = [
        f"# The paper's findings at the scale `{scale.name}`",
        "",
        f"Made from the runs. `goodness paper NAME --scale {scale.name} --out FOLDER`, FOLDER that of this page, shows "
        "one finding with its rule, its runs and every number behind its verdict; `finding:NAME` where a table has the "
        "same name. Accuracies are of Stage 1, one view, unless a line says otherwise; images of several seeds are "
        "counted once a seed.",
        f"\n{at_this_scale(scale)}\n" if at_this_scale(scale) else "",
        markdown_line(headings),
        "|" + "---|" * len(headings),
    ]
    for judged in all_judged:
        one, verdict = judged.finding, judged.verdict
        text.append(
            markdown_line(
                (
                    one.name,
                    verdict.outcome,
                    estimate(verdict),
                    counted(verdict.n, verdict.unit) if verdict.n else "-",
                    _number(verdict.paper) or "-",
                    verdict.what or "-",
                    f"{judged.done} of {len(judged.needs)}",
                )
            )
        )
    text += ["", "## What the runs say", ""]
    for one in all_judged:
        said = " ".join((one.verdict.sentence, *one.verdict.caveats))
        text.append(f"- **{one.finding.name}** ({one.finding.about}) {said}")
        text += [f"  - {more}" for more in one.verdict.beside]
    return "\n".join(text) + "\n"


CSV_COLUMNS: tuple[str, ...] = (
    "finding",
    "outcome",
    "what",
    "estimate",
    "low",
    "high",
    "n",
    "unit",
    "paper",
    "runs_done",
    "runs_needed",
    "sentence",
    "says",
    "scale",
)


def csv_text(all_judged: Sequence[Judged]) -> str:
    """A line a finding, numbers as they are."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for judged in all_judged:
        row = {
            **judged.verdict.as_dict(),
            "finding": judged.finding.name,
            "says": judged.finding.about,
            "runs_done": judged.done,
            "runs_needed": len(judged.needs),
            "scale": judged.pool.scale.name,
            "sentence": judged.verdict.in_words,
        }
        writer.writerow({name: "" if row[name] is None else row[name] for name in CSV_COLUMNS})
    return text.getvalue()


def write_findings(all_judged: Sequence[Judged], folder: Path) -> list[Path]:
    """findings.md and findings.csv in a folder."""
    texts = {folder / MARKDOWN: markdown(all_judged), folder / CSV: csv_text(all_judged)}
    for path, text in texts.items():
        write_durably(path, text.encode())
    return list(texts)
