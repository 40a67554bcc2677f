"""Local backpropagation: cross-entropy through a head of several layers beside every block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_methods import batch, entering, made, small
from torch import Tensor

import goodness
from goodness.errors import ConfigError
from goodness.methods.local_backprop import pooled

NETWORKS = {
    "mlp": {"network": "mlp", "network.widths": (7, 5)},
    "cnn": {"network": "cnn", "network.channels": (4, 6), "network.pools": (0,)},
    "backbone": {
        "network": "backbone",
        "model.width": 8,
        "model.blocks": 2,
        "model.stem.channels": 4,
        "model.block.heads": 2,
    },
}


def means_of_parts(x: Tensor, cells: int) -> Tensor:
    """Of each channel the means over cells x cells parts that divide the map, written as loops."""
    height, width = x.shape[2] // cells, x.shape[3] // cells
    parts = [
        x[:, channel, row * height : (row + 1) * height, column * width : (column + 1) * width].mean(dim=(1, 2))
        for channel in range(x.shape[1])
        for row in range(cells)
        for column in range(cells)
    ]
    return torch.stack(parts, dim=1)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("layers", [0, 1, 3])
def test_a_blocks_loss_is_the_cross_entropy_of_its_head(network: str, layers: int) -> None:
    changes = {"method.layers": layers, "method.width": 9, **NETWORKS[network]}
    method = made(small("local-backprop", changes)).eval()
    images, labels = batch()
    for depth in range(2):
        signal = entering(method, depth, images, labels)
        x = method.blocks[depth](signal["x"])
        x = means_of_parts(x, 2) if x.dim() == 4 else x.mean(dim=1) if x.dim() == 3 else x
        linears = [one for one in method.parts[depth].modules() if isinstance(one, torch.nn.Linear)]
        assert len(linears) == layers + 1
        for linear in linears[:-1]:
            x = (x @ linear.weight.T + linear.bias).clamp(min=0)
        scores = x @ linears[-1].weight.T + linears[-1].bias
        loss = -(scores - scores.exp().sum(1, keepdim=True).log())[range(12), labels].mean()
        found = method.loss(depth, signal, method.through(depth, signal))
        assert torch.allclose(found, loss, atol=1e-6)
        own = [one for group in method.owned(depth) for one in group["params"]]
        expected = torch.autograd.grad(loss, own)
        for mine, theirs in zip(torch.autograd.grad(found, own), expected):
            assert torch.allclose(mine, theirs, atol=1e-6)


def test_a_map_smaller_or_uneven_gives_every_position_once() -> None:
    x = torch.arange(25.0).reshape(1, 1, 5, 5)
    expected = [x[..., :3, :3].mean(), x[..., :3, 3:].mean(), x[..., 3:, :3].mean(), x[..., 3:, 3:].mean()]
    assert pooled(x, 2).flatten().tolist() == pytest.approx([float(one) for one in expected])
    assert pooled(torch.ones(3, 4, 1, 1), 2).shape == (3, 4)


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_it_learns_the_digits(network: str, tmp_path: Path) -> None:
    sizes = {"network.widths": (64, 64)} if network == "mlp" else {"network.channels": (16, 16)}
    config = small("local-backprop", {"epochs": 15, "network": network, **sizes})
    result = goodness.train(config, out=tmp_path / "run", device="cpu").result
    assert result["reported"]["accuracy"] > 0.9


@pytest.mark.parametrize("changes", [{"method.layers": -1}, {"method.width": 0}, {"method.cells": 0}])
def test_settings_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        small("local-backprop", changes)


def test_the_last_blocks_head_predicts() -> None:
    method = made(small("local-backprop", NETWORKS["mlp"])).eval()
    images, labels = batch()
    evidence = method.evidence(images)
    assert method.decide(evidence, labels).tolist() == [0, 1]
    assert not torch.equal(evidence[0], evidence[1])
