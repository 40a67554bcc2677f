"""Every term against a loop over examples written from the paper's formulas (App. loss_formulas)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_up_facts import BATCH, TOKENS, WIDTH, made_up_facts
from torch import Tensor, nn

from goodness.errors import ConfigError
from goodness.methods.cumulative.facts import Facts, PerStream
from goodness.methods.cumulative.objective import Objective
from goodness.methods.cumulative.terms import (
    Aspects,
    Block,
    Current,
    DepthOrder,
    MissingGradient,
    Reconstruction,
    Threshold,
    missing_gradient_loss,
)
from goodness.parts import Term

CASES = pytest.mark.parametrize(
    ("seed", "eta", "depth", "decay"),
    [
        (0, 0.3, 2, False),
        (1, 0.0, 2, False),
        (2, 0.5, 0, False),
        (3, 0.3, 3, True),
        (4, 0.0, 1, True),
        (5, 1.0, 3, False),
    ],
)


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def plain(trio: PerStream) -> list[list]:
    """The streams as nested lists: positive, then each kind of negative."""
    return [one.detach().tolist() for one in trio if one is not None]


def shares(facts: Facts) -> list[float]:
    return [1.0] if facts.goodness.ni is None else [1 - facts.eta, facts.eta]


def block_loss_by_loop(facts: Facts) -> float:
    g, h, w = plain(facts.goodness), plain(facts.history), facts.weight.tolist()
    total = 0.0
    for n, share in enumerate(shares(facts), start=1):
        for i in range(BATCH):
            positive, negative = g[0][i] + w[i] * h[0][i], g[n][i] + w[i] * h[n][i]
            total += share * softplus(-facts.beta * (positive - negative)) / BATCH
    return total


@CASES
def test_block_is_the_barrier_of_the_cumulative_margin(seed: int, eta: float, depth: int, decay: bool) -> None:
    facts = made_up_facts(seed=seed, eta=eta, depth=depth, decay=decay)
    assert Block().loss(facts, None).item() == pytest.approx(block_loss_by_loop(facts), rel=1e-9)


@CASES
@pytest.mark.parametrize("residual", [True, False])
def test_curr_is_the_weighted_barrier_of_this_blocks_own_margin(
    seed: int, eta: float, depth: int, decay: bool, residual: bool
) -> None:
    facts = made_up_facts(seed=seed, eta=eta, depth=depth, decay=decay)
    g, p = plain(facts.goodness), plain(facts.earlier)
    total = 0.0
    for n, share in enumerate(shares(facts), start=1):
        weights = [1.0] * BATCH
        if residual and depth > 0:
            a = [sigmoid(-facts.beta * (p[0][i] - p[n][i])) for i in range(BATCH)]
            u = [min(max(one * BATCH / sum(a), 0.1), 5.0) for one in a]
            weights = [one * BATCH / sum(u) for one in u]
        for i in range(BATCH):
            total += share * weights[i] * softplus(-facts.beta * (g[0][i] - g[n][i])) / BATCH
    term = Current(residual=residual)
    assert term.loss(facts, None).item() == pytest.approx(total, rel=1e-9)


def test_the_depth_scaled_coefficients_are_the_papers() -> None:
    assert [Current(weight=0.25, rho=3.0).coefficient(d, 4) for d in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert Current(weight=0.25, rho=3.0).coefficient(0, 1) == 0.25
    assert [Block(weight=0.7).coefficient(d, 4) for d in range(4)] == [0.7] * 4


def test_the_residual_weights_depend_on_the_past_alone() -> None:
    """Moving one example's margin leaves every other example's gradient as it is."""

    def gradient(shift: float) -> Tensor:
        facts = made_up_facts(depth=2)
        moved = facts.goodness.pos + torch.tensor([shift, 0.0, 0.0, 0.0, 0.0])
        facts.goodness = PerStream(moved, facts.goodness.nl, facts.goodness.ni)
        return torch.autograd.grad(Current().loss(facts, None), facts.goodness.nl)[0]

    before, after = gradient(0.0), gradient(3.0)
    assert before[0].item() != pytest.approx(after[0].item(), rel=1e-3)
    torch.testing.assert_close(after[1:], before[1:])
    assert bool((before > 0).all())


@CASES
@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("losses", [("margin", "rank", "margin", "margin"), ("rank", "margin", "rank", "rank")])
def test_aspects_sum_each_active_aspects_own_loss(
    seed: int, eta: float, depth: int, decay: bool, history: bool, losses: tuple
) -> None:
    facts = made_up_facts(seed=seed, eta=eta, depth=depth, decay=decay)
    lambdas, theta = (0.5, 1.0, 2.0, 0.25), [0.8, 1.1, 5.0, -0.3]
    module = Threshold(4, 1.0).double()
    module.theta.data = torch.tensor(theta, dtype=torch.float64)
    g, h, w = plain(facts.aspects), plain(facts.history_aspects), facts.weight.tolist()
    total = 0.0
    for a in (0, 1, 3):  # the sharpness, 2, is not active
        for n, share in enumerate(shares(facts), start=1):
            for i in range(BATCH):
                past_positive, past_negative = (w[i] * h[0][i][a], w[i] * h[n][i][a]) if history else (0.0, 0.0)
                positive, negative = g[0][i][a] + past_positive, g[n][i][a] + past_negative
                if losses[a] == "rank":
                    value = softplus(-facts.beta * (positive - negative))
                else:
                    value = softplus(theta[a] - positive) + softplus(negative - theta[a])
                total += lambdas[a] * share * value / BATCH
    term = Aspects(lambdas=lambdas, losses=losses, history=history)
    assert term.loss(facts, module).item() == pytest.approx(total, rel=1e-9)


def test_history_in_the_aspects_attenuates_and_its_absence_does_not() -> None:
    """A large past flattens the rank aspect's gradient by R, unless the history is left out."""
    grads = {}
    for history in (True, False):
        facts = made_up_facts(depth=2, eta=0.0)
        term = Aspects(lambdas=(0, 1, 0, 0), losses=("rank",) * 4, history=history)
        grads[history] = torch.autograd.grad(term.loss(facts, Threshold(4, 1.0)), facts.aspects.pos)[0][:, 1]
    facts = made_up_facts(depth=2, eta=0.0)
    m = (facts.aspects.pos - facts.aspects.nl)[:, 1].detach()
    inherited = facts.weight * (facts.history_aspects.pos - facts.history_aspects.nl)[:, 1]
    ratio = (1 + torch.exp(4 * m)) / (1 + torch.exp(4 * (m + inherited)))
    torch.testing.assert_close(grads[True], ratio * grads[False], rtol=1e-8, atol=0)


