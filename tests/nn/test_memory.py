"""Memory cross-attention by loops, and the sharpness at its two ends."""

from __future__ import annotations

import math

import pytest
import torch

from goodness.nn.hybrid import Hybrid
from goodness.nn.memory import MemoryAttention


def test_memory_attention_is_the_textbook_formula_and_sharpness_one_minus_normalised_entropy() -> None:
    torch.manual_seed(0)
    layer = MemoryAttention(width=8, heads=2, slots=5).double()
    x = torch.randn(3, 4, 8, dtype=torch.float64)
    with torch.no_grad():
        output, sharpness = layer(x)
    keys, values = (layer.memory @ layer.key_value.weight.T).chunk(2, dim=1)
    keys, values = keys.detach(), values.detach()
    for b in range(3):
        sharp = []
        for t in range(4):
            query = layer.query.weight.detach() @ x[b, t]
            mixed = []
            for head in range(2):
                part = slice(4 * head, 4 * head + 4)
                weights = torch.stack([query[part] @ keys[s, part] / 2 for s in range(5)]).softmax(0)
                mixed.append(sum(weights[s] * values[s, part] for s in range(5)))
                sharp.append(1 + sum(w * math.log(w) for w in weights.tolist()) / math.log(5))
            torch.testing.assert_close(output[b, t], layer.out.weight.detach() @ torch.cat(mixed))
        assert float(sharpness[b]) == pytest.approx(sum(sharp) / len(sharp))


def test_sharpness_is_zero_for_an_even_look_and_one_for_a_single_slot() -> None:
    layer = MemoryAttention(width=8, heads=2, slots=4)
    x = torch.ones(1, 1, 8)
    with torch.no_grad():
        layer.query.weight.zero_()
        assert float(layer(x)[1]) == pytest.approx(0, abs=1e-6)
        layer.query.weight.copy_(torch.eye(8))
        layer.key_value.weight[:8].copy_(torch.eye(8))
        layer.memory.copy_(torch.tensor([1000.0, 0, 0, 0])[:, None].expand(4, 8))
        assert float(layer(x)[1]) == pytest.approx(1, abs=1e-6)


def test_a_block_notes_what_its_parts_have_to_say() -> None:
    tokens = torch.randn(2, 4, 16)
    plain = Hybrid(heads=2, hidden=8).build(16, (2, 2))
    assert plain(tokens)[1] == {}
    full = Hybrid(heads=2, hidden=8, experts=4, top_k=2, memory=3).build(16, (2, 2))
    notes = full(tokens)[1]
    assert notes["sharpness"].shape == (2,)
    assert notes["router_logits"].shape == (8, 4)
    assert notes["router_chosen"].shape == notes["router_weights"].shape == (8, 2)
