"""Graphs as the compiler makes them, held against the functions as they are written: values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from goodness.methods.cumulative.evidence import (
    block_goodness_by_label,
    feature_count,
    goodness_and_aspects_of,
    goodness_of,
    readout_scores,
)
from goodness.nn.attentive_readout import AttentiveReadout
from goodness.nn.moe import MixtureOfExperts
from goodness.nn.network import Network
from goodness.step_context import Moment
from goodness.training.step import Stepper
from tiny_runs import shrunk

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning"),  # torch's own, at its import
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),  # the tracer looks
]
NOW = Moment(epoch=1, step=2, total_step=6, total_steps=20, progress=0.3)
CLASSES, BATCH = 5, 8


def stepper_of(compiled: str) -> Stepper:
    """Of one block: each takes the compiler half a minute."""
    torch._dynamo.reset()
    config = shrunk("gamma0-dense", {"step.compile": compiled, "objective.supcon.queue": 16}, blocks=1)
    torch.manual_seed(0)
    return Stepper(Network(config.model, (3, 8, 8), CLASSES, terms=config.objective), config)


def test_a_compiled_step_has_the_measures_and_gradients_of_a_plain_one() -> None:
    draws = torch.Generator().manual_seed(1)
    views, labels = torch.rand(3, BATCH, 3, 8, 8, generator=draws), torch.arange(BATCH) % CLASSES
    found: list[tuple[list[Tensor], dict[str, Tensor]]] = []
    for compiled in ("off", "on"):
        stepper = stepper_of(compiled)
        measures = stepper(views[: stepper.config.views], labels, NOW)
        gradients = {name: one.grad for name, one in stepper.network.named_parameters() if one.grad is not None}
        found.append(([values for _, values in measures], gradients))
    (plain, plain_gradients), (fast, fast_gradients) = found
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-6)
    assert plain_gradients.keys() == fast_gradients.keys()
    assert len(plain_gradients) > 20
    for name, gradient in plain_gradients.items():
        torch.testing.assert_close(fast_gradients[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_compiled_mining_of_prefixes_chooses_what_the_blocks_score_highest() -> None:
    draws = torch.Generator().manual_seed(1)
    views, labels = torch.rand(3, BATCH, 3, 8, 8, generator=draws), torch.arange(BATCH) % CLASSES
    found: list[tuple[Tensor, Tensor]] = []
    for compiled in ("off", "on"):
        torch._dynamo.reset()
        changes = {"step.compile": compiled, "negatives": "prefix", "objective.supcon": None}
        config = shrunk("gamma0-dense", changes)
        torch.manual_seed(0)
        stepper = Stepper(Network(config.model, (3, 8, 8), CLASSES, terms=config.objective), config)
        with torch.no_grad():
            stem, _ = stepper.start(views, labels, NOW)
            streams = stepper.prefixed(stem, labels, NOW)
        found.append((torch.stack([one.labels for one in streams]), streams[1].tokens))
    (plain, plain_tokens), (fast, fast_tokens) = found
    assert fast.tolist() == plain.tolist()
    torch.testing.assert_close(fast_tokens, plain_tokens, rtol=1e-5, atol=1e-5)


def test_compiled_prediction_is_the_loop_over_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goodness.methods.cumulative.evidence.CHUNK", 4)
    network = stepper_of("off").network.eval()
    images = torch.randint(0, 256, (BATCH, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    expected = block_goodness_by_label(network, images.float() / 255)
    torch.testing.assert_close(goodness_of(network, images, compiled=True), expected, rtol=1e-5, atol=1e-5)
    goodness, aspects = goodness_and_aspects_of(network, images, compiled=True)
    torch.testing.assert_close(goodness, expected, rtol=1e-5, atol=1e-5)
    for compiled, plain in zip(aspects, goodness_and_aspects_of(network, images)[1], strict=True):
        torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=1e-5)
    readout = AttentiveReadout(feature_count(network), 8, 2).eval()
    scores = [readout_scores(network, readout, images[:6], compiled=is_compiled) for is_compiled in (False, True)]
    torch.testing.assert_close(*scores, rtol=1e-5, atol=1e-5)
    assert len(scores[0]) == 6, "what fills the last portion up is left out"


def test_a_compiled_mixture_of_experts_has_the_gradients_of_a_plain_one() -> None:
    torch._dynamo.reset()
    x = torch.randn(40, 16, generator=torch.Generator().manual_seed(3)).bfloat16()
    found: list[list[Tensor]] = []
    for is_compiled in (False, True):
        torch.manual_seed(0)
        layer, tokens = MixtureOfExperts(16, 8, experts=6, k=2).bfloat16(), x.clone().requires_grad_()
        mixed, _ = (torch.compile(layer, fullgraph=True) if is_compiled else layer)(tokens)
        mixed.square().sum().backward()
        found.append([mixed, tokens.grad, *(parameter.grad for parameter in layer.parameters())])
    for plain, fast in zip(*found, strict=True):
        assert plain.abs().max() > 0.01
        torch.testing.assert_close(fast, plain, rtol=0.05, atol=0.01 * plain.abs().max().item())
