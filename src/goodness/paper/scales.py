"""How large a run of the paper is made: as printed, in two minutes on a GPU, or in seconds on a CPU.

full    the preset as it is
short   the same recipe, over so few epochs that a run takes at most about two minutes on one H200, by the estimates
        below
tiny    a few steps of a tiny network on digits: the numbers mean nothing, the path to them is the whole one
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from goodness.config import Config
from goodness.errors import UserError, nearest
from goodness.nn.hybrid import Hybrid
from goodness.nn.plain_cnn import ConvStages
from goodness.nn.pyramid import Pyramid
from goodness.presets import preset as preset_of

Changes = dict[str, Any]
"""Dotted fields and their new values, as `goodness.config.override` takes them."""

START = 25.0
"""Seconds on an H200 before the first step, with a warm compile cache."""
EVALUATION = 0.3
"""Seconds of one evaluation on the validation images there; of the last ones on the test images, four times that."""
IMAGES = {"cifar10": 45_000, "cifar100": 45_000, "tiny-imagenet": 100_000}
IMAGES |= {"imdb": 22_500, "newsgroups": 10_183, "ag-news": 108_000}
CLASSES = {"cifar10": 10, "cifar100": 100, "tiny-imagenet": 200, "imdb": 2, "newsgroups": 20, "ag-news": 4}
SHORT_EVERY = 4
"""Epochs between evaluations of a short run."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What a scale changes in a preset, and what a run of it costs."""

    name: str
    about: str
    changes: Callable[[Config], Changes]
    seconds: Callable[[Config, bool], float]
    """An estimate of a run on the scale's machine, with or without Stage 2."""
    machine: str = "one H200"
    most_seeds: int | None = None
    """Cap on the seeds of a table; None takes all that the paper has."""
    is_papers: bool = False
    """Whether its numbers can be held against the paper's."""
    is_comparable: bool = True
    """Whether they can be held against each other at all."""
    is_quick: bool = False
    """Whether starting a process costs more than the run: several runs then share one."""

    def overrides(self, preset: str) -> Changes:
        """What this scale changes in a preset of this name."""
        return dict(self.changes(preset_of(preset)))

    def estimate(self, preset: str, readout: bool = False) -> float:
        """Seconds that a run takes, on this scale's machine."""
        return self.seconds(_changed(preset, self.name), readout)


def scale_of(name: str) -> Scale:
    """A scale by name."""
    if name not in SCALES:
        raise UserError(f"unknown scale '{name}': {nearest(name, SCALES)}")
    return SCALES[name]


@functools.cache
def _changed(preset: str, scale: str) -> Config:
    from goodness.api import make_config

    return make_config(preset, SCALES[scale].overrides(preset))


# What an epoch costs: what `goodness bench` measured on one H200 (benchmarks/bench-h200.json), and a little for what a
# run does beside. Experts cost 1.5 of a dense layer and SAM 1.69; D128 is 0.75 of D256 with experts, and eight dense
# blocks of it 1.1 of four of D256. CIFAR-100 at batch 256 took 11.6 s an epoch with four runs at once, so about 2.9
# alone (results/cifar100-6-epochs-h200.txt): twice the steps, each 0.7 as long. The rest is by proportion, a guess for
# batches below 256 and for texts, which have eight tokens in place of 64.


def seconds_an_epoch(config: Config) -> float:
    """Of Stage 1 (or backpropagation), on one H200.

    >>> from goodness.presets import preset
    >>> round(seconds_an_epoch(preset("cp-fair")), 1), round(seconds_an_epoch(preset("gamma0-dense")), 1)
    (5.1, 2.0)
    """
    block = config.model.block
    work = IMAGES.get(config.data, 45_000) / 45_000 * (512 / config.batch) ** 0.5
    if config.trainer == "backprop":
        return 0.4 * work * (1.5 if _has_experts(config) else 1.0)
    narrow = 1.0 if config.model.width > 128 else 0.75 if _has_experts(config) else 0.54
    depth = config.model.blocks / 4 * narrow if isinstance(block, Hybrid) else 1.0
    experts = 1.5 if _has_experts(config) else 1.0
    sam = 1.69 if config.optim.sam else 1.0
    large = 1.5 if config.data == "tiny-imagenet" else 1.0  # a stem at 64x64, and up to 40 candidates
    few = 0.4 if config.model.stem.kind == "vector" else 1.0
    return 2.0 * work * depth * experts * sam * large * few


def seconds_a_readout_epoch(config: Config) -> float:
    """Of Stage 2: every hypothesis of every image through the frozen blocks.

    A guess, a line through what was seen of several at once: four of CIFAR-100 took 25.8 s an epoch each, so perhaps
    6.5 alone, and two of ten classes under eight blocks of D128 3.6, so 1.8.
    """
    images, classes = IMAGES.get(config.data, 45_000) / 45_000, CLASSES.get(config.data, 10) / 10
    return images * (1.2 + 0.53 * classes * config.model.blocks / 4 * (0.54 if config.model.width <= 128 else 1.0))


