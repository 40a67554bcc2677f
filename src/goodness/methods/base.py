"""The seam: what a method of local learning says, and what a trainer gives it.

A method says how a signal goes through a block (`through`) and what the block's loss is (`loss`). Epochs, optimisers,
clipping, averages, recording, checkpoints, evaluation and health are the trainer's, the same for all methods.

    class Mine(Method):
        def through(self, depth, s):
            x = self.blocks[depth](s["x"])
            return Out({"x": x}, x.reshape(len(x), self.classes, -1).square().mean(-1))

        def loss(self, depth, s, out):
            return F.cross_entropy(out.speaks, s["labels"])
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

Signal = dict[str, Tensor]
"""What travels: dimension 0 of every entry is the example; dimension 1, where blocks look at labels, the hypothesis."""


class Out(NamedTuple):
    """What a block gives."""

    on: Signal
    """Entries that change for the next block; the trainer merges and detaches them."""
    speaks: Tensor | None = None
    """Evidence `[batch, hypotheses]` or `[batch, classes]`; None where the block gives features only."""
    more: Signal = {}  # noqa: RUF012  (never changed)
    """What else `loss` and `after_step` want of this pass."""


class Plan(NamedTuple):
    """Who learns at a step. All but the rates is the signature of a recorded step."""

    units: tuple[tuple[int, ...], ...]
    """Runs of neighbouring blocks that learn now, each on its last block's loss."""
    rates: tuple[float, ...] | None = None
    """A factor on the learning rate of each unit."""
    told: Hashable = None
    """Any other plain value that `streams` and `prepare` are to know."""


class Moment(NamedTuple):
    """Where in the training a step stands; plain numbers, for `plan` alone."""

    epoch: int
    epochs: int
    step: int  # since the start
    steps: int  # of the whole training


class Step(NamedTuple):
    """What a step gives to `streams` and `prepare`."""

    draw: Callable[..., Tensor]
    """`draw("wrong", k)`: uniforms `[batch, k]` in [0, 1), keyed by seed, step and purpose."""
    teacher: Any
    """This method with averaged weights, in evaluation mode."""
    told: Hashable
    """`Plan.told`."""


def sum_all(evidence: Tensor, labels: Tensor) -> Tensor:
    """Every block counts the same."""
    return torch.ones(len(evidence))


def last(evidence: Tensor, labels: Tensor) -> Tensor:
    """The last block alone predicts."""
    return torch.eye(len(evidence))[-1]


def all_but_first(evidence: Tensor, labels: Tensor) -> Tensor:
    """Every block but the first, unless it is alone."""
    weights = torch.ones(len(evidence))
    weights[0] = float(len(evidence) == 1)
    return weights


def best_range(evidence: Tensor, labels: Tensor) -> Tensor:
    """The run of neighbouring blocks whose summed evidence is right most often; of equals the shortest, then first."""
    blocks = len(evidence)
    if len(labels) == 0:
        return torch.ones(blocks)
    sums = torch.cat([torch.zeros_like(evidence[:1]), evidence.cumsum(dim=0)])
    found = []
    for begin in range(blocks):
        for end in range(begin + 1, blocks + 1):
            right = int(((sums[end] - sums[begin]).argmax(dim=1) == labels).sum())
            found.append((right, begin - end, -begin))
    _, length, begin = max(found)
    weights = torch.zeros(blocks)
    weights[-begin : -begin - length] = 1
    return weights


