"""The theorems on networks: numerical gradients and loops as oracles; losses broken on purpose are caught."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import goodness
from goodness.config import Config, override
from goodness.errors import RunError, UserError
from goodness.health import theory
from goodness.health.theory import (
    check_example,
    check_floor,
    check_sandwich,
    check_theory,
    envelope,
    facts_of,
    gradients,
    hardest_wrong,
    measure_coverage,
    pair_goodness,
    theory_of_run,
)
from goodness.health.theory_report import Example, TheoryReport, theory_table_rows
from goodness.methods.cumulative.barrier import attenuation
from goodness.methods.cumulative.collaboration import Constant, Gated, Progressive, Ramp
from goodness.methods.cumulative.facts import Facts, PerStream
from goodness.methods.cumulative.ledger import Ledger
from goodness.methods.cumulative.terms import Block, Current
from goodness.nn.network import Network
from goodness.parts import Rule
from goodness.step_context import Moment
from goodness.training.step import Stepper
from tiny_runs import BLOBS, blobs_at_hand, shrunk

BETA, CLASSES = 4.0, 4
DRAWS = torch.Generator().manual_seed(0)
IMAGES = torch.rand(12, 1, 8, 8, generator=DRAWS, dtype=torch.float64)
LABELS = torch.randint(CLASSES, (12,), generator=DRAWS)


def network_for(config: Config) -> Network:
    """With heads drawn large: margins of the size that training gives, of either sign."""
    torch.manual_seed(3)
    network = Network(config.model, (1, 8, 8), CLASSES, terms=config.objective).double()
    for depth in range(config.model.blocks):
        torch.nn.init.normal_(network.block(depth).head.get_parameter("prototypes"))
    return network.eval().requires_grad_(False)


def tiny(name: str = "lcff-dense", blocks: int = 3, **changes: Any) -> Config:
    return shrunk(name, changes, blocks=blocks)


CONFIG = tiny()


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def rule_by_hand(rule: Rule, positives: list[float], depth: int, blocks: int) -> float:
    """The weight at the end of training, from the earlier blocks' positive goodness."""
    if isinstance(rule, Constant):
        return rule.gamma
    if isinstance(rule, Ramp):
        return rule.last
    if isinstance(rule, Progressive):
        return rule.first + max(0, depth - 1) / (blocks - 2) * (rule.last - rule.first) if blocks > 2 else rule.last
    assert isinstance(rule, Gated)
    support = sum(positives) if rule.source == "cumulative" else (positives or [0.0])[-1]
    return rule.gamma0 / (1 + math.exp(-rule.tau * (rule.kappa - support)))


def past_by_hand(rule: Rule, history: str, right: list[float], wrong: list[float], blocks: int) -> tuple[float, float]:
    """P and w of the last block, from both labels' goodness block by block."""
    depth, carried = len(right) - 1, 0.0
    for j in range(depth):
        fades = rule_by_hand(rule, right[:j], j, blocks) if history == "decay" else 1.0
        carried = right[j] - wrong[j] + fades * carried
    return carried, rule_by_hand(rule, right[:depth], depth, blocks)


def goodness_by_hand(network: Network, image: Tensor, label: int) -> list[float]:
    found, tokens = [], network.tokens(image)
    for depth in range(len(network.blocks)):
        output = network.block(depth)(tokens, torch.tensor([label]))
        found.append(output.goodness.item())
        tokens = network.hand_on(output.tokens)
    return found


# The identity