def test_aspects_start_at_theta_init_and_learn_it() -> None:
    module = Aspects(theta_init=0.4).module(WIDTH, 4)
    assert module.theta.tolist() == pytest.approx([0.4] * 4)
    module.double()
    facts = made_up_facts()
    (slope,) = torch.autograd.grad(Aspects(history=False).loss(facts, module), module.theta)
    step, values = 1e-5, []
    for a in (0, 3):
        for sign in (1, -1):
            moved = Threshold(4, 0.4).double()
            moved.theta.data = module.theta.data.clone()
            moved.theta.data[a] += sign * step
            values.append(Aspects(history=False).loss(facts, moved).item())
    assert slope[0].item() == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)
    assert slope[3].item() == pytest.approx((values[2] - values[3]) / (2 * step), rel=1e-5)
    assert slope[1].item() == 0  # a rank loss has no threshold
    assert slope[2].item() == 0  # the sharpness is not active


def test_aspects_refuse_a_goodness_with_another_number_of_aspects() -> None:
    with pytest.raises(ConfigError, match=r"objective\.aspects\.lambdas"):
        Aspects().module(WIDTH, 1)
    with pytest.raises(ConfigError, match=r"objective\.aspects\.losses"):
        Aspects(lambdas=(1.0,)).check()


