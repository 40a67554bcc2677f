"""Mining inside a step: the teacher's block scores the wrong-label stream's own tokens, with more draws at depth."""

from __future__ import annotations

import copy
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from goodness.config import Config
from goodness.draws import uniforms
from goodness.methods.cumulative.negatives import Teacher
from goodness.nn.block import FFBlock
from goodness.nn.network import Network
from goodness.step_context import Moment
from goodness.training.step import BlockInput, Judged, Stepper
from tiny_runs import shrunk

CPU = torch.device("cpu")
AT = Moment(epoch=2, step=3, total_step=1, total_steps=10, progress=0.5)


class WatchedStepper(Stepper):
    """Keeps what each block was trained on, and its loss."""

    def __init__(self, network: Network, config: Config) -> None:
        super().__init__(network, config)
        self.seen: list[tuple[BlockInput, Tensor]] = []

    def judge(self, situation: BlockInput, moment: Moment) -> Judged:
        judged = super().judge(situation, moment)
        self.seen.append((situation, judged.loss.detach()))
        return judged


def network_for(config: Config, classes: int) -> Network:
    torch.manual_seed(7)
    return Network(config.model, (1, 8, 8), classes, mean=(0.4,), std=(0.3,), terms=config.objective).double()


def batch_of(size: int, classes: int) -> tuple[Tensor, Tensor]:
    """Three different views `[3, size, 1, 8, 8]`, and labels with no class above half of the batch."""
    generator = torch.Generator().manual_seed(5)
    views = torch.rand(3, size, 1, 8, 8, generator=generator, dtype=torch.float64)
    return views, torch.randperm(size, generator=generator) % classes


