"""Stage 1: epochs of block-local steps, evaluation with the teacher's weights, checkpoints that survive anything."""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from goodness.config import Config, from_dict, to_dict
from goodness.data.augment import augment, recipes, uniforms_needed
from goodness.data.images import ImageData, Split
from goodness.diagnostics.margins import evaluation_measures, top_k_accuracy
from goodness.errors import RunError, UserError
from goodness.local.negatives import Mined
from goodness.model.network import Network
from goodness.predict import goodness_of, scores_of
from goodness.training.checkpoint import flatten_state, unflatten_state, weights_sha256
from goodness.training.draws import epoch_order, key, uniforms
from goodness.training.durable import append_line, truncate_lines, write_json
from goodness.training.optim import match_layout
from goodness.training.run import RunFolder
from goodness.training.signals import StopRequest
from goodness.training.step import Measured, Moment, Stepper

Listener = Callable[[dict[str, Any]], None]
"""Hears of every step and epoch: `{"event": "step" | "epoch" | "checkpoint" | "note" | "result", ...}`."""

TOP5_CLASSES = 10
"""With fewer classes a top-5 accuracy says nothing."""


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


class Stage1:
    """One run of Stage 1 in its folder. `restore()` takes up the newest checkpoint, `run()` trains to the end."""

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
        self.config, self.folder, self.device, self.dtype = config, folder, device, dtype
        self.stop = stop or StopRequest()
        self.listen = listen or (lambda event: None)
        self.fingerprint = fingerprint(data)
        self.data = data.to(device)
        self.recipe = recipes[config.augment]
        self.batch = min(config.batch, len(data.train))
        self.steps = len(data.train) // self.batch
        self.network = build_network(config, data).to(device)
        if device.type == "cuda":
            self.network = self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.stepper = Stepper(self.network, config, dtype)
        self._augment = self.stepper.compiled(augment)
        self.position = Position()
        self.sums: list[dict[str, Any]] = [{} for _ in range(self.stepper.blocks)]
        self.best: dict[str, Tensor] = {}
        self.started = self.saved = time.monotonic()
        self.resumed_at = 0.0

    def run(self) -> dict[str, Any]:
        """Train what is left, evaluate, write the result; the result."""
        try:
            while self.position.epoch < self.config.epochs:
                self.train_epoch()
                self.end_epoch()
            return self.finish()
        except _Stop:
            self.save()
            epoch, epochs = self.position.epoch, self.config.epochs
            where = f"epoch {epoch + 1} of {epochs}, step {self.position.step} of {self.steps}"
            where = where if epoch < epochs else "the last evaluation"
            raise Interrupted(
                f"stopped at {where} and saved; go on with: goodness resume {shlex.quote(str(self.folder.path))}",
                self.stop.exit_code,
            ) from None

    def poll(self) -> None:
        if self.stop.requested:
            raise _Stop

    def train_epoch(self) -> None:
        """The steps of this epoch that are not done yet."""
        position, config = self.position, self.config
        order = epoch_order(len(self.data.train), config.seed, position.epoch).to(self.device)
        while position.step < self.steps:
            self.poll()
            rows = order[position.step * self.batch : (position.step + 1) * self.batch]
            moment = self.moment()
            measured = self.stepper(self.views(rows, moment), self.data.train.labels[rows], moment)
            self.accumulate(measured)
            position.step += 1
            self.listen(
                {
                    "event": "step",
                    "epoch": position.epoch,
                    "epochs": config.epochs,
                    "step": position.step,
                    "steps": self.steps,
                }
            )
            every = config.keep.checkpoint_steps
            if every and (position.epoch * self.steps + position.step) % every == 0:
                self.save()

    def moment(self) -> Moment:
        epoch, step = self.position.epoch, self.position.step
        return Moment(
            epoch=epoch,
            step=step,
            total_step=epoch * self.steps + step,
            total_steps=self.config.epochs * self.steps,
            progress=epoch / self.config.epochs,
        )

    def views(self, rows: Tensor, moment: Moment) -> Tensor:
        """Three augmented views `[3, batch, C, H, W]` of the images in these rows."""
        images = self.data.train.images[rows]
        width = uniforms_needed(self.recipe)
        if width == 0:
            return (images.float() / 255).expand(3, *images.shape)
        draws = uniforms(self.device, (3 * len(rows), width), self.config.seed, "augment", moment.epoch, moment.step)
        views = self._augment(images.repeat(3, 1, 1, 1), draws, self.recipe, self.data.flips)
        return views.reshape(3, *images.shape)

    def accumulate(self, measured: list[Measured]) -> None:
        for sums, (names, values) in zip(self.sums, measured):
            values = values if self.device.type == "mps" else values.double()
            if "values" in sums:
                sums["values"] += values
            else:
                sums["names"], sums["values"] = list(names), values

    def end_epoch(self) -> None:
        """Measure, note, keep the best, move on; the position moves only once all of it is done."""
        position = self.position
        line: dict[str, Any] = {
            "epoch": position.epoch,
            "train": {"blocks": [self._means(sums, depth) for depth, sums in enumerate(self.sums)]},
        }
        last = position.epoch + 1 == self.config.epochs
        if len(self.data.val) and (last or (position.epoch + 1) % self.config.keep.evaluate_every == 0):
            line["val"] = self.assess(self.stepper.teacher.network, "val")
            if line["val"]["accuracy"] >= position.best_accuracy:
                position.best_accuracy, position.best_epoch = line["val"]["accuracy"], position.epoch
                self.best = {name: value.clone() for name, value in self.stepper.teacher.network.state_dict().items()}
        line["seconds"] = round(self.seconds(), 3)
        append_line(self.folder.metrics_path, line)
        position.epoch, position.step = position.epoch + 1, 0
        self.sums = [{} for _ in self.sums]
        self.listen({"event": "epoch", "epochs": self.config.epochs, **line})
        if last or time.monotonic() - self.saved >= self.config.keep.checkpoint_seconds:
            self.save()

    def _means(self, sums: dict[str, Any], depth: int) -> dict[str, float]:
        means = dict(zip(sums["names"], (sums["values"] / self.steps).tolist()))
        block = self.network.block(depth)
        means |= {
            f"aspect_{name}": float(weight) for name, weight in zip(block.head.names, block.head.weights().tolist())
        }
        return means

    def assess(self, network: Network, split: str, tta: bool = False) -> dict[str, Any]:
        """Accuracy and block health on a split."""
        rows = self.data.split(split)
        return assess(self.goodness(network, rows, tta), rows.labels, self.config, split, progress=self.progress())

    def progress(self) -> float:
        return min(1.0, self.position.epoch / self.config.epochs)

    def goodness(self, network: Network, split: Split, tta: bool = False) -> Tensor:
        found = self._goodness(network, split, tta)
        for depth, scores in enumerate(found):
            if not bool(scores.isfinite().all()):
                raise RunError(
                    f"block {depth}: goodness is not finite after epoch {self.position.epoch + 1}; the weights have "
                    "run away. Nothing of it was saved. Try a smaller --optim.lr, and start again."
                )
        return found

    def _goodness(self, network: Network, split: Split, tta: bool) -> Tensor:
        return goodness_of(
            network,
            split.images,
            tta=tta,
            memory_mb=self.config.keep.memory_mb,
            dtype=self.dtype,
            poll=self.poll,
        ).cpu()

    def finish(self) -> dict[str, Any]:
        """Evaluate best and last weights on the splits, with and without TTA, and write what the run leaves."""
        last = {name: value.clone() for name, value in self.stepper.teacher.network.state_dict().items()}
        weights = {"last": (last, self.config.epochs - 1)}
        if self.best:
            weights["best"] = (self.best, self.position.best_epoch)
        reported = "best" if self.config.keep.report == "best" and self.best else "last"
        network = self.stepper.teacher.network
        rows: list[dict[str, Any]] = []
        health: dict[str, Any] = {}
        try:
            for name, (tensors, _) in weights.items():
                network.load_state_dict(tensors)
                for split in ("val", "test"):
                    part = self.data.split(split)
                    if not len(part):
                        continue
                    for tta in (False, True) if self.data.flips else (False,):
                        goodness = self.goodness(network, part, tta)
                        rows += accuracy_rows(goodness, part.labels.cpu(), weights=name, split=split, tta=tta)
                        if name == reported and not tta:
                            found = assess(goodness, part.labels, self.config, split, progress=1.0)
                            health[split] = found["blocks"]
                        if name == reported and split == "test":
                            self.folder.write_predictions(
                                "test_tta" if tta else "test", scores_of(goodness), part.labels, part.indices
                            )
        finally:  # a request to stop may come while the best weights are in: what is saved then is the last
            network.load_state_dict(last)
        meta = {"shape": list(self.network.shape), "classes": list(self.data.classes)}
        for name, (tensors, epoch) in weights.items():
            self.folder.checkpoints.save_weights(name, tensors, {**meta, "epoch": epoch})
        result = {
            "reported": {"weights": reported, **headline(rows, reported)},
            "weights": {name: {"epoch": epoch} for name, (_, epoch) in weights.items()},
            "accuracy": rows,
            "health": health,
            "weights_sha256": weights_sha256(self.weights()),
            "parameters": self.network.parameter_count(),
            "epochs": self.config.epochs,
            "steps": self.config.epochs * self.steps,
            "seconds": round(self.seconds(), 3),
        }
        write_json(self.folder.result_path, result)
        self.listen({"event": "result", "result": result})
        return result

    def weights(self) -> dict[str, Tensor]:
        """Everything learned: the blocks as they are, and their moving average."""
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        return tensors | {f"teacher.{name}": value for name, value in self.stepper.teacher.network.state_dict().items()}

    def seconds(self) -> float:
        return self.resumed_at + time.monotonic() - self.started

    def save(self) -> None:
        """A checkpoint of this very moment."""
        self.position.seconds = self.seconds()
        tensors = self.weights() | {f"best.{name}": value for name, value in self.best.items()}
        skeletons = []
        for depth, optimiser in enumerate(self.stepper.optimisers):
            part, skeleton = flatten_state(f"optimiser.{depth}", optimiser.state_dict())
            tensors |= part
            skeletons.append(skeleton)
        sums, sums_skeleton = flatten_state("sums", self.sums)
        state = {
            "position": asdict(self.position),
            "optimisers": skeletons,
            "sums": sums_skeleton,
            "fingerprint": self.fingerprint,
            "config": to_dict(self.config),
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
            self.network.load_state_dict(_under("network.", tensors))
            self.stepper.teacher.network.load_state_dict(_under("teacher.", tensors))
            self.best = {name: value.to(self.device) for name, value in _under("best.", tensors).items()}
            for optimiser, skeleton in zip(self.stepper.optimisers, state["optimisers"]):
                optimiser.load_state_dict(unflatten_state(tensors, skeleton))
                match_layout(optimiser)
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


def build_network(config: Config, data: ImageData) -> Network:
    """The network for this data with its initial weights, which depend on the seed alone."""
    if len(data.classes) < 2:
        raise UserError(f"{data.name} has one class; there is nothing to tell apart")
    if len(data.train) < 2:
        raise UserError(f"{data.name} has {len(data.train)} training images; two are the least")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(config.seed, "weights"))
        return Network(
            config.model,
            data.shape,
            len(data.classes),
            mean=data.mean,
            std=data.std,
            terms=config.objective,
        )


