"""Block health along the stream of negatives: against a loop over images and draws, and against prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import goodness
from goodness.config import Config, Model, Stem
from goodness.data.dataset import as_split
from goodness.data.images import Split
from goodness.draws import uniforms
from goodness.errors import RunError
from goodness.health import stream
from goodness.health.stream import along_the_stream, meets_two_labels
from goodness.methods.cumulative.evidence import goodness_of
from goodness.methods.cumulative.negatives import Online, Prefix, Random, Teacher
from goodness.nn.hybrid import Hybrid
from goodness.nn.network import Network
from goodness.parts import NegativesPart
from goodness.report.health_tables import along_the_stream as along_the_stream_told

CLASSES = 5
MODEL = Model(
    width=8, blocks=3, stem=Stem(channels=4, patch=2), block=Hybrid(heads=2, hidden=16)
)  # untrained: its goodness depends on the label at every block


def network(**changes: Any) -> Network:
    torch.manual_seed(0)
    found = Network(replace(MODEL, **changes), (1, 8, 8), CLASSES)
    for parameter in found.parameters():  # so that labels matter from the start
        parameter.data += 0.3 * torch.randn_like(parameter)
    return found.eval()


def images(n: int = 12) -> Split:
    draws = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (n, 1, 8, 8), generator=draws).to(torch.uint8)
    return as_split(pixels.numpy(), torch.randint(0, CLASSES, (n,), generator=draws).numpy())


@torch.no_grad()
def by_loop(made: Network, rows: Split, config: Config) -> tuple[list[list[float]], list[list[float]]]:
    """Goodness of both streams, image by image and draw by draw, every draw in a pass of its own."""
    negatives, blocks = config.negatives, len(made.blocks)
    draws = max(negatives.k_first, negatives.k_last) if isinstance(negatives, Teacher | Online) else 1
    rights: list[list[float]] = [[] for _ in range(blocks)]
    wrongs: list[list[float]] = [[] for _ in range(blocks)]
    for i in range(len(rows)):
        label = int(rows.labels[i])
        right = wrong = made.tokens(rows.images[i : i + 1].float() / 255)
        chosen = label
        for depth in range(blocks):
            block = made.block(depth)

            def under(tokens: Tensor, y: int, block: Any = block) -> Any:
                return block(tokens, torch.tensor([y]))

            if depth == 0 or not negatives.once:
                drawn = uniforms(torch.device("cpu"), (len(rows), draws), config.seed, "stream", "test", depth)[i]
                k = 1
                if isinstance(negatives, Teacher | Online):
                    k = round(negatives.k_first + depth / (blocks - 1) * (negatives.k_last - negatives.k_first))
                candidates = [(label + 1 + int(u * (CLASSES - 1))) % CLASSES for u in drawn[:k].tolist()]
                on = right if isinstance(negatives, Teacher) and negatives.mine_on == "pos" else wrong
                chosen = max(candidates, key=lambda y: float(under(on, y).goodness))
            for_right, for_wrong = under(right, label), under(wrong, chosen)
            rights[depth].append(float(for_right.goodness))
            wrongs[depth].append(float(for_wrong.goodness))
            right, wrong = made.hand_on(for_right.tokens), made.hand_on(for_wrong.tokens)
    return rights, wrongs


@pytest.mark.parametrize(
    "negatives",
    [Teacher(k_first=2, k_last=4), Online(k_first=3, k_last=3), Teacher(mine_on="pos"), Teacher(once=True), Random()],
)
def test_every_block_is_held_against_the_label_it_mines(negatives: NegativesPart) -> None:
    made, rows = network(), images()
    config = Config(model=MODEL, negatives=negatives)
    rights, wrongs = by_loop(made, rows, config)
    found = along_the_stream(made, rows, config, split="test")["blocks"]
    for right, wrong, block in zip(rights, wrongs, found, strict=True):
        margins = torch.tensor(right) - torch.tensor(wrong)
        assert block["sep_stream"] == pytest.approx(float(margins.mean()), abs=1e-5)
        assert block["sep_stream_rate"] == pytest.approx(float((margins > 0).float().mean()))
        assert block["g_stream"] == pytest.approx(sum(wrong) / len(wrong), abs=1e-5)


def test_a_label_that_is_kept_separates_as_in_prediction() -> None:
    """With every wrong label drawn and the first one kept: block 0's worst, looked up in the scores of prediction."""
    made, rows = network(), images()
    config = Config(model=MODEL, negatives=Teacher(once=True, k_first=200, k_last=200))
    scores = goodness_of(made, rows.images).double()
    right = scores.gather(2, rows.labels[None, :, None].expand(3, -1, 1)).squeeze(2)
    worst = scores[0].scatter(1, rows.labels[:, None], -torch.inf).argmax(dim=1)
    kept = scores.gather(2, worst[None, :, None].expand(3, -1, 1)).squeeze(2)
    found = along_the_stream(made, rows, config, split="test")["blocks"]
    assert [one["sep_stream"] for one in found] == pytest.approx((right - kept).mean(dim=1).tolist(), abs=1e-4)


