"""Block health from goodness: against loops, and on hand-made goodness whose health is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from goodness.health.margins import (
    evaluation_measures,
    mined_labels,
    top_k_accuracy,
    training_measures,
    worst_margin,
    wrong_image_measures,
)
from goodness.methods.cumulative.collaboration import Constant, Gated, Progressive, Ramp
from goodness.methods.cumulative.facts import Facts, Past, PerStream
from goodness.parts import Rule

BETA = 4.0
MEASURES = (
    *("sep_cur", "sep", "sep_cur_mined", "sep_rate", "attenuation", "loss_collapse"),
    *("g_pos", "g_neg", "rule_weight", "accuracy"),
)


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def rule_by_hand(rule: Rule, total: float, previous: float, depth: int, blocks: int, progress: float) -> float:
    one = Past(
        total=torch.tensor([total], dtype=torch.float64),
        previous=torch.tensor([previous], dtype=torch.float64),
        depth=depth,
        blocks=blocks,
        progress=progress,
    )
    return rule.weight(one).item()


def measures_by_loop(
    goodness: Tensor, labels: Tensor, uniforms: Tensor, rule: Rule, history: str, progress: float
) -> list[dict[str, float]]:
    g, (blocks, n, classes) = goodness.tolist(), goodness.shape
    report = []
    for d in range(blocks):
        sums, weights = dict.fromkeys(MEASURES, 0.0), []
        for i, y in enumerate(labels.tolist()):
            wrongs = [k for k in range(classes) if k != y]
            draws = [(y + 1 + min(int(u * (classes - 1)), classes - 2)) % classes for u in uniforms[i].tolist()]
            mined = max(draws, key=lambda k: g[d][i][k])
            total = [sum(g[j][i][k] for j in range(d + 1)) for k in range(classes)]
            carried, weight = 0.0, 0.0  # the inherited margin, before the rule's weight
            for j in range(d + 1):
                positive = [g[a][i][y] for a in range(j)]
                weight = rule_by_hand(rule, sum(positive), positive[-1] if positive else 0.0, j, blocks, progress)
                if j < d:
                    margin = g[j][i][y] - g[j][i][mined]
                    carried = margin + (carried if history == "sum" else weight * carried)
            m = g[d][i][y] - g[d][i][mined]
            inference = sum(g[j][i][y] - g[j][i][mined] for j in range(d + 1))
            log_ratio = softplus(BETA * m) - softplus(BETA * (m + weight * carried))
            sums["sep_cur"] += g[d][i][y] - max(g[d][i][k] for k in wrongs)
            sums["sep"] += total[y] - max(total[k] for k in wrongs)
            sums["sep_cur_mined"] += m
            sums["sep_rate"] += inference > 0
            sums["attenuation"] += min(1.0, math.exp(min(0.0, log_ratio)))
            sums["loss_collapse"] += softplus(-BETA * inference)
            sums["g_pos"] += g[d][i][y]
            sums["g_neg"] += g[d][i][mined]
            sums["rule_weight"] += weight
            weights.append(weight)
            sums["accuracy"] += total.index(max(total)) == y
        means = {name: value / n for name, value in sums.items()}
        spread = {f"rule_weight_p{p}": float(np.quantile(weights, p / 100)) for p in (10, 90)}
        report.append(means | spread)
    final = report[-1]["accuracy"]
    for one in report:
        one["saturation"] = one["accuracy"] / final if final else 1.0
    return report


RULES = [Constant(gamma=0.7), Constant(gamma=0.0), Gated(), Gated(source="previous", kappa=0.5), Progressive(), Ramp()]


@settings(max_examples=60)
@given(
    st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 5), st.integers(2, 5), st.integers(1, 6),
    st.sampled_from(RULES), st.sampled_from(["sum", "decay"]), st.sampled_from([0.3, 1.0]),
)  # fmt: skip
def test_evaluation_measures_equal_the_loop(
    seed: int, blocks: int, n: int, classes: int, k: int, rule: Rule, history: str, progress: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    goodness = torch.randn(blocks, n, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=generator)
    uniforms = torch.rand(n, k, generator=generator)
    report = evaluation_measures(goodness, labels, uniforms, rule, beta=BETA, history=history, progress=progress)
    expected = measures_by_loop(goodness, labels, uniforms, rule, history, progress)
    assert len(report) == blocks
    for mine, theirs in zip(report, expected):
        assert mine == pytest.approx(theirs, rel=1e-8, abs=1e-10)


def wrong_images_by_loop(g: list[Any], labels: list[int], partner: list[int]) -> list[dict[str, float]]:
    pairs = [(i, j) for i, j in enumerate(partner) if labels[i] != labels[j]]
    report = []
    for d in range(len(g)):
        sums = dict.fromkeys(["g_ni", "sep_cur_ni", "sep_cur_ni_rate", "sep_ni", "sep_ni_rate"], 0.0)
        for i, j in pairs:
            y = labels[i]
            total = sum(g[a][i][y] - g[a][j][y] for a in range(d + 1))
            sums["g_ni"] += g[d][j][y]
            sums["sep_cur_ni"] += g[d][i][y] - g[d][j][y]
            sums["sep_cur_ni_rate"] += g[d][i][y] > g[d][j][y]
            sums["sep_ni"] += total
            sums["sep_ni_rate"] += total > 0
        report.append({name: value / len(pairs) for name, value in sums.items()} if pairs else {})
    return report


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 8), st.integers(2, 4))
def test_separation_from_wrong_images_equals_the_loop(seed: int, blocks: int, n: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    goodness = torch.randn(blocks, n, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=generator)
    partner = torch.randperm(n, generator=generator)
    expected = wrong_images_by_loop(goodness.tolist(), labels.tolist(), partner.tolist())
    found = wrong_image_measures(goodness, labels, partner)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-12)
    alone = evaluation_measures(goodness, labels, torch.rand(n, 2), Constant(gamma=0.7), beta=BETA)
    both = evaluation_measures(goodness, labels, torch.rand(n, 2), Constant(gamma=0.7), beta=BETA, partner=partner)
    assert [set(one) - set(other) for one, other in zip(both, alone)] == [set(one) for one in found]


def health(goodness: Tensor, gamma: float) -> list[dict[str, float]]:
    n = goodness.shape[1]
    return evaluation_measures(
        goodness, torch.zeros(n, dtype=torch.int64), torch.rand(n, 16), Constant(gamma=gamma), beta=BETA
    )


def margins(per_block: list[float]) -> Tensor:
    """Goodness of eight examples of class 0 whose margin over both other classes is given for each block."""
    goodness = torch.zeros(len(per_block), 8, 3)
    goodness[:, :, 0] = torch.tensor(per_block)[:, None]
    return goodness


def column(report: list[dict[str, float]], name: str) -> list[float]:
    return [one[name] for one in report]


def test_all_evidence_in_the_first_block_reads_as_free_riding() -> None:
    report = health(margins([2.0, 0.0, 0.0]), gamma=1.0)
    assert column(report, "sep_cur") == [2.0, 0.0, 0.0]
    assert column(report, "sep") == [2.0, 2.0, 2.0]
    assert column(report, "accuracy") == [1.0, 1.0, 1.0]
    attenuated = 2 / (1 + math.exp(8))
    assert column(report, "attenuation") == pytest.approx([1.0, attenuated, attenuated])
    assert column(report, "loss_collapse") == pytest.approx([math.log1p(math.exp(-8))] * 3)
    # the same evidence under the local rule: nothing is inherited, nothing attenuated
    assert column(health(margins([2.0, 0.0, 0.0]), gamma=0.0), "attenuation") == [1.0, 1.0, 1.0]


def test_evenly_spread_evidence_shows_in_every_block() -> None:
    report = health(margins([0.5, 0.5, 0.5, 0.5]), gamma=0.7)
    assert column(report, "sep_cur") == column(report, "sep_cur_mined") == [0.5] * 4
    assert column(report, "sep") == [0.5, 1.0, 1.5, 2.0]
    expected = [(1 + math.exp(2)) / (1 + math.exp(4 * (0.5 + 0.7 * 0.5 * d))) for d in range(4)]
    assert column(report, "attenuation") == pytest.approx(expected)
    assert column(report, "loss_collapse") == pytest.approx([math.log1p(math.exp(-2 * (d + 1))) for d in range(4)])


def test_a_dead_last_block_adds_nothing_and_a_hostile_one_takes_away() -> None:
    dead = health(margins([1.0, 1.0, 0.0]), gamma=0.0)
    assert dead[2]["sep_cur"] == 0
    assert dead[2]["sep"] == dead[1]["sep"]
    assert dead[2]["accuracy"] == 1
    hostile = health(margins([1.0, 0.0, -3.0]), gamma=1.0)
    assert column(hostile, "accuracy") == [1.0, 1.0, 0.0]
    assert column(hostile, "sep_rate") == [1.0, 1.0, 0.0]


def test_a_negative_past_counts_as_no_attenuation_rather_than_as_more_than_one() -> None:
    report = health(margins([-5.0, 3.0]), gamma=1.0)
    assert column(report, "attenuation") == [1.0, 1.0]


def test_the_gate_weighs_each_example_by_its_own_past() -> None:
    goodness = margins([2.0, 1.0])
    goodness[0, :4] -= 4.0  # half of the examples have low goodness; their margins are the same
    rule = Gated(gamma0=1.0, tau=1000.0, kappa=0.0)
    report = evaluation_measures(goodness, torch.zeros(8, dtype=torch.int64), torch.rand(8, 16), rule, beta=BETA)
    attenuated = (1 + math.exp(4)) / (1 + math.exp(12))
    assert report[1]["rule_weight"] == pytest.approx(0.5)
    assert report[1]["attenuation"] == pytest.approx((1 + attenuated) / 2)


def test_the_worst_margin_is_against_the_best_wrong_label() -> None:
    scores = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 5.0], [-1.0, -2.0, -9.0]])
    assert worst_margin(scores, torch.tensor([0, 2, 1])).tolist() == [1.0, 0.0, -1.0]


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 7), st.booleans())
def test_top_k_accuracy_is_a_stable_sort(seed: int, classes: int, k: int, with_ties: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(9, classes, generator=generator)
    if with_ties:
        scores = scores.round()
    labels = torch.randint(classes, (9,), generator=generator)
    hits = 0
    for row, y in zip(scores.tolist(), labels.tolist()):
        hits += y in sorted(range(classes), key=lambda c: -row[c])[:k]
    assert top_k_accuracy(scores, labels, k) == pytest.approx(hits / 9)
    if k == 1:
        assert top_k_accuracy(scores, labels) == pytest.approx((scores.argmax(dim=1) == labels).double().mean().item())


def test_a_constant_classifier_predicts_the_first_label() -> None:
    scores = torch.zeros(4, 4)
    assert top_k_accuracy(scores, torch.tensor([0, 1, 2, 3]), 1) == 0.25
    assert top_k_accuracy(scores, torch.tensor([0, 1, 2, 3]), 3) == 0.75


def test_the_mined_label_is_the_hardest_drawn_and_never_the_right_one() -> None:
    generator = torch.Generator().manual_seed(0)
    goodness, labels = torch.randn(200, 5, generator=generator), torch.randint(5, (200,), generator=generator)
    few, all_of_them = torch.rand(200, 1, generator=generator), (torch.arange(4) / 4 + 0.1).expand(200, 4)
    assert bool((mined_labels(goodness, labels, few) != labels).all())
    worst = goodness.clone()
    worst[torch.arange(200), labels] = -torch.inf
    assert torch.equal(mined_labels(goodness, labels, all_of_them), worst.argmax(dim=1))


@pytest.mark.parametrize("with_ni", [True, False])
def test_training_measures_equal_the_loop(with_ni: bool) -> None:
    generator = torch.Generator().manual_seed(0)

    def trio(*shape: int) -> PerStream:
        made = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3)]
        return PerStream(made[0], made[1], made[2] if with_ni else None)

    nothing = torch.zeros(0)
    facts = Facts(
        depth=1, blocks=2, labels=torch.zeros(6, dtype=torch.int64), beta=BETA, eta=0.5, goodness=trio(6),
        aspects=trio(6, 4), active=(True,) * 4, earlier=trio(6), weight=torch.rand(6, dtype=torch.float64),
        history=trio(6), history_aspects=trio(6, 4), tokens_in=nothing, tokens_out=nothing, pooled=nothing,
        notes={},
        neutral=None,
    )  # fmt: skip
    loss, value = torch.tensor(3.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    measured = training_measures(facts, {"block": value}, loss)
    pos, nl, weight = facts.goodness.pos.tolist(), facts.goodness.nl.tolist(), facts.weight.tolist()
    m = [p - n for p, n in zip(pos, nl)]
    past = [p - n for p, n in zip(facts.earlier.pos.tolist(), facts.earlier.nl.tolist())]
    inherited = [w * (p - n) for w, p, n in zip(weight, facts.history.pos.tolist(), facts.history.nl.tolist())]
    ratios = [(1 + math.exp(BETA * a)) / (1 + math.exp(BETA * (a + b))) for a, b in zip(m, inherited)]
    expected = {
        "loss": 3.0,
        "loss_block": 2.0,
        "g_pos": sum(pos) / 6,
        "g_nl": sum(nl) / 6,
        "sep_cur_mined": sum(m) / 6,
        "sep_rate": sum(a + b > 0 for a, b in zip(m, past)) / 6,
        "attenuation": sum(min(1.0, r) for r in ratios) / 6,
        "rule_weight": sum(weight) / 6,
    }
    if with_ni:
        ni = facts.goodness.ni.tolist()
        expected |= {"g_ni": sum(ni) / 6, "sep_cur_ni": sum(p - n for p, n in zip(pos, ni)) / 6}
    assert {name: one.item() for name, one in measured.items()} == pytest.approx(expected, rel=1e-6)
    assert not any(one.requires_grad for one in measured.values())


def test_the_first_blocks_alone_are_judged_as_blocks_of_the_whole_network() -> None:
    goodness = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels, uniforms = torch.tensor([0, 1, 2, 0, 1, 2]), torch.full((6, 2), 0.3)
    whole = evaluation_measures(goodness, labels, uniforms, Progressive(), beta=BETA)
    first = evaluation_measures(goodness[:2], labels, uniforms, Progressive(), beta=BETA, of_blocks=4)
    for mine, theirs in zip(first, whole):
        assert mine["rule_weight"] == theirs["rule_weight"]
        assert mine["attenuation"] == theirs["attenuation"]
