"""How a run computes, as its configuration and its device have it: compiled, recorded."""

from __future__ import annotations

from dataclasses import fields

import torch

from goodness.config import Config


def compiles(config: Config, device: torch.device) -> bool:
    """Whether the run's graphs are compiled: as asked for, and else on a GPU."""
    return config.step.compile == "on" or (config.step.compile == "auto" and device.type == "cuda")


NOT_IN_GRAPHS = {"preset", "seed", "split_seed", "val", "epochs", "optim", "keep", "readout"}
"""Settings that no compiled function sees."""


def kind_of(config: Config) -> str:
    """What runs that share compiled graphs have in common: every setting that a graph may depend on."""
    return repr([getattr(config, one.name) for one in fields(config) if one.name not in NOT_IN_GRAPHS])


def replays(config: Config, device: torch.device) -> bool:
    """Whether the run's steps are recorded and replayed: as asked for, and else on a CUDA device.

    Before compute capability 9 torch's grouped product asks the device for its offsets, which a recording cannot.
    """
    if config.step.replay != "auto" or device.type != "cuda":
        return config.step.replay == "on"
    has_experts = getattr(config.model.block, "experts", 1) > 1
    return not has_experts or torch.cuda.get_device_capability(device) >= (9, 0)
