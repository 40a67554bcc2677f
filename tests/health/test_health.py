"""Block health in one call: against loops, on networks built to have known margins, and on whole runs."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import goodness
from goodness.config import Config, Model, Stem
from goodness.data.dataset import as_split
from goodness.data.images import Split
from goodness.draws import uniforms
from goodness.errors import RunError, UserError
from goodness.health.block_health import (
    Aspects,
    early_exit,
    effective_share,
    evidence_by_block,
    health_of_goodness,
    is_guessing,
    own_share,
)
from goodness.health.of_runs import convergence, health
from goodness.methods.cumulative.collaboration import Constant, Gated, Progressive
from goodness.methods.cumulative.evidence import (
    block_goodness_by_label,
    block_readings,
    goodness_and_aspects_of,
    goodness_of,
    hypothesis_features_by_label,
)
from goodness.methods.cumulative.negatives import Random, Teacher
from goodness.methods.cumulative.terms import Current
from goodness.nn.block import GoodnessHead
from goodness.nn.hybrid import Hybrid
from goodness.nn.network import Network
from goodness.parts import BlockPart, GoodnessPart, LabelPart, Rule
from tiny_runs import BLOBS, blobs_at_hand, shrunk

# Against loops


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def ratio_by_hand(m: float, inherited: float, beta: float) -> float:
    return math.exp(softplus(beta * m) - softplus(beta * (m + inherited)))


def weight_by_hand(rule: Rule, g: list[Any], i: int, y: int, depth: int) -> float:
    past = [g[j][i][y] for j in range(depth)]
    if isinstance(rule, Gated):
        return rule.gamma0 / (1 + math.exp(rule.tau * (sum(past) - rule.kappa)))
    if isinstance(rule, Progressive):
        share = (depth - 1) / (len(g) - 2) if len(g) > 2 else 1.0
        return rule.first + max(0.0, share) * (rule.last - rule.first)
    assert isinstance(rule, Constant)
    return rule.gamma


def effective_share_by_hand(past: list[float], beta: float, low: float = 0.1, high: float = 5.0) -> float:
    """Of the paper's residual weights with bounds 0.1 and 5."""
    a = [1 / (1 + math.exp(beta * one)) for one in past]
    u = [min(max(one / (sum(a) / len(a)), low), high) for one in a]
    w = [one / (sum(u) / len(u)) for one in u]
    return 1 / (sum(one * one for one in w) / len(w))


def health_by_loop(goodness: Tensor, labels: list[int], config: Config) -> dict[str, Any]:
    """Every number that does not come from `evaluation_measures`, example by example."""
    g, (blocks, n, classes) = goodness.tolist(), goodness.shape
    k = config.negatives.k_last if isinstance(config.negatives, Teacher) else 1
    drawn = uniforms(torch.device("cpu"), (n, k), config.seed, "health", "test").tolist()
    report: dict[str, Any] = {"blocks": [], "points": [], "weights": []}
    for d in range(blocks):
        rights = evidence = worsts = lost = rights_mined = mined_total = 0.0
        pasts: list[float] = []
        shares, points, weights = [], [], []
        for i, y in enumerate(labels):
            wrong = [c for c in range(classes) if c != y]
            worst = max(g[d][i][c] for c in wrong)
            draws = [(y + 1 + min(int(u * (classes - 1)), classes - 2)) % classes for u in drawn[i]]
            mined = max(draws, key=lambda c, d=d, i=i: g[d][i][c])
            m = [g[j][i][y] - g[j][i][mined] for j in range(d + 1)]
            carried = 0.0
            for j in range(d):
                fading = weight_by_hand(config.rule, g, i, y, j) if config.history == "decay" and j else 1.0
                carried = m[j] + fading * carried
            weight = weight_by_hand(config.rule, g, i, y, d)
            ratio = ratio_by_hand(m[d], weight * carried, config.beta)
            rights += g[d][i][y] > worst
            evidence += max(0.0, g[d][i][y] - worst)
            worsts += worst
            lost += 1 - min(1.0, ratio)
            total = sum(max(0.0, one) for one in m)
            rights_mined += m[d] > 0
            mined_total += sum(m)
            pasts.append(sum(m[:-1]))
            shares += [max(0.0, m[d]) / total] if total > 0 else []
            points.append([m[d], carried, ratio])
            weights.append(weight)
        block = {"sep_cur_rate": rights / n, "evidence": evidence / n, "g_worst": worsts / n, "free_riding": lost / n}
        block |= {"sep_cur_mined_rate": rights_mined / n, "sep_mined": mined_total / n}
        if d and config.objective:
            block["residual_ess"] = effective_share_by_hand(pasts, config.beta)
        own = sum(shares) / len(shares) if shares else None
        report["blocks"].append(block | {"own": own, "inherited": None if own is None else 1 - own})
        report["points"].append(points)
        report["weights"].append(weights)
    totals = [[sum(g[d][i][c] for d in range(blocks)) for c in range(classes)] for i in range(n)]
    report["confusion"] = [[0] * classes for _ in range(classes)]
    for row, y in zip(totals, labels):
        report["confusion"][y][row.index(max(row))] += 1
    margins = [row[y] - max(row[c] for c in range(classes) if c != y) for row, y in zip(totals, labels)]
    report["margins"] = sorted(margins)
    return report