VARIANTS = {
    "lcff": {},
    "gated": {"rule": "gated", "rule.kappa": 1.0},
    "decay": {"rule.gamma": 0.7, "history": "decay"},
    "gated decay": {"rule": "gated", "rule.gamma0": 0.9, "rule.source": "previous", "history": "decay"},
}


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_both_gradients_are_the_numerical_ones_and_one_is_r_times_the_other(variant: str, depth: int) -> None:
    config = tiny(**VARIANTS[variant])
    network, image, pair = network_for(config), IMAGES[:1], (1, 3)

    def losses() -> tuple[float, float, float, float, float]:
        right, wrong = (goodness_by_hand(network, image, label)[: depth + 1] for label in pair)
        past, weight = past_by_hand(config.rule, config.history, right, wrong, 3)
        margin = right[-1] - wrong[-1]
        return softplus(-BETA * margin), softplus(-BETA * (margin + weight * past)), margin, past, weight

    _, _, margin, past, weight = losses()
    textbook = (1 + math.exp(BETA * margin)) / (1 + math.exp(BETA * (margin + weight * past)))
    network.requires_grad_(True)
    facts = facts_of(config, 3, pair_goodness(network, image, *pair, depth))
    local, cumulative = gradients(network, config, facts)
    torch.testing.assert_close(cumulative, textbook * local, rtol=1e-10, atol=1e-10 * float(local.abs().max()))

    largest = local.abs().topk(200).indices[::40].tolist()  # a handful, none of them lost in rounding
    parameters = torch.nn.utils.parameters_to_vector(network.owned(depth).values()).detach()
    for place in largest:
        step, found = 1e-5, []
        for sign in (1, -1):
            moved = parameters.clone()
            moved[place] += sign * step
            torch.nn.utils.vector_to_parameters(moved, network.owned(depth).values())
            found.append(losses())
        torch.nn.utils.vector_to_parameters(parameters, network.owned(depth).values())
        for which, gradient in enumerate((local, cumulative)):
            numerical = (found[0][which] - found[1][which]) / (2 * step)
            assert gradient[place].item() == pytest.approx(numerical, rel=1e-5, abs=1e-9)

    example = check_example(network, config, depth, image, pair)
    assert (example.margin, example.past, example.weight) == pytest.approx((margin, past, weight), rel=1e-10)
    assert example.ratio == pytest.approx(textbook, rel=1e-10)
    assert example.measured == pytest.approx(textbook, rel=1e-10)
    assert example.cosine == pytest.approx(1, abs=1e-10)
    assert example.error is not None
    assert example.error < 1e-10
    assert example.obeys


@pytest.mark.parametrize("history", ["sum", "decay"])
@pytest.mark.parametrize("rule", ["lcff", "gated"])
def test_the_facts_are_those_of_a_training_step(rule: str, history: str) -> None:
    config = tiny("cp-fair-dense", rule=rule, history=history, eta=0.0, **{"negatives.once": True})
    network = network_for(config).requires_grad_(True)
    wrong = (LABELS + 1) % CLASSES
    moment = Moment(epoch=0, step=0, total_step=0, total_steps=1, progress=1.0)
    stepper = Stepper(network, config)
    situation = replace(stepper.first(IMAGES.expand(3, *IMAGES.shape), LABELS, moment), wrong=wrong)
    by_image = [[goodness_by_hand(network, one[None], y) for y in range(CLASSES)] for one in IMAGES]
    scores = torch.tensor(by_image, dtype=torch.float64).permute(2, 0, 1)
    for depth in range(3):
        judged = stepper.loss(situation)
        mine, theirs = facts_of(config, 3, theory._pairs(scores[: depth + 1], LABELS, wrong)), judged.facts
        for a, b in (
            (mine.weight, theirs.weight),
            (mine.margins()[0], theirs.margins()[0]),
            (mine.past_margins()[0], theirs.past_margins()[0]),
            (mine.cumulative_margins()[0], theirs.cumulative_margins()[0]),
        ):
            torch.testing.assert_close(a, b.detach(), rtol=1e-10, atol=1e-10)
        if depth < 2:
            situation = stepper.next(situation, judged, moment)


def test_gradients_that_underflow_are_not_judged_and_small_ones_are() -> None:
    direction = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    measured, cosine, error = theory._compare(1e-200 * direction, 1e-250 * direction, 1e-50)
    assert measured == pytest.approx(1e-50, rel=1e-12)
    assert cosine == pytest.approx(1, abs=1e-12)
    assert error == pytest.approx(0, abs=1e-60)
    for local, cumulative, ratio in ((0.0, 0.0, 1.0), (1e-200, 0.0, 1e-200), (1e-290, 1e-295, 1e-5)):
        assert theory._compare(local * direction, cumulative * direction, ratio) == (None, None, None)
    assert theory._compare(direction, direction, 1e-300)[0] == 1.0  # the history should have left nothing, and did not


