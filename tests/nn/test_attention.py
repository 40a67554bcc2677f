"""Rotary positions, norms and pooling: properties that define them, and loops that spell them out."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from goodness.nn.attention import AttentionPool, RMSNorm, SelfAttention, axial_angles, rotate, widen
from goodness.nn.feedforward import GEGLU


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def turned(vector: Tensor, grid: tuple[int, int]) -> Tensor:
    """One head vector placed at every token of a grid: `[tokens, head width]`."""
    angles = axial_angles(grid, vector.shape[-1])
    return rotate(vector.expand(grid[0] * grid[1], -1), angles.cos(), angles.sin())


def test_attention_logits_depend_on_the_offset_between_two_tokens_only() -> None:
    rows, columns = 4, 5
    query, key = turned(randn(8, seed=1), (rows, columns)), turned(randn(8, seed=2), (rows, columns))
    logits = (query @ key.T).reshape(rows, columns, rows, columns)
    by_offset: dict[tuple[int, int], list[float]] = {}
    for r in range(rows):
        for c in range(columns):
            for r2 in range(rows):
                for c2 in range(columns):
                    by_offset.setdefault((r2 - r, c2 - c), []).append(logits[r, c, r2, c2].item())
    assert len(by_offset) == 63
    for values in by_offset.values():
        assert max(values) - min(values) < 1e-12
    means = sorted(sum(values) / len(values) for values in by_offset.values())
    assert min(b - a for a, b in itertools.pairwise(means)) > 1e-6  # and every offset gives another logit


def test_turning_keeps_norms() -> None:
    vector = randn(12)
    norms = turned(vector, (3, 7)).norm(dim=-1)
    torch.testing.assert_close(norms, vector.norm().expand(21), rtol=1e-12, atol=0)


def test_rows_turn_one_half_of_the_frequencies_and_columns_the_other() -> None:
    angles = axial_angles((3, 4), 8).reshape(3, 4, 4)
    down, right = angles[..., :2], angles[..., 2:]
    assert torch.equal(down, down[:, :1].expand_as(down))  # the same along a row
    assert torch.equal(right, right[:1].expand_as(right))  # the same along a column
    frequencies = [1.0, 100.0**-0.5]
    assert down[2, 0].tolist() == pytest.approx([2 * f for f in frequencies])
    assert right[0, 3].tolist() == pytest.approx([3 * f for f in frequencies])
    # so a vector without components in the column pairs does not see a move along the row
    vector = torch.zeros(8, dtype=torch.float64)
    vector[[0, 1, 4, 5]] = randn(4)
    placed = turned(vector, (3, 4)).reshape(3, 4, 8)
    torch.testing.assert_close(placed[1, 0], placed[1, 3])
    assert not torch.allclose(placed[0, 0], placed[1, 0])


def test_rotation_turns_each_pair_by_its_angle() -> None:
    x, angles = randn(5, 6), randn(5, 3, seed=1)
    result = rotate(x, angles.cos(), angles.sin())
    for t in range(5):
        for i in range(3):
            z = complex(x[t, i], x[t, i + 3]) * complex(math.cos(angles[t, i]), math.sin(angles[t, i]))
            assert result[t, i].item() == pytest.approx(z.real, abs=1e-12)
            assert result[t, i + 3].item() == pytest.approx(z.imag, abs=1e-12)


def test_self_attention_is_the_textbook_formula_head_by_head() -> None:
    torch.manual_seed(0)
    width, heads, grid = 16, 2, (2, 3)
    attention = SelfAttention(width, heads, grid).double()
    x = randn(2, 6, width)
    angles = axial_angles(grid, 8)
    cosine, sine = attention.cosine, attention.sine
    torch.testing.assert_close(cosine, angles.cos(), rtol=0, atol=1e-7)
    w_q, w_k, w_v = attention.qkv.weight.split(width)
    result = attention(x)
    for b in range(2):
        mixed = torch.zeros(6, width, dtype=torch.float64)
        for h in range(heads):
            part = slice(8 * h, 8 * (h + 1))
            q, k = (rotate(x[b] @ w.T[:, part], cosine, sine) for w in (w_q, w_k))
            v = x[b] @ w_v.T[:, part]
            for t in range(6):
                weights = torch.stack([torch.exp((q[t] @ k[s]) / math.sqrt(8)) for s in range(6)])
                mixed[t, part] = (weights[:, None] / weights.sum() * v).sum(dim=0)
        torch.testing.assert_close(result[b], mixed @ attention.out.weight.T, rtol=1e-9, atol=1e-12)


def test_rms_norm_divides_by_the_root_mean_square() -> None:
    norm = RMSNorm(6).double()
    norm.scale.data = randn(6, seed=3)
    x = randn(2, 3, 6)
    for row, out in zip(x.reshape(-1, 6).tolist(), norm(x).reshape(-1, 6).tolist()):
        rms = math.sqrt(sum(v * v for v in row) / 6 + 1e-6)
        assert out == pytest.approx([v / rms * s for v, s in zip(row, norm.scale.tolist())], rel=1e-9)


def test_attention_pool_is_a_softmax_mean_of_the_tokens() -> None:
    torch.manual_seed(0)
    pool = AttentionPool(6).double()
    pool.norm.scale.data = randn(6, seed=4)
    tokens = randn(2, 5, 6)
    for b in range(2):
        scores = []
        for t in range(5):
            row = tokens[b, t].tolist()
            rms = math.sqrt(sum(v * v for v in row) / 6 + 1e-6)
            scores.append(sum(v / rms * s * q for v, s, q in zip(row, pool.norm.scale.tolist(), pool.query.tolist())))
        total = sum(math.exp(s) for s in scores)
        expected = [sum(math.exp(scores[t]) / total * tokens[b, t, i].item() for t in range(5)) for i in range(6)]
        assert pool(tokens)[b].tolist() == pytest.approx(expected, rel=1e-9)


def test_geglu_is_down_of_gelu_gate_times_up() -> None:
    torch.manual_seed(0)
    layer = GEGLU(4, 3).double()
    x = randn(2, 4)
    gate, up = layer.gate_up.weight[:3], layer.gate_up.weight[3:]
    for b in range(2):
        hidden = []
        for j in range(3):
            g = sum(gate[j, i].item() * x[b, i].item() for i in range(4))
            u = sum(up[j, i].item() * x[b, i].item() for i in range(4))
            hidden.append(0.5 * g * (1 + math.erf(g / math.sqrt(2))) * u)
        expected = [sum(layer.down.weight[o, j].item() * hidden[j] for j in range(3)) for o in range(4)]
        assert layer(x)[b].tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("given", "kept"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_widening_never_narrows(given: torch.dtype, kept: torch.dtype) -> None:
    assert widen(torch.zeros(1, dtype=given)).dtype == kept