RULES = [Constant(gamma=0.7), Constant(gamma=0.0), Gated(), Progressive(first=0.2)]


@pytest.mark.parametrize("negatives", [Random(), Teacher(k_last=2)])
@pytest.mark.parametrize("history", ["sum", "decay"])
@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=6)
@given(st.integers(0, 10_000), st.sampled_from([4, 3, 1]), st.integers(1, 6), st.integers(2, 4))
def test_every_number_equals_the_loop(
    rule: Rule, history: Any, negatives: Any, seed: int, blocks: int, n: int, classes: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(blocks, n, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=generator)
    config = Config(
        rule=rule,
        history=history,
        negatives=negatives,
        seed=seed,
        model=Model(blocks=blocks),
        objective={"curr": Current()} if seed % 2 else {},
    )
    found, expected = health_of_goodness(values, labels, config), health_by_loop(values, labels.tolist(), config)
    for mine, theirs in zip(found["blocks"], expected["blocks"]):
        for name, value in theirs.items():
            assert mine[name] == (None if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)), name
        assert mine["free_riding"] == pytest.approx(1 - mine["attenuation"], abs=1e-12)
        assert mine["sep_cur"] == pytest.approx(mine["g_pos"] - mine["g_worst"], abs=1e-12)
    for mine, theirs in zip(found["attenuation_points"], expected["points"]):
        torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs))
    torch.testing.assert_close(torch.tensor(found["attenuation_weights"]), torch.tensor(expected["weights"]))
    assert found["confusion"] == expected["confusion"]
    rows = expected["confusion"]
    assert found["per_class"] == [row[c] / sum(row) if sum(row) else None for c, row in enumerate(rows)]
    assert found["accuracy"] == pytest.approx(sum(rows[c][c] for c in range(classes)) / n)
    assert found["truncation"] == [block["accuracy"] for block in found["blocks"]]
    assert found["truncation"][-1] == found["accuracy"]
    assert found["margins"] == pytest.approx(expected["margins"])
    last, first = found["blocks"][-1], found["blocks"][0]
    for name in ("sep_cur", "g_pos"):
        assert found["ratios"][name] == pytest.approx(last[name] / first[name])
    assert found == json.loads(json.dumps(found, allow_nan=False))


def exits_by_loop(goodness: Tensor, labels: list[int], threshold: float) -> tuple[float, float]:
    right = used = 0
    for i, y in enumerate(labels):
        scores = [0.0] * goodness.shape[2]
        for d in range(len(goodness)):
            scores = [score + float(goodness[d, i, c]) for c, score in enumerate(scores)]
            falling = sorted(scores, reverse=True)
            if falling[0] - falling[1] >= threshold or d + 1 == len(goodness):
                used += d + 1
                right += scores.index(max(scores)) == y
                break
    return right / len(labels), used / len(labels)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 9), st.integers(2, 4))
