"""A run of any method behind the seam: epochs of the trainer's steps, judged by the evidence of the blocks."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from goodness.config import Config
from goodness.data.images import ImageData, Split
from goodness.errors import ConfigError
from goodness.health.block_health import assess, health_of_goodness
from goodness.health.margins import TOP5_CLASSES, top_k_accuracy
from goodness.methods.base import Method, combined
from goodness.methods.base import Moment as MethodMoment
from goodness.methods.build import AT_ONCE, build_method, evidence_of
from goodness.parts import ImageFacts
from goodness.precision import autocast
from goodness.runs.run_folder import RunFolder
from goodness.step_context import Moment, Said
from goodness.training.loop import Listener, Loop, Plan, accuracy_row, on_device, require_learnable, under
from goodness.training.modes import kind_of
from goodness.training.signals import StopRequest
from goodness.training.trainer import Trainer, overrides


class LocalLearning(Loop):
    """One run of a method in its folder."""

    stage = "s1"
    records = True
    recordings = 4

    def __init__(
        self,
        config: Config,
        data: ImageData,
        folder: RunFolder,
        *,
        device: torch.device,
        dtype: torch.dtype,
        stop: StopRequest | None = None,
        listen: Listener | None = None,
    ) -> None:
        plan = Plan(epochs=config.epochs, batch=config.batch, augment=config.augment, report=config.keep.report)
        super().__init__(config, data, folder, plan=plan, device=device, dtype=dtype, stop=stop, listen=listen)
        self.method = on_device(build_method(config, facts_of(data), config.seed), device)
        kind = f"{kind_of(config)} {facts_of(data)}" if self.is_compiled else None
        self.trainer = Trainer(
            self.method, config.optim, config.step, draws=self.draws, dtype=dtype, guard=self.guard, kind=kind
        )
        self.plain = plain_settings(config, len(self.method.blocks))
        self.uses = Uses(self.method, torch.zeros(0), torch.zeros(0))
        require_learnable(data)

    # What the loop asks of a stage.

    @property
    def optimisers(self) -> list[torch.optim.Optimizer]:  # type: ignore[override]
        return list(self.trainer.optimisers.values())

    def set(self, moment: Moment) -> None:
        self._plan = self.trainer.set(moment, self._moment(moment))

    def carry_out(self, rows: Tensor, moment: Moment) -> Said:
        views = self.views(rows, moment, self.method.views)
        return self.trainer.inside(views, self.data.train.labels[rows], moment, self._plan)

    def signature(self, moment: Moment) -> Hashable:
        plan = self.method.plan(self._moment(moment))
        return plan.units, plan.told

    def _moment(self, moment: Moment) -> MethodMoment:
        return MethodMoment(moment.epoch, self.plan.epochs, moment.total_step, moment.total_steps)

    def unguard(self) -> None:
        self.guard = self.trainer.guard = None

    def evaluated(self) -> Method:
        return self.trainer.teacher

    def learned(self) -> dict[str, Tensor]:
        tensors = {f"method.{name}": value for name, value in self.method.state_dict().items()}
        return tensors | {f"teacher.{name}": value for name, value in self.evaluated().state_dict().items()}

    def load_learned(self, tensors: dict[str, Tensor]) -> None:
        self.method.load_state_dict(under("method.", tensors))
        self.trainer.teacher.load_state_dict(under("teacher.", tensors))

    def about_learning(self) -> dict[str, Any]:
        return {"units": [list(unit) for unit in self.trainer.optimisers], "ages": self.trainer.ages}

    def take_up(self, about: dict[str, Any]) -> None:
        for unit in about["units"]:
            self.trainer.optimiser(tuple(unit))
        self.trainer.ages = list(about["ages"])

    def parameters(self) -> int:
        return sum(one.numel() for one in self.method.parameters())

    def about_weights(self) -> dict[str, Any]:
        return {**super().about_weights(), "mean": list(self.data.mean), "std": list(self.data.std)}

    def train_line(self, means: list[dict[str, float]]) -> dict[str, Any]:
        return {"blocks": means}

    # How it is judged.

    def before_judging(self) -> None:
        """Fit a readout, where the method has one, and decide what each block weighs."""
        method = self.trainer.evaluated()
        if overrides(method, "ready"):
            with autocast(self.device, self.dtype):
                method.ready(self._training_images())
        self.validation = self._of_validation()
        uses = Uses(method, *self.validation)
        method.weights.copy_(uses.all)
        method.prefixes.copy_(torch.stack(uses.first))

    def weights_taken(self) -> None:
        self.uses = Uses(self.evaluated(), *self._of_validation())

    def assess(self, split: str) -> dict[str, Any]:
        part = self.data.split(split)
        readings = self.validation[0] if split == "val" else self.readings(part.images)
        labels, scores = part.labels.cpu(), combined(readings, self.evaluated().weights.cpu())
        found = assess(readings, labels, self.plain, split, progress=self.progress())
        reweigh(found["blocks"], readings, labels, self.evaluated().prefixes.cpu())
        found["accuracy"] = top_k_accuracy(scores, labels)
        if "top5" in found:
            found["top5"] = top_k_accuracy(scores, labels, 5)
        return found

    def readings(self, images: Tensor) -> Tensor:
        found = evidence_of(self.evaluated(), images, dtype=self.dtype, poll=self.poll)
        for depth, scores in enumerate(found):
            self.require_finite(scores, f"block {depth}: evidence")
        return found

    def examine(self, readings: Tensor, part: Split, split: str) -> tuple[Tensor, list[dict[str, Any]], Any]:
        labels, first = part.labels.cpu(), self.uses.first
        rows = [accuracy_row(combined(readings, weights), labels, used) for used, weights in enumerate(first, 1)]
        health = assess(readings, labels, self.plain, split, progress=1.0)["blocks"]
        reweigh(health, readings, labels, torch.stack(first))
        return combined(readings, self.uses.all), rows, health

    def predictions(self, readings: Tensor) -> dict[str, Tensor]:
        return self.uses.predictions(readings)

    def full_health(self, part: Split, split: str) -> dict[str, Any]:
        readings, labels = self.readings(part.images), part.labels.cpu()
        return health_by_evidence(readings, labels, torch.stack(self.uses.first), self.config, split, self.data.classes)

    def _of_validation(self) -> tuple[Tensor, Tensor]:
        part = self.data.val
        if len(part):
            return self.readings(part.images), part.labels.cpu()
        return torch.zeros(len(self.method.blocks), 0, len(self.data.classes)), part.labels.cpu()

    def _training_images(self) -> Iterator[tuple[Tensor, Tensor]]:
        part = self.data.train
        for rows in torch.arange(len(part), device=self.device).split(AT_ONCE):
            self.poll()
            yield part.images[rows].float() / 255, part.labels[rows]


class Uses:
    """What every block weighs when all, the first, or all but one of the blocks predict, as a method decides it."""

    def __init__(self, method: Method, evidence: Tensor, labels: Tensor) -> None:
        blocks = len(method.blocks)
        self.first = [self._of(method, evidence, labels, list(range(used))) for used in range(1, blocks + 1)]
        rest = [[other for other in range(blocks) if other != depth] for depth in range(blocks)]
        self.without = [self._of(method, evidence, labels, one) for one in rest] if blocks > 1 else []

    @property
    def all(self) -> Tensor:
        return self.first[-1]

    @staticmethod
    def _of(method: Method, evidence: Tensor, labels: Tensor, used: list[int]) -> Tensor:
        weights = torch.zeros(len(method.blocks))
        weights[used] = _decided(method, evidence[used], labels) if len(evidence) else 1.0
        return weights

    def predictions(self, evidence: Tensor) -> dict[str, Tensor]:
        """Predicted classes `[blocks, n]` for every way to use the blocks."""
        found = {"alone": evidence.argmax(dim=-1)}
        ways = {"first": self.first, "without": self.without}
        return found | {
            name: torch.stack([combined(evidence, weights).argmax(dim=-1) for weights in each])
            for name, each in ways.items()
            if each
        }


def _decided(method: Method, evidence: Tensor, labels: Tensor) -> Tensor:
    found = method.decide(evidence, labels)
    if not isinstance(found, Tensor) or found.shape != (len(evidence),) or not bool(found.isfinite().all()):
        raise ConfigError(f"decide must give a finite weight for each of {len(evidence)} blocks, and gave {found}")
    return found.float()


def facts_of(data: ImageData) -> ImageFacts:
    return ImageFacts(data.shape, len(data.classes), data.mean, data.std)


def health_by_evidence(
    evidence: Tensor,
    labels: Tensor,
    prefixes: Tensor,
    config: Config,
    split: str,
    classes: Sequence[str],
    tta: bool = False,
) -> dict[str, Any]:
    """Block health of evidence `[blocks, n, classes]`; accuracies of blocks 0..d as `prefixes[d]` weighs them."""
    settings = plain_settings(config, len(evidence))
    found = health_of_goodness(evidence, labels, settings, split=split, classes=classes)
    reweigh(found["blocks"], evidence, labels, prefixes)
    weights = prefixes[-1]
    scores = combined(evidence, weights)
    found |= {"accuracy": top_k_accuracy(scores, labels), "weights": weights.tolist(), "tta": tta}
    found["truncation"] = [block["accuracy"] for block in found["blocks"]]
    if scores.shape[1] >= TOP5_CLASSES:
        found["top5"] = top_k_accuracy(scores, labels, 5)
    return found


def reweigh(blocks: list[dict[str, Any]], evidence: Tensor, labels: Tensor, prefixes: Tensor) -> None:
    """Put in the accuracies of blocks 0..d as the method weighs blocks."""
    for block, weights in zip(blocks, prefixes):
        block["accuracy"] = top_k_accuracy(combined(evidence, weights), labels)


def plain_settings(config: Config, blocks: int) -> Config:
    """Block health reads the paper's settings: of another method every block is on its own."""
    plain = Config()
    return replace(plain, model=replace(plain.model, blocks=blocks), eta=0.0, seed=config.seed)