def on_a_gpu(config: Config, readout: bool) -> float:
    """Seconds of a whole run on one H200."""
    evaluations = config.epochs / config.keep.evaluate_every + 4
    classes = CLASSES.get(config.data, 10) / 10
    total = START + config.epochs * seconds_an_epoch(config) + evaluations * EVALUATION * classes
    if readout and config.trainer == "ff":
        total += 10 + config.readout.epochs * seconds_a_readout_epoch(config)
    return total


def on_a_core(config: Config, readout: bool) -> float:
    """Seconds of a tiny run on one CPU core."""
    depth = config.model.blocks / 4
    return depth * ((1.7 if config.trainer == "ff" else 0.6) + (1.0 if readout and config.trainer == "ff" else 0.0))


def _has_experts(config: Config) -> bool:
    return isinstance(config.model.block, Hybrid) and config.model.block.experts > 1


# Runs that a table holds beside each other have the same number of epochs, that of the slowest among them.


def short_epochs(config: Config) -> int:
    """Epochs of Stage 1 at `short`: what two minutes allow the slowest of the runs it is compared with."""
    if config.model.stem.kind == "vector":
        return config.epochs // 2  # texts, which stand beside nothing else
    if config.data == "tiny-imagenet":
        return 1
    if config.data == "cifar100":
        return 5 if config.optim.sam else 13
    if config.model.width <= 128:
        return 18
    is_dense = isinstance(config.model.block, Hybrid) and not _has_experts(config)
    if config.trainer == "ff" and is_dense and not config.optim.sam:
        return 20  # gamma0-dense and its kin, which stand beside no experts
    return max(1, round(12 * config.batch / 512))  # as many steps where the batch is smaller


def short_readout_epochs(config: Config) -> int:
    """Epochs of Stage 2 at `short`: more with a hundred hypotheses, one where an epoch takes half a minute."""
    return {"cifar100": 4, "tiny-imagenet": 1}.get(config.data, 2)


def short(config: Config) -> Changes:
    """An average over a thousand steps would lag behind a run of a thousand: the moving average is over a hundred."""
    epochs = short_epochs(config)
    changes: Changes = {"epochs": epochs, "keep.evaluate_every": min(SHORT_EVERY, epochs)}
    if config.optim.ema:
        changes["optim.ema"] = min(config.optim.ema, 0.99)
    if config.readout.epochs:
        changes["readout.epochs"] = short_readout_epochs(config)
    return changes


TINY: Mapping[str, Any] = {
    "data": "digits-sample",
    "epochs": 2,
    "batch": 128,  # two steps an epoch: a block each where they learn one after the other
    "keep.evaluate_every": 2,
    "keep.checkpoint_seconds": 600.0,
    "optim.lr": 6e-3,
}


def tiny(config: Config) -> Changes:
    """Every size cut down; blocks, rule, objective, negatives and augmentation stay the preset's."""
    changes: Changes = dict(TINY)
    block = config.model.block
    if isinstance(block, ConvStages):
        changes["model.block.channels"] = [8] * len(block.channels)
    elif isinstance(block, Hybrid):
        changes |= {"model.width": 16, "model.stem.channels": 8, "model.stem.patch": 2, "model.block.heads": 2}
        changes["model.block.hidden"] = 32
        if block.experts > 1:
            changes |= {"model.block.hidden": 8, "model.block.experts": 4, "model.block.top_k": 2}
        if block.memory:
            changes["model.block.memory"] = 4
    elif isinstance(block, Pyramid):
        changes["model.block.channels"] = [8] * len(block.channels)
    if "supcon" in config.objective:
        changes |= {"objective.supcon.queue": 64, "objective.supcon.dimensions": 8}
    if config.optim.ema:
        changes["optim.ema"] = 0.5  # of four steps
    if config.readout.epochs:
        changes |= {"readout.epochs": 1, "readout.batch": 128, "readout.width": 16, "readout.heads": 2}
    return changes


SCALES: Mapping[str, Scale] = {
    one.name: one
    for one in (
        Scale(
            name="full",
            about="the presets as they are",
            changes=lambda config: {},
            seconds=on_a_gpu,
            is_papers=True,
        ),
        Scale(
            name="short",
            about="the same recipes in two minutes a run",
            changes=short,
            seconds=on_a_gpu,
        ),
        Scale(
            name="tiny",
            about="a few steps of tiny networks on digits, to run the whole path",
            changes=tiny,
            seconds=on_a_core,
            machine="one CPU core",
            most_seeds=2,
            is_comparable=False,
            is_quick=True,
        ),
    )
}