def test_a_label_from_the_first_block_on_is_mined_as_prediction_scores_it() -> None:
    made, rows = network(), images()
    config = Config(model=MODEL, negatives=Prefix(k_first=200, k_last=200))
    scores = goodness_of(made, rows.images).double()
    right = scores.gather(2, rows.labels[None, :, None].expand(3, -1, 1)).squeeze(2)
    worst = scores.scatter(2, rows.labels[None, :, None].expand(3, -1, 1), -torch.inf).amax(dim=2)
    found = along_the_stream(made, rows, config, split="test")
    assert [one["sep_stream"] for one in found["blocks"]] == pytest.approx(
        (right - worst).mean(dim=1).tolist(), abs=1e-4
    )
    assert not found["meets_two_labels"]


def test_late_labels_meet_no_other_label() -> None:
    """There the tokens carry none: mining anew is then mining against what prediction sees."""
    made, rows = network(label=goodness.api.make_config("demo", {"model.label": "late"}).model.label), images()
    config = Config(model=made.config, negatives=Teacher(k_first=200, k_last=200))
    scores = goodness_of(made, rows.images).double()
    right = scores.gather(2, rows.labels[None, :, None].expand(3, -1, 1)).squeeze(2)
    worst = scores.scatter(2, rows.labels[None, :, None].expand(3, -1, 1), -torch.inf).amax(dim=2)
    found = along_the_stream(made, rows, config, split="test")["blocks"]
    assert [one["sep_stream"] for one in found] == pytest.approx((right - worst).mean(dim=1).tolist(), abs=1e-4)


@pytest.mark.parametrize(("images_at_once", "labels_at_once", "passes"), [(5, CLASSES, 3), (1, 2, 12)])
def test_pieces_give_what_the_whole_gives(
    monkeypatch: pytest.MonkeyPatch, images_at_once: int, labels_at_once: int, passes: int
) -> None:
    made, rows = network(), images()
    config = Config(model=MODEL, negatives=Teacher(k_first=2, k_last=3))
    whole = along_the_stream(made, rows, config, split="test")
    monkeypatch.setattr(stream, "chunk_sizes", lambda network, memory: (images_at_once, labels_at_once))
    calls = list[int]()
    pieces = along_the_stream(made, rows, config, split="test", poll=lambda: calls.append(1))
    assert len(calls) == passes
    for a, b in zip(whole["blocks"], pieces["blocks"], strict=True):
        assert a == pytest.approx(b, abs=1e-5)


@pytest.mark.parametrize("negatives", [Teacher(count=3), Teacher(among=2), Random(count=2), Teacher(ramp="epochs")])
def test_every_choice_of_negatives_has_a_stream(negatives: NegativesPart) -> None:
    found = along_the_stream(network(), images(), Config(model=MODEL, negatives=negatives), split="test")
    assert found["images"] == 12
    assert all(0 <= block["sep_stream_rate"] <= 1 for block in found["blocks"])


def test_weights_that_ran_away_are_told() -> None:
    made = network()
    next(made.block(1).parameters()).data.fill_(torch.inf)
    with pytest.raises(RunError, match="block 1 is not finite"):
        along_the_stream(made, images(), Config(model=MODEL), split="test")


def test_the_gap_is_told_where_it_is_wide_and_two_labels_meet() -> None:
    def report(*pairs: tuple[float, float], meets: bool = True) -> dict[str, Any]:
        blocks = [{"sep_stream": along, "sep_cur_mined": kept} for along, kept in pairs]
        return {"stream": {"images": 12, "meets_two_labels": meets}, "blocks": blocks}

    wide = ((0.92, 1.15), (2.96, 0.56), (3.54, 0.27))
    assert along_the_stream_told(report((0.9, 1.1), (3.0, 2.9))) is None
    assert along_the_stream_told({"blocks": [{"sep_cur_mined": 1.0}]}) is None  # an older health.json
    assert along_the_stream_told(report((0.9, 0.1), (0.02, -0.05))) is None  # the first block meets one label alone
    assert along_the_stream_told(report(*wide, meets=False)) is None
    assert along_the_stream_told({**report(*wide), "tta": True}) is None  # the other measure has two views
    assert along_the_stream_told(report((1.69, 0.81), *wide[1:])) is None  # other draws, as the first block shows
    said = along_the_stream_told(report(*wide))
    assert said is not None
    assert "0.92 2.96 3.54" in said
    assert "1.15 0.56 0.27" in said


@pytest.mark.parametrize(
    ("changes", "meets"),
    [({}, True), ({"negatives.once": True}, False), ({"model.label": "late"}, False), ({"model.blocks": 1}, False)],
)
def test_two_labels_meet_where_they_are_mined_anew_and_enter_the_tokens(changes: dict[str, Any], meets: bool) -> None:
    config = goodness.make_config("demo", changes)
    assert meets_two_labels(Network(config.model, (1, 8, 8), 10), config) == meets
    assert not meets_two_labels(Network(config.model, (1, 8, 8), 2), config)  # which have one wrong label
