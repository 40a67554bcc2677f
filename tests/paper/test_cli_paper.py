"""`goodness paper` and `goodness reproduce`, from the command line to the files."""

from __future__ import annotations

import io
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from goodness.cli import main
from goodness.errors import UserError
from goodness.paper.filled import fill
from goodness.paper.numbers import tables
from goodness.paper.pool import Pool
from goodness.paper.reproduce import plan
from goodness.paper.suites import paper_table
from goodness.paper.verdicts import Verdict
from goodness.report.paper_tables import filled_table, findings_table, overview


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_reproduce_trains_what_is_missing_and_writes_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["reproduce", "tab:freeriding", "--scale", "tiny", "--out", str(tmp_path / "pool"), "--device", "cpu"]
    assert main(asked) == 0
    told = capsys.readouterr()
    assert "done" in told.err
    assert "Table 31, freeriding" in told.out
    files = {path.name: path.read_text() for path in (tmp_path / "pool" / "tables").iterdir()}
    assert sorted(files) == ["freeriding.csv", "freeriding.md", "freeriding.tex"]
    assert "not run" not in files["freeriding.md"]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "pool").glob("*/run/result.json")}
    assert len(before) == 3
    # Once more there is nothing to train, and the files are the same.
    assert main([*asked, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [one["state"] for one in made["tables"]] == ["complete"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "pool").glob("*/run/result.json")} == before
    assert {path.name: path.read_text() for path in (tmp_path / "pool" / "tables").iterdir()} == files


def test_paper_lists_every_table_with_where_it_stands(trained: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--scale", "tiny", "--out", str(trained.path)]
    assert main(["paper", *where, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    stands = {one["label"]: one["stands"] for one in listed["tables"]}
    assert list(stands) == [one.label for one in tables()]
    assert stands["freeriding"] == stands["gamma0_multiseed"] == "complete"
    assert stands["main_results"] == "3 of 7 runs"
    assert stands["per_class"] == "1 of 7 runs"
    assert stands["dissociation"] == "not run"
    assert stands["text_domain_full"] == "not run"
    assert stands["full_config"] == "no runs of ours: settings of the runs, no results"
    assert main(["paper", *where]) == 0
    assert "freeriding" in said(capsys)


def test_the_list_has_a_line_a_table_on_80_columns_and_counts_whole_runs_alone() -> None:
    row = {
        "kind": "table",
        "label": "cifar100_dissociation_multiseed",
        "number": 10,
        "caption": "",
        "seconds_left": 4e5,
    }
    rows = [
        {**row, "runs": {"needed": 12, "done": done, "without_stage_2": half}, "state": state, "near": 1, "judged": 30}
        for done, half, state in ((0, 1, "partial"), (12, 0, "complete"), (0, 0, "no runs"))
    ]
    written = io.StringIO()
    console = Console(width=80, file=written)
    console.print(overview(rows, "full", "one GPU", 80))
    lines = [line.split("│")[3:-1] for line in written.getvalue().splitlines() if "│" in line]
    assert [[word.strip() for word in line] for line in lines] == [
        ["0 of 12", "111 h", "partial (1 S1)"],
        ["12 of 12", "111 h", "1 of 30 near"],
        ["0 of 12", "111 h", "none of ours"],
    ]
    assert "near:" in written.getvalue()
    console.print(overview(rows[:1], "full", "one GPU", 80))
    assert written.getvalue().count("near:") == 1  # told where a row says it


def test_what_was_published_is_named_and_how_to_go_on_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "results" / "mine"
    place.mkdir(parents=True)
    (place / "published.json").write_text('{"scale": "short", "mixed_versions": false}')
    monkeypatch.chdir(tmp_path)
    assert main(["paper"]) == 0
    assert "goodness paper --scale short --out results/mine" in said(capsys)
    assert main(["paper", "--scale", "short", "--out", "results/mine"]) == 0
    assert "goodness reproduce NAME --scale short --published results/mine --mixed-versions" in said(capsys)


def test_paper_prints_one_table(trained: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "multiseed", "--scale", "tiny", "--out", str(trained.path), "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)
    assert table["state"] == "partial"
    one = next(one for one in table["cells"] if (one["row"], one["column"]) == ("42", "S1 (no-TTA)"))
    assert one["paper"] == 90.45
    run = trained.run("cp-fair", 42)
    assert run is not None
    assert one["ours"] == pytest.approx(100 * run.accuracy)
    assert one["is_near"] is None  # at this scale nothing is held against the paper


@pytest.mark.parametrize(("width", "is_whole"), [(80, False), (200, True)])
def test_a_table_too_wide_for_the_terminal_has_a_line_a_number(trained: Pool, width: int, is_whole: bool) -> None:
    filled = fill(paper_table("freeriding"), trained)
    written = io.StringIO()
    Console(width=width, file=written).print(filled_table(filled, width))
    lines = [[word.strip() for word in line.split("│")[1:-1]] for line in written.getvalue().splitlines()]
    (ours,) = [filled.ours[cell.row, cell.column] for cell in filled.table.cells if cell.printed == "91.98"]
    assert ours.score is not None
    told = f"{ours.score.mean:.2f}"
    found = [line for line in lines if any(word.startswith(told) for word in line)]
    assert all(len(line) == (8 if is_whole else 4) for line in found)
    assert any(line[1] == "ours" if is_whole else line[1:3] == ["Val", "91.98 %"] for line in found)
    assert max(map(len, written.getvalue().splitlines())) <= width


def test_a_list_of_findings_has_what_decides_and_says_where_the_rest_is() -> None:
    row = {"outcome": "holds", "runs": {"needed": 6, "done": 6}, "estimate": 1.0, "size": "", "beside": ()}
    rows = [
        {**row, "name": "alone", "sentence": "It is so."},
        {**row, "name": "apart", "sentence": "It is so here.", "beside": ("Not there.",), "size": "digits, 5 epochs"},
    ]
    written = io.StringIO()
    Console(width=120, file=written).print(findings_table(rows))
    told = written.getvalue()
    assert "It is so here. (1 more: goodness paper finding:apart)" in told
    assert "It is so. " in told
    assert "Not there" not in told
    assert "Not all of these runs learned as long" in told


def test_paper_says_of_a_figure_what_it_needs_and_where_it_lies(
    copied: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--scale", "tiny", "--out", str(copied.path)]
    assert main(["paper", "fig:freeriding", "freeriding", *where, "--json"]) == 0
    figure, table = json.loads(capsys.readouterr().out)  # each once
    assert (figure["kind"], figure["number"], table["kind"], table["number"]) == ("figure", None, "table", 31)
    stands = {(one["preset"], one["seed"]): one["stands"] for one in figure["needs"]}
    assert (stands["gamma0", 42], stands["cp-fair", 42], stands["baseline", 42]) == ("done", "done", "not run")
    done = list(stands.values()).count("done")
    assert figure["runs"] == {"needed": len(stands), "done": done, "without_stage_2": 0}
    assert figure["files"] == []
    assert main(["paper", "magnitude_vs_sep", *where]) == 0  # of no table
    told = said(capsys)
    assert f"not drawn yet: goodness reproduce fig:magnitude_vs_sep --scale tiny --out {copied.path}" in told
    assert " gamma0: done (seed" in told
    assert main(["paper", "magnitude_vs_sep", *where, "--seeds", "42,7", "--json"]) == 0
    make = f"goodness reproduce fig:magnitude_vs_sep --scale tiny --seeds 42,7 --out {copied.path}"
    assert json.loads(capsys.readouterr().out)[0]["make"] == make
    file = copied.path / "figures" / "magnitude_vs_sep.png"
    file.parent.mkdir()
    file.write_bytes(b"")
    assert main(["paper", "magnitude_vs_sep", *where]) == 0
    assert f"drawn: {file}" in said(capsys)


def test_a_name_means_the_same_to_paper_and_to_reproduce(trained: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--scale", "tiny", "--out", str(trained.path)]
    for name in ("freeriding", "tab:freeriding", "fig:freeriding", "dissociation", "finding:dissociation", "mgc"):
        made = plan([name], trained)
        assert main(["paper", name, *where, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        labels = [*(one.label for one in made.tables), *(one.name for one in (*made.figures, *made.findings))]
        assert [one.get("label") or one["name"] for one in shown] == labels
    assert main(["paper", "freeriding", *where]) == 0
    told = said(capsys)
    assert "Table 31, freeriding" in told
    assert "Figure freeriding" in told
    assert " baseline: not run (seed 42)" in told  # which the figure alone needs


def test_a_dry_run_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = tmp_path / "pool"
    asked = ["reproduce", "gamma0_multiseed", "--scale", "short", "--dry-run", "--out", str(where)]
    assert main(asked) == 0
    told = said(capsys)
    assert "gamma0, seed 42: Stage 1, about" in told
    assert "gamma0, seed 456: Stage 1 and 2, about" in told
    assert main([*asked, "--seeds", "42,7", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [(one["seed"], one["readout"]) for one in cells] == [(42, True), (7, True)]
    assert not where.exists()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["reproduce", "freeridng"], "did you mean 'freeriding'"),
        (["reproduce"], "name what to make"),
        (["reproduce", "full_config"], "settings of the runs"),
        (["reproduce", "freeriding", "--scale", "tyni"], "did you mean 'tiny'"),
        (["reproduce", "freeriding", "--seeds", "4x"], "whole numbers"),
        (["paper", "main_result"], "did you mean 'main_results'"),
        (["paper", "fig:grad_atenuation"], "did you mean 'grad_attenuation'"),
        (["paper", "mcg"], "did you mean 'mgc'"),
        (["paper", "99"], "the paper has no table '99': its tables are 1 to 38"),
        (["paper", "tab:mgc"], "the paper has no table 'mgc', but a finding: goodness paper mgc"),
        (["reproduce", "theorem-2"], "did you mean 'theorem-1'"),
        (["reproduce", "finding:freeriding"], "the paper has no finding 'freeriding'"),
        (["paper", "fig:main_results"], "no figure 'main_results'"),
    ],
)
def test_a_mistake_is_told_with_what_to_do(
    asked: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(asked) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_a_folder_of_other_things_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    assert main(["reproduce", "freeriding", "--scale", "tiny", "--out", str(tmp_path)]) == 2
    assert "holds other things" in capsys.readouterr().err


class OneLine:
    """A figure as another module would register it."""

    presets = ("gamma0", "lcff")
    seeds = 1
    about = "A line a run."

    def __call__(self, runs: Any) -> Any:
        from matplotlib.figure import Figure

        figure = Figure()
        for preset in self.presets:
            figure.add_subplot().plot([block["sep_cur"] for block in runs[preset][42].result["health"]["test"]])
        return figure


class Undrawable(OneLine):
    def __call__(self, runs: Any) -> Any:
        raise UserError("no ink")


class Rides:
    """A finding as another module would register it."""

    presets = ("gamma0", "lcff")
    says = "It rides."

    def verdict(self, runs: Any) -> Any:
        return Verdict(outcome="holds", sentence=f"On {sorted(runs)}.")


def test_figures_and_findings_of_other_modules_are_made_and_shown(
    copied: Pool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {"fig:one_line": OneLine(), "freeriding": OneLine(), "loss_decomposition": Undrawable()}
    for name, found in (("figures", figures), ("findings", {"rides": Rides()})):
        module = types.ModuleType(f"goodness.paper.{name}")
        module.__spec__ = types.SimpleNamespace(name=module.__name__)  # type: ignore[assignment]
        setattr(module, name, found)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    where = ["--scale", "tiny", "--out", str(copied.path)]
    assert main(["reproduce", "one_line", *where]) == 0
    assert sorted(path.name for path in (copied.path / "figures").iterdir()) == [
        f"one_line.{end}" for end in ("pdf", "png", "svg")
    ]
    assert main(["reproduce", "freeriding", *where]) == 0  # a table and a figure
    assert {path.name for path in copied.path.glob("*/freeriding.*")} == {
        f"freeriding.{end}" for end in ("pdf", "png", "svg", "md", "tex", "csv")
    }
    assert main(["reproduce", "loss_decomposition", *where]) == 1
    assert "not drawn: loss_decomposition: no ink" in capsys.readouterr().err
    assert main(["paper", *where, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["findings"][0]["outcome"] == "holds"
    assert listed["findings"][0]["sentence"] == "On ['gamma0', 'lcff']."
    stands = [(one["label"], one["stands"]) for one in listed["figures"]]
    assert stands == [(name, "complete") for name in ("one_line", "freeriding", "loss_decomposition")]


def test_only_some_rows_of_a_table_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["reproduce", "tab:freeriding", "--scale", "tiny", "--seeds", "42", "--out", str(tmp_path / "pool")]
    assert main([*asked, "--only", "gamma*", "--dry-run", "--json"]) == 0
    assert [cell["preset"] for cell in json.loads(said(capsys))["cells"]] == ["gamma0"]
    assert main([*asked, "--only", "gamma0", "--device", "cpu"]) == 0
    capsys.readouterr()
    table = (tmp_path / "pool" / "tables" / "freeriding.md").read_text()
    assert "Incomplete: 1 of 3 runs" in table
    assert sorted(path.name.rsplit("-", 2)[0] for path in (tmp_path / "pool").glob("*-s42")) == ["gamma0"]
    other = ["--only", "lcff", "--published", str(tmp_path / "published"), "--dry-run", "--json"]
    assert main(["publish", str(tmp_path / "pool"), "--out", str(tmp_path / "published")]) == 0
    capsys.readouterr()
    asked[-1] = str(tmp_path / "another")
    assert main([*asked, *other]) == 0
    assert [cell["preset"] for cell in json.loads(said(capsys))["cells"]] == ["lcff"]
    assert main([*asked, *other[:4], "--device", "cpu"]) == 0  # the published row is there, the third is not
    capsys.readouterr()
    table = (tmp_path / "another" / "tables" / "freeriding.md").read_text()
    assert "Incomplete: 2 of 3 runs" in table
    asked[-1] = str(tmp_path / "copies")

    def not_at_hand(*of_what: object) -> None:
        raise AssertionError("no data set is needed for copies")

    with monkeypatch.context() as patched:
        patched.setattr("goodness.api.load_data", not_at_hand)
        assert main([*asked, "--only", "gamma0", *other[2:4], "--device", "cpu"]) == 0
    assert "Incomplete: 1 of 3 runs" in (tmp_path / "copies" / "tables" / "freeriding.md").read_text()
    capsys.readouterr()
    assert main([*asked, "--only", "gama0"]) == 2
    assert "did you mean 'gamma0'" in capsys.readouterr().err


@pytest.mark.parametrize("names", [[], ["freeriding"], ["finding:mgc"]])
def test_where_nothing_was_run_the_publications_are_named(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "results" / "paper-short"
    place.mkdir(parents=True)
    (place / "published.json").write_text('{"scale": "short", "mixed_versions": false}')
    monkeypatch.chdir(tmp_path)
    hint = f"Published: {' '.join(['goodness', 'paper', *names])} --scale short --out results/paper-short"
    assert main(["paper", *names]) == 0
    text = said(capsys)
    assert text.count(hint) == 1
    assert text.startswith(hint) == (not names)
    assert main(["paper", *names, "--scale", "short", "--out", "results/paper-short"]) == 0
    text = said(capsys)
    assert "Published:" not in text
    assert ("has no finished run of these at the scale 'short'" in text) == bool(names)


def test_runs_of_another_scale_are_not_shown_as_of_this_one(trained: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    for asked in (["paper", "fig:freeriding"], ["paper"], ["reproduce", "fig:freeriding", "--dry-run"]):
        assert main([*asked, "--scale", "short", "--out", str(trained.path)]) == 2
        assert f"{trained.path} holds runs at the scale 'tiny': add --scale tiny" in said_wrong(capsys)


def said_wrong(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())
