"""What is published in this repository is read by the settings of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from goodness.paper.filled import fill
from goodness.paper.judged import judge_all, write_findings
from goodness.paper.pool import Pool
from goodness.paper.publish import _read_and_not
from goodness.paper.suites import paper_tables
from goodness.paper.writing import write_table
from goodness.presets import preset
from tiny_runs import PAPERS_METHOD

ROOT = Path(__file__).parents[2]
SHORT = ROOT / "results" / "paper-short"


def test_every_published_run_is_read_and_counted() -> None:
    """A scale or preset that changes leaves runs behind that nothing reads: publish what is still read, and say so."""
    needs, earlier = _read_and_not(Pool.at("short", SHORT))
    assert earlier == []
    for page in (ROOT / "README.md", ROOT / "docs" / "ours-and-the-paper.md"):
        assert f"{len(needs)} runs" in page.read_text("utf-8"), page


def test_the_published_tables_and_verdicts_are_those_of_the_published_runs(tmp_path: Path) -> None:
    """After a change in how they are written or judged: goodness publish results/paper-short --out results/paper-short
    (and all 87 runs count as one version, or there would be no mean of some)."""
    pool = Pool.at("short", SHORT)
    assert not pool.mixed_versions
    made = write_findings(judge_all(pool), tmp_path)
    made += [file for one in paper_tables() for file in write_table(fill(one, pool), tmp_path / "tables")]
    published = {path.relative_to(SHORT) for path in SHORT.glob("tables/*")} | {
        Path("findings.md"),
        Path("findings.csv"),
    }
    assert len(published) > 60
    assert published <= {path.relative_to(tmp_path) for path in made}
    for name in published:
        assert (tmp_path / name).read_text("utf-8") == (SHORT / name).read_text("utf-8"), name


@pytest.mark.parametrize("name", PAPERS_METHOD)
def test_with_many_hypotheses_stage_2_learns_slowly(name: str) -> None:
    """results/readout-learning-rates-h200.txt: with a hundred, its loss rose at the rate that ten learn well at."""
    config = preset(name)
    assert config.readout.lr == (1e-4 if config.data in ("cifar100", "tiny-imagenet") else 1e-3)
