"""The attentive readout: a set of hypotheses in, one logit each out; size, order and gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from goodness.errors import ConfigError
from goodness.nn.attentive_readout import AttentiveReadout, HypothesisAttention


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def readout() -> AttentiveReadout:
    torch.manual_seed(0)
    return AttentiveReadout(features=10, width=16, heads=4).double()


@pytest.mark.parametrize("classes", [1, 2, 7, 200])
def test_one_readout_gives_a_logit_per_class_for_any_number_of_classes(readout: AttentiveReadout, classes: int) -> None:
    assert readout(randn(3, classes, 10)).shape == (3, classes)
    assert readout(randn(0, classes, 10)).shape == (0, classes)


def test_renumbering_the_classes_renumbers_the_logits(readout: AttentiveReadout) -> None:
    features = randn(5, 9, 10)
    logits = readout(features).detach()
    assert float(logits.std(dim=1).min()) > 1e-3  # the logits differ, so a mixed-up order would show
    for seed in range(5):
        order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(readout(features[:, order]), logits[:, order], rtol=0, atol=1e-12)


def test_a_logit_depends_on_the_other_hypotheses_of_its_image_and_on_no_other_image(readout: AttentiveReadout) -> None:
    features = randn(2, 4, 10)
    changed = features.clone()
    changed[0, 3] = -changed[0, 3]
    before, after = readout(features), readout(changed)
    assert bool((before[0] - after[0]).abs().gt(1e-6).all())
    torch.testing.assert_close(after[1], before[1], rtol=0, atol=1e-12)


def test_the_attention_is_a_softmax_over_all_hypotheses_in_every_head() -> None:
    torch.manual_seed(0)
    attention = HypothesisAttention(6, 2).double()
    x = randn(1, 5, 6)[0]
    query, key, value = (x @ part.T for part in attention.qkv.weight.chunk(3))
    expected = torch.zeros(5, 6, dtype=torch.float64)
    for head in (slice(0, 3), slice(3, 6)):
        for row in range(5):
            weights = (key[:, head] @ query[row, head] / math.sqrt(3)).softmax(dim=0)
            expected[row, head] = weights @ value[:, head]
    torch.testing.assert_close(attention(x[None])[0], expected @ attention.out.weight.T, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("width", "millions"), [(1536, 18), (320, 1)])
def test_the_papers_head_has_18_million_parameters_and_the_small_one_about_one(width: int, millions: int) -> None:
    with torch.device("meta"):
        readout = AttentiveReadout(features=1040, width=width, heads=8)
    count = sum(parameter.numel() for parameter in readout.parameters())
    assert count == pytest.approx(millions * 10**6, rel=0.1)


def test_the_cross_entropys_gradient_reaches_every_parameter(readout: AttentiveReadout) -> None:
    F.cross_entropy(readout(randn(6, 5, 10)), torch.tensor([0, 1, 2, 3, 4, 0])).backward()
    for name, parameter in readout.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 1e-6, name


@pytest.mark.parametrize(("width", "heads"), [(10, 4), (4, 8), (8, 0)])
def test_a_width_that_the_heads_cannot_share_is_refused(width: int, heads: int) -> None:
    with pytest.raises(ConfigError, match=rf"readout\.width {width} .*readout\.heads \({heads}\)"):
        AttentiveReadout(features=3, width=width, heads=heads)