@CASES
def test_depth_order_penalises_each_increment_that_falls_short(seed: int, eta: float, depth: int, decay: bool) -> None:
    facts = made_up_facts(seed=seed, eta=eta, depth=depth, decay=decay)
    g, p = plain(facts.goodness), plain(facts.earlier)
    total = 0.0
    if depth > 0:
        for i in range(BATCH):
            now, before = p[0][i] + g[0][i], p[0][i]  # G+ up to this block, and up to the one before
            total += softplus(0.2 - (now - before)) / BATCH
            for n in range(1, len(g)):
                now, before = p[n][i] + g[n][i], p[n][i]
                total += softplus(0.3 - (before - now)) / BATCH
    term = DepthOrder(delta_pos=0.2, delta_neg=0.3)
    assert term.loss(facts, None).item() == pytest.approx(total, rel=1e-9)


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=2, max_size=6),
    st.floats(0.01, 1),
    st.floats(0.01, 1),
)
def test_blocks_that_keep_the_depth_order_grow_the_separation_by_delta_each(
    blocks: list[tuple[float, float]], delta_pos: float, delta_neg: float
) -> None:
    """Prop. depthorder: with g+ >= delta+ and -g- >= delta- at each later block, the margins telescope."""
    first, later = blocks[0], [(max(p, delta_pos), min(n, -delta_neg)) for p, n in blocks[1:]]
    positive, negative = [first[0]], [first[1]]
    for p, n in later:
        positive.append(positive[-1] + p)
        negative.append(negative[-1] + n)
    term = DepthOrder(delta_pos=delta_pos, delta_neg=delta_neg)
    for d, (p, n) in enumerate(later, start=1):
        assert positive[d] >= positive[0] + d * delta_pos - 1e-9
        assert negative[d] <= negative[0] - d * delta_neg + 1e-9
        assert (positive[d] - negative[d]) - (positive[0] - negative[0]) >= d * (delta_pos + delta_neg) - 1e-9
        # and the loss knows it: an increment kept costs at most softplus(0), one that is broken costs more
        kept, broken = made_up_facts(depth=1, eta=0.0), made_up_facts(depth=1, eta=0.0)
        kept.goodness = PerStream(torch.full((BATCH,), p), torch.full((BATCH,), n), None)
        broken.goodness = PerStream(torch.full((BATCH,), delta_pos - 0.5), torch.full((BATCH,), 0.5 - delta_neg), None)
        assert term.loss(kept, None).item() <= 2 * math.log(2) + 1e-6 < term.loss(broken, None).item()


def test_recon_is_the_sum_over_both_positive_views_of_the_mean_squared_error() -> None:
    facts = made_up_facts()
    torch.manual_seed(0)
    decoder = nn.Linear(WIDTH, WIDTH).double()
    weight, bias = decoder.weight.tolist(), decoder.bias.tolist()
    source, target = facts.tokens_out.tolist(), facts.tokens_in.tolist()
    total = 0.0
    for view in range(2):
        errors = []
        for i in range(view * BATCH, (view + 1) * BATCH):
            for t in range(TOKENS):
                for o in range(WIDTH):
                    guess = bias[o] + sum(weight[o][k] * source[i][t][k] for k in range(WIDTH))
                    errors.append((guess - target[i][t][o]) ** 2)
        total += sum(errors) / len(errors)
    loss = Reconstruction().loss(facts, decoder)
    assert loss.item() == pytest.approx(total, rel=1e-9)
    (reached,) = torch.autograd.grad(loss, facts.tokens_out)
    assert bool((reached[: 2 * BATCH] != 0).all())
    assert bool((reached[2 * BATCH :] == 0).all())  # the negatives' tokens need not be reconstructed


margins = st.floats(-5, 5)


def mgc_slope(m: float, inherited: float, beta: float, target: float, epsilon: float) -> float:
    margin = torch.tensor(m, dtype=torch.float64, requires_grad=True)
    loss = missing_gradient_loss(margin, margin + inherited, beta, target, epsilon)
    return float(torch.autograd.grad(loss, margin)[0])