def test_the_early_exit_curve_equals_the_loop_and_runs_from_one_block_to_all(
    seed: int, blocks: int, n: int, classes: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(blocks, n, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=generator)
    curve = early_exit(values.cumsum(dim=0), labels)
    for point in curve:
        expected = exits_by_loop(values, labels.tolist(), point["threshold"])
        assert (point["accuracy"], point["blocks"]) == pytest.approx(expected)
        assert point["saved"] == pytest.approx(1 - point["blocks"] / blocks)
        assert point["left"] <= point["saved"] * blocks + 1e-12, "who leaves early saves a block at least"
        assert (point["left"] > 0) == (point["blocks"] < blocks)
    assert (curve[0]["blocks"], curve[-1]["blocks"]) == (1, blocks)
    used = [point["blocks"] for point in curve]
    assert used == sorted(used)


def test_long_lists_are_thinned_evenly_and_keep_their_ends() -> None:
    values = torch.arange(5000, dtype=torch.float64).flip(0)[None, :, None] * torch.tensor([1.0, 0.0])
    found = health_of_goodness(values, torch.zeros(5000, dtype=torch.int64), Config(model=Model(blocks=1)))
    assert len(found["margins"]) == 200
    assert (found["margins"][0], found["margins"][-1]) == (0, 4999)
    assert found["margins"][100] == pytest.approx(100 * 4999 / 199, abs=1)
    (points,) = found["attenuation_points"]
    assert len(points) == 300
    assert [points[0][0], points[-1][0]] == [4999, 0]
    assert len(found["early_exit"]) == 1


def test_the_effective_share_counts_the_examples_that_matter() -> None:
    assert effective_share(torch.full((8,), 3.0)) == pytest.approx(1)
    assert effective_share(torch.tensor([1.0, 0.0, 0.0, 0.0])) == pytest.approx(1 / 4)


@pytest.mark.parametrize("eta", [0.0, 0.5])
def test_wrong_images_are_looked_at_where_the_run_trains_on_them(eta: float) -> None:
    goodness_ = torch.randn(2, 12, 3, generator=torch.Generator().manual_seed(0))
    found = health_of_goodness(goodness_, torch.arange(12) % 3, Config(eta=eta, model=Model(blocks=2)))
    assert all(("sep_cur_ni" in block) == (eta > 0) for block in found["blocks"])


def test_the_own_share_is_of_the_positive_margins() -> None:
    margins = torch.tensor([[1.0, -2.0, 3.0, -1.0], [1.0, 2.0, -1.0, -1.0]])
    assert own_share(margins) == pytest.approx((1 / 2 + 1 + 0) / 3)  # the last example has no evidence at all
    assert own_share(-margins.abs()) is None


def test_the_aspects_margins_weighed_sum_to_the_goodness_margin() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    values = torch.randn(2, 7, 4, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (7,), generator=generator)
    names = ("align", "energy", "learned")
    found = health_of_goodness(
        values @ weights,
        labels,
        Config(model=Model(blocks=2)),
        aspects=[Aspects(names, weights, one) for one in values],
    )
    for depth, block in enumerate(found["blocks"]):
        assert list(block["aspects"]) == list(names)
        for a, name in enumerate(names):
            apart = 0.0
            for i, y in enumerate(labels.tolist()):
                row = (values @ weights)[depth, i].tolist()
                worst = max((c for c in range(4) if c != y), key=lambda c, row=row: row[c])
                apart += float(values[depth, i, y, a] - values[depth, i, worst, a])
            assert block["aspects"][name] == pytest.approx({"weight": float(weights[a]), "sep": apart / 7})
        weighed = sum(one["weight"] * one["sep"] for one in block["aspects"].values())
        assert weighed == pytest.approx(block["sep_cur"])


# Networks whose margins are known: an image lights the pixel of its class, and block d gives its label margins[d]


@dataclass(frozen=True, kw_only=True)
class Known(BlockPart):
    margins: tuple[float, ...]
    depth: int = 0

    def at(self, depth: int) -> BlockPart:
        return replace(self, depth=depth)

    def build(self, width: int, grid: tuple[int, int]) -> nn.Module:
        return Says(self.margins[self.depth])


class Says(nn.Module):
    def __init__(self, margin: float) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return tokens, {"margin": tokens.new_full((len(tokens),), self.margin)}


class Lights(GoodnessPart):
    def build(self, width: int, classes: int) -> GoodnessHead:
        return LightHead()


class LightHead(GoodnessHead):
    def forward(self, tokens: Tensor, labels: Tensor, notes: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        is_right = tokens.squeeze(2).argmax(dim=1) == labels
        value = notes["margin"] * is_right
        return value.unsqueeze(1), value, tokens.mean(dim=1)


class NoLabel(LabelPart):
    def build(self, width: int, classes: int) -> nn.Module:
        return Untouched()


class Untouched(nn.Module):
    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        return tokens


def network_with(*margins: float) -> Network:
    model = Model(
        blocks=len(margins),
        stem=Stem(kind="pixels"),
        block=Known(margins=margins),
        goodness=Lights(),
        label=NoLabel(),
    )
    return Network(model, (1, 2, 2), 4)


def lit(count: int = 40) -> Split:
    labels = torch.arange(count) % 4
    images = torch.zeros(count, 4, dtype=torch.uint8)
    images[torch.arange(count), labels] = 255
    return as_split(images.reshape(count, 1, 2, 2), labels)


def column(report: dict[str, Any], name: str) -> list[Any]:
    return [block[name] for block in report["blocks"]]


def states(report: dict[str, Any]) -> list[str]:
    return [one["verdict"] for one in report["verdict"]]


LCFF, LOCAL = Config(rule=Constant(gamma=1.0)), Config(rule=Constant(gamma=0.0))


def test_all_evidence_in_the_first_block_and_the_others_ride() -> None:
    report = health(network_with(2.0, 0.04, 0.02), lit(), config=LCFF)
    assert states(report) == ["works", "rides", "rides"]
    assert report["verdict"][1]["reason"] == (
        "its own evidence is 2 % of the best block's, and less than 1 % of its gradient is left once the earlier "
        "blocks' evidence has entered its loss"
    )
    assert column(report, "sep_cur") == pytest.approx([2.0, 0.04, 0.02])
    assert column(report, "sep") == pytest.approx([2.0, 2.04, 2.06])
    assert column(report, "own") == pytest.approx([1, 0.04 / 2.04, 0.02 / 2.06])
    assert column(report, "inherited") == pytest.approx([0, 2 / 2.04, 2.04 / 2.06])
    lost = [0, 1 - ratio_by_hand(0.04, 2.0, 4.0), 1 - ratio_by_hand(0.02, 2.04, 4.0)]
    assert column(report, "free_riding") == pytest.approx(lost)
    assert min(column(report, "free_riding")[1:]) > 0.999
    assert report["ratios"]["sep_cur"] == pytest.approx(0.01)
    assert report["truncation"] == column(report, "saturation") == [1, 1, 1]
    # the same network under the local rule keeps its gradients, and what it has learned is no better for it
    local = health(network_with(2.0, 0.04, 0.02), lit(), config=LOCAL)
    assert column(local, "free_riding") == [0, 0, 0]
    assert states(local) == ["works", "rides", "rides"]
    assert local["verdict"][1]["reason"] == "its own evidence is 2 % of the first block's"


@pytest.mark.parametrize("config", [LCFF, LOCAL])
def test_evenly_spread_evidence_is_work_in_every_block(config: Config) -> None:
    report = health(network_with(0.5, 0.5, 0.5, 0.5), lit(), config=config)
    assert states(report) == ["works"] * 4
    assert report["verdict"][3]["reason"] == (
        "on its own it is right for 100 % of the examples, with 100 % of the best block's evidence"
    )
    assert column(report, "sep_cur") == column(report, "evidence") == [0.5] * 4
    assert column(report, "own") == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert report["ratios"] == {"sep_cur": 1, "g_pos": 1}
    assert report["margins"] == [2.0] * 40
    inherits = [config.rule.gamma * 0.5 * d for d in range(4)]  # type: ignore[attr-defined]
    assert column(report, "free_riding") == pytest.approx([1 - ratio_by_hand(0.5, one, 4.0) for one in inherits])


@pytest.mark.parametrize("config", [LCFF, LOCAL])
def test_a_dead_last_block_is_dead_whatever_the_rule(config: Config) -> None:
    report = health(network_with(1.0, 1.0, 0.0), lit(), config=config)
    assert states(report) == ["works", "works", "dead"]
    assert report["verdict"][2]["reason"] == "its goodness is the same under every label"
    last = report["blocks"][2]
    assert (last["sep_cur"], last["sep_cur_rate"], last["own"], last["inherited"]) == (0, 0, 0, 1)
    assert report["ratios"] == {"sep_cur": 0, "g_pos": 0}
    assert report["attenuation_points"][2][0][:2] == [0, 2]


def test_a_network_without_a_spark_is_dead_throughout_and_still_described() -> None:
    report = health(network_with(0.0, 0.0), lit())
    assert states(report) == ["dead", "dead"]
    assert report["ratios"] == {"sep_cur": None, "g_pos": None}
    assert column(report, "own") == column(report, "inherited") == [None, None]
    assert report["accuracy"] == 0.25  # ties go to the first label
    assert report["confusion"] == [[10, 0, 0, 0]] * 4
    assert report["per_class"] == [1, 0, 0, 0]


def test_a_block_against_the_others_rides_and_the_truncation_shows_what_it_costs() -> None:
    report = health(network_with(1.0, -3.0), lit(), config=LOCAL)
    assert states(report) == ["works", "rides"]
    assert report["truncation"] == [1, 0]
    assert report["early_exit"][0]["accuracy"] == 1
    assert report["early_exit"][-1]["accuracy"] == 0


def test_an_untrained_network_is_not_said_to_work() -> None:
    torch.manual_seed(0)
    network = Network(Model(width=16, blocks=2, stem=Stem(channels=8), block=Hybrid(heads=2, hidden=16)), (1, 8, 8), 4)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (80, 1, 8, 8), generator=generator, dtype=torch.uint8)
    report = health(network, as_split(images, torch.randint(4, (80,), generator=generator)))
    assert "works" not in states(report)
    assert "guessing gives 25 %" in report["verdict"][0]["reason"]


def test_chance_depends_on_how_many_examples_there_are() -> None:
    assert is_guessing(0.3, 100, 4)
    assert not is_guessing(0.3, 10_000, 4)
    assert not is_guessing(1.0, 1, 4)
    assert is_guessing(0.0, 1, 4)


def test_a_hard_problem_with_negative_margins_is_judged_by_what_evidence_there_is() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(20, (400,), generator=generator)
    strong = torch.randn(400, 20, generator=generator) + 1.2 * torch.eye(20)[labels]
    values = torch.stack([strong, 0.01 * torch.randn(400, 20, generator=generator)])
    report = health_of_goodness(values, labels, replace(LCFF, model=Model(blocks=2)))
    assert report["blocks"][0]["sep_cur"] < report["blocks"][1]["sep_cur"] < 0
    assert states(report) == ["works", "rides"]


# From images: the pass that keeps the aspects, and the router


def experts(**changes: Any) -> Network:
    torch.manual_seed(0)
    block = Hybrid(heads=2, hidden=16, memory=3, **changes)
    model = Model(width=16, blocks=2, stem=Stem(channels=8), block=block)
    return Network(model, (1, 8, 8), 4, mean=(0.4,), std=(0.3,))


def some_images(count: int = 9) -> Split:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)
    return as_split(images, torch.randint(4, (count,), generator=generator))


