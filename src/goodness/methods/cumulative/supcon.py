"""Supervised contrastive learning inside one block, with a queue of earlier embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.methods.cumulative.facts import Facts
from goodness.nn.attention import widen
from goodness.parts import Term, register_term

if TYPE_CHECKING:
    from goodness.config import Config


def supcon(
    anchors: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor, temperature: float | Tensor
) -> Tensor:
    """SupCon over `[n, dim]` unit anchors against themselves and `[q, dim]` others (label -1: an empty place).

    mean_i -1/|P(i)| sum_{p in P(i)} log [exp(z_i z_p / t) / sum_{a != i} exp(z_i z_a / t)]; anchors without a partner
    do not count.
    """
    everything = torch.cat([anchors, others.to(anchors.dtype)])
    every_label = torch.cat([labels, other_labels])
    with torch.autocast(anchors.device.type, enabled=False):  # similarities over a temperature need the digits
        logits = anchors @ everything.T / temperature
    n, total = logits.shape
    place = torch.arange(total, device=logits.device)
    itself = place[:n].unsqueeze(1) == place.unsqueeze(0)
    logits = logits.masked_fill(itself | (every_label < 0), -torch.inf)
    partners = (labels.unsqueeze(1) == every_label.unsqueeze(0)) & ~itself
    log_share = logits - torch.logsumexp(logits, dim=1, keepdim=True)
    count = partners.sum(dim=1)
    per_anchor = -log_share.masked_fill(~partners, 0).sum(dim=1) / count.clamp(min=1)
    return per_anchor.sum() / (count > 0).sum().clamp(min=1)


class ContrastiveHead(nn.Module):
    """A two-layer projection to the unit sphere, and the queue (kept in checkpoints like any buffer)."""

    queue: Tensor
    queue_labels: Tensor
    pointer: Tensor

    def __init__(self, width: int, dimensions: int, length: int) -> None:
        super().__init__()
        self.project = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, dimensions))
        self.register_buffer("queue", torch.zeros(length, dimensions))
        self.register_buffer("queue_labels", torch.full((length,), -1, dtype=torch.int64))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))

    def forward(self, pooled: Tensor) -> Tensor:
        return F.normalize(widen(self.project(pooled)), dim=-1)

    @torch.no_grad()
    def enqueue(self, embeddings: Tensor, labels: Tensor) -> None:
        """Write over the oldest places."""
        length = len(self.queue)
        if length == 0:
            return
        embeddings, labels = embeddings[-length:], labels[-length:]
        places = (self.pointer + torch.arange(len(labels), device=labels.device)) % length
        self.queue[places] = embeddings.to(self.queue.dtype)
        self.queue_labels[places] = labels
        self.pointer.add_(len(labels)).remainder_(length)


@register_term("supcon")
@dataclass(frozen=True, kw_only=True)
class SupCon(Term):
    """The supervised contrastive regulariser on the two positive views.

    The features it sees were computed under the true label, so the label leaks into them, and the term is easier
    than its name says. `label_free` sends the two views through all blocks once more, without any label, for it.
    """

    weight: float = 0.5
    """lambda_con."""
    temperature: float = 0.2
    """Softmax temperature of the similarities."""
    dimensions: int = 128
    """Size of the projected embedding."""
    queue: int = 4096
    """Earlier embeddings kept per block."""
    label_free: bool = False
    """Contrast features that no label ever entered, at the price of two more streams."""
    at: Literal["every", "last"] = "every"
    """Blocks that have the term: all, or the deepest alone ("last-only")."""
    late: float | None = None
    """lambda_con from half of the training on ("dual-phase contrastive"); None keeps it."""
    temperature_last: float | None = None
    """Where the temperature goes, linearly over the training ("temperature annealing"); None keeps it."""

    def check(self) -> None:
        if self.temperature <= 0 or self.dimensions < 1 or self.queue < 0:
            raise ConfigError(
                "objective.supcon needs a positive temperature and dimensions, and a queue of 0 or more; got "
                f"temperature={self.temperature}, dimensions={self.dimensions}, queue={self.queue}"
            )
        if self.temperature_last is not None and self.temperature_last <= 0:
            raise ConfigError(f"objective.supcon.temperature_last must be positive, got {self.temperature_last}")
        if self.late is not None and self.late < 0:
            raise ConfigError(f"objective.supcon.late must be at least 0, got {self.late}")

    def idle(self, config: Config) -> list[tuple[str, str]]:
        found = [("at", "the one block is the last")] if config.model.blocks == 1 else []
        if config.epochs == 1:
            found += [(name, "it takes more than one epoch to get there") for name in ("late", "temperature_last")]
        return found

    def looks_at(self, config: Config) -> frozenset[str]:
        return frozenset()

    def coefficient(self, depth: int, blocks: int, progress: float | Tensor = 0.0) -> float | Tensor:
        if self.at == "last" and depth < blocks - 1:
            return 0.0
        if self.late is None:
            return self.weight
        is_late = (progress >= 0.5).to(progress.dtype) if isinstance(progress, Tensor) else float(progress >= 0.5)
        return self.weight + is_late * (self.late - self.weight)

    @property
    def wants_neutral(self) -> bool:
        return self.label_free

    def module(self, width: int, aspects: int) -> nn.Module:
        return ContrastiveHead(width, self.dimensions, self.queue)

    def loss(self, facts: Facts, module: ContrastiveHead) -> Tensor:
        pooled = facts.neutral if self.label_free else facts.pooled[: facts.positives * len(facts.labels)]
        assert pooled is not None  # the step sees to it where `wants_neutral`
        embeddings = module(pooled)
        labels = facts.labels.repeat(facts.positives)
        facts.scratch["supcon"] = embeddings.detach()
        return supcon(embeddings, labels, module.queue, module.queue_labels, self.temperature_at(facts.progress))

    def temperature_at(self, progress: Tensor) -> float | Tensor:
        """t = t_0 + progress (t_1 - t_0); a plain number where it stays as it is."""
        if self.temperature_last is None:
            return self.temperature
        return self.temperature + progress * (self.temperature_last - self.temperature)

    def after_step(self, facts: Facts, module: ContrastiveHead) -> None:
        module.enqueue(facts.scratch["supcon"], facts.labels.repeat(facts.positives))
