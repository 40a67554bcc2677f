"""SupCon against another library, against loops, and its queue as a ring."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from made_up_facts import BATCH, WIDTH, made_up_facts
from pytorch_metric_learning.losses import SupConLoss
from torch import Tensor

from goodness.errors import ConfigError
from goodness.methods.cumulative.facts import Facts
from goodness.methods.cumulative.objective import Objective
from goodness.methods.cumulative.supcon import ContrastiveHead, SupCon, supcon


def unit(rows: int, seed: int, dimensions: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, dimensions, generator=generator, dtype=torch.float64), dim=-1)


NOTHING = torch.zeros(0, 5, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)


def supcon_by_loop(anchors: Tensor, labels: list[int], others: Tensor, other_labels: list[int], t: float) -> float:
    rows = anchors.tolist() + others.tolist()
    every = labels + other_labels
    losses = []
    for i in range(len(labels)):

        def likeness(a: int, i: int = i) -> float:
            return math.exp(sum(x * y for x, y in zip(rows[i], rows[a])) / t)

        rest = [a for a in range(len(rows)) if a != i and every[a] >= 0]
        partners = [a for a in rest if every[a] == labels[i]]
        if partners:
            below = sum(likeness(a) for a in rest)
            losses.append(-sum(math.log(likeness(p) / below) for p in partners) / len(partners))
    return sum(losses) / len(losses) if losses else 0.0


@settings(max_examples=50)
@given(st.integers(0, 1000), st.lists(st.integers(0, 2), min_size=2, max_size=10), st.floats(0.05, 2))
def test_supcon_without_a_queue_is_pytorch_metric_learnings(seed: int, labels: list[int], t: float) -> None:
    assume(len(set(labels)) > 1)  # without any negative their library returns zero
    anchors, classes = unit(len(labels), seed), torch.tensor(labels)
    theirs = SupConLoss(temperature=t)(anchors, classes)
    assert supcon(anchors, classes, *NOTHING, t).item() == pytest.approx(float(theirs), rel=1e-6, abs=1e-9)


def test_supcons_gradient_without_a_queue_is_pytorch_metric_learnings() -> None:
    mine, theirs = unit(8, 3).requires_grad_(True), unit(8, 3).requires_grad_(True)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 3])
    supcon(mine, labels, *NOTHING, 0.2).backward()
    SupConLoss(temperature=0.2)(theirs, labels).backward()
    # their library normalises the embeddings itself, so compare what is left along the sphere
    along = mine.grad - (mine.grad * mine).sum(-1, keepdim=True) * mine
    torch.testing.assert_close(along.detach(), theirs.grad, rtol=1e-6, atol=1e-9)


@given(
    st.integers(0, 1000),
    st.lists(st.integers(0, 2), min_size=2, max_size=6),
    st.lists(st.integers(-1, 2), max_size=8),
    st.floats(0.1, 1),
)
def test_supcon_with_a_queue_skips_empty_places_and_lonely_anchors(
    seed: int, labels: list[int], queued: list[int], t: float
) -> None:
    anchors, others = unit(len(labels), seed), unit(max(1, len(queued)), seed + 1)[: len(queued)]
    value = supcon(anchors, torch.tensor(labels), others, torch.tensor(queued, dtype=torch.int64), t)
    assert value.item() == pytest.approx(supcon_by_loop(anchors, labels, others, queued, t), rel=1e-9, abs=1e-12)


def test_supcons_gradient_is_finite_beside_empty_places_and_reaches_only_the_anchors() -> None:
    anchors, others = unit(4, 0).requires_grad_(True), unit(3, 1)
    supcon(anchors, torch.tensor([0, 1, 0, 2]), others, torch.tensor([-1, 1, -1]), 0.2).backward()
    assert bool(anchors.grad.isfinite().all())
    assert bool((anchors.grad[0] != 0).any())


@given(st.integers(1, 7), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_the_queue_holds_the_latest_embeddings_in_order_round_and_round(length: int, writes: list[int]) -> None:
    head, written = ContrastiveHead(WIDTH, 1, length), []
    for count in writes:
        new = torch.arange(len(written), len(written) + count)
        head.enqueue(new[:, None].float(), new)
        written += new.tolist()
    from_the_oldest = head.queue_labels.roll(-int(head.pointer)).tolist()
    latest = written[-length:]
    assert from_the_oldest == [-1] * (length - len(latest)) + latest
    assert head.queue.flatten().roll(-int(head.pointer)).tolist()[-len(latest) :] == [float(one) for one in latest]


def test_a_queue_of_length_zero_takes_nothing() -> None:
    head = ContrastiveHead(WIDTH, 2, 0)
    head.enqueue(torch.ones(3, 2), torch.zeros(3, dtype=torch.int64))
    assert head.queue.shape == (0, 2)


def test_the_queue_travels_with_the_state_and_carries_no_graph() -> None:
    head = ContrastiveHead(WIDTH, 2, 4)
    head.enqueue(head(torch.randn(3, WIDTH)), torch.tensor([0, 1, 2]))
    assert {"queue", "queue_labels", "pointer"} <= set(head.state_dict())
    assert not head.queue.requires_grad


def test_the_term_contrasts_the_two_positive_views_and_queues_them_only_after_the_step() -> None:
    facts, term = made_up_facts(), SupCon(dimensions=3, queue=20, temperature=0.5)
    torch.manual_seed(0)
    module = term.module(WIDTH, 4).double()
    labels = facts.labels.tolist() * 2
    with torch.no_grad():
        embeddings = F.normalize(module.project(facts.pooled[: 2 * BATCH]), dim=-1)
    empty = torch.zeros(0, 3)
    first = term.loss(facts, module)
    assert first.item() == pytest.approx(supcon_by_loop(embeddings, labels, empty, [], 0.5), rel=1e-9)
    assert module.queue_labels.tolist() == [-1] * 20
    term.after_step(facts, module)
    assert module.queue_labels.tolist() == labels + [-1] * 10
    torch.testing.assert_close(module.queue[:10], embeddings)
    again = term.loss(facts, module).item()
    assert again == pytest.approx(supcon_by_loop(embeddings, labels, embeddings, labels, 0.5), rel=1e-9)
    # the label-free form looks at the pass without a label (here the negated features) instead
    neutral = SupCon(dimensions=3, queue=20, temperature=0.5, label_free=True)
    with torch.no_grad():
        others = F.normalize(module.project(-facts.pooled[: 2 * BATCH]), dim=-1)
    value = neutral.loss(facts, module).item()
    assert value == pytest.approx(supcon_by_loop(others, labels, embeddings, labels, 0.5), rel=1e-9)


@pytest.mark.parametrize(("field", "value"), [("temperature", 0.0), ("dimensions", 0), ("queue", -1)])
def test_a_supcon_setting_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"objective\.supcon.*{field}={value}"):
        SupCon(**{field: value}).check()


def facts_at(progress: float) -> Facts:
    facts = made_up_facts()
    facts.progress = torch.tensor(progress, dtype=torch.float64)
    return facts


def contrastive_head() -> ContrastiveHead:
    torch.manual_seed(0)
    return ContrastiveHead(WIDTH, 3, 20).double()


def loss_by_loop(facts: Facts, head: ContrastiveHead, t: float) -> float:
    with torch.no_grad():
        embeddings = F.normalize(head.project(facts.pooled[: 2 * BATCH]), dim=-1)
    return supcon_by_loop(embeddings, facts.labels.tolist() * 2, torch.zeros(0, 3), [], t)


@given(st.integers(1, 9))
def test_supcon_at_the_last_block_has_a_coefficient_there_alone(blocks: int) -> None:
    every, last = SupCon(weight=0.3), SupCon(weight=0.3, at="last")
    assert [every.coefficient(depth, blocks) for depth in range(blocks)] == [0.3] * blocks
    assert [last.coefficient(depth, blocks) for depth in range(blocks)] == [0.0] * (blocks - 1) + [0.3]


@pytest.mark.parametrize(("progress", "weight"), [(0.0, 0.5), (0.49, 0.5), (0.5, 0.2), (0.51, 0.2), (1.0, 0.2)])
def test_the_late_weight_holds_from_half_of_the_training_on(progress: float, weight: float) -> None:
    facts, head = facts_at(progress), contrastive_head()
    term = SupCon(weight=0.5, late=0.2, temperature=0.5)
    total, values = Objective({"supcon": term})(facts, {"supcon": head})
    value = loss_by_loop(facts, head, 0.5)
    assert values["supcon"].item() == pytest.approx(value, rel=1e-9), "the term's own value, before its coefficient"
    assert total.item() == pytest.approx(weight * value, rel=1e-9)
    assert term.coefficient(0, 1, progress) == pytest.approx(weight, rel=1e-12)


def test_a_late_weight_of_zero_stops_the_terms_gradient_and_keeps_the_queue_going() -> None:
    facts, head, term = facts_at(0.75), contrastive_head(), SupCon(late=0.0)
    Objective({"supcon": term})(facts, {"supcon": head})[0].backward()
    assert all(bool((one.grad == 0).all()) for one in head.parameters())
    term.after_step(facts, head)
    assert int((head.queue_labels >= 0).sum()) == 2 * BATCH


@given(st.floats(0, 1), st.floats(0.1, 1), st.floats(0.1, 1))
def test_the_temperature_moves_linearly_over_the_training(progress: float, first: float, last: float) -> None:
    facts, head = facts_at(progress), contrastive_head()
    value = SupCon(temperature=first, temperature_last=last).loss(facts, head)
    expected = loss_by_loop(facts, head, (1 - progress) * first + progress * last)
    assert value.item() == pytest.approx(expected, rel=1e-8)


def test_supcon_takes_its_temperature_as_a_tensor_too() -> None:
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 3])
    as_tensor = supcon(unit(8, 3), labels, *NOTHING, torch.tensor(0.2, dtype=torch.float64))
    assert as_tensor.item() == supcon(unit(8, 3), labels, *NOTHING, 0.2).item()


def test_without_its_options_supcon_looks_at_no_progress() -> None:
    head, term = contrastive_head(), SupCon()
    assert term.loss(facts_at(0.9), head).item() == term.loss(facts_at(0.0), head).item()
    assert term.temperature_at(torch.tensor(0.9)) == term.temperature


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (SupCon(temperature_last=0.0), "temperature_last must be positive"),
        (SupCon(late=-0.1), "late must be at least 0"),
    ],
)
def test_a_supcon_option_out_of_range_is_refused_by_name(term: SupCon, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"objective\.supcon.*{message}"):
        term.check()