def test_goodness_and_aspects_of_one_pass_equal_one_pass_per_label() -> None:
    network = experts().double()
    inputs = some_images(5).images.double() / 255
    with torch.no_grad():
        readings = block_readings(network, inputs)
    assert readings.shape == (5, 4, 2 + 2 * 4)
    close: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(readings[..., :2].permute(2, 0, 1), block_goodness_by_label(network, inputs), **close)
    torch.testing.assert_close(readings[..., 2:], hypothesis_features_by_label(network, inputs)[..., :8], **close)
    torch.testing.assert_close(block_readings(network, inputs, labels_at_once=3), readings, **close)


@pytest.mark.parametrize("tta", [False, True])
def test_the_goodness_beside_the_aspects_is_that_of_prediction(tta: bool) -> None:
    network, images = experts(), some_images().images
    values, aspects = goodness_and_aspects_of(network, images, tta=tta)
    torch.testing.assert_close(values, goodness_of(network, images, tta=tta))
    assert [one.shape for one in aspects] == [(9, 4, 4), (9, 4, 4)]
    for depth, one in enumerate(aspects):
        torch.testing.assert_close(one @ network.block(depth).head.weights(), values[depth])


@pytest.mark.parametrize("at_once", [1, 100])
def test_routing_is_told_where_there_are_experts(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network, rows = experts(experts=6, top_k=2), some_images()
    of_runs = importlib.import_module("goodness.health.of_runs")
    monkeypatch.setattr(of_runs, "chunk_sizes", lambda network, memory: (at_once, 4))
    report = health(network, rows)
    tokens = network.tokens(rows.images.float() / 255)
    for depth, block in enumerate(report["blocks"]):
        output = network.block(depth)(tokens, rows.labels)
        tokens = network.hand_on(output.tokens)
        counts = [0] * 6
        for expert in output.notes["router_chosen"].flatten().tolist():
            counts[expert] += 1
        shares = [count / sum(counts) for count in counts]
        entropy = -sum(share * math.log(share) for share in shares if share)
        routing = block["routing"]
        assert routing["load"] == pytest.approx(shares)
        assert routing["experts_effective"] == pytest.approx(math.exp(entropy), rel=1e-5)
        assert routing["experts_dead"] == pytest.approx(counts.count(0) / 6)
        assert routing["load_variance"] == pytest.approx(sum((6 * share - 1) ** 2 for share in shares) / 6, rel=1e-4)
    assert all("routing" not in block for block in health(experts(), rows)["blocks"])


def test_a_network_is_left_as_it_was() -> None:
    network, rows = experts(), some_images()
    network.train()
    network.block(1).eval()
    modes, heard = [], network.block(0).register_forward_hook(lambda module, *_: modes.append(module.training))
    state = torch.random.get_rng_state()
    health(network, rows)
    heard.remove()
    assert modes
    assert not any(modes)
    assert network.training
    assert network.block(0).training
    assert not network.block(1).training
    assert torch.equal(torch.random.get_rng_state(), state)


# Runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[goodness.Run]:
    with blobs_at_hand():
        config = shrunk("demo", {**BLOBS, "rule": "lcff"})
        yield goodness.train(config, device="cpu", out=tmp_path_factory.mktemp("health") / "run")


def test_a_run_brings_its_data_its_rule_and_its_weights(run: goodness.Run) -> None:
    report = goodness.health(run)
    assert (report["split"], report["n"], report["tta"]) == ("test", 40, False)
    assert report["classes"] == [f"pattern {number}" for number in range(4)]
    assert "top5" not in report
    assert report["accuracy"] == run.accuracy
    for mine, kept in zip(report["blocks"], run.result["health"]["test"]):
        assert {name: mine[name] for name in kept} == pytest.approx(kept, rel=1e-4, abs=1e-5)
    weights = [one["weight"] for one in report["blocks"][0]["aspects"].values()]
    assert sum(weights) == pytest.approx(1)
    assert list(report["blocks"][0]["aspects"]) == ["align", "energy", "sharpness", "learned"]
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert goodness.health(str(run.path)) == report
    assert goodness.health(run, config=LOCAL)["blocks"][1]["free_riding"] == 0
    data = goodness.api.load_data(run.config)
    assert health(run.network(), data, config=run.config) == report
    assert health(run, data.test) == report


def test_splits_and_mirror_images_are_those_of_evaluate(run: goodness.Run) -> None:
    for split, tta in (("val", False), ("test", True)):
        report = health(run, split=split, tta=tta)
        expected = goodness.evaluate(run.path, split=split, tta=tta, device="cpu")
        assert (report["n"], report["accuracy"]) == (expected["n"], expected["accuracy"])
        for mine, theirs in zip(report["blocks"], expected["blocks"]):
            assert {name: mine[name] for name in theirs} == pytest.approx(theirs, rel=1e-5, abs=1e-6)


def test_a_rule_that_looks_at_the_depth_sees_the_networks_own() -> None:
    config = Config(rule=Progressive(first=0.0, last=0.8), model=Model(blocks=9))
    assert column(health(network_with(1.0, 1.0, 1.0), lit(), config=config), "rule_weight") == [0, 0, 0.8]


def test_top_five_is_told_where_there_are_ten_classes() -> None:
    values = torch.randn(1, 30, 10, generator=torch.Generator().manual_seed(0))
    report = health_of_goodness(values, torch.arange(30) % 10, Config(model=Model(blocks=1)))
    assert report["accuracy"] <= report["top5"] <= 1


def test_what_cannot_be_judged_is_refused(run: goodness.Run, tmp_path: Path) -> None:
    network, data = run.network(), goodness.api.load_data(run.config)
    with pytest.raises(UserError, match="there is no run folder"):
        health(tmp_path / "nothing")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.json").write_text((run.path / "config.json").read_text())
    with pytest.raises(UserError, match="is not finished; go on with: goodness resume"):
        health(tmp_path / "begun")
    with pytest.raises(UserError, match="a network does not know its data set"):
        health(network)
    with pytest.raises(UserError, match="unknown split 'tests'; choose train, val or test"):
        health(run, split="tests")
    with pytest.raises(UserError, match=r"images \[1, 6, 6\] of 4 classes, these are \[1, 8, 8\]"):
        health(network, some_images())
    with pytest.raises(UserError, match="the test split is empty"):
        health(network, Split(images=data.test.images[:0], labels=data.test.labels[:0], indices=data.test.labels[:0]))
    with pytest.raises(UserError, match="has no flip TTA"):
        health(network, replace(data, flips=False), tta=True)
    with pytest.raises(RunError, match="the goodness of block 1 is not finite"):
        health_of_goodness(torch.tensor([[[1.0, 0.0]], [[math.nan, 0.0]]]), torch.tensor([0]), Config())
    with pytest.raises(ValueError, match="labels run from 0 to 2, and there are 2 classes"):
        health_of_goodness(torch.zeros(1, 2, 2), torch.tensor([0, 2]), Config())
    with pytest.raises(ValueError, match="not \\[blocks, n, C\\] and \\[n\\]"):
        health_of_goodness(torch.zeros(1, 2, 2), torch.tensor([0]), Config())


def test_evidence_is_that_of_the_label_mined_at_the_block() -> None:
    # block 0 finds label 1 hardest, block 1 label 2: the past of block 1 is its past against label 2
    values = torch.tensor([[[3.0, 2.0, 0.0]], [[1.0, 0.0, 0.5]]], dtype=torch.float64)
    config = Config(rule=Constant(gamma=0.7), negatives=Teacher(k_last=64), model=Model(blocks=2))
    first, second = evidence_by_block(values, torch.tensor([0]), config, "test")
    assert (first.margin.item(), first.past.item()) == (1.0, 0.0)
    assert (second.margin.item(), second.past.item(), second.weight.item()) == (0.5, 3.0, 0.7)


# Convergence


def test_convergence_is_the_first_epoch_near_the_best() -> None:
    lines = [{"epoch": e, "val": {"accuracy": a}} for e, a in [(0, 0.2), (1, 0.8), (3, 0.77), (5, 0.794), (7, 0.8)]]
    lines.insert(2, {"epoch": 2})  # not every epoch is judged
    assert convergence(lines, 0.2) == 0
    assert convergence(lines, 0.95) == 1
    assert convergence(lines[2:], 0.95) == 3
    assert convergence(lines[2:], 0.99) == 5
    assert convergence(lines[2:], 1.0) == 7
    assert convergence([{"epoch": 0}], 0.95) is None
    assert convergence([], 0.95) is None
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\], got 95"):
        convergence(lines, 95)