def test_an_example_obeys_in_length_and_in_direction_and_with_a_detached_past() -> None:
    good = Example(0, 1, 1.0, 1.0, 1.0, 0.02, 0.02, 1.0, 0.0, True)
    assert good.obeys
    assert replace(good, measured=None, cosine=None, error=None).obeys  # nothing to judge
    assert not replace(good, cosine=1 - 1e-6).obeys
    assert not replace(good, measured=0.02 * (1 + 1e-6)).obeys
    assert not replace(good, is_detached=False).obeys
    assert not replace(good, measured=math.nan).obeys


# Broken on purpose


def report_of(config: Config, examples: int = 4) -> TheoryReport:
    return check_theory(network_for(config), config, IMAGES, LABELS, examples=examples)


def test_a_history_that_keeps_its_graph_is_caught_at_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PerStream, "detach", lambda self: self)
    report = report_of(tiny())
    assert [block.identity.violations for block in report.blocks] == [4, 4]
    assert not report.holds


def test_a_history_with_the_blocks_own_goodness_in_it_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    faithful = Ledger.history

    def greedy(self: Ledger, own: PerStream, aspects: PerStream) -> tuple[PerStream, PerStream]:
        history, rest = faithful(self, own, aspects)
        return history.plus(own), rest

    monkeypatch.setattr(Ledger, "history", greedy)
    for one in report_of(tiny()).blocks[0].examples:
        assert one.measured == pytest.approx(2 * one.ratio)  # M = 2 m + P has twice the slope in m
        assert one.cosine == pytest.approx(1)
        assert not replace(one, is_detached=True).obeys


@dataclass(frozen=True, kw_only=True)
class Wordy(Block):
    """The cumulative loss with something more in it."""

    def loss(self, facts: Facts, module: None) -> Tensor:
        return super().loss(facts, module) + 1e-4 * facts.goodness.pos.mean()


def test_a_loss_with_something_more_in_it_turns_the_gradient_and_is_caught() -> None:
    config = override(tiny(), {"objective.block": Wordy()})
    report = report_of(config)
    assert not report.holds
    assert all(block.identity.violations == 4 for block in report.blocks)
    assert min(one.cosine or 1 for block in report.blocks for one in block.examples) < 1 - 1e-6
    assert report_of(tiny()).holds


@dataclass(frozen=True, kw_only=True)
class Timid(Current):
    """Half of the current-block loss that the configuration says."""

    def loss(self, facts: Facts, module: None) -> Tensor:
        return super().loss(facts, module) / 2


def test_a_current_block_term_that_gives_less_than_it_says_breaks_the_floor() -> None:
    config = tiny("cp-fair-dense", rule="lcff")
    assert report_of(config).holds
    broken = report_of(override(config, {"objective.curr": Timid(weight=0.25)}))
    floors = [block.floor for block in broken.blocks]
    assert sum(floor.violations for floor in floors if floor) > 0
    assert min(floor.smallest_slack for floor in floors if floor) < 0
    assert not broken.holds


# The sandwich

margins = st.lists(
    st.tuples(st.floats(0, 1000), st.floats(0, 1000), st.floats(0, 1)), min_size=1, max_size=8
)  # fmt: skip


@settings(max_examples=50)
@given(margins, st.floats(0.1, 10))
def test_the_sandwich_holds_wherever_its_assumptions_do(rows: list[tuple[float, float, float]], beta: float) -> None:
    m, p, w = torch.tensor(rows, dtype=torch.float64).unbind(dim=1)
    assert check_sandwich(m, p, w, attenuation(m, p, w, beta), beta) == (len(rows), 0)


@settings(max_examples=50)
@given(margins, st.floats(0.1, 10))
def test_a_ratio_outside_the_sandwich_is_counted(rows: list[tuple[float, float, float]], beta: float) -> None:
    m, p, w = torch.tensor(rows, dtype=torch.float64).unbind(dim=1)
    lower, upper = envelope(w * p, beta)
    told = lower > 1e-300  # below, float64 cannot tell
    for ratio in (0.9999 * lower, 1.0001 * upper, torch.full_like(lower, torch.nan)):
        inside, violations = check_sandwich(m[told], p[told], w[told], ratio[told], beta)
        assert inside == violations == int(told.sum())


