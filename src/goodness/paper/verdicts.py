"""What a finding is, and what the runs say of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from goodness.health.stats import Interval, mean_interval
from goodness.paper.measured import Runs, is_papers_size, readout_accuracy, setting, settings
from goodness.runs.run import Run, software_of, unlike

Outcome = Literal["holds", "does not hold", "cannot be told yet"]
HOLDS: Outcome = "holds"
FAILS: Outcome = "does not hold"
OPEN: Outcome = "cannot be told yet"

POINT = 1.0
"""Accuracies within this many points are the same for practical purposes: the paper's threshold."""
SPREAD = 2.0
"""The deepest block's separation must differ at least so many times before one can speak of a dissociation."""
IDLE = 0.2
"""A part whose removal costs less than this many points bears no load."""
LOST = 0.5
"""Points of accuracy that early exit may cost."""

LEAST = 3
"""Seeds that a pair of rules must share to count."""

SEEDS = "seeds"
"""Claims about training: another seed is another training, and the spread between them is what counts."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One number with its 95 % interval and what the paper has for it."""

    what: str
    """What the estimate is, with its unit."""
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    unit: str = SEEDS
    """What n counts."""
    paper: float | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict(Measured):
    """What the runs say of a finding: the outcome, a sentence, and the number it rests on."""

    outcome: Outcome
    sentence: str
    """What decides."""
    beside: tuple[str, ...] = ()
    """What else the runs say, a sentence each."""
    size: str = ""
    """Data and epochs of runs that are not of the paper's size; empty where all are."""
    what: str = ""
    details: tuple[Measured, ...] = ()

    absent: tuple[str, ...] = ()
    """Presets that were not run and that no sentence names."""
    software: tuple[str, ...] = ()
    """Versions and precisions that differ between the runs."""

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader must know of the runs, a sentence each."""
        more = f", ... ({len(self.absent)} in all)" if len(self.absent) > 6 else ""
        told = [f"Not run: {', '.join(self.absent[:6])}{more}."] if self.absent else []
        told += [f"Not at the paper's size: {self.size}."] if self.size else []
        if self.software:
            told.append(f"Not made alike: {'; '.join(self.software)}.")
        return tuple(told)

    @property
    def in_words(self) -> str:
        """All that is said, in one line."""
        return " ".join((self.sentence, *self.beside, *self.caveats))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that the paper finds, and the test of it."""

    name: str
    says: str
    where: str
    """Labels of the paper."""
    rule: str
    """Which outcome follows from what: decided before the data, or it says since when."""
    presets: tuple[str, ...]
    """What it reads; not all of them are needed for a verdict."""
    seeds: int = 3
    """The least number of seeds that can bring a verdict."""
    readout: bool = False
    """Whether it reads Stage 2."""
    theory: bool = False
    """Whether it reads the check of the theorems, which is made of the lowest seed."""
    judge: Callable[[Runs], Verdict]

    def verdict(self, runs: Runs) -> Verdict:
        """What these runs say; presets that are not named above are left alone.

        Too few seeds decide nothing, and runs of another size than the paper's are named as such.
        """
        mine = {preset: self._read(runs[preset]) for preset in self.presets if runs.get(preset)}
        mine = {preset: by_seed for preset, by_seed in mine.items() if by_seed}
        found = self.judge(mine)
        if found.unit == SEEDS and found.outcome != OPEN and found.n < self.seeds:
            said = f"{found.sentence[:-1]}; cannot be told yet: n = {found.n} seeds, and it takes {self.seeds}."
            found = replace(found, outcome=OPEN, sentence=said)
        other = {
            preset: {seed: run for seed, run in by_seed.items() if not is_papers_size(preset, run)}
            for preset, by_seed in mine.items()
        }
        if found.estimate is not None and any(other.values()):
            found = replace(found, size=settings(other))
        software = unlike(software_of(run) for run in self._runs(mine) if setting(run))
        return replace(
            found,
            absent=self._absent(found, mine),
            software=tuple(f"{name} {versions}" for name, versions in software.items()),
        )

    def _absent(self, found: Verdict, mine: Runs) -> tuple[str, ...]:
        """Presets without a run that the words do not name; none where there is nothing to tell."""
        named = {word.strip(".,:;()") for sentence in (found.sentence, *found.beside) for word in sentence.split()}
        absent = [one for one in self.presets if one not in {*mine, *named}] if found.estimate is not None else []
        return tuple(f"{one} with Stage 2" if self.readout else one for one in absent)

    def _runs(self, mine: Runs) -> list[Run]:
        """All that it reads, of both stages."""
        runs = [run for by_seed in mine.values() for run in by_seed.values()]
        return runs + ([run.readout for run in runs if run.readout is not None] if self.readout else [])

    def _read(self, by_seed: Mapping[int, Run]) -> Mapping[int, Run]:
        """Of one preset's runs those that it reads: a finding about Stage 2 none without it."""
        if not self.readout:
            return by_seed
        return {seed: run for seed, run in by_seed.items() if readout_accuracy(run) is not None}


