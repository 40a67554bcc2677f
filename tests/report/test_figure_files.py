"""A figure comes as PNG and SVG, and takes the place of no file that was not named."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from goodness.cli import main
from goodness.errors import UserError
from goodness.report.figure_files import figure_files, refuse_foreign_figures, write_figure


@pytest.mark.parametrize("name", ["speed", "speed.png", "speed.svg"])
def test_both_files_follow_from_the_name_and_may_be_drawn_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / name
    for _ in range(2):
        refuse_foreign_figures(path)
        assert write_figure(Figure((1, 1)), path) == figure_files(path)
    assert {file.name for file in path.parent.iterdir()} == {"speed.png", "speed.svg"}


@pytest.mark.parametrize(("named", "other"), [("a.png", "a.svg"), ("a.svg", "a.png"), ("a", "a.png"), ("a", "a.svg")])
def test_a_foreign_file_beside_the_named_one_stays(named: str, other: str, tmp_path: Path) -> None:
    Figure((1, 1)).savefig(tmp_path / other)  # drawn by someone else
    with pytest.raises(UserError, match=f"{other} is there and was not drawn by this version of goodness"):
        refuse_foreign_figures(tmp_path / named)
    refuse_foreign_figures(tmp_path / other)
    refuse_foreign_figures(None)


@pytest.mark.parametrize("name", [".", "/", "", "..", "figures/..", ".png", "figures/.svg"])
def test_a_figure_without_a_name_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="--figure names a file"):
        refuse_foreign_figures(Path(name))


@pytest.mark.parametrize("command", ["bench", "compare"])
def test_commands_refuse_it_too(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").mkdir()
    for figure, words in ((".", "--figure names a file"), (tmp_path / "a.svg", "a.png is a folder")):
        assert main([command, "demo", "--figure", str(figure)]) == 2
        assert words in "".join(capsys.readouterr().err.split("\n"))


@pytest.mark.parametrize("named", ["a", "a.png", "a.svg"])
@pytest.mark.parametrize("other", ["a.png", "a.svg"])
def test_a_folder_in_a_figures_place_is_told_beforehand(named: str, other: str, tmp_path: Path) -> None:
    (tmp_path / other).mkdir()
    with pytest.raises(UserError, match=f"{other} is a folder"):
        refuse_foreign_figures(tmp_path / named)


@pytest.mark.parametrize("name", ["afile/x.png", "dangling.png", f"{'x' * 300}.png"])
def test_a_place_that_cannot_be_written_is_told_beforehand(name: str, tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("")
    (tmp_path / "dangling.png").symlink_to(tmp_path / "nowhere" / "x.png")
    with pytest.raises(UserError, match=r"cannot write to .*; choose another place"):
        refuse_foreign_figures(tmp_path / name)


def test_only_the_last_ending_is_one() -> None:
    assert [file.name for file in figure_files(Path("a.svg.png"))] == ["a.svg.png", "a.svg.svg"]


def test_the_benchmark_says_so_before_it_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "speed.svg").write_text("<svg/>")
    assert main(["bench", "demo", "--figure", str(tmp_path / "speed.png")]) == 2
    assert "was not drawn by this version of goodness" in " ".join(capsys.readouterr().err.split())