def test_the_envelope_is_the_textbooks() -> None:
    x = [0.0, 0.1, 0.2, 3.0]
    lower, upper = envelope(torch.tensor(x, dtype=torch.float64), BETA)
    assert lower.tolist() == pytest.approx([math.exp(-BETA * one) for one in x])
    assert upper.tolist() == pytest.approx([min(1, 2 * math.exp(-BETA * one)) for one in x])


def test_outside_its_assumptions_the_sandwich_says_nothing() -> None:
    m, p, w = torch.tensor([[-1.0, 2.0, 1.0], [1.0, -2.0, 1.0], [0.0, 0.0, 0.5]], dtype=torch.float64).unbind(dim=1)
    assert check_sandwich(m, p, w, torch.tensor([9.0, 9.0, 1.0]), BETA) == (1, 0)


# The floor


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_the_floor_equals_the_loop(seed: int, residual: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, 9, 2, generator=generator, dtype=torch.float64)
    labels = torch.zeros(9, dtype=torch.int64)
    term = Current(weight=0.25, rho=3.0, residual=residual, w_min=0.1, w_max=2.0)
    config = tiny()
    floor = check_floor(facts_of(config, 3, theory._pairs(scores, labels, 1 - labels)), Block(), term)
    assert floor is not None
    m = (scores[2, :, 0] - scores[2, :, 1]).tolist()
    p = (scores[:2, :, 0] - scores[:2, :, 1]).sum(dim=0).tolist()
    raw = [1 / (1 + math.exp(BETA * one)) if residual else 1.0 for one in p]
    clipped = [min(2.0, max(0.1, one * 9 / sum(raw))) for one in raw]
    weights = [one * 9 / sum(clipped) for one in clipped]
    slopes = [
        BETA / (1 + math.exp(BETA * (a + b))) + w * BETA / (1 + math.exp(BETA * a)) for a, b, w in zip(m, p, weights)
    ]
    floors = [w * BETA / (1 + math.exp(BETA * a)) for a, w in zip(m, weights)]  # the coefficient is 0.25 (1 + 3) = 1
    uniform = (0.05 if residual else 1.0) * BETA / 2
    assert floor.coefficient == 1
    assert floor.violations == 0
    assert floor.unresolved == sum(a <= 0 for a in m)
    assert floor.smallest_slack == pytest.approx(min(s - f for s, f in zip(slopes, floors)), rel=1e-6, abs=1e-12)
    if floor.unresolved:
        expected = min(s for s, a in zip(slopes, m) if a <= 0) - uniform
        assert floor.smallest_unresolved_slack == pytest.approx(expected)


def test_there_is_no_floor_without_the_term_or_where_it_has_no_coefficient() -> None:
    assert all(block.floor is None for block in report_of(tiny(), examples=1).blocks)
    fading = override(tiny("cp-fair-dense", rule="lcff"), {"objective.curr.rho": -1.0})
    first, last = report_of(fading, examples=1).blocks
    assert first.floor is not None
    assert last.floor is None


# The coverage


RULES = [Constant(gamma=0.7), Constant(gamma=0.0), Gated(kappa=1.0), Gated(source="previous"), Progressive(), Ramp()]


