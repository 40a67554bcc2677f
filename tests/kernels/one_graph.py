"""Traces stem, block and scoring with the kernels in them; fails where that takes more than one graph each.

A program of its own: tracing wants kernels that are compiled, and the other tests interpret them.
"""

import pytest
import torch
from torch import Tensor

from goodness import kernels
from goodness.api import make_config
from goodness.kernels import feedforward
from goodness.methods.cumulative.passes import forward_block, score_block
from goodness.nn.network import Network
from goodness.nn.scoring import Taken, first_scored, later_scored, steps


class Traced(Exception):
    """The whole function was traced into one graph; there is no need to run it."""


def stop(graph: torch.fx.GraphModule, inputs: list[Tensor]):
    def raise_traced(*_: object) -> None:
        raise Traced(" ".join(str(node.target) for node in graph.graph.nodes))

    return raise_traced


def targets(function, *inputs) -> str:
    torch._dynamo.reset()
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(Traced) as caught:
        torch.compile(function, backend=stop, fullgraph=True)(*inputs)
    return str(caught.value)


@pytest.mark.parametrize("preset", ["gamma0-dense", "gamma0", "baseline"])
def test_stem_block_and_scoring_are_one_graph_each(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "are_used", lambda x: True)
    changes = {"model.width": 64, "model.blocks": 1, "model.block.heads": 2, "model.stem.channels": 32}
    config = make_config(preset, changes)
    network = Network(config.model, (3, 32, 32), 10, terms=config.objective)
    stem = targets(Network.tokens, network, torch.rand(2, 3, 32, 32))
    assert "group_norm_gelu" in stem
    assert "convolve" in stem
    tokens, labels = torch.rand(2, 64, 64), torch.tensor([3, 5])
    for graph in (
        targets(forward_block, network, network.block(0), tokens, labels),
        targets(
            score_block, network.block(0), tokens, torch.tensor([0, 1, 1]), torch.tensor([1, 2, 3]), torch.arange(10)
        ),
    ):
        assert "short_attention" in graph
        assert "geglu" in graph
        assert ("argmax" in graph) == (getattr(config.model.block, "experts", 1) > 1)  # chosen in rounds, not by topk


def test_scoring_without_a_gradient_is_one_graph_with_the_whole_layer_in_a_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "are_used", lambda x: True)
    monkeypatch.setattr(feedforward, "shared_memory", lambda device: 227 * 1024)
    config = make_config("gamma0-dense", {"model.width": 64, "model.block.heads": 2})
    network = Network(config.model, (3, 32, 32), 10, terms=config.objective)
    tokens = torch.rand(2, 64, 64, dtype=torch.bfloat16)
    given = torch.tensor([0, 1, 1]), torch.tensor([1, 2, 3]), torch.arange(10)
    with torch.no_grad():
        graph = targets(score_block, network.block(0), tokens, *given)
        in_float32 = targets(score_block, network.block(0), tokens.float(), *given)
    assert "goodness.feedforward" in graph
    assert "goodness.geglu" not in graph
    for plain in (in_float32, targets(score_block, network.block(0), tokens, *given)):  # the last with a gradient
        assert "goodness.feedforward" not in plain
        assert "goodness.geglu" in plain


def test_scoring_under_hypotheses_is_one_graph_a_block_with_all_behind_the_attention_in_a_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "are_used", lambda x: True)
    monkeypatch.setattr(feedforward, "shared_memory", lambda device: 227 * 1024)
    config = make_config("gamma0-dense", {"model.width": 64, "model.block.heads": 2, "model.blocks": 2})
    network = Network(config.model, (3, 32, 32), 10)
    first, last = network.block(0), network.block(1)
    start, hypotheses = torch.rand(2, 64, 64, dtype=torch.bfloat16), torch.arange(10).repeat(2)
    taken = Taken(start.repeat_interleave(10, dim=0), torch.rand(20, 64))
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            assert steps(network, start, len(hypotheses)) == (first_scored, later_scored)
        entering = targets(first_scored, network, first, start, hypotheses, last)
        leaving = targets(later_scored, network, last, taken, hypotheses, None)
    for graph, name in ((entering, "goodness.tail"), (leaving, "goodness.last_tail")):
        assert name in graph
        assert "goodness.normed_attention" in graph
        assert "goodness.pool" not in graph
        assert "goodness.feedforward" not in graph
