"""The report says what a run has, whatever state its folder is in, in a page that needs nothing but itself."""

from __future__ import annotations

import http.client
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import torch

import goodness
from goodness.config import to_dict
from goodness.durable import append_line, read_json, read_lines, write_json
from goodness.errors import UserError
from goodness.health.block_health import health_of_goodness
from goodness.report import across_figures, ink, inline_svg, page, page_figures, page_words, run_data, words
from goodness.report.page import page_data, render, write_report
from goodness.report.watch import PageServer, make_server
from goodness.runs.run import Run
from goodness.runs.run_folder import RunFolder
from tiny_runs import BLOBS, blobs_at_hand, shrunk

EASY = {**BLOBS, "data": "easy-blobs", "epochs": 4, "keep.evaluate_every": 1}


@pytest.fixture(scope="module", autouse=True)
def made_up_data() -> Iterator[None]:
    with blobs_at_hand():
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A finished run of every kind."""
    folder = tmp_path_factory.mktemp("runs")
    made = {}
    for name in ("local", "lcff", "gated"):
        config = shrunk("demo", {**EASY, "rule": name}, blocks=3)
        made[name] = goodness.train(config, out=folder / name, device="cpu")
    control = shrunk("demo", {**EASY, "trainer": "backprop"})
    made["backprop"] = goodness.train(control, out=folder / "backprop", device="cpu")
    made["readout"] = goodness.readout(folder / "local", device="cpu", changes={"readout.epochs": 2})
    return made


def copy_of(run: Run, folder: Path, *without: str) -> Run:
    """The run again, without these files or folders."""
    shutil.copytree(run.path, folder / "run", ignore=shutil.ignore_patterns("readout", *without))
    return Run(folder / "run")


def only(run: Run, **how: Any) -> dict[str, Any]:
    return page_data([run], **how)["runs"][0]


def page_of(runs: list[Run], **how: Any) -> str:
    """The page as text, without figures' files."""
    data = page_data(runs, **how)
    return render(data, page.draw(data))


def with_result(run: Run, **parts: Any) -> Run:
    """The run with parts of its result changed; None takes one away."""
    result = {**read_json(run.path / "result.json"), **parts}
    write_json(run.path / "result.json", {name: part for name, part in result.items() if part is not None})
    return run


# What a run has


@pytest.mark.parametrize("name", ["local", "lcff", "gated"])
def test_a_finished_run_has_everything(runs: dict[str, Run], name: str) -> None:
    found = only(runs[name])
    assert found["missing"] == []
    assert (found["state"], found["stage"], found["epochs"]) == ("finished", "s1", {"done": 4, "of": 4})
    assert found["accuracy"]["value"] == runs[name].accuracy
    assert found["accuracy"]["n"] == 40
    assert found["blocks"]["source"] == "40 test images"
    assert [one["verdict"] for one in found["blocks"]["judged"]] == [
        one["verdict"] for one in found["health"]["verdict"]
    ]
    assert set(page.figures_of_run(found)) == {
        "curves", "heat-map", "own-share", "attenuation", "truncation", "early-exit", "margins", "confusion",
    }  # fmt: skip
    json.dumps(found, allow_nan=False)


def test_health_of_the_page_is_that_of_the_library(runs: dict[str, Run]) -> None:
    shown = only(runs["lcff"])["health"]
    assert shown.pop("weights_sha256") == runs["lcff"].result["weights_sha256"], "as it was kept when the run ended"
    assert shown == goodness.health(runs["lcff"])


def test_a_run_of_before_health_was_kept_is_looked_at_anew(runs: dict[str, Run], tmp_path: Path) -> None:
    found = only(copy_of(runs["lcff"], tmp_path, "health.json"))
    assert found["missing"] == []
    assert found["health"] == {**goodness.health(runs["lcff"]), "of": 40}


def test_a_damaged_health_file_is_told_and_computed_again(runs: dict[str, Run], tmp_path: Path) -> None:
    run = copy_of(runs["lcff"], tmp_path)
    (run.path / "health.json").write_text('{"blocks": 7}')
    found = only(run)
    assert [one.split(":")[0] for one in found["missing"]] == ["block health"]
    assert found["health"] == {**goodness.health(runs["lcff"]), "of": 40}


def test_what_the_run_has_kept_needs_no_weights(runs: dict[str, Run], tmp_path: Path) -> None:
    found = only(copy_of(runs["lcff"], tmp_path, "checkpoints"))
    assert found["missing"] == []
    assert found["health"] == only(runs["lcff"])["health"]


