"""The backpropagation control: the same backbone without its Forward-Forward parts, and a linear layer on top."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from goodness.model.attention import RMSNorm
from goodness.model.block import Notes
from goodness.model.network import build_stem, shapes_by_depth

if TYPE_CHECKING:
    from goodness.config import Model


class StrippedNetwork(nn.Module):
    """Stem, the blocks' bodies one after the other, norm, mean over tokens, class logits.

    No label enters, no goodness is read, and nothing stands between two bodies: no detaching, activation or
    normalisation. `model.label`, `goodness`, `activation`, `normalise` and `warm_start` play no part.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        config: Model,
        shape: tuple[int, int, int],
        classes: int,
        *,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
    ) -> None:
        super().__init__()
        channels = shape[0]
        self.config, self.shape, self.classes = config, shape, classes
        self.class_names = tuple(str(label) for label in range(classes))
        self.register_buffer("mean", torch.tensor(mean or (0.0,) * channels).reshape(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std or (1.0,) * channels).reshape(1, -1, 1, 1))
        self.stem, width, self.grid = build_stem(config, shape)
        self.shapes = shapes_by_depth(config, width, self.grid)
        self.blocks = nn.ModuleList(config.block.at(depth).build(*self.shapes[depth]) for depth in range(config.blocks))
        width_out = self.shapes[-1][0]
        self.norm = RMSNorm(width_out)
        self.classify = nn.Linear(width_out, classes)

    def forward(self, images: Tensor) -> tuple[Tensor, list[Notes]]:
        """Images in [0, 1] to logits `[batch, classes]` and every block's notes (a router's logits, for its losses)."""
        tokens, notes = self.stem((images - self.mean) / self.std), []
        for body in self.blocks:
            tokens, noted = _through(body, tokens)
            notes.append(noted)
        return self.classify(self.norm(tokens).mean(dim=1)), notes

    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


def _through(body: nn.Module, tokens: Tensor) -> tuple[Tensor, Notes]:
    result = body(tokens)
    return result if isinstance(result, tuple) else (result, {})


@torch.no_grad()
def class_scores(
    network: StrippedNetwork,
    images: Tensor,
    *,
    tta: bool = False,
    batch: int = 512,
    dtype: torch.dtype = torch.float32,
    poll: Callable[[], None] = lambda: None,
) -> Tensor:
    """Logits `[n, classes]` float32 of uint8 images `[n, C, H, W]`, on the network's device.

    `tta` averages each image's logits with its mirror image's. `poll` is called between batches.
    """
    device = network.mean.device
    scores = [torch.zeros(0, network.classes, device=device)]
    for start in range(0, len(images), batch):
        poll()
        chunk = images[start : start + batch].to(device).float() / 255
        views = [chunk, chunk.flip(-1)] if tta else [chunk]
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            logits = [network(view)[0].float() for view in views]
        scores.append(torch.stack(logits).mean(dim=0))
    return torch.cat(scores)