@settings(max_examples=40)
@given(
    st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 7), st.integers(2, 5),
    st.sampled_from(RULES), st.sampled_from(["sum", "decay"]),
)  # fmt: skip
def test_the_coverage_equals_the_loop(seed: int, blocks: int, n: int, classes: int, rule: Rule, history: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(blocks, n, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=generator)
    config = replace(CONFIG, rule=rule, history=history)
    for depth in range(blocks):
        wrong = hardest_wrong(scores[depth], labels)
        found = measure_coverage(facts_of(config, blocks, theory._pairs(scores[: depth + 1], labels, wrong)))
        table = []
        for i, y in enumerate(labels.tolist()):
            g = scores[: depth + 1, i].tolist()
            worst = max((k for k in range(classes) if k != y), key=lambda k: g[-1][k])
            assert worst == int(wrong[i])
            p, w = past_by_hand(rule, history, [one[y] for one in g], [one[worst] for one in g], blocks)
            m = g[-1][y] - g[-1][worst]
            table.append((m, p, w, w * p, (1 + math.exp(BETA * m)) / (1 + math.exp(BETA * (m + w * p)))))
        m, p, w, wp, ratio = ([row[column] for row in table] for column in range(5))

        def mean(values: list[float]) -> float:
            return sum(values) / n

        assert found.examples == n
        assert found.margin_positive == pytest.approx(mean([one >= 0 for one in m]))
        assert found.past_positive == pytest.approx(mean([one >= 0 for one in p]))
        assert found.both == pytest.approx(mean([a >= 0 and b >= 0 for a, b in zip(m, p)]))
        assert found.mean_margin == pytest.approx(mean(m))
        assert found.mean_past == pytest.approx(mean(p))
        assert found.mean_weight == pytest.approx(mean(w))
        assert found.mean_inherited == pytest.approx(mean(wp))
        assert found.mean_ratio == pytest.approx(mean(ratio))
        assert found.mean_clipped_ratio == pytest.approx(mean([min(1.0, one) for one in ratio]))
        at_means = (1 + math.exp(BETA * mean(m))) / (1 + math.exp(BETA * (mean(m) + mean(wp))))
        assert found.ratio_at_means == pytest.approx(at_means)


# Whole reports


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("lcff-dense", {}),
        ("lcff-dense", {"history": "decay", "rule.gamma": 0.8}),
        ("gated-dense", {}),
        ("gated-dense", {"history": "decay", "rule.source": "previous"}),
        ("cp-fair-dense", {"rule": "ramp"}),
        ("mgc-dense", {"rule": "progressive"}),
        ("lcff", {"model.block.memory": 3}),
    ],
)
def test_the_theory_holds_on_every_kind_of_network(name: str, changes: dict[str, Any]) -> None:
    config = tiny(name, **changes)
    report = report_of(config)
    assert report.holds
    assert [block.block for block in report.blocks] == [1, 2]
    for block in report.blocks:
        assert block.identity.measured == len(block.examples) == report.examples == 4
        assert block.identity.smallest_cosine == pytest.approx(1, abs=1e-10)
        assert block.identity.largest_error == pytest.approx(0, abs=1e-10)
        assert block.coverage.examples == report.coverage_examples == 12
        assert (block.floor is not None) == ("curr" in config.objective and config.objective["curr"].weight > 0)
    assert ("decays" in report.note) == (config.history == "decay")
    assert json.loads(json.dumps(report.as_dict(), allow_nan=False))["holds"] is True


def test_the_sample_is_the_seeds_and_what_it_sees_is_what_the_coverage_counts() -> None:
    report, again = report_of(CONFIG, examples=12), report_of(CONFIG, examples=12)
    assert report == again
    for block in report.blocks:
        assert sorted(one.index for one in block.examples) == list(range(12))
        inside = sum(one.is_separated for one in block.examples)
        assert inside == block.sandwich.inside == block.sandwich.measured_inside
        assert block.coverage.both == pytest.approx(inside / 12)
        assert sum(one.margin for one in block.examples) / 12 == pytest.approx(block.coverage.mean_margin)
        assert sum(one.ratio for one in block.examples) / 12 == pytest.approx(block.coverage.mean_ratio)
    network = network_for(CONFIG)
    few = check_theory(network, CONFIG, IMAGES, LABELS, examples=2, coverage=5, seed=1)
    assert (few.examples, few.coverage_examples) == (2, 5)
    other = check_theory(network, CONFIG, IMAGES, LABELS, examples=2, coverage=5, seed=2)
    assert [one.index for one in few.blocks[0].examples] != [one.index for one in other.blocks[0].examples]


def test_every_block_has_its_own_hardest_label_and_its_own_weight() -> None:
    config = tiny(rule="progressive", **{"rule.first": 0.2, "rule.last": 0.6})
    network = network_for(config)
    report = check_theory(network, config, IMAGES, LABELS, examples=6)
    for block, weight in zip(report.blocks, (0.2, 0.6), strict=True):
        assert block.coverage.mean_weight == pytest.approx(weight)
        for one in block.examples:
            scores = [goodness_by_hand(network, IMAGES[one.index][None], y)[block.block] for y in range(CLASSES)]
            right = scores[LABELS[one.index]]
            scores[LABELS[one.index]] = -math.inf
            assert one.wrong == scores.index(max(scores))
            assert one.margin == pytest.approx(right - max(scores), rel=1e-9)
            assert one.weight == weight