def test_losses_and_gradients_of_the_last_epoch_are_there(runs: dict[str, Run]) -> None:
    assert only(runs["lcff"], compute=False)["training"] == runs["lcff"].metrics[-1]["train"]["blocks"]
    html = page_of([runs["lcff"]], compute=False)
    assert "loss_block" in html
    assert "grad_norm" in html


def test_large_splits_are_looked_at_in_part_and_the_page_says_so(
    runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_data, "MOST_IMAGES", 15)
    found = only(copy_of(runs["local"], tmp_path, "health.json"))
    assert found["health"]["n"] == 15
    assert found["blocks"]["source"] == "15 of the 40 test images"
    assert found["accuracy"] == {"value": runs["local"].accuracy, "split": "test", "n": 40}


def test_without_computing_the_result_speaks(runs: dict[str, Run], tmp_path: Path) -> None:
    found = only(copy_of(runs["local"], tmp_path, "health.json"), compute=False)
    assert found["health"] is None
    assert found["blocks"]["measures"] == runs["local"].result["health"]["test"]
    assert found["blocks"]["source"] == "what result.json keeps of the test images"


@pytest.mark.parametrize(("name", "word"), [("readout", "readout"), ("backprop", "backpropagation")])
def test_what_has_no_blocks_shows_its_accuracy_and_mistakes(runs: dict[str, Run], name: str, word: str) -> None:
    found = only(runs[name])
    assert found["missing"] == []
    assert (found["blocks"], found["health"]) == (None, None)
    assert word in found["headline"]["text"].lower()
    assert "no blocks of its own" in found["headline"]["text"]
    assert f"{100 * runs[name].accuracy:.1f} %" in found["headline"]["text"]
    assert set(page.figures_of_run(found)) == {"learning", "margins", "confusion"}
    html = page_of([runs[name]])
    assert "Its rule is" not in html
    assert "all blocks</text>" not in html
    assert 'class="bar"' not in html


def test_one_run_with_blocks_among_others_speaks_for_itself(runs: dict[str, Run]) -> None:
    said = page_data([runs["backprop"], runs["lcff"]])["summary"]
    own = only(runs["lcff"])["headline"]["text"]
    assert said == f"Of these 2 runs one has blocks to judge: {own[0].lower()}{own[1:]}"


def test_each_class_is_counted(runs: dict[str, Run]) -> None:
    for name in ("local", "backprop"):
        found, run = only(runs[name])["per_class"], runs[name]
        saved = RunFolder(run.path, None).read_predictions("test")
        for label, one in enumerate(found):
            mine = saved["labels"] == label
            assert (one["n"], one["right"]) == (mine.sum(), (saved["scores"].argmax(1) == label)[mine].sum())
        assert sum(one["right"] for one in found) == round(40 * run.accuracy)
        assert "How often each class is right" in page_of([run])


# Runs that lack something


