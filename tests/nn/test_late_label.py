"""A label that enters behind the body: no token ever sees it, and all hypotheses of an image share one pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import goodness
from goodness.config import override
from goodness.errors import ConfigError
from goodness.health.locality import audit_locality
from goodness.methods.cumulative.evidence import (
    block_goodness,
    block_goodness_by_label,
    hypothesis_features,
    hypothesis_features_by_label,
)
from goodness.methods.cumulative.passes import score_block
from goodness.nn.block import GoodnessHead
from goodness.nn.network import Network
from tiny_runs import BLOBS, blobs_at_hand, shrunk

CLASSES = 5


@pytest.fixture(scope="module", autouse=True)
def data() -> Iterator[None]:
    with blobs_at_hand():
        yield


def late(**changes: object) -> Network:
    torch.manual_seed(0)
    config = override(shrunk("gamma0-dense"), {"model.label": "late", **changes})
    network = Network(config.model, (3, 8, 8), CLASSES).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return network


@pytest.mark.parametrize("changes", [{}, {"model.block.memory": 3}, {"model.block.experts": 4, "model.block.top_k": 2}])
def test_sharing_gives_the_goodness_and_features_of_one_pass_per_label(changes: dict[str, object]) -> None:
    network, images = late(**changes), torch.rand(3, 3, 8, 8, dtype=torch.float64)
    for at_once in (None, 2):
        shared = block_goodness(network, images, labels_at_once=at_once)
        torch.testing.assert_close(shared, block_goodness_by_label(network, images))
        features = hypothesis_features(network, images, at_once)
        torch.testing.assert_close(features, hypothesis_features_by_label(network, images))
    assert float((shared[..., 0] - shared[..., 1]).abs().min()) > 1e-6, "labels make a difference"


def test_the_body_runs_once_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    network, images = late(), torch.rand(3, 3, 8, 8, dtype=torch.float64)
    rows = []
    body = type(network.block(0).body)
    plain = body.forward
    monkeypatch.setattr(body, "forward", lambda self, tokens: (rows.append(len(tokens)), plain(self, tokens))[1])
    block_goodness(network, images)
    assert rows == [3, 3]


def test_no_token_sees_a_label() -> None:
    network, tokens = late(), torch.rand(2, 4, 8, dtype=torch.float64)
    first, second = (network.block(0)(tokens, torch.full((2,), label)) for label in (0, 3))
    assert torch.equal(first.tokens, second.tokens)
    assert not torch.equal(first.goodness, second.goodness)


def test_the_short_way_is_the_plain_one() -> None:
    network, tokens = late(), torch.randn(3, 4, 8, dtype=torch.float64)
    head, labels = network.block(0).head, torch.tensor([4, 0, 2])
    factors = network.block(0).label.factors()[labels]  # type: ignore[union-attr, operator]
    notes = {"sharpness": torch.rand(3, dtype=torch.float64)}
    for mine, theirs in zip(
        head.under(tokens, labels, factors, notes), GoodnessHead.under(head, tokens, labels, factors, notes)
    ):
        torch.testing.assert_close(mine, theirs)


def test_candidates_are_scored_as_the_block_would() -> None:
    network, tokens = late(), torch.randn(4, 4, 8, dtype=torch.float64)
    rows, labels = torch.tensor([0, 0, 2, 3]), torch.tensor([1, 4, 0, 2])
    scored = score_block(network.block(0), tokens, rows, labels, torch.arange(CLASSES))
    torch.testing.assert_close(scored, network.block(0)(tokens[rows], labels).goodness)


def test_it_learns_stays_local_and_predicts(tmp_path: Path) -> None:
    config = shrunk("demo", {**BLOBS, "data": "easy-blobs", "augment": "none", "model.label": "late", "epochs": 8})
    run = goodness.train(config, out=tmp_path / "run", device="cpu")
    assert run.accuracy > 0.6
    network = Network(config.model, (1, 6, 6), 4, terms=config.objective)
    assert audit_locality(network, config, torch.rand(4, 1, 6, 6), torch.arange(4)) == []
    assert run.predict(torch.zeros(2, 1, 6, 6, dtype=torch.uint8)).shape == (2, 4)


def test_the_first_block_alone_is_not_enough() -> None:
    with pytest.raises(ConfigError, match=r"leave model.label_at at every"):
        override(shrunk("demo"), {"model.label": "late", "model.label_at": "first"}).check()