class Method(nn.Module):
    """Blocks, what is learned beside them, and what is remembered. Required: `through` and `loss`."""

    asks: ClassVar[bool] = False
    """Whether blocks look at an image under a label (hypotheses), or at the image alone."""
    views: ClassVar[int] = 1
    """Augmented views of a training image; above one, `streams` gets images `[batch, views, ...]`."""
    ledger: ClassVar[tuple[str, ...]] = ()
    """Entries that tell of other blocks' evidence; zeros tell nothing."""
    later: bool = False
    """Whether signals of later blocks enter a block's loss."""
    spans: ClassVar[bool] = False
    """Whether the loss compares examples of a batch."""
    uses_labels: ClassVar[bool] = True
    """Whether training looks at labels."""
    fitted: ClassVar[tuple[str, ...]] = ()
    """Buffers that `ready` fits; training leaves them as they are."""

    weights: Tensor
    """What every block weighs in a prediction."""
    prefixes: Tensor
    """The same `[blocks, blocks]` where only blocks 0..d predict, a row for each d."""
    progress: Tensor

    def __init__(
        self, blocks: Iterable[nn.Module], classes: int, parts: Iterable[nn.Module | None] | None = None
    ) -> None:
        """`parts[d]` is learned beside block d, by block d's optimiser: a head, an embedding."""
        super().__init__()
        self.blocks, self.classes = nn.ModuleList(blocks), classes
        given = list(parts) if parts is not None else [None] * len(self.blocks)
        self.parts = nn.ModuleList([nn.Module() if one is None else one for one in given])
        self.register_buffer("weights", torch.ones(len(self.blocks)))
        self.register_buffer("prefixes", torch.ones(len(self.blocks), len(self.blocks)).tril())
        self.register_buffer("progress", torch.zeros(()), persistent=False)

    # What a method says.

    def through(self, depth: int, s: Signal) -> Out:
        """Block d on a signal. Training, mining, and evidence all call this."""
        raise NotImplementedError

    def loss(self, depth: int, s: Signal, out: Out) -> Tensor:
        """Block d's loss, a scalar; `s` is what entered the block, with "labels". Called again, it is the same."""
        raise NotImplementedError

    # What has a default.

    def present(self, images: Tensor, asked: Tensor) -> Signal:
        """Block 0's signal of images in [0, 1] under hypotheses `[batch, H]`: in evidence all classes, in training the
        right and a wrong one."""
        return {"x": images}

    def streams(self, images: Tensor, labels: Tensor, step: Step) -> Signal:
        """Block 0's signal of a training batch, without gradient. The trainer adds "labels"."""
        asked = labels.unsqueeze(1)
        if self.asks:
            asked = torch.cat([asked, wrong_labels(step.draw("wrong", 1), labels, self.classes)], dim=1)
        return self.present(images, asked)

    def prepare(self, depth: int, s: Signal, step: Step) -> Signal:
        """Entries to add before block d's turn, once a step and without gradient: mined labels, targets."""
        return {}

    def after_step(self, depth: int, more: Signal) -> None:
        """Update memories (buffers of the method) from the batch's `more`, once block d has stepped."""

    def plan(self, moment: Moment) -> Plan:
        """Who learns now, together with whom, how fast."""
        return Plan(tuple((depth,) for depth in range(len(self.blocks))))

    def owned(self, depth: int) -> list[dict[str, Any]]:
        """Parameter groups of block d's optimiser; "rate" in a group scales its learning rate, "muon" says that its
        matrices may be Muon's."""
        body = {"params": list(self.blocks[depth].parameters()), "muon": True}
        return [body, {"params": list(self.parts[depth].parameters())}]

    def decide(self, evidence: Tensor, labels: Tensor) -> Tensor:
        """What each block weighs in a prediction, from validation evidence and labels; of neither where there are no
        validation images. `sum_all`, `last`, `all_but_first` and `best_range` are at hand."""
        return sum_all(evidence, labels)

    def ready(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Fit what evidence needs (a readout) on training images and labels, before an evaluation."""

    def measures(self, depth: int, s: Signal, out: Out) -> Signal:
        """Scalars for the epoch's line: of hypotheses the goodness, of class scores the accuracy."""
        if out.speaks is None:
            return {}
        speaks = out.speaks.detach()
        if not self.asks:
            return {"accuracy": (speaks.argmax(dim=1) == s["labels"]).float().mean()}
        if speaks.shape[1] < 2:
            return {"g_pos": speaks.mean()}
        right, wrong = speaks[:, 0], speaks[:, 1:]
        rate = (right > wrong.amax(dim=1)).float().mean()
        return {"g_pos": right.mean(), "g_neg": wrong.mean(), "sep_rate": rate}

    def wants_teacher(self) -> bool:
        """Whether training looks at the teacher; taken for granted where `streams` or `prepare` is the method's own."""
        return type(self).streams is not Method.streams or type(self).prepare is not Method.prepare

    # What is provided.

    def walk(self, s: Signal) -> Iterator[tuple[int, Signal, Out]]:
        """All blocks, one after another: depth, what entered, what the block gave."""
        for depth in range(len(self.blocks)):
            out = self.through(depth, s)
            yield depth, s, out
            s = {**s, **out.on}

    def evidence(self, images: Tensor, labels_at_once: int | None = None) -> Tensor:
        """`[blocks, batch, classes]` of images in [0, 1]; so many labels at a time where blocks look at labels."""
        every = torch.arange(self.classes, device=images.device)
        portions: Sequence[Tensor] = every.split(labels_at_once or self.classes) if self.asks else [every]
        columns = []
        for portion in portions:
            said = [out.speaks for _, _, out in self.walk(self.present(images, portion.expand(len(images), -1)))]
            columns.append(torch.stack([_required(one) for one in said]))
        return torch.cat(columns, dim=-1)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores `[batch, classes]` of images in [0, 1]."""
        return combined(self.evidence(images), self.weights)

    def averaged(self) -> Method:
        """The copy whose weights are to follow this one's: the teacher, and what is evaluated."""
        return copy.deepcopy(self).requires_grad_(False).eval()


def combined(evidence: Tensor, weights: Tensor) -> Tensor:
    """Class scores: the weighted sum over blocks. Blocks of weight zero do not enter, not even as NaN."""
    used = weights.nonzero().squeeze(1)
    return (weights[used, None, None].to(evidence.dtype) * evidence[used]).sum(dim=0)


def wrong_labels(uniforms: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Wrong labels `[batch, k]`, each with equal chance, from uniforms `[batch, k]`."""
    offsets = (uniforms * (classes - 1)).long().clamp(max=classes - 2)
    return (labels.unsqueeze(1) + 1 + offsets) % classes


def whose_turn(moment: Moment, turns: Sequence[float]) -> tuple[int, float]:
    """Which block learns now where one learns after another, each this long (shares of the training), and how far it
    is in its turn, in [0, 1)."""
    now, since = 0, moment.step / moment.steps * sum(turns)
    while now + 1 < len(turns) and since >= turns[now]:
        since -= turns[now]
        now += 1
    return now, since / turns[now]


def along(module: nn.Module, x: Tensor) -> Tensor:
    """A module on `[batch, hypotheses, ...]` as on `[batch * hypotheses, ...]`."""
    y = module(x.flatten(0, 1))
    return y.reshape(*x.shape[:2], *y.shape[1:])


def _required(speaks: Tensor | None) -> Tensor:
    if speaks is None:
        raise NotImplementedError("a method whose blocks give features only needs a readout: see ByReadout")
    return speaks