def unfinished(run: Run, folder: Path, epochs: int) -> Run:
    """The run as it was after so many epochs."""
    copy = copy_of(run, folder, "result.json", "predictions_*", "best*", "last*")
    lines = read_lines(run.path / "metrics.jsonl")[:epochs]
    (copy.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return copy


def test_a_run_in_progress_is_judged_by_its_last_validation(runs: dict[str, Run], tmp_path: Path) -> None:
    run = unfinished(runs["local"], tmp_path, 2)
    with RunFolder.open(run.path):
        found = only(run)
    assert found["state"] == "training"
    assert found["headline"]["text"].startswith("So far (2 of 4 epochs): ")
    assert found["blocks"]["source"] == "validation images, epoch 2"
    assert found["accuracy"]["split"] == "validation"
    assert {"curves", "heat-map", "truncation"} <= set(page.figures_of_run(found))


def test_a_killed_run_says_how_to_go_on(runs: dict[str, Run], tmp_path: Path) -> None:
    run = unfinished(runs["lcff"], tmp_path, 3)
    assert only(run)["state"] == "stopped"
    assert f"<code>goodness resume {run.path}</code>" in page_of([run])


def test_a_run_without_a_validation_split_is_judged_by_its_training(runs: dict[str, Run], tmp_path: Path) -> None:
    run = unfinished(runs["local"], tmp_path, 4)
    lines = [{**line, "val": None} for line in read_lines(run.path / "metrics.jsonl")]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = only(run)
    assert found["blocks"]["source"] == "training images, epoch 4"
    assert found["accuracy"] is None
    assert "curves" in page.figures_of_run(found)


def test_a_run_killed_before_its_first_epoch_has_its_settings(runs: dict[str, Run], tmp_path: Path) -> None:
    run = unfinished(runs["local"], tmp_path, 0)
    (run.path / "metrics.jsonl").unlink()
    (run.path / "environment.json").unlink()
    found = only(run)
    assert found["headline"] == {"text": "It ended before its first epoch did.", "tone": "unknown"}
    assert any("no epoch has ended" in one for one in found["missing"])
    assert any("environment.json" in one for one in found["missing"])
    assert "local, γ = 0" in page_of([run])


def test_without_predictions_the_weights_say_who_is_mistaken_for_whom(runs: dict[str, Run], tmp_path: Path) -> None:
    found = only(copy_of(runs["local"], tmp_path, "predictions_*"))
    assert any(one.startswith("the predictions: ") for one in found["missing"])
    assert "confusion" in page.figures_of_run(found)


def test_without_weights_result_and_predictions_speak(runs: dict[str, Run], tmp_path: Path) -> None:
    found = only(copy_of(runs["lcff"], tmp_path, "checkpoints", "health.json"))
    assert any(one.startswith("block health from the weights: ") for one in found["missing"])
    assert found["blocks"]["source"] == "what result.json keeps of the test images"
    assert {"curves", "truncation", "margins", "confusion"} <= set(page.figures_of_run(found))
    full = only(runs["lcff"])["health"]
    assert found["classes"]["confusion"] == full["confusion"]
    assert found["classes"]["margins"] == pytest.approx(full["margins"])


def test_without_weights_and_predictions_the_rest_is_shown(runs: dict[str, Run], tmp_path: Path) -> None:
    found = only(copy_of(runs["gated"], tmp_path, "checkpoints", "predictions_*", "health.json"))
    assert len(found["missing"]) == 2
    assert found["accuracy"]["value"] == runs["gated"].accuracy
    assert "confusion" not in page.figures_of_run(found)


def test_a_run_of_an_older_version_lacks_what_came_later(runs: dict[str, Run], tmp_path: Path) -> None:
    run = copy_of(runs["local"], tmp_path, "health.json", "checkpoints")
    run = with_result(run, health=None, parameters=None, seconds=None, reported=None)
    found = only(run)
    (told,) = [one for one in found["missing"] if "another version" in one]
    assert told == "result.json has no reported, health, parameters, seconds: another version of goodness wrote it"
    assert found["accuracy"] == {"value": runs["local"].accuracy, "split": "test", "n": 40}
    assert found["blocks"]["source"] == "validation images, epoch 4"
    page_of([run])


def test_measures_that_older_runs_lack_are_left_out(runs: dict[str, Run], tmp_path: Path) -> None:
    run = unfinished(runs["local"], tmp_path, 4)
    lines = read_lines(run.path / "metrics.jsonl")
    for line in lines:
        line["val"]["blocks"] = [{"sep_cur": block["sep_cur"]} for block in line["val"]["blocks"]]
        line["train"] = {"blocks": [{"loss": 1.0}] * 3}
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert set(page.figures_of_run(only(run))) == {"curves", "heat-map"}
    page_of([run])


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "result.json", "environment.json", "health.json"])
@pytest.mark.parametrize("content", ["", "[]", "{", "null", '{"epoch": 0}\nnonsense\n{"epoch": 1}\n', '{"blocks": 7}'])
def test_no_damaged_file_breaks_the_page(runs: dict[str, Run], tmp_path: Path, name: str, content: str) -> None:
    run = copy_of(runs["lcff"], tmp_path)
    (run.path / name).write_text(content)
    data = page_data([run], compute=False)
    assert render(data, [])


def mutated(value: Any, draws: random.Random) -> Any:
    """The same data with some parts gone and some of another kind."""
    if draws.random() < 0.04:
        return draws.choice([None, 7, -1.5, "text", [], {}, True, [None], 1e308])
    if isinstance(value, dict):
        return {name: mutated(part, draws) for name, part in value.items() if draws.random() > 0.04}
    return [mutated(part, draws) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(40))
def test_no_mutilation_breaks_the_page(runs: dict[str, Run], tmp_path: Path, seed: int) -> None:
    draws = random.Random(seed)
    run = copy_of(runs["lcff"], tmp_path, "checkpoints")
    for name in ("config.json", "result.json", "environment.json", "health.json"):
        content = read_json(run.path / name)
        for _ in range(1 + seed % 3):
            content = mutated(content, draws)
        (run.path / name).write_text(json.dumps(content))
    lines = [mutated(line, draws) for line in read_lines(run.path / "metrics.jsonl")]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = page_data([run, runs["local"]], compute=False)
    Checked(render(data, page.draw(data) if seed < 4 else []))  # to draw takes a second


