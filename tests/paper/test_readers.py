"""Our number for each metric, against the run's own images, predictions and network, by another way."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_runs import made_up

import goodness
from goodness.api import load_data
from goodness.durable import read_json
from goodness.methods.cumulative.evidence import goodness_of
from goodness.paper import measured as of
from goodness.paper.derived import _paired
from goodness.paper.numbers import Cell, cell
from goodness.paper.pool import Pool
from goodness.paper.readers import MARGINS, READERS, Unreadable, depth_of, read
from goodness.runs.run import Run
from tiny_runs import BLOBS, blobs_at_hand, shrunk

PLAIN = cell("multiseed", "42", "S1 (no-TTA)")


def asking(metric: str, column: str = "all", row: str = "a row", unit: str = "") -> Cell:
    return dataclasses.replace(PLAIN, metric=metric, column=column, row=row, unit=unit)


@pytest.fixture(scope="module")
def run(trained: Pool) -> Run:
    found = trained.run("lcff", 42)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def scores(run: Run) -> torch.Tensor:
    """Goodness of every block, test image and label."""
    return goodness_of(run.network(), load_data(run.config).test.images).double()


def right(run: Run, scores: torch.Tensor) -> torch.Tensor:
    labels = load_data(run.config).test.labels
    return scores.gather(2, labels[None, :, None].expand(len(scores), -1, 1)).squeeze(2)


def test_accuracy_is_that_of_the_saved_predictions(run: Run) -> None:
    with np.load(run.path / "predictions_test.npz", allow_pickle=False) as saved:
        share = (saved["scores"].argmax(axis=1) == saved["labels"]).mean()
    assert read(run, asking("accuracy")) == pytest.approx(100 * share)


def test_truncated_accuracy_is_that_of_the_first_blocks(run: Run) -> None:
    test = load_data(run.config).test
    for blocks in (1, 3, 4):
        share = (run.predict(test.images, blocks=blocks).argmax(dim=1) == test.labels).double().mean()
        assert read(run, asking("truncated_accuracy", f"d={blocks}")) == pytest.approx(100 * float(share))
    with pytest.raises(Unreadable, match="no 8 blocks"):
        read(run, asking("truncated_accuracy", "d=8"))


def test_validation_accuracy_is_of_the_reported_weights_on_the_validation_images(run: Run) -> None:
    val = load_data(run.config).val
    share = (run.predict(val.images).argmax(dim=1) == val.labels).double().mean()
    assert read(run, asking("val_accuracy", "Best Val (s42)")) == pytest.approx(100 * float(share))


def test_blocks_on_test_images_are_those_of_the_network(run: Run, scores: torch.Tensor) -> None:
    own = right(run, scores).mean(dim=1).tolist()
    assert [one["g_pos"] for one in run.result["health"]["test"]] == pytest.approx(own, abs=1e-5)


def test_goodness_and_its_sums_are_those_of_the_last_epochs_training(run: Run) -> None:
    blocks = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])["train"]["blocks"]
    own = [one["g_pos"] for one in blocks]
    for depth, block in enumerate(blocks):
        assert read(run, asking("goodness_pos", f"g+_cur L{depth}")) == own[depth]
        assert read(run, asking("goodness_neg", f"g-_cur L{depth}")) == pytest.approx(block["g_nl"], abs=1e-5)
        assert read(run, asking("sep_rate", f"sep_nl L{depth}")) == block["sep_rate"]
    inherited = sum(own[:3])  # gamma is 1
    assert read(run, asking("goodness_sum", "g+_total L3")) == pytest.approx(own[3] + inherited)
    share = read(run, asking("share", "own share of g+_total L3", unit="%"))
    assert share == pytest.approx(100 * own[3] / (own[3] + inherited))
    assert read(run, asking("goodness_ratio", "L3/L0")) == pytest.approx(own[3] / own[0])


def test_separation_is_goodness_of_the_right_label_minus_the_mined_ones(run: Run) -> None:
    for depth in range(4):
        gap = read(run, asking("goodness_pos", f"L{depth}")) - read(run, asking("goodness_neg", f"L{depth}"))
        assert read(run, asking("sep_cur_mined", f"sep_cur_nl L{depth}")) == pytest.approx(gap, abs=1e-9)
    deep = read(run, asking("sep_cur_mined", "sep_cur_nl (deep)"))
    assert deep == read(run, asking("sep_cur_mined", "sep_cur_nl (L3)"))


@pytest.mark.parametrize("damage", ["no last line", "no train", "null", "no measure", "torn"])
def test_an_earlier_epoch_never_stands_for_the_last(tmp_path: Path, damage: str) -> None:
    made = made_up(tmp_path, "lcff", 42, separation=[0.5, 1.0, 2.0, 0.25])
    margins = [read(made, asking("margin", f"m, block {depth}"), of.separation) for depth in range(4)]
    assert margins == [0.5, 1.0, 2.0, 0.25]
    path = made.path / "metrics.jsonl"
    *lines, last = path.read_text().splitlines()
    line = json.loads(last)
    if damage == "no train":
        del line["train"]
    elif damage == "null":
        line["train"] = None
    elif damage == "no measure":
        del line["train"]["blocks"][2]["sep_cur_mined"]
    kept = {"no last line": [], "torn": [last[:40]]}.get(damage, [json.dumps(line)])
    path.write_text("\n".join([*lines, *kept]) + ("" if damage == "torn" else "\n"))
    for metric in ("sep_cur_mined", "goodness_neg", "margin"):
        with pytest.raises(Unreadable, match="no blocks"):
            read(made, asking(metric, "L3"), of.separation)


def test_margins_are_of_test_images_on_which_each_block_mines_anew(run: Run, tmp_path: Path) -> None:
    for depth, block in enumerate(json.loads((run.path / "health.json").read_text())["blocks"]):
        assert read(run, asking("margin", f"m, block {depth}")) == block["sep_stream"]
        assert read(run, asking("sep_cur_mined", f"L{depth}")) != block["sep_stream"]
    made = made_up(tmp_path, "lcff", 42, separation=[0.5, 1.0, 2.0, 0.25])
    assert of.margins([run, made]) is of.separation
    assert read(made, asking("margin", "m, block 2"), of.separation) == 2.0
    health = json.loads((made.path / "health.json").read_text())
    for block, margin in zip(health["blocks"], [3.0, 0.5, 0.25, 0.125]):
        block["sep_stream"] = margin
    (made.path / "health.json").write_text(json.dumps(health))
    assert of.margins([run, made]) is of.mined_anew
    assert read(made, asking("margin", "m, block 2")) == 0.25
    assert read(made, asking("margin_sum", "P", "block 2")) == 3.5
    assert read(made, asking("sep_cur_mined", "L2")) == 2.0
    for damage in ({**health, "blocks": [*health["blocks"][:3], {}]}, {**health, "blocks": None}, {}):
        (made.path / "health.json").write_text(json.dumps(damage))
        assert of.margins([run, made]) is of.mined_anew  # damaged, not older: its training does not stand in for it
        with pytest.raises(Unreadable, match="no blocks"):
            read(made, asking("margin", "m, block 2"))


def test_past_margins_and_attenuation_follow_from_the_mean_margins(run: Run) -> None:
    m = [read(run, asking("margin", "m", f"gamma=1.0 (LCFF), block {depth}")) for depth in range(4)]
    for depth in range(4):
        row = f"gamma=1.0 (LCFF), block {depth}"
        past = sum(m[:depth])
        assert read(run, asking("margin_sum", "P", row)) == pytest.approx(past)
        assert read(run, asking("margin_sum", "gamma P", row)) == pytest.approx(past)
        ratio = (1 + np.exp(4 * m[depth])) / (1 + np.exp(4 * (m[depth] + past)))
        assert read(run, asking("attenuation", "R", row)) == pytest.approx(ratio)


def test_gamma_enters_where_the_column_says_so(trained: Pool) -> None:
    fair = trained.run("cp-fair", 42)
    assert fair is not None
    row = "block 2"
    whole = read(fair, asking("margin_sum", "P", row))
    assert read(fair, asking("margin_sum", "gamma P", row)) == pytest.approx(0.7 * whole)


def test_a_rate_is_a_share_or_a_percentage_as_the_cell_has_it(run: Run) -> None:
    share = read(run, asking("sep_rate", "sep_nl (L3)"))
    assert 0 <= share <= 1
    assert read(run, asking("sep_rate", "sep_nl (L3)", unit="%")) == pytest.approx(100 * share)


def test_no_ratio_is_told_where_the_first_block_has_none(tmp_path: Path) -> None:
    made = made_up(tmp_path, "lcff", 42, separation=[0.5, 1.0, 2.0, 0.25])
    assert read(made, asking("ratio", "L3/L0")) == pytest.approx(0.5)
    made = made_up(tmp_path, "lcff", 123, separation=[-0.5, 1.0, 2.0, 0.25])
    with pytest.raises(Unreadable, match="not above zero"):
        read(made, asking("ratio", "L3/L0"))


def test_parameters_of_one_backward_are_a_block_s_where_gradients_stay_inside(run: Run, trained: Pool) -> None:
    whole = read(run, asking("parameters", "Params"))
    assert whole == pytest.approx(run.network().parameter_count() / 1e6, rel=0.5)  # and the terms' own
    assert read(run, asking("parameters", "Params/backward")) == pytest.approx(whole / 4)
    control = trained.run("bp-strong", 42)
    assert control is not None
    numbers = sum(one.numel() for one in control.stripped().parameters())
    assert read(control, asking("parameters", "Params/backward")) == pytest.approx(numbers / 1e6)


def test_seconds_are_those_between_two_epochs(run: Run) -> None:
    first, second = (line["seconds"] for line in run.metrics)
    assert read(run, asking("seconds", "t/epoch")) == pytest.approx(second - first)


def test_epochs_to_the_end_count_from_one(run: Run) -> None:
    assert read(run, asking("epochs", "epochs to 99% of it")) == 2  # evaluated once, after the second


def test_stage_2_is_read_from_the_readout(trained: Pool) -> None:
    whole = trained.run("gamma0", 42, readout=True)
    assert whole is not None
    assert whole.readout is not None
    assert read(whole, asking("s2_accuracy")) == pytest.approx(100 * whole.readout.accuracy)
    numbers = sum(one.numel() for one in whole.readout.head().parameters())
    assert read(whole, asking("parameters", "Params", row="Ours, S1 + S2")) == pytest.approx(numbers / 1e6)
    assert read(whole, asking("hours", "hours per seed")) > 0


def test_what_a_run_does_not_have_is_said_and_never_made_up(run: Run, trained: Pool) -> None:
    control = trained.run("bp-strong", 42)
    assert control is not None
    for metric, words, asked in (
        ("accuracy_tta", "no TTA", run),  # a mirrored digit is another
        ("class_accuracy_tta", "no class", run),
        ("s2_accuracy", "no Stage 2", run),
        ("hours", "no Stage 2", run),
        ("sep_cur_mined", "no blocks", control),
    ):
        with pytest.raises(Unreadable, match=words):
            read(asked, asking(metric, "L3", row="airplane"))
    with pytest.raises(Unreadable, match="no block 7"):
        read(run, asking("goodness_pos", "L7"))
    with pytest.raises(Unreadable, match="which one"):
        read(run, asking("goodness_pos", "somewhere"))


def test_blocks_are_named_in_several_ways() -> None:
    assert depth_of(asking("margin", "sep_cur_nl (L3)"), 8) == 3
    assert depth_of(asking("margin", "m", "gamma=0 (block-local), block 2"), 4) == 2
    assert depth_of(asking("margin", "m, block 1"), 4) == 1
    assert depth_of(asking("margin", "sep_cur_nl (deep)"), 8) == 7


# With TTA, five best labels and pairs of runs: on made-up images that may be mirrored.


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """Two networks, Stage 2 included, that see the same images."""
    with blobs_at_hand():
        folder = tmp_path_factory.mktemp("mirrored")
        made: dict[str, Any] = {}
        for rule in ("local", "lcff"):
            sizes = {**BLOBS, "data": "ten-blobs", "rule": rule, "readout.epochs": 1, "seed": 5}
            made[rule] = goodness.train(shrunk("gamma0-dense", sizes), out=folder / rule, device="cpu")
            goodness.readout(folder / rule, device="cpu")
        yield made


def test_tta_and_top_5_are_those_of_mirrored_images(mirrored: dict[str, Run]) -> None:
    run = mirrored["local"]
    test = load_data(run.config).test
    scores = run.predict(test.images, tta=True)
    share = (scores.argmax(dim=1) == test.labels).double().mean()
    assert read(run, asking("accuracy_tta")) == pytest.approx(100 * float(share))
    five = (scores.topk(5, dim=1).indices == test.labels[:, None]).any(dim=1).double().mean()
    assert read(run, asking("top5_tta")) == pytest.approx(100 * float(five))
    gain = read(run, asking("s2_accuracy_tta")) - read(run, asking("accuracy_tta"))
    assert read(run, asking("difference", "gain")) == pytest.approx(gain)
    assert 0 <= read(run, asking("s2_top5_tta")) <= 100


def test_a_class_s_accuracy_counts_its_images_alone(mirrored: dict[str, Run]) -> None:
    run = mirrored["local"]
    test, names = load_data(run.config).test, read_json(run.path / "health.json")["classes"]
    found = run.predict(test.images, tta=True).argmax(dim=1)
    for label, name in enumerate(names):
        own = test.labels == label
        if bool(own.any()):
            share = float((found == label)[own].double().mean())
            assert read(run, asking("class_accuracy_tta", "cp-fair", row=name)) == pytest.approx(100 * share)


def test_pairs_count_the_images_that_one_alone_has_right(mirrored: dict[str, Run], tmp_path: Path) -> None:
    left, right = mirrored["local"], mirrored["lcff"]
    test = load_data(left.config).test
    assert left.readout is not None
    assert right.readout is not None
    a, b = (one.predict(test.images, tta=True).argmax(dim=1) for one in (left.readout, right.readout))
    found = _paired([left], [right])
    assert found["a_only"] == int(((a == test.labels) & (b != test.labels)).sum())
    assert found["b_only"] == int(((a != test.labels) & (b == test.labels)).sum())
    assert found["predictions_differ"] == pytest.approx(float((a != b).double().mean()))


def test_every_metric_of_the_paper_is_read_or_has_a_reason() -> None:
    from goodness.paper.derived import NUMBERS
    from goodness.paper.numbers import METRICS
    from goodness.paper.readers import NOT_OURS

    assert set(METRICS) == {*READERS, *MARGINS, *NOT_OURS, *NUMBERS}
    assert not set(READERS) & set(NOT_OURS)
