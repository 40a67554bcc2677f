"""Blocks and goodnesses from outside: dropout, running statistics and other layouts keep the promises too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import goodness
from goodness import parts
from goodness.nn.network import Network
from goodness.training.optim import block_optimisers, match_layout
from interruptions import Killed, kill_after
from tiny_runs import blobs_at_hand, shrunk


class Noisy(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        if self.training:
            self.calls += 1
        return tokens + self.drop(self.mix(tokens)), {"answer": tokens.new_full((len(tokens),), 42.0)}


@dataclass(frozen=True, kw_only=True)
class NoisyBlock(goodness.BlockPart):
    def build(self, width: int, grid: tuple[int, int]) -> nn.Module:
        return Noisy(width)


class MeanHead(goodness.GoodnessHead):
    """The least a goodness must say: one number per row."""

    def forward(self, tokens: Tensor, labels: Tensor, notes: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        assert float(notes["answer"][0]) == 42.0
        value = tokens.square().mean(dim=(1, 2))
        return value.unsqueeze(1), value, tokens.mean(dim=1)


@dataclass(frozen=True, kw_only=True)
class MeanGoodness(goodness.GoodnessPart):
    def build(self, width: int, classes: int) -> goodness.GoodnessHead:
        return MeanHead()


@pytest.fixture(scope="module", autouse=True)
def few_digits() -> Iterator[None]:
    with blobs_at_hand():
        yield


@pytest.fixture
def own_parts() -> Iterator[dict[str, object]]:
    parts.blocks.register("noisy")(NoisyBlock)
    parts.goodnesses.register("mean")(MeanGoodness)
    yield {
        "model.block": "noisy",
        "model.goodness": "mean",
        "objective.aspects.lambdas": (1.0,),
        "objective.aspects.losses": ("rank",),
        "data": "few-digits",
        "batch": 25,
        "deterministic": True,
        "epochs": 2,
        "keep.evaluate_every": 1,
    }
    del parts.blocks._parts["noisy"], parts.goodnesses._parts["mean"]


def test_a_block_with_dropout_gives_the_same_bits_and_evaluation_leaves_it_alone(
    own_parts: dict[str, object], tmp_path: Path
) -> None:
    runs = []
    for name in ("one", "two"):
        torch.rand(len(name) + len(runs))  # the caller's own draws do not matter
        runs.append(goodness.train(shrunk("demo", own_parts), out=tmp_path / name, device="cpu"))
    assert runs[0].result["weights_sha256"] == runs[1].result["weights_sha256"]
    first, second = (goodness.evaluate(run.path, device="cpu")["accuracy"] for run in runs)
    assert first == second == runs[0].accuracy
    network = runs[0].network()
    steps = runs[0].result["steps"]
    assert [float(block.body.calls) for block in network.blocks] == [steps] * len(network.blocks), (
        "the teacher takes the blocks' buffers over and never changes them itself"
    )


def assert_resumed_to_the_same_bits(config: goodness.Config, folder: Path) -> None:
    whole = goodness.train(config, out=folder / "whole", device="cpu")
    with pytest.raises(Killed):
        goodness.train(config, out=folder / "part", device="cpu", listen=kill_after(1, "checkpoint"))
    torch.rand(17)
    resumed = goodness.resume(folder / "part", device="cpu")
    assert resumed.result["weights_sha256"] == whole.result["weights_sha256"]


def test_dropout_draws_are_keyed_so_a_resumed_run_ends_in_the_same_bits(
    own_parts: dict[str, object], tmp_path: Path
) -> None:
    assert_resumed_to_the_same_bits(shrunk("demo", {**own_parts, "keep.checkpoint_seconds": 0.0}), tmp_path)


@pytest.mark.parametrize("step", ["fused", "sequential"])
def test_sam_experts_memory_and_queue_resume_to_the_same_bits(step: str, tmp_path: Path) -> None:
    changes = {"deterministic": True, "epochs": 2, "keep.checkpoint_steps": 3, "step.mode": step}
    config = shrunk("cp-fair", {**changes, "model.block.memory": 3, "data": "few-digits", "batch": 25})
    assert config.optim.sam > 0
    assert config.model.block.experts > 1
    assert_resumed_to_the_same_bits(config, tmp_path)


def test_restored_moments_take_their_parameters_layout() -> None:
    network = Network(shrunk("demo").model, (1, 8, 8), 10).to(memory_format=torch.channels_last)
    (optimiser, *_) = block_optimisers(network, shrunk("demo").optim)
    for parameter in optimiser.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    saved = optimiser.state_dict()
    for state in saved["state"].values():
        for name, value in state.items():
            state[name] = value.clone(memory_format=torch.contiguous_format)  # what a checkpoint gives back
    optimiser.load_state_dict(saved)
    odd = [p for p in optimiser.state if p.dim() == 4 and optimiser.state[p]["exp_avg"].stride() != p.stride()]
    assert odd, "the stem's convolutions are laid out channels-last"
    before = {id(p): optimiser.state[p]["exp_avg"].clone() for p in odd}
    match_layout(optimiser)
    for parameter in odd:
        moment = optimiser.state[parameter]["exp_avg"]
        assert moment.stride() == parameter.stride()
        assert torch.equal(moment, before[id(parameter)])


def test_a_network_that_cannot_be_built_leaves_no_folder(tmp_path: Path) -> None:
    for changes in ({"model.block.heads": 5}, {"model.goodness": "energy"}):
        with pytest.raises(goodness.ConfigError):
            goodness.train("demo", out=tmp_path / "run", changes=changes)
    assert not (tmp_path / "run").exists()


def test_parts_that_break_their_word_hear_which_word_it_was(tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Scalar(goodness.Rule):
        def weight(self, past: goodness.Past) -> Tensor:
            return past.total.mean()

    @dataclass(frozen=True, kw_only=True)
    class Vector(goodness.Term):
        def loss(self, facts: goodness.Facts, module: None) -> Tensor:
            return facts.goodness.pos

    parts.rules.register("scalar")(Scalar)
    parts.terms.register("vector")(Vector)
    try:
        for changes, message in (
            ({"rule": "scalar"}, "rule 'scalar' must give a weight per example"),
            ({"objective.vector.weight": 1.0}, "term 'vector' must give a scalar"),
        ):
            with pytest.raises(goodness.ConfigError, match=message):
                goodness.train(shrunk("demo", {**changes, "epochs": 1}), out=tmp_path / message[:4], device="cpu")
        assert not list(tmp_path.iterdir()), "before a folder is made"
    finally:
        del parts.rules._parts["scalar"], parts.terms._parts["vector"]


def test_images_too_small_for_the_network_are_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    from PIL import Image

    for part in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(20):
                Image.new("L", (1, 1), 10 * i).save(tmp_path / part / name / f"{i}.png")
    with pytest.raises(goodness.UserError, match="1x1x1"):
        goodness.train("demo", data=f"folder:{tmp_path}", out=tmp_path / "run", epochs=1)
    assert not (tmp_path / "run").exists()