def test_strange_measures_do_not_break_the_page(runs: dict[str, Run], tmp_path: Path) -> None:
    run = unfinished(runs["local"], tmp_path, 2)
    strange = [[], [None], [{"sep_cur": "much"}], [{"sep_cur": float("inf")}, {"sep_cur": 1.0}], "blocks", None]
    for epoch, blocks in enumerate(strange, start=2):
        with open(run.path / "metrics.jsonl", "a") as file:
            file.write(json.dumps({"epoch": epoch, "val": {"blocks": blocks}, "train": blocks}) + "\n")
    page_of([run])


def test_a_folder_that_is_not_there_is_told_and_breaks_nothing(runs: dict[str, Run], tmp_path: Path) -> None:
    html = page_of([Run(tmp_path / "nowhere"), runs["local"]], compute=False)
    assert "could not read" in html
    assert "All 3 blocks work" in html or "ride" in html


def test_a_configuration_that_this_version_cannot_read_is_shown_as_it_stands(
    runs: dict[str, Run], tmp_path: Path
) -> None:
    run = copy_of(runs["gated"], tmp_path)
    config = {**read_json(run.path / "config.json"), "invented_later": 3}
    write_json(run.path / "config.json", config)
    data = page_data([run, runs["gated"]], compute=False)
    assert data["runs"][0]["rule"] == "gated, κ = 0"
    assert {"field": "invented_later", "values": [3, None]} in data["differences"]


# What is said