@given(margins, st.floats(0, 5), st.floats(0.5, 6), st.floats(1, 4))
def test_mgc_gives_the_local_gradient_back_exactly_where_the_past_is_not_negative(
    m: float, inherited: float, beta: float, target: float
) -> None:
    """Prop. mgc_recovers_local: c_d beta s(m), for any sign of m."""
    assert mgc_slope(m, inherited, beta, target, 0.0) == pytest.approx(-target * beta * sigmoid(-beta * m), rel=1e-8)


@given(margins, st.floats(-5, 0), st.floats(0.5, 6), st.floats(1, 4), st.sampled_from([0.0, 1e-6, 1e-2]))
def test_mgc_never_gives_less_than_the_target_where_the_past_is_negative(
    m: float, inherited: float, beta: float, target: float, epsilon: float
) -> None:
    local = beta * sigmoid(-beta * m)
    assert -mgc_slope(m, inherited, beta, target, epsilon) >= target * local * (1 - 1e-8)


def test_mgc_over_compensates_a_negative_past() -> None:
    assert -mgc_slope(1.0, -2.0, 4.0, 1.0, 0.0) > 10 * 4 * sigmoid(-4.0)


@given(margins, st.floats(0, 5), st.floats(0.5, 6), st.floats(1, 4), st.sampled_from([1e-6, 1e-3, 0.1]))
def test_mgc_with_epsilon_overshoots_by_the_slack_the_paper_gives(
    m: float, inherited: float, beta: float, target: float, epsilon: float
) -> None:
    s_m, s_total = sigmoid(-beta * m), sigmoid(-beta * (m + inherited))
    true, seen = s_total / s_m, s_total / (s_m + epsilon)
    expected = target * beta * s_m + beta * (true - seen) * s_m
    assert -mgc_slope(m, inherited, beta, target, epsilon) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
def test_mgc_stays_finite_at_extreme_margins(dtype: torch.dtype, epsilon: float) -> None:
    m = torch.tensor([30.0, 1000.0, -1000.0, 1000.0, -1000.0], dtype=dtype, requires_grad=True)
    past = torch.tensor([-60.0, -2000.0, 2000.0, 1000.0, -1000.0], dtype=dtype)
    loss = missing_gradient_loss(m, m + past, 4.0, 1.0, epsilon)
    (slope,) = torch.autograd.grad(loss.sum(), m)
    assert bool(loss.isfinite().all())
    # amplified by the past: the cumulative gradient alone; unsettled: the local one; settled by both: none
    assert slope.tolist() == pytest.approx([-4.0, -4.0, -4.0, 0.0, -4.0], abs=1e-5)


@CASES
@pytest.mark.parametrize("rho", [0.0, 1.5])
def test_mgc_blends_both_kinds_of_negatives_and_targets_c_d(
    seed: int, eta: float, depth: int, decay: bool, rho: float
) -> None:
    facts = made_up_facts(seed=seed, eta=eta, depth=depth, decay=decay)
    g, h, w = plain(facts.goodness), plain(facts.history), facts.weight.tolist()
    target, total = 1 + rho * depth / 3, 0.0
    for n, share in enumerate(shares(facts), start=1):
        for i in range(BATCH):
            m = g[0][i] - g[n][i]
            cumulative = m + w[i] * (h[0][i] - h[n][i])
            ratio = sigmoid(-facts.beta * cumulative) / (sigmoid(-facts.beta * m) + 1e-6)
            value = softplus(-facts.beta * cumulative) + max(0.0, target - ratio) * softplus(-facts.beta * m)
            total += share * value / BATCH
    assert MissingGradient(rho=rho).loss(facts, None).item() == pytest.approx(total, rel=1e-8)


