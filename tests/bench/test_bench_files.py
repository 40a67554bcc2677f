"""What the benchmark leaves: JSON that says where it came from, and a page of every number in it."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from goodness.bench.page import HEADING, page
from goodness.bench.subjects import SIDE_BY_SIDE
from goodness.cli import main
from tiny_runs import shrunk

KEPT = Path(__file__).parents[2] / "benchmarks"
TINY = ["bench", "demo", "--device", "cpu", "--batch", "4", "--steps", "1", "--repeats", "1", "--classes", "2"]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The JSON file of a small benchmark, and what the command printed."""
    place = tmp_path_factory.mktemp("bench") / "small.json"
    arguments = [*TINY, "--json", "--out", str(place)]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(sys, "argv", ["goodness", *arguments])
        patch.setattr("goodness.bench.measure.make_config", lambda name, changes: shrunk(name, changes))
        assert main(arguments) == 0
    return place, printed.getvalue()


def test_the_file_is_what_was_printed(left: tuple[Path, str]) -> None:
    place, printed = left
    found = json.loads(printed)
    assert json.loads(place.read_text()) == found
    assert [row["name"] for row in found["rows"]] == [subject.name for subject in SIDE_BY_SIDE]
    assert all(row["timed_in_turn"] for row in found["rows"])
    assert [row["classes"] for row in found["prediction"]] == [2]
    assert (found["steps"], found["repeats"]) == (1, 1)


def test_the_file_says_on_what_and_by_what_it_was_made(left: tuple[Path, str]) -> None:
    place, printed = left
    facts = json.loads(printed)["environment"]
    for name in ("cpu", "cores", "threads", "device", "device_name", "dtype", "goodness", "python", "torch", "numpy"):
        assert facts[name], name
    assert facts["commit"] is None or re.fullmatch(r"[0-9a-f]{40}", facts["commit"])
    assert facts["command"] == f"goodness {' '.join(TINY)} --json --out small.json"
    assert str(place.parent) not in printed


def test_the_page_beside_the_file_has_a_line_for_every_row(left: tuple[Path, str]) -> None:
    place, printed = left
    found, text = json.loads(printed), place.with_suffix(".md").read_text()
    assert text == page(found)
    assert text.startswith(HEADING)
    for row in found["rows"]:
        (line,) = lines_of(text, row["preset"], row["name"])
        for number in (
            f"{row['median_ms']:.2f}",
            f"{row['least_ms']:.2f}",
            f"{row['most_ms']:.2f}",
            f"{row['epoch_s']:.2f}",
            f"{row['images_per_second']:,.0f}",
            f"{row['parameters_per_backward']:,}",
            f"{100 * row['share_of_roofline']:.0f} %",
        ):
            assert number in line
        assert row["peak_bytes"] is None or f"{row['peak_bytes'] / 2**20:.1f} MiB" in line
    assert len(lines_of(text, "2")) == 3, "together, the loop, late labels"
    assert found["environment"]["command"] in text


def lines_of(text: str, *cells: str) -> list[list[str]]:
    """The cells of the lines of tables that begin so."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return [line for line in lines if line[: len(cells)] == list(cells)]


def test_a_file_without_prediction_is_one_of_the_benchmarks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads((KEPT / "bench-cpu.json").read_text()) | {"prediction": []}
    place = tmp_path / "x.json"
    place.write_text(json.dumps(found))
    assert main(["bench", "--from", str(place)]) == 0
    assert "Prediction" not in capsys.readouterr().out


def test_a_file_whose_speeds_are_zero_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads((KEPT / "bench-cpu.json").read_text())
    for pace in found["prediction"][0]["loops"].values():
        pace["images_per_second"] = 0
    place = tmp_path / "x.json"
    place.write_text(json.dumps(found))
    assert main(["bench", "--from", str(place)]) == 2
    assert "is not of goodness bench" in " ".join(capsys.readouterr().err.split())


def test_both_loops_are_on_the_page_and_beside_everything() -> None:
    found = json.loads((KEPT / "bench-h200.json").read_text())
    row = found["prediction"][0]
    paces = {name: {"median_ms": 1000 / pace, "images_per_second": pace} for name, pace in (("a", 50.0), ("b", 80.0))}
    row |= {"loops": {"plain": paces["a"], "kernels": paces["b"]}, "loop": {"kind": "kernels", **paces["b"]}}
    shares = {line[1]: line[-2:] for line in lines_of(page(found), "10")}
    assert shares["loop over labels by torch alone"] == ["1.00", "0.62"]
    assert shares["loop over labels by our kernels"] == ["1.60", "1.00"]


@pytest.mark.parametrize("place", sorted(KEPT.glob("bench-*.json")), ids=lambda place: place.stem)
def test_the_pages_that_are_kept_were_made_from_the_files_beside_them(place: Path) -> None:
    """Files of earlier versions, too, which had neither two loops nor turns."""
    assert place.with_suffix(".md").read_text() == page(json.loads(place.read_text()))


def test_a_page_is_made_from_an_earlier_file_without_measuring(
    left: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goodness.cli.bench.bench", lambda *_, **__: pytest.fail("it measured"))
    place, again = left[0], tmp_path / "again.md"
    for _ in range(2):  # over a page of its own, too
        assert main(["bench", "--from", str(place), "--page", str(again)]) == 0
        assert again.read_text() == place.with_suffix(".md").read_text()


def test_a_page_takes_the_place_of_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goodness.cli.bench.bench", lambda *_, **__: pytest.fail("it measured"))
    mine = tmp_path / "performance.md"
    mine.write_text("# What I found")
    for arguments in (["--out", str(tmp_path / "performance.json")], ["--page", str(mine)]):
        assert main(["bench", "demo", *arguments]) == 2
        assert "no page of goodness bench" in capsys.readouterr().err
    assert mine.read_text() == "# What I found"
    assert main(["bench", "demo", "--out", str(tmp_path / "new.md")]) == 2
    assert "a name that ends in .json" in capsys.readouterr().err


def test_a_table_says_what_it_counts_as_memory(left: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, Any] = json.loads(left[1])
    assert main(["bench", "--from", str(left[0])]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    measured = any(row["peak_bytes"] is not None for row in found["rows"])
    assert ("resident memory grew at most" if measured else "not measured on this system") in shown
    assert "MiB" in shown
