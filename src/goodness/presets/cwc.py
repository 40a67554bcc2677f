"""Channel-wise competition as its authors train it."""

from __future__ import annotations

from goodness.config import Config, Optim, Readout
from goodness.methods.cwc import CwCPart
from goodness.nn.cfse import Cfse
from goodness.presets.naming import Changes, presets, variant


@presets.register("cwc")
def cwc() -> Config:
    """Channel-wise competition (CwComp): four convolutions for CIFAR-10 or MNIST, frozen one after another."""
    return Config(
        epochs=25,
        batch=128,
        augment="none",
        views=1,
        method=CwCPart(end=(11, 16, 21, 25)),
        network=Cfse(),
        optim=Optim(kind="adam", lr=1e-2, schedule="constant", warmup=0.0, weight_decay=0.0, clip=0.0, ema=0.0),
        readout=Readout(epochs=0),
    )


@variant("cwc-fast", of="cwc")
def cwc_fast() -> Changes:
    """Channel-wise competition with the authors' fast plan: blocks begin and end one after another."""
    return {"epochs": 32, "method.begin": (0, 2, 4, 6), "method.end": (11, 18, 26, 32)}


@variant("cwc-cifar100", of="cwc")
def cwc_cifar100() -> Changes:
    """Channel-wise competition on CIFAR-100: six convolutions, the first four for superclasses of five classes."""
    groups = (20, 20, 20, 20, 100, 100)
    return {
        "data": "cifar100",
        "epochs": 85,
        "network.channels": (60, 120, 240, 400, 800, 1600),
        "network.groups": groups,
        "method.groups": groups,
        "method.begin": (0, 0, 30, 30, 60, 60),
        "method.end": (30, 30, 60, 60, 85, 85),
    }
