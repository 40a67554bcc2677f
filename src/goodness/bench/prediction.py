"""Images scored per second, under every label: all hypotheses together, and a compiled loop over labels beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from goodness import kernels
from goodness.bench.clock import spread
from goodness.config import Config
from goodness.model.block import FFBlock
from goodness.model.network import Network
from goodness.predict import goodness_of


def advance(network: Network, block: FFBlock, tokens: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    output = block(tokens, labels)
    return output.goodness, network.hand_on(output.tokens)


@torch.no_grad()
def by_label(network: Network, images: Tensor, dtype: torch.dtype, step: Callable[..., Any], stem: Any) -> Tensor:
    """Goodness `[blocks, n, classes]`, one label after the other; the stem is computed once."""
    with torch.autocast(images.device.type, dtype=dtype, enabled=dtype != torch.float32):
        start, columns = stem(network, images), []
        for label in range(network.classes):
            tokens, labels = start, torch.full((len(images),), label, device=images.device)
            column = []
            for depth in range(len(network.blocks)):
                goodness, tokens = step(network, network.block(depth), tokens, labels)
                column.append(goodness.float())
            columns.append(torch.stack(column))
    return torch.stack(columns, dim=-1)


def prediction(
    config: Config, shape: tuple[int, int, int], classes: int, device: torch.device, dtype: torch.dtype, images: int
) -> dict[str, Any]:
    """Both ways' images per second for a network of this many classes, and how far their scores are apart."""
    torch.manual_seed(0)
    network = Network(config.model, shape, classes).to(device).eval().requires_grad_(False)
    if device.type == "cuda":
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    pictures = torch.randint(0, 256, (images, *shape), dtype=torch.uint8).to(device)
    is_compiled = device.type == "cuda"
    step = torch.compile(advance, dynamic=False) if is_compiled else advance
    stem = torch.compile(Network.tokens, dynamic=False) if is_compiled else Network.tokens

    def together() -> Tensor:
        return goodness_of(network, pictures, dtype=dtype, compiled=is_compiled)

    def in_a_loop() -> Tensor:
        with kernels.switched_off():
            return by_label(network, pictures.float() / 255, dtype, step, stem)

    found: dict[str, Any] = {"classes": classes, "images": images}
    scores = []
    for name, way in (("together", together), ("loop", in_a_loop)):
        scores.append(way().sum(dim=0))
        times = spread(way, device, 1, 3)
        found[name] = {**times, "images_per_second": 1000 * images / times["median_ms"]}
    found["times_faster"] = found["together"]["images_per_second"] / found["loop"]["images_per_second"]
    found["largest_difference"] = float((scores[0] - scores[1].to(scores[0].device)).abs().max())
    found["largest_score"] = float(scores[1].abs().max())
    return found
