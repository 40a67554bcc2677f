"""Stage 2: an attentive readout, trained by backpropagation on what the frozen blocks say of every hypothesis.

A probe of the representation, not Forward-Forward: no gradient reaches a block, but the readout sees all of them.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from goodness.config import Config
from goodness.data.images import ImageData
from goodness.data.mix import draws_needed, mix
from goodness.draws import key
from goodness.errors import RunError, UserError
from goodness.methods.cumulative.evidence import (
    compiled_rows,
    feature_count,
    hypothesis_features,
    readout_chunk_sizes,
    readout_scores,
)
from goodness.nn.attentive_readout import AttentiveReadout
from goodness.nn.network import Network
from goodness.precision import autocast
from goodness.runs.run import Run
from goodness.runs.run_folder import RunFolder
from goodness.step_context import Measured, Moment
from goodness.training.classifier import ClassifierLoop
from goodness.training.loop import Listener, Plan, under
from goodness.training.optim import adamw, learning_rate, set_learning_rate
from goodness.training.signals import StopRequest

BEHIND = 0.02
"""A readout that is further behind its Stage 1 than this share of the test images has not learned."""


class Stage2(ClassifierLoop):
    """One readout in its folder, on a network that stays as it is."""

    stage = "s2"

    def __init__(
        self,
        config: Config,
        data: ImageData,
        folder: RunFolder,
        *,
        network: Network,
        device: torch.device,
        dtype: torch.dtype,
        stop: StopRequest | None = None,
        listen: Listener | None = None,
    ) -> None:
        wanted = config.readout
        plan = Plan(
            epochs=wanted.epochs,
            batch=wanted.batch,
            augment=wanted.augment or config.augment,
            report=config.keep.report,
        )
        super().__init__(config, data, folder, plan=plan, device=device, dtype=dtype, stop=stop, listen=listen)
        self.network = network
        self.readout = build_readout(config, network).to(device)
        self.learning = list(self.readout.parameters())
        self.optimisers = [adamw(self.learning, wanted.lr, wanted.weight_decay, config.optim.betas)]

    def set(self, moment: Moment) -> None:
        wanted = self.config.readout
        rate = learning_rate(moment.total_step, moment.total_steps, wanted.lr, wanted.warmup)
        set_learning_rate(self.optimisers[0], rate)

    def carry_out(self, rows: Tensor, moment: Moment) -> list[Measured]:
        wanted = self.config.readout
        self.optimisers[0].zero_grad(set_to_none=True)
        labels = self.data.train.labels[rows]
        images, targets = self.views(rows, moment, 1)[0], F.one_hot(labels, self.network.classes).float()
        draws = self.draws((draws_needed,), "mix", moment.epoch, moment.step)
        images, targets = mix(images, targets, draws, mixup=wanted.mixup, cutmix=wanted.cutmix)
        with autocast(self.device, self.dtype):
            logits = self.readout(self.features(images)).float()
        loss = F.cross_entropy(logits, targets)
        accuracy = (logits.detach().argmax(dim=1) == targets.argmax(dim=1)).float().mean()
        return self.learn(loss, accuracy, wanted.clip, moment)

    def features(self, images: Tensor) -> Tensor:
        """What the frozen blocks say of these images under every label, in chunks under the memory cap."""
        memory = self.config.keep.memory_mb
        if memory is None and self.device.type == "cpu":
            memory = 1024  # not the smaller chunks of scoring, which are rounded otherwise: weights stay reproducible
        rows, labels = readout_chunk_sizes(self.network, memory)
        at_once = compiled_rows(self.network, rows, labels) if self.is_compiled else 0
        found = []
        for chunk in images.split(at_once or rows):
            self.poll()  # a step of many hypotheses can take minutes; stopped here, it has changed nothing yet
            found.append(hypothesis_features(self.network, chunk, labels, at_once > 0))
        return torch.cat(found)

    def finish(self) -> dict[str, Any]:
        result = super().finish()
        with contextlib.suppress(UserError, RunError):  # a Stage 1 that was damaged meanwhile
            self.compare(Run(self.folder.path).backbone.accuracy, result["reported"]["accuracy"])
        return result

    def compare(self, before: float, now: float) -> None:
        """Say so where the goodness alone had read the network better."""
        if now < before - BEHIND:
            self.notice(
                f"Stage 2 has {100 * now:.1f} % of the test images right, Stage 1 had {100 * before:.1f} %: the "
                "readout has not learned what the blocks know. Try more epochs, or a smaller learning rate, in another "
                f"folder: goodness readout RUN --out NEW --readout.lr {self.config.readout.lr / 10:g}"
            )

    def evaluated(self) -> AttentiveReadout:
        return self.readout

    def learned(self) -> dict[str, Tensor]:
        return {f"readout.{name}": value for name, value in self.readout.state_dict().items()}

    def load_learned(self, tensors: dict[str, Tensor]) -> None:
        self.readout.load_state_dict(under("readout.", tensors))

    def about_weights(self) -> dict[str, Any]:
        return super().about_weights() | {"features": feature_count(self.network)}

    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.learning)

    def readings(self, images: Tensor) -> Tensor:
        return readout_scores(
            self.network,
            self.readout,
            images,
            memory_mb=self.config.keep.memory_mb,
            dtype=self.dtype,
            poll=self.poll,
            compiled=self.is_compiled,
        ).cpu()


def build_readout(config: Config, network: Network) -> AttentiveReadout:
    """The readout for this network with its initial weights, which depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(config.seed, "readout"))
        return AttentiveReadout(feature_count(network), config.readout.width, config.readout.heads)