def as_page(findings: Mapping[str, Finding]) -> str:
    """The findings and their rules as a page of Markdown, without any run."""
    intro = (
        "Each finding of the paper is a test on finished runs (`goodness.paper.findings`). What counts as a unit, and "
        "which outcome follows from what, was written down before the runs that it judges, unless a rule says "
        "otherwise; what was known are the single runs of the dense rules in results/. An outcome is *holds*, *does "
        "not hold* or *cannot be told yet*; intervals are of 95 %. `goodness paper NAME` shows one with its runs, "
        "verdict and numbers; `goodness reproduce NAME` trains the runs that it reads, then writes the verdict; "
        "`finding:NAME` where a table has the same name. Presets that were not run are named beside the verdict, and "
        "keep it open only where the rule says that all count."
    )
    lines = ["# Findings, and what would settle them", "", intro]
    for one in findings.values():
        runs = f"at least {one.seeds} seeds" if one.seeds > 1 else "one seed"
        runs += ", with Stage 2" if one.readout else ""
        names = ", ".join(f"`{name}`" for name in one.presets)
        lines += ["", f"## {one.name}", "", one.says, "", f"*{one.rule}*", "", f"In the paper: {one.where}.", ""]
        lines += [f"Runs ({runs}): {names}."]
    return "\n".join(lines) + "\n"


def measured(what: str, found: Interval, unit: str = SEEDS, paper: float | None = None) -> Measured:
    return Measured(what=what, **found._asdict(), unit=unit, paper=paper)


def told(
    outcome: Outcome,
    sentence: str,
    what: str,
    found: Interval,
    unit: str = SEEDS,
    paper: float | None = None,
    details: Sequence[Measured] = (),
) -> Verdict:
    return Verdict(
        outcome=outcome,
        sentence=sentence,
        what=what,
        **found._asdict(),
        unit=unit,
        paper=paper,
        details=tuple(details),
    )


def nothing_yet(
    missing: Sequence[str], details: Sequence[Measured] = (), what: str = "", paper: float | None = None
) -> Verdict:
    """No runs to judge by; what they would be, the first few, and what the paper has."""
    names = list(dict.fromkeys(missing))
    some = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return _open(f"Cannot be told yet, for want of runs: {some}.", details, what, paper)


def not_to_be_told(why: str, details: Sequence[Measured] = ()) -> Verdict:
    """Runs are there, and there is nothing in them to judge by."""
    return _open(f"Cannot be told yet: {why}.", details)


def _open(sentence: str, details: Sequence[Measured], what: str = "", paper: float | None = None) -> Verdict:
    return Verdict(outcome=OPEN, sentence=sentence, what=what, paper=paper, details=tuple(details))


def ratio_interval(ratios: Sequence[float], confidence: float = 0.95) -> Interval:
    """Geometric mean of positive ratios, Student's interval on their logarithms."""
    found = mean_interval([math.log(ratio) for ratio in ratios], confidence=confidence)
    ends = [None if end is None else math.exp(end) for end in (found.low, found.high)]
    return Interval(math.exp(found.estimate), ends[0], ends[1], found.n)


def too_few(found: Interval, unit: str = SEEDS) -> str:
    """Why an interval is missing."""
    return f"cannot be told yet: n = {counted(found.n, unit)}"


def counted(n: int, unit: str) -> str:
    """1 seed, 2 seeds."""
    return f"{n} {unit[:-1] if n == 1 and unit.endswith('s') else unit}"


def written(found: Interval, digits: int = 2, sign: bool = True, unit: str = "") -> str:
    """+0.35 (95 % interval +0.10 to +0.60, n = 3); a digit more where an end would seem to lie on the threshold."""
    ends = [end for end in (found.low, found.high) if end is not None]
    if any(abs(abs(end) - POINT) < 0.5 * 10**-digits for end in ends):
        digits += 1
    style = f"{'+' if sign else ''}z.{digits}f"
    told = f"95 % interval {found.low:{style}} to {found.high:{style}}, " if len(ends) == 2 else ""
    n = f"n = {found.n}{f' {unit}' if unit else ''}"
    return f"{found.estimate:{style}} ({told}{n})".replace("-", "−")
