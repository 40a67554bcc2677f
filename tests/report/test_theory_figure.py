"""The attenuation figure: drawn whatever the report, and its words say what its numbers say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from goodness.config import Config
from goodness.health.theory import check_theory
from goodness.health.theory_report import Example, TheoryReport
from goodness.nn.network import Network
from goodness.report.theory_figure import attenuation_figure, headline, in_words, small_print
from tiny_runs import shrunk


def report_of(config: Config) -> TheoryReport:
    torch.manual_seed(0)
    network = Network(config.model, (1, 8, 8), 3).eval()
    draws = torch.Generator().manual_seed(0)
    images, labels = torch.rand(4, 1, 8, 8, generator=draws), torch.tensor([0, 1, 2, 0])
    return check_theory(network, config, images, labels, examples=4)


@pytest.fixture(scope="module")
def lcff() -> TheoryReport:
    return report_of(shrunk("lcff-dense", blocks=3))


def keeping(report: TheoryReport, ratio: float) -> TheoryReport:
    """The same report, with every example leaving this share of the signal."""
    one = Example(0, 1, 1.0, 2.0, 1.0, ratio, ratio, 1.0, 0.0, True)
    return replace(report, blocks=tuple(replace(block, examples=(one,) * 3) for block in report.blocks))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures as they would have been saved; rendering one takes a second."""
    saved: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: saved.append(self))
    return saved


def test_the_figure_comes_as_png_and_svg(lcff: TheoryReport, tmp_path: Path) -> None:
    png, svg = attenuation_figure(lcff, tmp_path / "fig.v1")  # a dot in the name is no suffix
    assert (png, svg) == (tmp_path / "fig.v1.png", tmp_path / "fig.v1.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()


def test_every_kind_of_report_can_be_drawn(lcff: TheoryReport, tmp_path: Path, figures: list[Figure]) -> None:
    unmeasured = Example(0, 1, 300.0, 300.0, 1.0, 0.0, None, None, None, True)
    settled = replace(lcff, blocks=tuple(replace(block, examples=(unmeasured,)) for block in lcff.blocks))
    local, alone = (report_of(shrunk(name, blocks=n)) for name, n in (("gamma0-dense", 2), ("lcff-dense", 1)))
    for report in (settled, local, alone):
        attenuation_figure(report, tmp_path / "figure")
        figures[-1].draw_without_rendering()
        bottom, top = figures[-1].axes[0].get_ylim()
        assert bottom < 1 < top


def test_every_example_measured_is_a_point_and_every_block_a_line_of_the_legend(
    lcff: TheoryReport, tmp_path: Path, figures: list[Figure]
) -> None:
    attenuation_figure(lcff, tmp_path / "figure")
    (axes,) = figures[0].axes
    drawn = {(float(x), float(y)) for group in axes.collections for x, y in group.get_offsets() if x == x}
    expected = {(one.weight * one.past, one.measured) for block in lcff.blocks for one in block.examples}
    assert expected <= drawn
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    assert all(low < y < high for _, y in expected)
    entries = [text.get_text() for text in axes.get_legend().get_texts()]
    for start in ("theorem: at most", "theorem: at least", "block 1", "block 2", "filled", "hollow"):
        assert sum(entry.startswith(start) for entry in entries) == 1


def test_the_headline_says_what_the_deepest_block_keeps(lcff: TheoryReport) -> None:
    assert "hardly learns" in headline(keeping(lcff, 1e-8))
    assert "1 part in 10⁸" in headline(keeping(lcff, 1e-8))
    assert "go on learning" in headline(keeping(lcff, 0.9))
    assert "90 %" in headline(keeping(lcff, 0.9))
    assert "whole learning signal" in headline(keeping(lcff, 1.0))
    assert "No block inherits" in headline(replace(lcff, blocks=()))


def test_the_small_print_tells_a_violation(lcff: TheoryReport) -> None:
    assert "The theory holds" in small_print(lcff)[-1]
    first = lcff.blocks[0]
    broken = replace(first, identity=replace(first.identity, violations=3))
    assert "violated 3 times" in small_print(replace(lcff, blocks=(broken,)))[-1]


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (1.0, "100 %"), (2.0, "200 %"), (0.996, "100 %"), (0.57, "57 %"), (0.01, "1 %"), (0.005, "1 part in 200"),
        (1e-4, "1 part in 10,000"), (1e-6, "1 part in a million"), (3e-9, "1 part in 10⁹"), (1e-120, "1 part in 10¹²⁰"),
    ],
)  # fmt: skip
def test_shares_in_words(share: float, words: str) -> None:
    assert in_words(share) == words
