"""Epochs of steps in a run folder, whatever it is that learns: checkpoints, resumption, selection, the result.

A stage (`stage1`, `stage2`, `backprop`) says what a step is, what it has learned and how it is judged; everything that
must survive a kill is here.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from goodness.config import Config, from_dict, to_dict
from goodness.data.augment import augment, compiled_augment, recipes, uniforms_needed
from goodness.data.images import ImageData, Split, fingerprint
from goodness.draws import Draws, epoch_order
from goodness.durable import append_line, read_lines, truncate_lines, write_json
from goodness.errors import RunError, UserError
from goodness.health.margins import TOP5_CLASSES, top_k_accuracy
from goodness.runs.checkpoint import flatten_state, unflatten_state
from goodness.runs.run_folder import EPOCHS_SHA256, WEIGHTS_SHA256, RunFolder, epochs_sha256
from goodness.step_context import Moment, Said
from goodness.tensor_file import weights_sha256
from goodness.training.finite import Guard
from goodness.training.modes import compiles, replays
from goodness.training.optim import restore_state, state_of
from goodness.training.replay import Recorder
from goodness.training.signals import StopRequest

N = TypeVar("N", bound=nn.Module)

Listener = Callable[[dict[str, Any]], None]
"""Hears of every step and epoch: `{"event": "step" | "epoch" | "checkpoint" | "note" | "result", ...}`."""

SETTLE_STEPS = 25
"""How many recorded steps may go by before it is known whether all of them were finite."""


class Interrupted(RunError):
    """The run was asked to stop; it has saved, and the message says how to go on."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class _Stop(Exception):
    """Raised where a loop notices the request, caught where the run can save."""


@dataclass
class Position:
    """How far the run has come; with the tensors, all that a checkpoint holds."""

    epoch: int = 0
    step: int = 0  # steps of this epoch that are done
    best_epoch: int = -1
    best_accuracy: float = -1.0
    seconds: float = 0.0  # of training and evaluation, over all processes that worked on the run


@dataclass(frozen=True)
class Plan:
    """How long a stage goes on, in what portions, on what pictures."""

    epochs: int
    batch: int
    augment: str
    report: str  # "best" on validation, or "last"


