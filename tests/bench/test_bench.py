"""The benchmark: what it counts against arithmetic by hand, that its ways to train do what they say, the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from goodness.bench.clock import as_floor, ceilings, milliseconds
from goodness.bench.counting import counted
from goodness.bench.prediction import prediction
from goodness.bench.subjects import PARTS, SIDE_BY_SIDE, build, learned_at_once, made_up, stepping
from goodness.cli import main
from goodness.config import override
from tiny_runs import shrunk

CPU = torch.device("cpu")
TINY = override(shrunk("demo"), {"batch": 8})


def test_matrix_products_are_counted_forward_and_backward() -> None:
    a, b = torch.randn(3, 5, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    forward = counted(lambda: a @ b)
    assert forward == {"flop": 2 * 3 * 5 * 7, "bytes": 4 * (15 + 35 + 21)}
    assert counted(lambda: (a @ b).sum().backward())["flop"] == 3 * forward["flop"]


def test_a_convolution_counts_its_operands() -> None:
    x, weight = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    found = counted(lambda: torch.nn.functional.conv2d(x, weight, padding=1))
    assert found == {"flop": 2 * 2 * 36 * 4 * 27, "bytes": 4 * (2 * 3 * 36 + 4 * 27 + 2 * 4 * 36)}


def test_the_floor_is_the_larger_of_the_two() -> None:
    most = {"flop_per_second": 1e9, "bytes_per_second": 1e6}
    found = as_floor({"flop": 10**7, "bytes": 5_000}, most)
    assert (found["flop_ms"], found["bytes_ms"], found["floor_ms"], found["bound"]) == (10, 5, 10, "arithmetic")
    assert as_floor({"flop": 10**6, "bytes": 5_000}, most)["bound"] == "memory"


def test_ceilings_are_positive_and_time_passes() -> None:
    assert all(value > 1e6 for value in ceilings(CPU, torch.float32).values())
    assert milliseconds(lambda: torch.randn(1000).sum(), CPU, 3) > 0


def test_ways_of_backpropagation_learn_the_same_and_keep_what_they_say(tmp_path: Path) -> None:
    """Recomputing and accumulating change memory, not the gradient."""
    ends = {}
    for subject in SIDE_BY_SIDE[2:]:
        stage = build(subject, TINY, tmp_path / subject.name, CPU, torch.float32)
        step = stepping(stage)
        for _ in range(3):
            step()
        ends[subject.name] = torch.cat([one.detach().flatten() for one in stage.learning])  # type: ignore[attr-defined]
    torch.testing.assert_close(ends["bp-checkpoint"], ends["bp"], rtol=0, atol=0)
    torch.testing.assert_close(ends["bp-accumulate"], ends["bp"], rtol=1e-4, atol=1e-4)


def test_sequential_takes_one_block_at_a_time(tmp_path: Path) -> None:
    fused, sequential, plain = (
        build(subject, TINY, tmp_path / subject.name, CPU, torch.float32) for subject in SIDE_BY_SIDE[:3]
    )
    assert learned_at_once(fused) == fused.parameters()
    assert learned_at_once(sequential) == max(
        sum(one.numel() for one in sequential.network.owned(depth).values())  # type: ignore[attr-defined]
        for depth in range(TINY.model.blocks)
    )
    assert learned_at_once(plain) == plain.parameters()
    assert TINY.batch % PARTS == 0


def test_both_ways_to_predict_give_the_same_scores() -> None:
    found = prediction(TINY, (1, 8, 8), 5, CPU, torch.float32, images=4)
    assert found["largest_difference"] < 1e-5
    assert found["largest_score"] > 1e-3
    assert found["together"]["images_per_second"] > 0


def test_made_up_images_are_like_the_data_sets() -> None:
    data = made_up(TINY, 12)
    assert data.shape == (1, 8, 8)
    assert len(data.classes) == 10


def test_the_command_prints_writes_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "demo", "--device", "cpu", "--batch", "4", "--steps", "1", "--repeats", "2", "--classes", "2"]
    written, figure = tmp_path / "bench.json", tmp_path / "speed.png"
    assert main([*arguments, "--out", str(written), "--figure", str(figure)]) == 0
    shown = capsys.readouterr().out
    assert "images/s" in shown
    assert "TFLOP/s" in shown
    found = json.loads(written.read_text())
    assert [row["name"] for row in found["rows"]] == [subject.name for subject in SIDE_BY_SIDE]
    for row in found["rows"]:
        assert row["least_ms"] <= row["median_ms"] <= row["most_ms"]
        assert row["share_of_roofline"] == pytest.approx(row["floor_ms"] / row["median_ms"])
    assert figure.stat().st_size > 5_000
    assert (tmp_path / "speed.svg").is_file()


def test_mistakes_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "demo", "--classes", "1"]) == 2
    assert main(["bench", "gama0"]) == 2
    assert main(["bench", "demo", "--steps", "0", "--device", "cpu"]) == 2
    assert main(["bench", "demo", "--batch", "0", "--device", "cpu"]) == 2
    assert main(["bench", "demo", "--classes", "1000000000000"]) == 2
    assert main(["bench", "demo", "--out", "/proc/nowhere/bench.json"]) == 2
    assert main(["bench", "demo", "--out", "/tmp"]) == 2


def test_no_measurement_outlasts_the_training(tmp_path: Path) -> None:
    stage = build(SIDE_BY_SIDE[0], TINY, tmp_path / "run", CPU, torch.float32)
    step = stepping(stage)
    for _ in range(5):
        step()
    stage.position.step = 10_000
    assert stage.stepper.learns(0, stage.moment())  # type: ignore[attr-defined]