def hand_made(kind: str) -> torch.Tensor:
    """Goodness `[3 blocks, 60 images, 4 classes]` with known margins, right labels in turn."""
    labels = torch.arange(60) % 4
    right = torch.nn.functional.one_hot(labels, 4).double()
    noise = 0.01 * torch.rand(3, 60, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    strengths = {"first": (3.0, 0.3, 0.02), "evenly": (1.0, 1.0, 1.0), "dead": (1.0, 1.0, 0.0)}[kind]
    goodness_ = torch.stack([strength * right for strength in strengths]) + noise
    if kind == "dead":
        goodness_[2] = 0.5
    return goodness_


@pytest.mark.parametrize(
    ("kind", "rule", "tone", "said"),
    [
        (
            "first",
            "lcff",
            "rides",
            "Blocks 1 and 2 ride for free: alone they separate 10 % and under 1 % of what block 0 does",
        ),
        ("evenly", "local", "works", "All 3 blocks work: alone, each separates at least"),
        ("dead", "local", "dead", "Block 2 is dead: its goodness is the same under every label."),
    ],
)
def test_the_headline_is_true_of_networks_with_known_margins(
    runs: dict[str, Run], tmp_path: Path, kind: str, rule: str, tone: str, said: str
) -> None:
    """Such health, kept in full by the run, is taken as it is: the run has no weights here."""
    config = runs[rule].config
    health = health_of_goodness(hand_made(kind), torch.arange(60) % 4, config)
    run = copy_of(runs[rule], tmp_path, "checkpoints")
    write_json(run.path / "health.json", health)
    found = only(run)
    assert found["headline"]["tone"] == tone
    assert found["headline"]["text"].startswith(said)
    html = page_of([run])
    assert html.count('<li class="rides"') == (2 if kind == "first" else 0)
    assert html.count('<li class="dead"') == (1 if kind == "dead" else 0)


def riding(share: float, accuracy: float) -> dict[str, Any]:
    """A run's data as far as headlines look at it: two blocks, the second with this share of the first's evidence."""
    verdict = "works" if share > 1 / 3 else "rides"
    judged = [
        {"depth": 0, "verdict": "works", "evidence": 2.0, "share": 1.0, "reason": ""},
        {"depth": 1, "verdict": verdict, "evidence": 2.0 * share, "share": share, "reason": ""},
    ]
    about = {"stage": "s1", "state": "finished", "lines": [], "epochs": {"done": 1, "of": 1}, "config": {"data": "x"}}
    return {**about, "blocks": {"judged": judged}, "accuracy": {"value": accuracy, "split": "test"}}


@pytest.mark.parametrize(
    ("others", "end"),
    [
        ([], "; its accuracy alone, 95.0 %, would not tell you."),
        ([riding(0.9, 0.96)], "; the accuracy, 95.0 %, does not show it."),
        ([riding(0.9, 0.99)], "; its accuracy is 95.0 %, where all blocks work up to 99.0 %."),
    ],
)
def test_accuracy_is_said_to_hide_it_only_where_it_does(others: list[dict[str, Any]], end: str) -> None:
    run = riding(0.1, 0.95)
    said = page_words.headline(run, [run, *others])["text"]
    assert said == f"Block 1 rides for free: alone it separates 10 % of what block 0 does{end}"


def test_what_has_not_ended_is_not_held_against_what_has() -> None:
    early, ended = {**riding(0.1, 0.5), "state": "stopped"}, [riding(0.1, 0.95), riding(0.9, 0.96)]
    everything = [early, *ended]
    for run in everything:
        run["headline"] = page_words.headline(run, everything)
    assert early["headline"]["text"].endswith("of what block 0 does; its accuracy so far is 50.0 %.")
    assert page_words.summary(everything).endswith("the accuracies, 95.0 to 96.0 %, do not show it.")


def test_provisional_verdicts_need_little_separation_and_little_gradient() -> None:
    blocks = [
        {"sep_cur": 2.0, "attenuation": 1.0},
        {"sep_cur": 0.3, "attenuation": 0.1},
        {"sep_cur": 0.3, "attenuation": 0.9},
    ]
    assert [one["verdict"] for one in run_data.provisional_verdicts(blocks)] == ["works", "rides", "works"]
    assert run_data.provisional_verdicts([{"sep_cur": -1.0}, {}])[0]["verdict"] == "unknown"


def test_differences_name_every_setting_with_every_value(runs: dict[str, Run]) -> None:
    found = page_data([runs["local"], runs["lcff"], runs["gated"]], compute=False)["differences"]
    values = {one["field"]: one["values"] for one in found}
    assert values["rule.kind"] == ["constant", "constant", "gated"]
    assert values["rule.gamma"] == [0.0, 1.0, None]
    assert "seed" not in values


def gated_at(kappa: float, **changes: Any) -> dict[str, Any]:
    config = to_dict(shrunk("demo", {**EASY, "rule": "gated", "rule.kappa": kappa, **changes}))
    blocks = {"measures": [{"sep_cur": 2.0}, {"sep_cur": 1.0 + kappa}]}
    return {"name": f"{kappa:g}", "config": config, "blocks": blocks, "accuracy": {"value": 0.9}}


def test_runs_that_differ_in_kappa_and_seed_alone_are_a_sweep() -> None:
    runs = [gated_at(0), gated_at(1, seed=7), gated_at(2), gated_at(3, batch=8), gated_at(0, batch=4)]
    (sweep,) = page.kappa_sweeps(runs)
    assert [one["kappa"] for one in sweep] == [0, 1, 2]
    assert [one["sep_cur"] for one in sweep] == [1, 2, 3]
    assert page.kappa_sweeps([gated_at(0), gated_at(0, seed=3)]) == []
    title = inline_svg.about(across_figures.kappa_figure(sweep)).title
    assert title == "Turning κ: the deepest block separates most by itself at κ = 2 (3)"


def test_runs_are_named_by_what_tells_them_apart() -> None:
    paths = [Path("/a/x/run"), Path("/a/y/run"), Path("/a/z"), Path("/a/z/readout")]
    assert page._short_names(paths) == ["x/run", "y/run", "z", "z/readout"]


# Figures


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("background", ["#ffffff", "#1b2027"])
def test_every_series_stands_out_on_the_light_page_and_on_the_dark_one(background: str) -> None:
    assert background in render(page_data([]), [])
    for colour in {*ink.COLOURS, *ink.COOL, *ink.WARM}:
        low, high = sorted([luminance(colour), luminance(background)])
        assert (high + 0.05) / (low + 0.05) >= 3


@pytest.mark.parametrize(
    ("accuracies", "title"),
    [
        ([0.98, 0.982], "Cut off after block 0 it would be as good: 98.0 %, with all blocks 98.2 %"),
        ([0.6, 0.9], "The later blocks add 30.0 points: 60.0 % with block 0 alone, 90.0 % with all"),
        ([0.9, 0.6], "The later blocks cost 30.0 points: 90.0 % with block 0 alone, 60.0 % with all"),
        ([0.5], "One block: 50.0 % right"),
    ],
)
def test_the_truncation_title_says_what_depth_is_worth(accuracies: list[float], title: str) -> None:
    assert inline_svg.about(page_figures.truncation_figure(accuracies)).title == title


def test_the_heat_map_names_the_blocks_that_stay_behind() -> None:
    lines = [{"epoch": epoch, "val": {"blocks": [{"sep_cur": epoch + 1.0}, {"sep_cur": 0.2}]}} for epoch in range(3)]
    told = inline_svg.about(page_figures.heatmap_figure(lines))
    assert told.title == "Block 1 stays orange: under a third of the run's strongest to the end"
    assert told.rows == [(1, 1.0, 0.2), (2, 2.0, 0.2), (3, 3.0, 0.2)]


def test_two_hundred_classes_are_no_burden() -> None:
    confusion = torch.randint(0, 5, (200, 200), generator=torch.Generator().manual_seed(0)).tolist()
    figure = page_figures.confusion_figure(confusion, [f"a rather long name {label}" for label in range(200)])
    svg = inline_svg.as_inline_svg(figure)
    assert len(svg) < 600_000


def test_an_attenuation_that_vanishes_is_told_and_drawn() -> None:
    points = [[[1.0, 0.0, 1.0]] * 3, [[0.5, 9.0, 1e-15], [0.5, 9.0, 1e-15], [-0.5, -1.0, 1e300]]]
    figure = page_figures.attenuation_figure(points, None, beta=4.0)
    assert "next to nothing" in inline_svg.about(figure).title
    assert inline_svg.as_inline_svg(figure).count("next to nothing") >= 2


def points_of(svg: str) -> list[list[Any]]:
    (raw,) = re.findall(r"data-points='([^']*)'", svg)
    return json.loads(unescape(raw))


def test_a_cloud_of_points_is_drawn_in_place_and_in_few_letters() -> None:
    draws = random.Random(0)
    cloud = [[[draws.gauss(0, 1), draws.gauss(0, 1), draws.random()] for _ in range(300)] for _ in range(4)]
    svg = inline_svg.as_inline_svg(page_figures.attenuation_figure(cloud, None, beta=4.0))
    told = [(x, y) for x, y, *_ in points_of(svg)]
    drawn = [
        (float(place[0]), float(place[1]))
        for group in re.findall(r'<g data-series="block-\d">.*?</g></g>', svg)
        for place in re.findall(r'<use href="#[^"]+" x="([\d.]+)" y="([\d.]+)"/>', group)
    ]
    assert len(told) == len(drawn) == 900
    assert all(min(math.dist(one, other) for other in drawn) < 0.1 for one in told)
    assert all(min(math.dist(one, other) for other in told) < 0.1 for one in drawn)
    assert len(svg) < 180_000


def test_a_name_with_quotes_comes_through() -> None:
    names = ["it's <b>&amp;", 'a "cat"']
    svg = inline_svg.as_inline_svg(page_figures.confusion_figure([[5, 1], [0, 6]], names))
    assert {names[0], names[1]} <= {text.split(" right")[0] for *_, text in points_of(svg)}


def test_points_lie_where_the_drawing_has_them() -> None:
    """The tooltip's place of every point against the path that matplotlib drew."""
    figure = page_figures.truncation_figure([0.5, 0.7, 0.6])
    svg = inline_svg.as_inline_svg(figure, "here")
    points = points_of(svg)
    assert [text for *_, text in points] == ["1 block: 50.00 %", "2 blocks: 70.00 %", "3 blocks: 60.00 %"]
    (drawn,) = re.findall(r'<g data-series="accuracy"><title>accuracy</title><path d="([^"]*)"', svg)
    places = [tuple(map(float, pair)) for pair in re.findall(r"[ML] ([\d.]+) ([\d.]+)", drawn)]
    assert [(x, y) for x, y, *_ in points] == [
        (pytest.approx(x, abs=0.06), pytest.approx(y, abs=0.06)) for x, y in places
    ]


def test_inline_figures_take_the_pages_ink_and_have_their_own_ids() -> None:
    figure = page_figures.confusion_figure([[5, 1], [0, 6]], ["cat", "dog"])
    one, other = inline_svg.as_inline_svg(figure), inline_svg.as_inline_svg(figure)
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for svg in (one, other):
        assert "#000000" not in svg
        assert "currentColor" in svg
        assert ">cat</text>" in svg
        assert "http" not in svg
        named = set(re.findall(r'\bid="([^"]+)"', svg))
        assert {*re.findall(r"url\(#([^)]+)\)", svg), *re.findall(r'href="#([^"]+)"', svg)} <= named


def test_figures_are_saved_as_png_and_svg(tmp_path: Path) -> None:
    png, svg = inline_svg.save(page_figures.margins_figure([-1.0, 0.5, 2.0]), tmp_path / "a.b")
    assert (png.name, svg.name) == ("a.b.png", "a.b.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()


@pytest.mark.parametrize(
    ("value", "text"),
    [(-0.128, "−0.13"), (2.0, "2"), (98.157, "98.16"), (0.0, "0"), (-0.0, "0"), (0.00123, "0.0012"), (1e5, "100000")],
)
def test_numbers_are_written_for_people(value: float, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "all"), (0.57, "57 %"), (5e-4, "1 part in 2,000"), (0, "next to nothing"), (4, "4 times as much")],
)
def test_what_is_left_is_said_in_words(share: float, text: str) -> None:
    assert words.kept_in_words(share) == text