class Loop:
    """One stage of a run in its folder. `restore()` takes up the newest checkpoint, `run()` trains to the end.

    A stage sets `optimisers` when it is built, and fills in the methods that raise NotImplementedError here.
    """

    stage: ClassVar[str] = ""
    """How results name it: s1, s2 or bp."""
    records: ClassVar[bool] = False
    """Whether its steps can be recorded and replayed; what it makes for them then takes `guard`."""
    recordings: ClassVar[int] = 1
    """How many recorded steps are kept at once: more than one where kinds of steps take turns."""
    optimisers: list[torch.optim.Optimizer]

    def __init__(
        self,
        config: Config,
        data: ImageData,
        folder: RunFolder,
        *,
        plan: Plan,
        device: torch.device,
        dtype: torch.dtype,
        stop: StopRequest | None = None,
        listen: Listener | None = None,
    ) -> None:
        self.config, self.folder, self.plan, self.device, self.dtype = config, folder, plan, device, dtype
        self.stop = stop or StopRequest()
        self.listen = listen or (lambda event: None)
        self.fingerprint = fingerprint(data)
        self.data = data.to(device)
        self.recipe = recipes[plan.augment]
        self.draws = Draws(device, config.seed)
        self.is_compiled = compiles(config, device)
        self._augment = compiled_augment(self.recipe) if self.is_compiled else augment
        self.guard = Guard(device) if self.records and replays(config, device) else None
        self._step: Callable[[Tensor, Moment], Said] = self.carry_out
        if self.guard is not None:
            self._step = Recorder(self.carry_out, self.signature, self.draws, self.notice, self.recordings)
        self.batch = min(plan.batch, len(data.train))
        self.steps = len(data.train) // self.batch
        self.position = Position()
        self.sums: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}
        self.started = self.saved = time.monotonic()
        self.resumed_at = 0.0

    # What a stage says.

    def set(self, moment: Moment) -> None:
        """Set what moves from step to step and is a plain number: learning rates, averages' shares."""
        raise NotImplementedError

    def carry_out(self, rows: Tensor, moment: Moment) -> Said:
        """Learn once from the training images in these rows; what the step says of each part, None of one that does
        not learn now."""
        raise NotImplementedError

    def signature(self, moment: Moment) -> Hashable:
        """What a recorded step was told of its moment, beside what is set: another signature, another recording."""
        return None

    def unguard(self) -> None:
        """Let the next step stop by itself where it is not finite."""
        self.guard = None

    def learned(self) -> dict[str, Tensor]:
        """Everything a checkpoint must hold beside the optimisers' state, by name."""
        raise NotImplementedError

    def load_learned(self, tensors: dict[str, Tensor]) -> None:
        """Take up what `learned` gave."""
        raise NotImplementedError

    def about_learning(self) -> dict[str, Any]:
        """Plain numbers that a checkpoint must hold beside the tensors; ready for JSON."""
        return {}

    def take_up(self, about: dict[str, Any]) -> None:
        """Take up what `about_learning` gave; afterwards `optimisers` are those that were saved."""

    def before_judging(self) -> None:
        """Called at the end of an epoch, before the weights are judged."""

    def weights_taken(self) -> None:
        """Called at the end, whenever `evaluated` has taken other weights."""

    def evaluated(self) -> nn.Module:
        """The module that is judged, and whose weights the run leaves: the moving average, where there is one."""
        raise NotImplementedError

    def assess(self, split: str) -> dict[str, Any]:
        """`accuracy` on a split, and whatever else an epoch's line should say of it."""
        raise NotImplementedError

    def readings(self, images: Tensor) -> Tensor:
        """What is read of uint8 images `[n, C, H, W]`, on the CPU; the mean over an image's views is its TTA."""
        raise NotImplementedError

    def examine(self, readings: Tensor, part: Split, split: str) -> tuple[Tensor, list[dict[str, Any]], Any]:
        """Of the readings of a split: class scores `[n, classes]`, rows of accuracies, and the blocks' health (None
        without blocks)."""
        raise NotImplementedError

    def predictions(self, readings: Tensor) -> dict[str, Tensor]:
        """Predicted classes `[blocks, n]` by how the blocks are used; without blocks, `first` has one row."""
        raise NotImplementedError

    def full_health(self, part: Split, split: str) -> dict[str, Any] | None:
        """All that can be said of the blocks on a split, for health.json; None where there are none."""
        return None

    def train_line(self, means: list[dict[str, float]]) -> dict[str, Any]:
        """An epoch's mean measures as they go into metrics.jsonl."""
        raise NotImplementedError

    def parameters(self) -> int:
        """How many numbers were learned."""
        raise NotImplementedError

    def about_weights(self) -> dict[str, Any]:
        """What one must know to build the module that the saved weights fit."""
        return {"stage": self.stage, "shape": list(self.data.shape), "classes": list(self.data.classes)}

    # The loop itself.

    def run(self) -> dict[str, Any]:
        """Train what is left, evaluate, write the result; the result."""
        try:
            while self.position.epoch < self.plan.epochs:
                self.train_epoch()
                self.end_epoch()
            return self.finish()
        except _Stop:
            self.save()
            epoch, epochs = self.position.epoch, self.plan.epochs
            where = f"epoch {epoch + 1} of {epochs}, step {self.position.step} of {self.steps}"
            where = where if epoch < epochs else "the last evaluation"
            raise Interrupted(
                f"stopped at {where} and saved; go on with: goodness resume {shlex.quote(str(self.folder.path))}",
                self.stop.exit_code,
            ) from None

    def notice(self, text: str) -> None:
        self.listen({"event": "note", "text": text})

    def poll(self) -> None:
        if self.stop.requested:
            raise _Stop

    def train_epoch(self) -> None:
        """The steps of this epoch that are not done yet."""
        position = self.position
        order = epoch_order(len(self.data.train), self.config.seed, position.epoch).to(self.device)
        while position.step < self.steps:
            self.poll()
            rows = order[position.step * self.batch : (position.step + 1) * self.batch]
            self.accumulate(self.step(rows, self.moment()))
            position.step += 1
            self.listen(
                {
                    "event": "step",
                    "epoch": position.epoch,
                    "epochs": self.plan.epochs,
                    "step": position.step,
                    "steps": self.steps,
                }
            )
            if position.step % SETTLE_STEPS == 0:
                self.settle()
            every = self.config.keep.checkpoint_steps
            if every and (position.epoch * self.steps + position.step) % every == 0:
                self.save()

    def settle(self) -> None:
        """Wait for the recorded steps; had one a loss or gradient that is not finite, go through it again and say why.

        Since then no step has changed a weight; in sequential mode the blocks before the bad one had made theirs.
        """
        first = None if self.guard is None else self.guard.first_bad()
        if first is None:
            return
        epoch, step = divmod(first, self.steps)
        order = epoch_order(len(self.data.train), self.config.seed, epoch).to(self.device)
        self.explain(order[step * self.batch : (step + 1) * self.batch], self.moment(epoch, step))
        raise RunError(
            f"a loss or gradient was not finite at epoch {epoch}, step {step}, and was when computed again. No weight "
            "and no checkpoint has taken it in. Try a smaller learning rate, and start again in another folder."
        )

    def explain(self, rows: Tensor, moment: Moment) -> None:
        """Go through a step as it is, unrecorded, so that what is wrong with it is raised."""
        self.unguard()
        self.set(moment)
        self.carry_out(rows, moment)

    def step(self, rows: Tensor, moment: Moment) -> Said:
        """One step, recorded or as it is."""
        self.set(moment)
        if self.guard is not None:
            self.guard.now.fill_(moment.total_step)
        return self._step(rows, moment)

    def moment(self, epoch: int | None = None, step: int | None = None) -> Moment:
        """The step at hand, or another."""
        epoch = self.position.epoch if epoch is None else epoch
        step = self.position.step if step is None else step
        return Moment(
            epoch=epoch,
            step=step,
            total_step=epoch * self.steps + step,
            total_steps=self.plan.epochs * self.steps,
            progress=epoch / self.plan.epochs,
        )

    def views(self, rows: Tensor, moment: Moment, count: int) -> Tensor:
        """Augmented views `[count, batch, C, H, W]` of the training images in these rows."""
        images = self.data.train.images[rows]
        width = uniforms_needed(self.recipe)
        if width == 0:
            return (images.float() / 255).expand(count, *images.shape)
        shape = (count * len(rows), width)
        draws = self.draws(shape, "augment", moment.epoch, moment.step)
        views = self._augment(images.repeat(count, 1, 1, 1), draws, self.recipe, self.data.flips)
        return views.reshape(count, *images.shape)

    def accumulate(self, measured: Said) -> None:
        if not self.sums:
            self.sums = [{} for _ in measured]
        for sums, one in zip(self.sums, measured):
            if one is None:
                continue
            names, values = one
            values = values if self.device.type == "mps" else values.double()
            if "values" in sums:
                sums["values"] += values
            else:
                sums["names"], sums["values"] = list(names), values
            sums["steps"] = sums.get("steps", 0) + 1

    def end_epoch(self) -> None:
        """Measure, note, keep the best, move on; the position moves only once all of it is done."""
        position = self.position
        self.settle()
        means = [_means(sums) for sums in self.sums]
        line: dict[str, Any] = {"epoch": position.epoch, "train": self.train_line(means)}
        last = position.epoch + 1 == self.plan.epochs
        if self.is_judged_epoch():
            self.before_judging()
        if len(self.data.val) and self.is_judged_epoch():
            line["val"] = self.assess("val")
            if line["val"]["accuracy"] >= position.best_accuracy:
                position.best_accuracy, position.best_epoch = line["val"]["accuracy"], position.epoch
                self.best = {name: value.clone() for name, value in self.evaluated().state_dict().items()}
        line["seconds"] = round(self.seconds(), 3)
        append_line(self.folder.metrics_path, line)
        position.epoch, position.step = position.epoch + 1, 0
        self.sums = []
        self.listen({"event": "epoch", "epochs": self.plan.epochs, **line})
        if last or time.monotonic() - self.saved >= self.config.keep.checkpoint_seconds:
            self.save()

    def is_judged_epoch(self) -> bool:
        """Whether this epoch ends with an evaluation."""
        number = self.position.epoch + 1
        return number == self.plan.epochs or number % self.config.keep.evaluate_every == 0

    def progress(self) -> float:
        return min(1.0, self.position.epoch / self.plan.epochs)

    def require_finite(self, scores: Tensor, what: str) -> None:
        """Refuse to go on, or to save anything, once the weights have run away."""
        if not bool(scores.isfinite().all()):
            raise RunError(
                f"{what} is not finite after epoch {self.position.epoch + 1}; the weights have run away. Nothing of it "
                "was saved. Try a smaller learning rate (--optim.lr, --readout.lr), and start again in another folder."
            )

    def finish(self) -> dict[str, Any]:
        """Evaluate best and last weights on the splits, with and without TTA, and write what the run leaves."""
        module = self.evaluated()
        trained = weights_sha256(self.learned())
        last = {name: value.clone() for name, value in module.state_dict().items()}
        weights = {"last": (last, self.plan.epochs - 1)}
        if self.best:
            weights["best"] = (self.best, self.position.best_epoch)
        reported = "best" if self.plan.report == "best" and self.best else "last"
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in weights}
        health: dict[str, Any] = {}
        predicted: dict[str, Tensor] = {}
        names_of: dict[int, list[str]] = {}
        for name, (_, epoch) in weights.items():
            names_of.setdefault(epoch, []).append(name)  # where the last epoch was the best, they are judged once
        try:
            for names in names_of.values():
                module.load_state_dict(weights[names[0]][0])
                self.weights_taken()
                for split in ("val", "test"):
                    part = self.data.split(split)
                    for tta, readings in self.views_read(part):
                        scores, found, blocks = self.examine(readings, part, split)
                        for name in names:
                            where = {"stage": self.stage, "weights": name, "split": split, "tta": tta}
                            rows[name] += [{**where, **row} for row in found]
                        if reported in names and not tta and blocks is not None:
                            health[split] = blocks
                        if reported in names:
                            predicted |= self.keep_predictions(readings, part, split, tta)
                        if reported in names and split == "test":
                            label = "test_tta" if tta else "test"
                            self.folder.write_predictions(label, scores, part.labels, part.indices)
                            if not tta and (full := self.full_health(part, split)) is not None:
                                write_json(self.folder.health_path, {**full, WEIGHTS_SHA256: trained})
        finally:  # a request to stop may come while the best weights are in: what is saved then is the last
            module.load_state_dict(last)
        self.folder.write_block_predictions(predicted)
        for name, (tensors, epoch) in weights.items():
            self.folder.checkpoints.save_weights(name, tensors, {**self.about_weights(), "epoch": epoch})
        result = {
            "reported": {"weights": reported, **headline(rows[reported], self.stage)},
            "weights": {name: {"epoch": epoch} for name, (_, epoch) in weights.items()},
            "accuracy": [row for found in rows.values() for row in found],
            "health": health,
            WEIGHTS_SHA256: trained,
            EPOCHS_SHA256: epochs_sha256(read_lines(self.folder.metrics_path)),
            "parameters": self.parameters(),
            "epochs": self.plan.epochs,
            "steps": self.plan.epochs * self.steps,
            "seconds": round(self.seconds(), 3),
        }
        write_json(self.folder.result_path, result)
        self.listen({"event": "result", "result": result})
        return result

    def views_read(self, part: Split) -> Iterator[tuple[bool, Tensor]]:
        """Whether it is with TTA, and the readings: of the images and, where mirroring keeps their class, the mean over
        both views."""
        if not len(part):
            return
        plain = self.readings(part.images)
        yield False, plain
        if self.data.flips:
            yield True, (plain + self.readings(part.images.flip(-1))) / 2

    def keep_predictions(self, readings: Tensor, part: Split, split: str, tta: bool) -> dict[str, Tensor]:
        """A split's arrays for predictions_blocks.npz, by name; with TTA only what the first blocks predict."""
        found = self.predictions(readings)
        if tta:
            return {f"{split}.first_tta": found["first"]}
        named = {**found, "labels": part.labels, "indices": part.indices}
        return {f"{split}.{name}": values for name, values in named.items()}

    def seconds(self) -> float:
        return self.resumed_at + time.monotonic() - self.started

    def save(self) -> None:
        """A checkpoint of this very moment."""
        self.settle()
        self.position.seconds = self.seconds()
        tensors = self.learned() | {f"best.{name}": value for name, value in self.best.items()}
        skeletons = []
        for depth, optimiser in enumerate(self.optimisers):
            part, skeleton = flatten_state(f"optimiser.{depth}", state_of(optimiser))
            tensors |= part
            skeletons.append(skeleton)
        sums, sums_skeleton = flatten_state("sums", self.sums)
        state = {
            "position": asdict(self.position),
            "optimisers": skeletons,
            "sums": sums_skeleton,
            "fingerprint": self.fingerprint,
            "config": to_dict(self.config),
            "learning": self.about_learning(),
        }
        total = self.position.epoch * self.steps + self.position.step
        self.folder.checkpoints.save(total, tensors | sums, state)
        self.saved = time.monotonic()
        self.listen({"event": "checkpoint", "epoch": self.position.epoch, "step": self.position.step})

    def restore(self) -> None:
        """Take up the newest intact checkpoint; without one, start from the beginning."""
        found = self.folder.checkpoints.latest()
        if found is None and self.folder.checkpoints.notes:
            raise RunError(
                "no checkpoint can be read: " + "; ".join(self.folder.checkpoints.notes) + ". Start a new run."
            )
        for note in self.folder.checkpoints.notes:
            self.listen({"event": "note", "text": f"a damaged checkpoint was passed over: {note}"})
        if found is not None:
            tensors, state = found
            if state["fingerprint"] != self.fingerprint:
                raise UserError(
                    f"the data set '{self.config.data}' is not the one this run began with (other images, labels or "
                    "split); give the same data with --data-dir"
                )
            if from_dict(state["config"]) != self.config:
                raise UserError(
                    f"config.json in {self.folder.path} was changed since the last checkpoint; put it back, or start a "
                    "new run with the new settings"
                )
            self.position = Position(**state["position"])
            self.load_learned(tensors)
            self.take_up(state.get("learning", {}))
            self.best = {name: value.to(self.device) for name, value in under("best.", tensors).items()}
            for optimiser, skeleton in zip(self.optimisers, state["optimisers"]):
                restore_state(optimiser, unflatten_state(tensors, skeleton))
            self.sums = [
                {name: value.to(self.device) if isinstance(value, Tensor) else value for name, value in sums.items()}
                for sums in unflatten_state(tensors, state["sums"])
            ]
            self.resumed_at = self.position.seconds
        elif self.folder.metrics_path.is_file():
            self.listen({"event": "note", "text": "there is no checkpoint; training starts from the beginning"})
        truncate_lines(self.folder.metrics_path, self._is_done)
        self.started = self.saved = time.monotonic()

    def _is_done(self, line: dict[str, Any]) -> bool:
        """Whether a line of metrics.jsonl is of an epoch that the checkpoint has behind it."""
        return isinstance(line.get("epoch"), int) and line["epoch"] < self.position.epoch


