"""Images scored per second, under every label: all hypotheses together, and a compiled loop over labels beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from goodness import kernels
from goodness.bench.clock import spread
from goodness.config import Config, override
from goodness.model.network import Network
from goodness.predict import goodness_of, later_block
from goodness.training.loop import on_device


@torch.no_grad()
def by_label(network: Network, images: Tensor, dtype: torch.dtype, step: Callable[..., Any], stem: Any) -> Tensor:
    """Goodness `[blocks, n, classes]`, one label after the other; the stem is computed once."""
    with torch.autocast(images.device.type, dtype=dtype, enabled=dtype != torch.float32):
        start, columns = stem(network, images), []
        for label in range(network.classes):
            tokens, labels = start, torch.full((len(images),), label, device=images.device)
            column = []
            for depth in range(len(network.blocks)):
                output, tokens = step(network, network.block(depth), tokens, labels, depth + 1 < len(network.blocks))
                column.append(output.goodness.float())
            columns.append(torch.stack(column))
    return torch.stack(columns, dim=-1)


def _network(config: Config, shape: tuple[int, int, int], classes: int, device: torch.device) -> Network:
    torch.manual_seed(0)
    return on_device(Network(config.model, shape, classes), device).eval().requires_grad_(False)


def prediction(
    config: Config, shape: tuple[int, int, int], classes: int, device: torch.device, dtype: torch.dtype, images: int
) -> dict[str, Any]:
    """Images per second for a network of this many classes, all hypotheses together and in a loop, how far the scores
    are apart, and images per second of a network whose labels are late, so that they share a pass.
    """
    network = _network(config, shape, classes, device)
    sharing = _network(override(config, {"model.label": "late"}), shape, classes, device)
    pictures = torch.randint(0, 256, (images, *shape), dtype=torch.uint8).to(device)
    is_compiled = device.type == "cuda"
    step = torch.compile(later_block, dynamic=False) if is_compiled else later_block
    stem = torch.compile(Network.tokens, dynamic=False) if is_compiled else Network.tokens

    def together() -> Tensor:
        return goodness_of(network, pictures, dtype=dtype, compiled=is_compiled)

    def all_at_once() -> Tensor:
        return goodness_of(sharing, pictures, dtype=dtype, compiled=is_compiled)

    def in_a_loop() -> Tensor:
        """As torch alone compiles it, without the kernels of this package."""
        with kernels.switched_off():
            return by_label(network, pictures.float() / 255, dtype, step, stem)

    found: dict[str, Any] = {"classes": classes, "images": images}
    scores = []
    for name, way in (("together", together), ("loop", in_a_loop), ("late", all_at_once)):
        scores.append(way().sum(dim=0))
        times = spread(way, device, 1, 3)
        found[name] = {**times, "images_per_second": 1000 * images / times["median_ms"]}
    for name in ("together", "late"):
        found[name]["times_the_loop"] = found[name]["images_per_second"] / found["loop"]["images_per_second"]
    found["largest_difference"] = float((scores[0] - scores[1].to(scores[0].device)).abs().max())
    found["largest_score"] = float(scores[1].abs().max())
    return found