def test_mgc_on_a_whole_batch_has_the_gradient_of_the_local_block_loss() -> None:
    """The batch mean's gradient at every goodness equals that of gamma = 0, where the weighted past is positive."""

    def gradients(term: Block | MissingGradient, weight: Tensor | None) -> list[Tensor]:
        facts = made_up_facts(depth=2, eta=0.4)
        positive = facts.history.pos.abs() + 3
        facts.history = PerStream(positive, facts.history.nl.clamp(max=1), facts.history.ni.clamp(max=1))
        facts.weight = facts.weight if weight is None else weight
        return list(torch.autograd.grad(term.loss(facts, None), [one for one in facts.goodness if one is not None]))

    local = gradients(Block(), torch.zeros(BATCH, dtype=torch.float64))
    cumulative = gradients(Block(), None)
    compensated = gradients(MissingGradient(epsilon=0.0), None)
    for mine, theirs, attenuated in zip(compensated, local, cumulative):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-14)
        assert bool((attenuated.abs() < theirs.abs()).all())


@given(st.integers(0, 3))
def test_the_objective_is_the_sum_of_its_terms_times_their_coefficients(depth: int) -> None:
    facts = made_up_facts(depth=depth)
    terms = {"block": Block(weight=2.0), "curr": Current(weight=0.25, rho=3.0), "depth": DepthOrder(weight=0.0)}
    total, values = Objective(terms)(facts, {})
    assert set(values) == {"block", "curr"}  # a term of weight zero is not computed
    expected = 2 * values["block"].item() + 0.25 * (1 + depth) * values["curr"].item()
    assert total.item() == pytest.approx(expected, rel=1e-12)
    assert values["block"].item() == pytest.approx(block_loss_by_loop(facts), rel=1e-9)


@pytest.mark.parametrize(
    ("term", "field"),
    [
        (Current(w_min=0.0), "w_min"),
        (Current(w_min=1.5), "w_min"),
        (Current(w_max=0.5), "w_max"),
        (Current(rho=-1.1), "rho"),
        (MissingGradient(rho=-0.1), "rho"),
        (MissingGradient(epsilon=-1e-9), "epsilon"),
    ],
)
def test_a_terms_setting_out_of_range_is_refused_by_name(term: Current | MissingGradient, field: str) -> None:
    with pytest.raises(ConfigError, match=rf"objective\.{term.kind}.*{field}"):
        term.check()


def test_streams_split_into_positive_mean_wrong_label_and_wrong_image() -> None:
    value = torch.arange(8.0)  # four streams of two
    four, three = PerStream.of_streams(value, 4), PerStream.of_streams(value[:6], 3)
    assert (four.pos.tolist(), four.nl.tolist(), four.ni.tolist()) == ([1.0, 2.0], [4.0, 5.0], [6.0, 7.0])
    assert (three.pos.tolist(), three.nl.tolist(), three.ni) == ([1.0, 2.0], [4.0, 5.0], None)


@given(st.integers(0, 50), st.sampled_from([0.0, 0.4]))
def test_cumulative_margins_are_the_difference_of_cumulative_goodness(seed: int, eta: float) -> None:
    """Eq. cum_margin: M = m + w P when the history is the plain sum."""
    facts = made_up_facts(seed=seed, eta=eta)
    assert len(facts.margins()) == (1 if eta == 0 else 2)
    for m, p, total in zip(facts.margins(), facts.past_margins(), facts.cumulative_margins()):
        for i in range(BATCH):
            assert total[i].item() == pytest.approx(m[i].item() + facts.weight[i].item() * p[i].item(), abs=1e-12)


def test_a_term_that_ramps_in_from_nothing_is_there() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Ramping(Term):
        kind = "ramping"

        def coefficient(self, depth: int, blocks: int, progress: float | Tensor = 0.0) -> float | Tensor:
            return self.weight * progress

    assert Ramping(weight=0.5).acts_at(0, 2)
    assert not Ramping(weight=0.0).acts_at(0, 2)
    assert [name for name, _ in Objective({"ramping": Ramping(weight=0.5)}).active(0, 2)] == ["ramping"]