def stepper_with_another_teacher(config: Config, classes: int) -> WatchedStepper:
    """At the start the teacher is a copy of the network; noise on its weights tells the two apart."""
    stepper = WatchedStepper(network_for(config, classes), config)
    generator = torch.Generator().manual_seed(11)
    for weight in stepper.teacher.network.parameters():
        weight.add_(0.5 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return stepper


# Mining by hand


def one_pass(block: FFBlock, tokens: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """A block's output tokens and goodness `[batch]`, for a block without notes."""
    assert block.label is not None
    if block.is_late:  # only the goodness sees the label
        after, notes = block.body(tokens)
        seen = block.label(after, labels)
    else:
        after, notes = block.body(block.label(tokens, labels))
        seen = after
    return after, block.head(seen, labels, notes)[1]


def candidates(config: Config, labels: Tensor, classes: int, depth: int, k: int) -> list[list[int]]:
    """The first k drawn wrong labels of every example."""
    assert isinstance(config.negatives, Teacher)
    most = max(config.negatives.k_first, config.negatives.k_last)
    draws = uniforms(CPU, (len(labels), most), config.seed, "mine", AT.epoch, AT.step, depth)
    found = []
    for label, row in zip(labels.tolist(), draws.tolist()):
        wrong = [*range(label + 1, classes), *range(label)]
        found.append([wrong[int(draw * (classes - 1))] for draw in row[:k]])
    return found


@torch.no_grad()
def hardest_by_hand(block: FFBlock, tokens: Tensor, drawn: list[list[int]]) -> Tensor:
    """Of each example's candidates the one under which this block's goodness is highest."""
    chosen = []
    for i, labels in enumerate(drawn):
        scores = [float(one_pass(block, tokens[i : i + 1], torch.tensor([label]))[1]) for label in labels]
        chosen.append(labels[scores.index(max(scores))])
    return torch.tensor(chosen)


# One step by hand


class HandMade(NamedTuple):
    wrong: list[Tensor]  # the mined labels, per block
    others: list[dict[str, Tensor]]  # what other ways to mine would have chosen, per block
    losses: list[Tensor]
    network: dict[str, Tensor]  # weights after the step
    teacher: dict[str, Tensor]


def other_images(config: Config, labels: Tensor, classes: int) -> Tensor:
    """Sort the batch by class in random order, then take the image one largest class further on."""
    draws = uniforms(CPU, (len(labels) + classes,), config.seed, "ni", AT.epoch, AT.step).tolist()
    of_class = draws[len(labels) :]
    order = sorted(range(len(labels)), key=lambda i: (of_class[int(labels[i])], draws[i]))
    largest = int(labels.bincount().max())
    partner = torch.empty(len(labels), dtype=torch.int64)
    for place, i in enumerate(order):
        partner[i] = order[(place + largest) % len(order)]
    return partner


def hand_made_step(
    network: Network, teacher: Network, config: Config, views: Tensor, labels: Tensor, classes: int
) -> HandMade:
    """One step of the `block` loss on two blocks: plain autograd, Adam's first step written out."""
    network, teacher = copy.deepcopy(network), copy.deepcopy(teacher)
    negatives, gamma, beta, eta = config.negatives, config.rule.gamma, config.beta, config.eta  # type: ignore[attr-defined]
    assert isinstance(negatives, Teacher)
    optim = config.optim
    rate = optim.lr * (AT.total_step + 1) / (optim.warmup * AT.total_steps + 1)  # within the warm-up
    decay = min(optim.ema, 1 - 1 / (AT.total_step + 2))

    def hand_on(tokens: Tensor) -> Tensor:
        return F.normalize(F.relu(tokens.detach()), dim=-1) * config.model.width**0.25

    stem = [network.tokens(view) for view in views]
    pos1, pos2, nl = stem
    ni = nl[other_images(config, labels, classes)]
    teachers_nl = teacher.tokens(views[2])
    past_nl = past_ni = torch.zeros(len(labels), dtype=torch.float64)
    made = HandMade([], [], [], {}, {})
    for depth, k in enumerate((negatives.k_first, negatives.k_last)):
        drawn = candidates(config, labels, classes, depth, k)
        other_k = negatives.k_last if depth == 0 else negatives.k_first
        wrong = hardest_by_hand(teacher.block(depth), nl, drawn)
        others = {
            "the online network": hardest_by_hand(network.block(depth), nl, drawn),
            "the positive's tokens": hardest_by_hand(teacher.block(depth), pos1, drawn),
            "the second positive's tokens": hardest_by_hand(teacher.block(depth), pos2, drawn),
            "the wrong image's tokens": hardest_by_hand(teacher.block(depth), ni, drawn),
            "the teacher's own tokens": hardest_by_hand(teacher.block(depth), teachers_nl, drawn),
            "the same k at every block": hardest_by_hand(
                teacher.block(depth), nl, candidates(config, labels, classes, depth, other_k)
            ),
        }
        if depth > 0:
            others["the block before"] = hardest_by_hand(teacher.block(depth - 1), nl, drawn)
            others["the labels of the block before"] = made.wrong[-1]
        made.wrong.append(wrong)
        made.others.append(others)

        block = network.block(depth)
        (pos1, g_pos1), (pos2, g_pos2) = one_pass(block, pos1, labels), one_pass(block, pos2, labels)
        (nl, g_nl), (ni, g_ni) = one_pass(block, nl, wrong), one_pass(block, ni, labels)
        g_pos = (g_pos1 + g_pos2) / 2
        loss_nl = torch.log1p(torch.exp(-beta * (g_pos - g_nl + gamma * past_nl))).mean()
        loss_ni = torch.log1p(torch.exp(-beta * (g_pos - g_ni + gamma * past_ni))).mean()
        loss = (1 - eta) * loss_nl + eta * loss_ni
        made.losses.append(loss.detach())

        own = network.owned(depth)
        gradients = torch.autograd.grad(loss, list(own.values()), allow_unused=True)
        norm = sum(float((g**2).sum()) for g in gradients if g is not None) ** 0.5
        for (name, weight), gradient in zip(own.items(), gradients):
            after = weight.detach().clone()
            if gradient is not None:
                gradient = gradient * min(1.0, optim.clip / (norm + 1e-6))
                after *= 1 - rate * (optim.weight_decay if weight.dim() > 1 else 0)
                after -= rate * gradient / (gradient.abs() + 1e-8)
            made.network[name] = after
            made.teacher[name] = decay * teacher.get_parameter(name) + (1 - decay) * after

        past_nl, past_ni = past_nl + (g_pos - g_nl).detach(), past_ni + (g_pos - g_ni).detach()
        pos1, pos2, nl, ni = hand_on(pos1), hand_on(pos2), hand_on(nl), hand_on(ni)
        teachers_nl = hand_on(one_pass(teacher.block(depth), teachers_nl, wrong)[0])
    return made


@pytest.mark.parametrize("label", ["scale", "late"])
@pytest.mark.parametrize("mode", ["fused", "sequential"])
def test_a_step_mines_with_the_teachers_block_on_the_wrong_label_stream(mode: str, label: str) -> None:
    classes = 12
    changes = {"objective.aspects": None, "rule.gamma": 0.7, "optim.warmup": 0.5, "model.label": label}
    draws = {"negatives.k_first": 3, "negatives.k_last": 8}
    config = shrunk("demo", {**changes, **draws, "step.mode": mode}, blocks=2)
    views, labels = batch_of(24, classes)
    stepper = stepper_with_another_teacher(config, classes)
    expected = hand_made_step(stepper.network, stepper.teacher.network, config, views, labels, classes)
    stepper(views, labels, AT)

    assert len(stepper.seen) == 2
    for depth, (situation, loss) in enumerate(stepper.seen):
        assert situation.wrong.tolist() == expected.wrong[depth].tolist(), f"block {depth}"
        torch.testing.assert_close(loss, expected.losses[depth], rtol=1e-10, atol=1e-10)
        for way, other in expected.others[depth].items():
            assert situation.wrong.tolist() != other.tolist(), f"block {depth}: {way} gives the same labels"
    for made, weights in ((stepper.network, expected.network), (stepper.teacher.network, expected.teacher)):
        found = dict(made.named_parameters())
        assert found.keys() == weights.keys()
        for name, weight in found.items():
            torch.testing.assert_close(
                weight.detach(), weights[name], rtol=1e-10, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}"
            )


# The ramp of k


@pytest.mark.parametrize("mode", ["fused", "sequential"])
def test_four_blocks_mine_with_8_11_13_and_16_draws_by_default(mode: str) -> None:
    """No other number of draws gives the labels that a block was trained on."""
    classes, size = 40, 96
    config = shrunk("gamma0-dense", {"objective.supcon": None, "step.mode": mode}, blocks=4)
    views, labels = batch_of(size, classes)
    stepper = stepper_with_another_teacher(config, classes)
    teacher = copy.deepcopy(stepper.teacher.network)  # the step moves it
    stepper(views, labels, AT)
    fitting = []
    for depth, (situation, _) in enumerate(stepper.seen):
        nl = situation.tokens.detach()[2 * size : 3 * size]
        wrong = torch.tensor(candidates(config, labels, classes, depth, 16))
        with torch.no_grad():
            scores = torch.stack([one_pass(teacher.block(depth), nl, column)[1] for column in wrong.T], dim=1)
        chosen = {k: wrong.gather(1, scores[:, :k].argmax(dim=1, keepdim=True)).squeeze(1) for k in range(1, 17)}
        fitting.append([k for k, found in chosen.items() if torch.equal(found, situation.wrong)])
    assert fitting == [[8], [11], [13], [16]]
