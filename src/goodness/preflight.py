"""What is refused before a run's folder is made: networks that cannot be built, data that does not fit.

Each says what is wrong and what to type instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from goodness.config import Config, override
from goodness.data import sources
from goodness.data.augment import Recipe, augment, recipes, uniforms_needed
from goodness.data.images import ImageData, fingerprint
from goodness.data.text import TextFolder
from goodness.draws import Draws
from goodness.durable import readable_size
from goodness.errors import ConfigError, UserError, tells_of_full_memory
from goodness.methods.base import Method
from goodness.methods.base import Moment as MethodMoment
from goodness.methods.build import build_method
from goodness.methods.cumulative.evidence import feature_count
from goodness.nn.attentive_readout import AttentiveReadout
from goodness.nn.hybrid import Hybrid
from goodness.nn.network import Network
from goodness.nn.stripped import StrippedNetwork
from goodness.runs.run import Run, environment_of
from goodness.runs.run_folder import memory_of
from goodness.step_context import Moment
from goodness.training.backprop import build_stripped
from goodness.training.local import facts_of
from goodness.training.optim import learning_window
from goodness.training.stage1 import build_network
from goodness.training.step import Stepper
from goodness.training.trainer import Trainer


def refuse_what_cannot_be_built(config: Config, data: ImageData) -> None:
    """Try the network on two blank images, and import what is optional: mistakes come before a folder is made."""
    pixels, recipe = torch.zeros(2, *data.shape, dtype=torch.uint8), recipes[config.augment]
    if not config.is_cumulative:
        _try_method(config, data)
        require_optional_packages(config)
        return
    _refuse_attention_to_pixels(config, data)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            views = augment(pixels, torch.zeros(2, uniforms_needed(recipe)), recipe, data.flips)
            if config.trainer == "backprop":
                network = None
                build_stripped(config, data)(views)
            else:
                network = build_network(config, data)
                _try(network, views)
    except (ValueError, RuntimeError, OverflowError) as trouble:
        if tells_of_full_memory(trouble):
            raise
        size = "x".join(map(str, data.shape))
        raise ConfigError(f"this network cannot take images of {size} ({data.name}): {trouble}") from trouble
    if network is not None:
        config.negatives.check_classes(len(data.classes))
        _refuse_blocks_without_a_turn(config, data)
        _try_the_objective(network, config, views)
    require_optional_packages(config)


def _try_method(config: Config, data: ImageData) -> None:
    """One step and the evidence of a method on a few training images, on the CPU."""
    size = "x".join(map(str, data.shape))
    try:
        method = build_method(config, facts_of(data), config.seed)
        trainer = Trainer(method, config.optim, config.step, draws=Draws(torch.device("cpu"), config.seed))
        rows = data.train.images[:8].cpu().float() / 255
        labels = data.train.labels[: len(rows)].cpu()
        views = rows.expand(method.views, *rows.shape)
        with torch.random.fork_rng(devices=[]):
            trainer.step(views, labels, Moment(0, 0, 0, 1, 0.0), MethodMoment(0, 1, 0, 1))
            overridden = type(method).ready is not Method.ready
            found = None if overridden else trainer.evaluated().evidence(rows[:2])
    except (ValueError, RuntimeError, OverflowError) as trouble:
        if tells_of_full_memory(trouble) or isinstance(trouble, UserError):
            raise
        raise ConfigError(
            f"method {config.method.kind} on network {config.network.kind} cannot take images of {size} "
            f"({data.name}): {trouble}"
        ) from trouble
    wanted = (len(method.blocks), min(2, len(rows)), len(data.classes))
    if found is not None and tuple(found.shape) != wanted:
        raise ConfigError(
            f"method {config.method.kind} must give evidence {list(wanted)}, and gave {list(found.shape)}"
        )


def refuse_other_images(run: Run, data: ImageData) -> None:
    """Refuse any images but the very ones that the run was trained with."""
    known = environment_of(run).get("data", {}).get("sha256")
    if known is not None and known != fingerprint(data):
        raise UserError(
            f"{data.name} is not what {run.path} was trained with: other images, labels or split; give the same data "
            "with --data-dir"
        )


def _try(network: Network, images: torch.Tensor) -> None:
    """Images through all blocks under one label: the other classes would tell nothing more, and there may be many."""
    tokens, labels = network.tokens(images), torch.zeros(len(images), dtype=torch.int64)
    for depth in range(len(network.blocks)):
        tokens = network.hand_on(network.block(depth)(tokens, labels).tokens)


def _try_the_objective(network: Network, config: Config, images: torch.Tensor) -> None:
    """Every block's loss once, with its graph: a block that no term gives anything to learn from is refused there."""
    stepper = Stepper(network, override(config, {"step.compile": "off"}))
    moment = Moment(epoch=0, step=0, total_step=0, total_steps=1, progress=0.0)
    with torch.random.fork_rng(devices=[]):
        situation = stepper.first(
            images.expand(config.views, *images.shape), torch.zeros(len(images), dtype=torch.int64), moment
        )
        for depth in range(len(network.blocks)):
            judged = stepper.loss(situation)
            if depth + 1 < len(network.blocks):
                situation = stepper.next(situation, judged, moment)