def fingerprint(data: ImageData) -> str:
    """A hash of all images and labels in their order and splits."""
    digest = hashlib.sha256()
    every = [(part.images, part.labels, part.indices) for part in (data.train, data.val, data.test)]
    for tensor in (tensor for part in every for tensor in part):
        digest.update(tensor.cpu().contiguous().numpy().data if tensor.numel() else b"")
    return digest.hexdigest()


def assess(goodness: Tensor, labels: Tensor, config: Config, split: str, *, progress: float) -> dict[str, Any]:
    """Accuracy, top-5 and each block's health from goodness `[blocks, n, classes]`."""
    labels = labels.cpu()
    draws = config.negatives.k_last if isinstance(config.negatives, Mined) else 1
    blocks = evaluation_measures(
        goodness,
        labels,
        uniforms(torch.device("cpu"), (len(labels), draws), config.seed, "health", split),
        config.rule,
        beta=config.beta,
        history=config.history,
        progress=progress,
        of_blocks=config.model.blocks,
    )
    found = {"accuracy": blocks[-1]["accuracy"], "n": len(labels), "blocks": blocks}
    if goodness.shape[2] >= TOP5_CLASSES:
        found["top5"] = top_k_accuracy(scores_of(goodness), labels, 5)
    return found


def accuracy_rows(goodness: Tensor, labels: Tensor, **where: Any) -> list[dict[str, Any]]:
    """Top-1 and top-5 of every truncation depth; `blocks` counts the blocks used."""
    rows = []
    for blocks in range(1, len(goodness) + 1):
        scores = scores_of(goodness, blocks)
        row = {
            "stage": "s1",
            **where,
            "blocks": blocks,
            "top1": top_k_accuracy(scores, labels),
            "n": len(labels),
        }
        if scores.shape[1] >= TOP5_CLASSES:
            row["top5"] = top_k_accuracy(scores, labels, 5)
        rows.append(row)
    return rows


def headline(rows: list[dict[str, Any]], weights: str) -> dict[str, Any]:
    """The reported numbers: test split, all blocks, with and without TTA."""
    found: dict[str, Any] = {"stage": "s1", "split": "test"}
    chosen = [row for row in rows if row["weights"] == weights and row["split"] == "test"]
    most = max(row["blocks"] for row in chosen)
    for row in chosen:
        if row["blocks"] == most:
            found["accuracy_tta" if row["tta"] else "accuracy"] = row["top1"]
            if "top5" in row:
                found["top5_tta" if row["tta"] else "top5"] = row["top5"]
    return found


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
