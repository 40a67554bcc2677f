"""Images scored per second, under every label: all hypotheses together, and compiled loops over labels beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from goodness import compilation, kernels
from goodness.bench.clock import in_turn
from goodness.config import Config, override
from goodness.methods.cumulative.evidence import goodness_of, later_block
from goodness.nn.network import Network
from goodness.precision import autocast
from goodness.training.loop import on_device

REPEATS = 3
PLAIN, WITH_KERNELS = "plain", "kernels"


@torch.no_grad()
def by_label(network: Network, images: Tensor, dtype: torch.dtype, step: Callable[..., Any], stem: Any) -> Tensor:
    """Goodness `[blocks, n, classes]`, one label after the other; the stem is computed once."""
    with autocast(images.device, dtype):
        start, columns = stem(network, images), []
        for label in range(network.classes):
            tokens, labels = start, torch.full((len(images),), label, device=images.device)
            column = []
            for depth in range(len(network.blocks)):
                following = network.block(depth + 1) if depth + 1 < len(network.blocks) else None
                output, tokens = step(network, network.block(depth), tokens, labels, following)
                column.append(output.goodness.float())
            columns.append(torch.stack(column))
    return torch.stack(columns, dim=-1)


def loops(network: Network, pictures: Tensor, dtype: torch.dtype) -> dict[str, Callable[[], Tensor]]:
    """The baselines by name: the loop as torch alone compiles it and, where this package's kernels apply, the same loop
    through the blocks that predict with them. On a CPU nothing is compiled, and there is no second one.
    """

    def looped(kind: str) -> Callable[[], Tensor]:
        step, stem = later_block, Network.tokens
        if pictures.is_cuda:  # each loop compiles for itself: no graph has to guard against the other
            of = f"loop, {kind}: {network.config} {network.shape} {network.classes}"
            step, stem = compilation.compiled(step, of), compilation.compiled(stem, of)
        return lambda: by_label(network, pictures.float() / 255, dtype, step, stem)

    plain = looped(PLAIN)

    def without_kernels() -> Tensor:
        with kernels.switched_off():
            return plain()

    found = {PLAIN: without_kernels}
    with autocast(pictures.device, dtype):
        if kernels.are_used(pictures):
            found[WITH_KERNELS] = looped(WITH_KERNELS)
    return found


def _network(config: Config, shape: tuple[int, int, int], classes: int, device: torch.device) -> Network:
    torch.manual_seed(0)
    return on_device(Network(config.model, shape, classes), device).eval().requires_grad_(False)


def prediction(
    config: Config, shape: tuple[int, int, int], classes: int, device: torch.device, dtype: torch.dtype, images: int
) -> dict[str, Any]:
    """Images per second for a network of this many classes, all hypotheses together and in a loop, how far the scores
    are apart, and images per second of a network whose labels are late, so that they share a pass.

    `loops` has every loop that was timed, `loop` the fastest of them.
    """
    network = _network(config, shape, classes, device)
    sharing = _network(override(config, {"model.label": "late"}), shape, classes, device)
    pictures = torch.randint(0, 256, (images, *shape), dtype=torch.uint8).to(device)
    is_compiled = device.type == "cuda"
    baselines = loops(network, pictures, dtype)
    ways = {
        "together": lambda: goodness_of(network, pictures, dtype=dtype, compiled=is_compiled),
        **baselines,
        "late": lambda: goodness_of(sharing, pictures, dtype=dtype, compiled=is_compiled),
    }
    scores = {name: way().sum(dim=0) for name, way in ways.items()}  # and what is compiled is compiled
    times = in_turn(ways, device, 1, REPEATS)
    paces = {name: {**one, "images_per_second": 1000 * images / one["median_ms"]} for name, one in times.items()}
    fastest = max(baselines, key=lambda name: paces[name]["images_per_second"])
    return {
        "classes": classes,
        "images": images,
        "together": paces["together"],
        "loop": {"kind": fastest, **paces[fastest]},
        "loops": {name: paces[name] for name in baselines},
        "late": paces["late"],
        "largest_difference": float((scores["together"] - scores[PLAIN]).abs().max()),
        "largest_score": float(scores[PLAIN].abs().max()),
    }