def test_bytes_and_shares_of_light_are_the_same_images() -> None:
    network, light = network_for(CONFIG), (255 * IMAGES).to(torch.uint8)
    a = check_theory(network, CONFIG, light, LABELS, examples=2)
    b = check_theory(network, CONFIG, light.double() / 255, LABELS, examples=2)
    assert a == b


def test_the_check_leaves_the_network_as_it_was() -> None:
    network = network_for(CONFIG).float()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.no_grad():
        assert check_theory(network, CONFIG, IMAGES, LABELS, examples=1).holds
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(p.grad is None and not p.requires_grad and p.dtype == torch.float32 for p in network.parameters())


def test_without_history_the_theorem_is_trivial_and_the_note_says_so() -> None:
    report = report_of(tiny("gamma0-dense"))
    assert report.holds
    assert "trivially" in report.note
    for block in report.blocks:
        assert {one.ratio for one in block.examples} == {1.0}
        assert block.coverage.mean_ratio == block.coverage.ratio_at_means == 1
    assert report_of(CONFIG).note == ""


def test_one_block_has_no_past_and_no_rows() -> None:
    report = report_of(tiny(blocks=1))
    assert report.holds
    assert report.blocks == ()
    assert theory_table_rows(report) == []
    assert "one block" in report.note
    json.dumps(report.as_dict(), allow_nan=False)


def test_the_tables_rows_are_flat_and_the_same_for_every_block() -> None:
    for name in ("lcff-dense", "cp-fair-dense"):
        report = report_of(tiny(name))
        rows = theory_table_rows(report)
        assert len({tuple(row) for row in rows}) == 1
        for row, block in zip(rows, report.blocks, strict=True):
            assert all(value is None or isinstance(value, (bool, int, float)) for value in row.values())
            assert (row["block"], row["holds"]) == (block.block, True)
            assert row["coverage_both"] == block.coverage.both
            assert row["identity_smallest_cosine"] == block.identity.smallest_cosine
            assert row["floor_violations"] == (None if name == "lcff-dense" else 0)


def test_what_json_has_no_word_for_becomes_none() -> None:
    hostile = Example(0, 1, 300.0, -300.0, 1.0, math.inf, None, None, None, True)
    report = report_of(CONFIG, examples=1)
    broken = replace(report, blocks=(replace(report.blocks[0], examples=(hostile,)),))
    (row,) = broken.as_dict()["blocks"]
    assert row["examples"][0]["ratio"] is None
    assert row["examples"][0]["margin"] == 300.0


def test_mistakes_are_told() -> None:
    network = network_for(CONFIG)
    with pytest.raises(UserError, match=r"expected images \[n, 1, 8, 8\]"):
        check_theory(network, CONFIG, IMAGES[:, :, :4], LABELS)
    with pytest.raises(UserError, match="a label each"):
        check_theory(network, CONFIG, IMAGES, LABELS[:3])
    with pytest.raises(UserError, match="at least 1"):
        check_theory(network, CONFIG, IMAGES, LABELS, examples=0)
    network.block(1).head.get_parameter("prototypes").fill_(torch.nan)
    with pytest.raises(RunError, match="not finite"):
        check_theory(network, CONFIG, IMAGES, LABELS)


def test_a_run_on_disk_is_checked_on_its_own_images(tmp_path: Path) -> None:
    with blobs_at_hand():
        config = shrunk("cp-fair-dense", {**BLOBS, "rule": "lcff", "epochs": 1}, blocks=3)
        run = goodness.train(config, device="cpu", out=tmp_path / "run")
        report = theory_of_run(run, examples=3)
        assert report.holds
        assert report.coverage_examples == 40
        assert report.rule == "constant, gamma = 1.0"
        assert theory_of_run(run, split="val", examples=1).coverage_examples == 20
        with pytest.raises(UserError, match="unknown split"):
            theory_of_run(run, split="tset")
        stage2 = goodness.readout(run.path, device="cpu", changes={"readout.epochs": 1, "readout.augment": "weak"})
        with pytest.raises(UserError, match="is a readout"):
            theory_of_run(stage2)
