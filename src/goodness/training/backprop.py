"""The control: the same backbone, trained end to end by backpropagation on the classes."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from goodness.compilation import compiled
from goodness.config import Config
from goodness.data.images import ImageData
from goodness.draws import key
from goodness.methods.cumulative.evidence import class_scores
from goodness.methods.cumulative.routing import RouterTerm, routing_of
from goodness.nn.stripped import StrippedNetwork
from goodness.precision import autocast
from goodness.runs.run_folder import RunFolder
from goodness.step_context import Measured, Moment
from goodness.training.classifier import ClassifierLoop
from goodness.training.loop import Listener, Plan, on_device, require_learnable, under
from goodness.training.modes import kind_of
from goodness.training.optim import WholeAverage, learning_rate, make_recordable, optimiser, set_learning_rate
from goodness.training.signals import StopRequest


class Backprop(ClassifierLoop):
    """One run of the stripped network: cross-entropy, one optimiser, one moving average, all blocks at once."""

    stage = "bp"
    records = True

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
        self.network = on_device(build_stripped(config, data), device)
        optim = config.optim
        self.average = WholeAverage(self.network, optim.ema)
        self.learning = list(self.network.parameters())
        self.optimisers = [optimiser(dict(self.network.named_parameters()), optim, ("stem.", "blocks."))]
        judge = compiled(Backprop._judge, kind_of(config)) if self.is_compiled else Backprop._judge
        self._loss = functools.partial(judge, self)
        if self.guard is not None:
            self.average.make_recordable(device)
            make_recordable(self.optimisers[0], device, self.guard.bad)

    def set(self, moment: Moment) -> None:
        optim = self.config.optim
        rate = learning_rate(moment.total_step, moment.total_steps, optim.lr, optim.warmup, optim.schedule)
        set_learning_rate(self.optimisers[0], rate)
        self.average.aim(moment.total_step)

    def carry_out(self, rows: Tensor, moment: Moment) -> list[Measured]:
        self.optimisers[0].zero_grad(set_to_none=True)
        self.draws.seed_modules("step", moment.epoch, moment.step)
        labels = self.data.train.labels[rows]
        with autocast(self.device, self.dtype):
            loss, accuracy = self._loss(self.views(rows, moment, 1)[0], labels)
        measured = self.learn(loss, accuracy, self.config.optim.clip, moment)
        self.average.follow(moment.total_step, None if self.guard is None else self.guard.bad)
        return measured

    def _judge(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy and what the routers cost, and the batch's accuracy."""
        logits, notes = self.network(images)
        loss = F.cross_entropy(logits.float(), labels)
        for noted in notes:
            routing = routing_of(noted)
            if routing is not None:
                for term in self.config.objective.values():
                    if isinstance(term, RouterTerm):
                        loss = loss + term.weight * term.of_routing(routing)
        return loss, (logits.detach().argmax(dim=1) == labels).float().mean()

    def evaluated(self) -> StrippedNetwork:
        return self.average.network  # type: ignore[return-value]

    def learned(self) -> dict[str, Tensor]:
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        return tensors | {f"average.{name}": value for name, value in self.evaluated().state_dict().items()}

    def load_learned(self, tensors: dict[str, Tensor]) -> None:
        self.network.load_state_dict(under("network.", tensors))
        self.evaluated().load_state_dict(under("average.", tensors))

    def parameters(self) -> int:
        return self.network.parameter_count()

    def readings(self, images: Tensor) -> Tensor:
        return class_scores(self.evaluated(), images, dtype=self.dtype, poll=self.poll).cpu()


def build_stripped(config: Config, data: ImageData) -> StrippedNetwork:
    """The stripped network for this data with its initial weights, which depend on the seed alone."""
    require_learnable(data)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(config.seed, "weights"))
        return StrippedNetwork(config.model, data.shape, len(data.classes), mean=data.mean, std=data.std)
