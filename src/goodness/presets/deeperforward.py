"""DeeperForward as its authors train it."""

from __future__ import annotations

from goodness.config import Config, Optim, Readout
from goodness.methods.deeperforward import DeeperForwardPart
from goodness.nn.shortcuts import ShortcutCnn, TinyCnn
from goodness.presets.naming import Changes, presets, variant


@presets.register("deeperforward")
def deeperforward() -> Config:
    """DeeperForward: 17 convolutions with shortcuts, for CIFAR-10 or MNIST."""
    return Config(
        epochs=150,
        batch=128,
        augment="none",
        views=1,
        method=DeeperForwardPart(dropout=0.2),
        network=ShortcutCnn(),
        optim=Optim(lr=0.08, warmup=0.0, weight_decay=5e-4, clip=0.0, ema=0.0),
        readout=Readout(epochs=0),
    )


@variant("deeperforward-tiny", of="deeperforward")
def deeperforward_tiny() -> Changes:
    """DeeperForward's small network: four convolutions without shortcuts."""
    return {"network": TinyCnn(), "optim.weight_decay": 1e-2}
