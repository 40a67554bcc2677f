"""Block health in one call: which blocks work, which ride for free, and what the network would be with fewer of them.

Everything follows from the goodness of every block under every label. `health` gets it from a run or a network;
`health_of_goodness` in `block_health` takes it as an array. Both give plain JSON data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from goodness.config import Config
from goodness.data.images import ImageData, Split
from goodness.errors import UserError
from goodness.health.block_health import Aspects, evenly, health_of_goodness
from goodness.health.stream import along_the_stream
from goodness.methods.cumulative.evidence import chunk_sizes, goodness_and_aspects_of
from goodness.methods.cumulative.routing import routing_measures
from goodness.nn.moe import Routing, load
from goodness.nn.network import Network
from goodness.precision import autocast
from goodness.runs.run import Run
from goodness.runs.run_folder import choose_device, choose_dtype

ROUTED_IMAGES = 2048
"""Images whose way through the experts is looked at."""


def health(
    run_or_network: Run | Network | str | os.PathLike[str],
    data: ImageData | Split | None = None,
    *,
    split: str = "test",
    tta: bool = False,
    device: str = "cpu",
    config: Config | None = None,
) -> dict[str, Any]:
    """Everything that one can say of a network's blocks from a split; see `health_of_goodness` for what comes back.

        goodness.health("runs/demo-digits-s1-1")["verdict"]
        goodness.health(network, images, config=config)

    A run brings its data set, its rule and its reported weights (a readout: the network that it reads), and is computed
    on `device`. A network needs `data`, is used where it lies, and without a `config` is judged as one of purely local
    losses with beta = 4. A `Split` is taken as it is; `split` then is its name only.
    """
    from goodness import api  # which itself makes use of this module
    from goodness.preflight import refuse_other_data

    if isinstance(run_or_network, Network):
        network, config = run_or_network, config or Config()
        if data is None:
            raise UserError("a network does not know its data set: give health() an ImageData or a Split")
    else:
        run = run_or_network if isinstance(run_or_network, Run) else Run(Path(run_or_network))
        if run.is_of_a_method:
            return api.health_of_method(run, data, split=split, tta=tta, device=device)
        network, config = run.network(device=str(choose_device(device))), config or run.config
        if data is None:
            data = api.load_data(run.config, api._remembered_data_dir(run.path))
        if isinstance(data, ImageData):
            refuse_other_data(network, data)
    rows, names = _rows(network, data, split, tta)
    dtype = choose_dtype(network.mean.device)[0]
    with api.prepared(network.mean.device, config.deterministic):
        return health_of_rows(network, rows, names, config, split=split, tta=tta, dtype=dtype)


def health_of_rows(
    network: Network,
    rows: Split,
    names: Sequence[str],
    config: Config,
    *,
    split: str,
    tta: bool = False,
    dtype: torch.dtype = torch.float32,
    poll: Callable[[], None] = lambda: None,
    compiled: bool = False,
) -> dict[str, Any]:
    """The same of a network where it lies, on images with these class names; `poll` is called now and then.

    Beside what `health_of_goodness` says of a block it has `sep_stream`, `sep_stream_rate` and `g_stream` (without TTA;
    see `along_the_stream`), and under `stream` of how many images.
    """
    memory = config.keep.memory_mb
    with _evaluating(network):
        goodness, aspects = goodness_and_aspects_of(
            network, rows.images, tta=tta, memory_mb=memory, dtype=dtype, poll=poll, compiled=compiled
        )
        routing = _routing(network, rows, memory, dtype)
        stream = along_the_stream(network, rows, config, split=split, memory_mb=memory, dtype=dtype, poll=poll)
    heads = [network.block(depth).head for depth in range(len(network.blocks))]
    found = health_of_goodness(
        goodness.cpu(),
        rows.labels.cpu(),
        replace(config, model=network.config),
        split=split,
        classes=names,
        aspects=[Aspects(head.names, head.weights().detach().cpu(), one.cpu()) for head, one in zip(heads, aspects)],
    )
    for block, routed, along in zip(found["blocks"], routing, stream.pop("blocks")):
        block |= along
        if routed is not None:
            block["routing"] = routed
    return {**found, "stream": stream, "tta": tta}


def convergence(metrics: list[dict[str, Any]], share: float) -> int | None:
    """The first epoch (as metrics.jsonl counts, from 0) whose validation accuracy is at least `share` of the best.

    None where no epoch was judged on a validation split.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1], got {share}")
    judged = [(line["epoch"], line["val"]["accuracy"]) for line in metrics if "val" in line]
    best = max((accuracy for _, accuracy in judged), default=0.0)
    return next((epoch for epoch, accuracy in judged if accuracy >= share * best), None)


@torch.no_grad()
def _routing(network: Network, rows: Split, memory_mb: int | None, dtype: torch.dtype) -> list[dict[str, Any] | None]:
    """Of every block with experts, where the tokens of some images go under their right label; None of the others."""
    device, blocks = network.mean.device, len(network.blocks)
    noted: list[list[dict[str, Tensor]]] = [[] for _ in range(blocks)]
    for some in evenly(len(rows), ROUTED_IMAGES).split(chunk_sizes(network, memory_mb)[0]):
        some = some.to(rows.labels.device)
        images, labels = rows.images[some].to(device).float() / 255, rows.labels[some].to(device)
        with autocast(device, dtype):
            tokens = network.tokens(images)
            for depth in range(blocks):
                output = network.block(depth)(tokens, labels)
                tokens = network.hand_on(output.tokens)
                if "router_logits" in output.notes:
                    noted[depth].append(output.notes)
        if not any(noted):
            break
    return [_routed(one) if one else None for one in noted]


def _routed(noted: list[dict[str, Tensor]]) -> dict[str, Any]:
    """The measures of the router over all chunks, and each expert's share of the choices (`load`)."""
    names = ("router_logits", "router_chosen", "router_weights")
    notes = {name: torch.cat([one[name] for one in noted]) for name in names}
    measured = {name: float(value) for name, value in routing_measures(notes).items()}
    chosen = notes["router_chosen"]
    counts = load(Routing(notes["router_logits"], chosen, notes["router_weights"]))
    return {**measured, "load": (counts.double() / chosen.numel()).tolist()}


def _rows(network: Network, data: ImageData | Split, split: str, tta: bool) -> tuple[Split, tuple[str, ...]]:
    """The split to look at, and the names of its classes."""
    if isinstance(data, Split):
        names, rows = network.class_names, data
    else:
        if split not in ("train", "val", "test"):
            raise UserError(f"unknown split '{split}'; choose train, val or test")
        if tta and not data.flips:
            raise UserError(f"{data.name} has no flip TTA: a mirrored image would be of another class")
        names, rows = data.classes, data.split(split)
    if not len(rows):
        raise UserError(f"the {split} split is empty")
    if tuple(rows.images.shape[1:]) != network.shape or len(names) != network.classes:
        raise UserError(
            f"the network is for images {list(network.shape)} of {network.classes} classes, these are "
            f"{list(rows.images.shape[1:])} of {len(names)}"
        )
    return rows, names


@contextmanager
def _evaluating(network: Network) -> Iterator[None]:
    """The network in evaluation mode, each module back in its own afterwards."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