def _means(sums: dict[str, Any]) -> dict[str, float]:
    """Of the steps in which this part learned; empty where it did not."""
    return dict(zip(sums["names"], (sums["values"] / sums["steps"]).tolist())) if sums else {}


def on_device(network: N, device: torch.device) -> N:
    """The network on the device, in the layout that its convolutions are fast in."""
    network = network.to(device)
    return network.to(memory_format=torch.channels_last) if device.type == "cuda" else network  # type: ignore[call-overload]


def require_learnable(data: ImageData) -> None:
    """Two classes and two images are the least that can be learned from."""
    if len(data.classes) < 2:
        raise UserError(f"{data.name} has one class; there is nothing to tell apart")
    if len(data.train) < 2:
        raise UserError(f"{data.name} has {len(data.train)} training images; two are the least")


def accuracy_row(scores: Tensor, labels: Tensor, blocks: int) -> dict[str, Any]:
    """Top-1 and, where there are classes enough, top-5; `blocks` counts the blocks used."""
    row = {"blocks": blocks, "top1": top_k_accuracy(scores, labels), "n": len(labels)}
    if scores.shape[1] >= TOP5_CLASSES:
        row["top5"] = top_k_accuracy(scores, labels, 5)
    return row


def headline(rows: list[dict[str, Any]], stage: str) -> dict[str, Any]:
    """The reported numbers, of the rows of the reported weights: test split, all blocks, with and without TTA."""
    found: dict[str, Any] = {"stage": stage, "split": "test"}
    chosen = [row for row in rows if row["split"] == "test"]
    most = max(row["blocks"] for row in chosen)
    for row in chosen:
        if row["blocks"] == most:
            found["accuracy_tta" if row["tta"] else "accuracy"] = row["top1"]
            if "top5" in row:
                found["top5_tta" if row["tta"] else "top5"] = row["top5"]
    return found


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose name begins with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
