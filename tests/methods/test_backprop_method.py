"""Backpropagation behind the seam is end-to-end backpropagation, to the bit."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_methods import batch, small, trainer

import goodness
from goodness.methods.base import Moment
from goodness.step_context import Moment as Place

NETWORKS = {
    "mlp": {"network": "mlp", "network.widths": (7, 6, 5)},
    "cnn": {"network": "cnn", "network.channels": (4, 6), "network.pools": (0,)},
}


@pytest.mark.parametrize("mode", ["fused", "sequential"])
@pytest.mark.parametrize("network", NETWORKS)
def test_five_steps_equal_a_plain_torch_loop_to_the_bit(network: str, mode: str) -> None:
    config = small(
        "backprop", {"step.mode": mode, "optim.schedule": "constant", "optim.warmup": 0.0} | NETWORKS[network]
    )
    ours = trainer(config)
    blocks = copy.deepcopy(ours.method.blocks)
    head = copy.deepcopy(ours.method.parts[-1])
    plain = torch.nn.ModuleList([*blocks, head])
    optimiser = torch.optim.Adam(plain.parameters(), lr=3e-3, fused=True)
    for step in range(5):
        images, labels = batch(10 + step)
        x = images
        for block in blocks:
            x = block(x)
        loss = F.cross_entropy(head(x.mean(dim=(2, 3)) if x.dim() == 4 else x), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        said = ours.step(images[None], labels, Place(step, 0, step, 5, step / 5), Moment(step, 5, step, 5))
        assert said[:-1] == [None] * (len(blocks) - 1)
        names, values = said[-1]  # type: ignore[misc]
        assert float(values[names.index("loss")]) == loss.item()
    mine = [*ours.method.blocks.state_dict().values(), *ours.method.parts[-1].state_dict().values()]
    theirs = [*blocks.state_dict().values(), *head.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs))
    assert len(mine) == len(theirs)


@pytest.mark.parametrize("network", NETWORKS)
def test_it_learns_the_digits(network: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"network.widths": (64, 64)} if network == "mlp" else {"network.channels": (16, 16)}
    config = small("backprop", {"epochs": 15, "network": network, **sizes})
    run = goodness.train(config, out=tmp_path / "run", device="cpu")
    assert run.result["reported"]["accuracy"] > 0.9
    earlier = [row for row in run.result["accuracy"] if row["split"] == "test" and row["blocks"] == 1]
    assert all(row["top1"] < 0.2 for row in earlier)  # earlier blocks say nothing
