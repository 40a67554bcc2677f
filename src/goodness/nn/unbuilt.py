"""A look into a model that is not built: shapes and names, no weights."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from goodness.nn.network import Network

if TYPE_CHECKING:
    from goodness.config import Config, Model


def look_into(model: Model) -> Network | None:
    """The network without memory behind its weights, for colour images and ten classes; None where it cannot be built
    that way (a part from outside may want real tensors, or other images)."""
    try:
        return _built(model)
    except Exception:
        return None


@functools.lru_cache(maxsize=4)  # one configuration is looked into several times
def _built(model: Model) -> Network:
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        return Network(model, (3, 32, 32), 10)


def dead_aspects(config: Config) -> dict[int, str]:
    """The aspects that are zero in every block, by place, each with the reason; none where that cannot be found out."""
    network = look_into(config.model)
    if network is None:
        return {}
    heads = [network.block(depth).head for depth in range(len(network.blocks))]
    by_place = zip(heads[0].names, *(head.active for head in heads))
    return {
        place: config.model.goodness.why_zero(name, config)
        for place, (name, *is_active) in enumerate(by_place)
        if not any(is_active)
    }