def refuse_texts_as_images(config: Config, as_typed: Callable[[Mapping[str, str]], str]) -> None:
    """A text is a vector: its numbers have no neighbours for a convolution to see, or for a crop to keep together."""
    serving: dict[str, tuple[str, str]] = {}
    if config.model.stem.kind != "vector":
        serving["model.stem.kind"] = config.model.stem.kind, "vector"
    for name, recipe in {"augment": config.augment, "readout.augment": config.readout.augment}.items():
        if recipe is not None and recipes[recipe] != Recipe():
            serving[name] = recipe, "none"
    if serving:
        dataset = sources.find(config.data)
        if isinstance(dataset, TextFolder):
            dataset.require()
        wrong = " and ".join(f"{name} {value}" for name, (value, _) in serving.items())
        raise ConfigError(
            f"{config.data} has texts, which a run reads as vectors, and only images take {wrong}: choose a preset for "
            f"texts (goodness presets text) with {as_typed({'data': config.data})}, or "
            f"{as_typed({name: value for name, (_, value) in serving.items()})}"
        )


def refuse_pictures_recipe(config: Config) -> None:
    recipe = config.readout.augment
    if recipe is not None and recipes[recipe] != Recipe():
        raise ConfigError(
            f"{config.data} has texts, and only images take readout.augment {recipe}: --readout.augment none serves"
        )


def _refuse_attention_to_pixels(config: Config, data: ImageData) -> None:
    block, channels = config.model.block, data.shape[0]
    if config.model.stem.kind == "pixels" and isinstance(block, Hybrid) and channels % (4 * block.heads):
        raise ConfigError(
            f"model.stem.kind pixels makes a token of {channels} numbers of every pixel of {data.name}, whatever "
            f"model.width is, and the attention of a hybrid block needs a multiple of {4 * block.heads} (four times "
            "model.block.heads): take --model.stem.kind conv, or --model.block conv-stages"
        )


def _refuse_blocks_without_a_turn(config: Config, data: ImageData) -> None:
    """Under `optim.freeze` every block has a share of the steps; with fewer steps than blocks some have none."""
    steps = config.epochs * (len(data.train) // min(config.batch, len(data.train)))
    blocks, freeze = config.model.blocks, config.optim.freeze
    windows = [learning_window(depth, blocks, steps, freeze) for depth in range(blocks)]
    idle = [str(depth) for depth, (begin, end) in enumerate(windows) if begin >= end]
    if idle:
        raise ConfigError(
            f"optim.freeze {freeze} divides {steps} steps among {blocks} blocks, and block {', '.join(idle)} would "
            "never learn: train for more --epochs, with a smaller --batch, or with fewer --model.blocks"
        )


def refuse_a_readout_too_large(config: Config, network: Network, device: torch.device) -> None:
    """Weights, gradients and AdamW's two moments must at least fit; told before a folder is made."""
    wanted = config.readout
    advice = "take a smaller --readout.width (1536 is the paper's diagram, 320 makes one million parameters)"
    try:
        with torch.device("meta"):
            head = AttentiveReadout(feature_count(network), wanted.width, wanted.heads)
    except (RuntimeError, OverflowError) as trouble:
        raise ConfigError(f"readout.width {wanted.width} cannot be built ({trouble}); {advice}") from trouble
    numbers = sum(parameter.numel() for parameter in head.parameters())
    needed, there = 4 * 4 * numbers, memory_of(device)
    if there is not None and needed > there:
        raise ConfigError(
            f"readout.width {wanted.width} makes {numbers:,} parameters, which take {readable_size(needed)} to train, "
            f"and {device} has {readable_size(there)}; {advice}"
        )


def require_optional_packages(config: Config) -> None:
    if config.keep.tensorboard:
        from goodness.report.tensorboard import summary_writer

        summary_writer()


def refuse_other_data(network: Network | StrippedNetwork, data: ImageData, run: Run | None = None) -> None:
    """Refuse data of another kind than the network's; given its run, any but the very images it was trained with."""
    if (network.shape, network.classes) != (data.shape, len(data.classes)):
        raise UserError(
            f"the run was trained on images {network.shape} of {network.classes} classes, {data.name} has "
            f"{data.shape} and {len(data.classes)}"
        )
    if network.class_names != data.classes:
        differ = [f"{a} is now {b}" for a, b in zip(network.class_names, data.classes) if a != b]
        raise UserError(f"the classes of {data.name} are not those of the training: {', '.join(differ[:3])}")
    known = environment_of(run).get("data", {}).get("sha256") if run is not None else None
    if run is not None and known is not None and known != fingerprint(data):
        raise UserError(
            f"{data.name} is not what {run.path} was trained with: other images, labels or split, or texts that were "
            "embedded again since; give the same data with --data-dir"
        )


def refuse_other_classes(head: AttentiveReadout, network: Network, run: Run) -> None:
    trained: tuple[str, ...] = head.class_names  # type: ignore[assignment]
    if trained != network.class_names:
        raise UserError(
            f"the readout {run.path} was trained for {len(trained)} classes ({', '.join(trained[:3])}, ...), and its "
            f"network has {network.classes} ({', '.join(network.class_names[:3])}, ...)"
        )