# The page

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Checked(HTMLParser):
    """Reads a page strictly: every element is closed in its turn, every id is there once."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.ids: list[str] = []
        self.titled: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        assert len(found) == len(attrs), f"an attribute twice in <{tag}>"
        self.tags.append((tag, found))
        if "id" in found:
            self.ids.append(found["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def report(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(list(runs.values()), tmp_path_factory.mktemp("report") / "new" / "page.html")


@pytest.fixture(scope="module")
def checked(report: Path) -> Checked:
    return Checked(report.read_text())


def test_the_page_is_well_formed(checked: Checked) -> None:
    assert len(checked.ids) == len(set(checked.ids))
    for tag, found in checked.tags:
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(found.get(name, "").split()) <= set(checked.ids), tag
        if found.get("href", "").startswith("#"):
            assert found["href"][1:] in checked.ids


def test_the_page_needs_nothing_but_itself(report: Path, checked: Checked) -> None:
    for tag, found in checked.tags:
        assert "src" not in found, f"<{tag}> loads something"
        address = found.get("href", "") + found.get("xlink:href", "")
        assert not address.startswith(("http:", "https:", "//")) or tag == "a"
        if address and tag == "a" and not address.startswith("#"):
            assert (report.parent / unquote(address)).is_file()
    text = report.read_text()
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy


def test_every_figure_can_be_read_without_seeing_it(checked: Checked, report: Path) -> None:
    figures = re.findall(r"<figure.*?</figure>", report.read_text(), re.DOTALL)
    assert len(figures) == 2 + 3 * 8 + 2 * 3
    for figure in figures:
        assert re.search(r'<svg class="plot" [^>]*role="img" aria-labelledby="[^"]+"', figure)
        assert re.search(r"<title id=[^>]+>[^<]{10,}</title><desc id=[^>]+>[^<]{20,}</desc>", figure)
        assert re.search(r"<details.*<table>.*<td", figure, re.DOTALL)


def test_tables_name_their_rows_and_columns(checked: Checked) -> None:
    headers = [found for tag, found in checked.tags if tag == "th"]
    assert headers
    assert all(found.get("scope") in ("col", "row") for found in headers)
    landmarks = [tag for tag, _ in checked.tags]
    assert (landmarks.count("main"), landmarks.count("h1"), "nav" in landmarks) == (1, 1, True)
    levels = [int(tag[1]) for tag in landmarks if re.fullmatch(r"h\d", tag)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_every_figure_also_comes_as_png_and_svg(report: Path, checked: Checked) -> None:
    files = sorted(file.name for file in (report.parent / "figures").iterdir())
    assert len(files) == 2 * len([1 for tag, _ in checked.tags if tag == "figure"])
    assert {"runs-alone.png", "runs-alone.svg", "lcff-attenuation.svg", "local-readout-confusion.png"} <= set(files)


def test_a_folder_gets_a_report_html_and_figures_can_be_left_out(runs: dict[str, Run], tmp_path: Path) -> None:
    written = write_report([runs["readout"]], tmp_path, figures=False)
    assert written == tmp_path / "report.html"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert "<svg" in written.read_text()


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one run"):
        write_report([], tmp_path)


def test_a_place_that_cannot_be_written_is_a_kind_error(runs: dict[str, Run], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose another --out"):
        write_report([runs["backprop"]], tmp_path / "file" / "report")


def test_names_are_text_and_never_markup(runs: dict[str, Run], tmp_path: Path) -> None:
    evil = '<img src=x onerror="1">&$\\frac$ "'
    health = health_of_goodness(hand_made("first"), torch.arange(60) % 4, runs["lcff"].config, classes=[evil] * 4)
    run = with_result(copy_of(runs["lcff"], tmp_path), health={"test": health})
    moved = Run(run.path.rename(tmp_path / '"><script>alert(1)</script>'.replace("/", "∕")))
    html = page_of([moved, runs["local"]])
    checked = Checked(html)
    assert "img" not in {tag for tag, _ in checked.tags}
    assert sum(tag == "script" for tag, _ in checked.tags) == 1
    assert "onerror" not in {name for _, found in checked.tags for name in found}


# The live page


@contextmanager
def serving(run: Run) -> Iterator[PageServer]:
    server = make_server(run.path, every=0.5)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def get(server: PageServer, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_the_live_page_follows_the_run(runs: dict[str, Run], tmp_path: Path) -> None:
    run = unfinished(runs["local"], tmp_path, 1)
    with serving(run) as server:
        status, html = get(server, "/")
        Checked(html)
        assert status == 200
        assert "connect-src 'self'" in html
        assert '<noscript><meta http-equiv="refresh"' in html
        assert "So far (1 of 4 epochs)" in html
        first = json.loads(get(server, "/data.json")[1])
        assert first["html"] in html
        assert f'data-version="{first["version"]}"' in html
        unchanged = json.loads(get(server, f"/data.json?known={first['version']}")[1])
        assert unchanged == {"version": first["version"]}
        append_line(run.path / "metrics.jsonl", read_lines(runs["local"].path / "metrics.jsonl")[1])
        news = json.loads(get(server, f"/data.json?known={first['version']}")[1])
        assert news["version"] != first["version"]
        assert "So far (2 of 4 epochs)" in news["html"]


def test_an_unfinished_run_is_drawn_once_for_many_readers(
    runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    monkeypatch.setattr("goodness.report.watch.draw", lambda data: drawn.append(1) or [])
    with serving(unfinished(runs["local"], tmp_path, 2)) as server:
        readers = [threading.Thread(target=get, args=(server, path)) for path in ("/", "/data.json") * 3]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    assert drawn == [1]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:80", 200),
        ("LocalHost:1234", 200),
        ("evil.example", 403),
        ("evil.example:80", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:80", 403),
        ("", 403),
    ],
)
def test_only_this_machine_is_answered(
    runs: dict[str, Run], host: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goodness.report.watch.page_data", lambda runs: page_data(runs, compute=False))
    monkeypatch.setattr("goodness.report.watch.draw", lambda data: [])
    with serving(runs["backprop"]) as server:
        for path in ("/", "/data.json"):
            found, text = get(server, path, host)
            assert found == status
            assert ("backprop" in text) == (status == 200)
        assert get(server, "/etc/passwd", host)[0] == (404 if status == 200 else 403)


def test_what_cannot_be_served_is_a_kind_error(runs: dict[str, Run], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this machine only"):
        make_server(runs["local"].path, host="0.0.0.0")
    with pytest.raises(UserError, match="no run folder"):
        make_server(tmp_path / "nothing")
    with pytest.raises(UserError, match="every"):
        make_server(runs["local"].path, every=0)
    with make_server(runs["local"].path) as taken, pytest.raises(UserError, match="choose another --port"):
        make_server(runs["local"].path, taken.server_address[1])
    with pytest.raises(UserError, match="choose another --port"):
        make_server(runs["local"].path, 99999)


@pytest.mark.skipif(os.name == "nt", reason="SIGINT is for POSIX")
def test_ctrl_c_ends_the_server_in_silence(runs: dict[str, Run]) -> None:
    # A shell that starts tests in the background has them ignore SIGINT, and children inherit that.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from goodness.report.watch import serve; serve(sys.argv[1])"
    )
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code, str(runs["local"].path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", process.stdout.readline())
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_a_folder_whose_name_is_not_text_has_a_page_too(tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"r\xff")
    goodness.train(shrunk("demo", {**EASY, "epochs": 1}), out=place, device="cpu")
    page = write_report([goodness.load(place)], tmp_path / "page.html", figures=False)
    assert "<html" in page.read_text()


@pytest.mark.parametrize(("accuracies", "cost"), [((0.92, 0.83), True), ((0.83, 0.92), False), ((0.92, 0.915), False)])
def test_blocks_that_cost_accuracy_are_named_though_each_works(accuracies: tuple[float, float], cost: bool) -> None:
    judged = [{"depth": depth, "verdict": "works", "share": 1.0, "evidence": 1.0, "reason": ""} for depth in (0, 1)]
    measures = [{"accuracy": one} for one in accuracies]
    run = {
        "stage": "s1",
        "state": "finished",
        "accuracy": {"value": accuracies[-1], "split": "test"},
        "blocks": {"judged": judged, "measures": measures},
    }
    text = page_words.headline(run, [run])["text"]
    assert ("Block 1 costs accuracy: 92.0 % without it, 83.0 % with it." in text) == cost


@pytest.mark.parametrize(
    ("with_val", "title"),
    [
        (4, ""),
        (1, "solid: validation; dashed: training, minus a mined wrong label"),
        (0, "dashed: training, minus a mined wrong label"),
    ],
)
def test_a_picture_of_the_curves_says_by_itself_what_is_dashed(with_val: int, title: str) -> None:
    lines: list[dict[str, Any]] = [{"epoch": e, "train": {"blocks": [{"sep_cur_mined": 0.1 * e}]}} for e in range(4)]
    for line in lines[4 - with_val :]:
        line["val"] = {"blocks": [{"sep_cur": 0.2}]}
    (axes,) = page_figures.curves_figure(lines).axes
    assert axes.get_title(loc="left") == title
