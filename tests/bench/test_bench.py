"""The benchmark: what it counts against arithmetic by hand, that its ways to train do what they say, the command."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from goodness.bench import measure
from goodness.bench.clock import as_floor, ceilings, in_turn, milliseconds
from goodness.bench.counting import counted
from goodness.bench.memory import peak_from_here
from goodness.bench.prediction import prediction
from goodness.bench.subjects import PARTS, SIDE_BY_SIDE, build, learned_at_once, made_up, stepping
from goodness.cli import main
from goodness.config import override
from goodness.report.bench_figure import LABEL, drawn, short
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


def test_every_function_is_measured_once_before_any_is_measured_again() -> None:
    """So that what drifts with time, drifts for all."""
    calls: list[str] = []
    found = in_turn({name: lambda name=name: calls.append(name) for name in "abc"}, CPU, times=2, repeats=3)
    assert "".join(calls) == "aabbcc" * 3
    assert list(found) == ["a", "b", "c"]


def test_a_machine_that_grows_slower_is_no_difference_between_two_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(100)
    monkeypatch.setattr("goodness.bench.clock.milliseconds", lambda *_: next(clock))
    found = in_turn({"a": int, "b": int}, CPU, times=1, repeats=5)
    assert found["a"] == {"median_ms": 104, "least_ms": 100, "most_ms": 108}
    assert found["b"] == {"median_ms": 105, "least_ms": 101, "most_ms": 109}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a while")
def test_the_peak_is_of_what_was_held_meanwhile_and_is_gone_again() -> None:
    size = 2**26
    kept = torch.ones(size // 4)
    for _ in range(2):  # the second time from memory that the first has left
        peak = peak_from_here(CPU)
        torch.ones(size // 4)
        found = peak()
        assert found is not None
        assert 0.9 * size < found < 1.5 * size
    peak = peak_from_here(CPU)
    assert (peak() or 0) < 0.1 * size, "neither what was there before nor what is gone"
    assert len(kept) == size // 4


def test_a_system_that_does_not_tell_the_peak_gives_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goodness.bench.memory._PROCESS", tmp_path / "no such folder")
    assert peak_from_here(CPU)() is None


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


def test_the_fastest_loop_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    took = {"together": 10.0, "plain": 40.0, "kernels": 20.0, "late": 5.0}
    monkeypatch.setattr(
        "goodness.bench.prediction.loops", lambda *_: dict.fromkeys(("plain", "kernels"), lambda: torch.zeros(4, 1, 5))
    )
    monkeypatch.setattr(
        "goodness.bench.prediction.in_turn", lambda ways, *_: {name: {"median_ms": took[name]} for name in ways}
    )
    found = prediction(TINY, (1, 8, 8), 5, CPU, torch.float32, images=4)
    assert found["loop"] == {"kind": "kernels", "median_ms": 20, "images_per_second": 200}
    assert {name: one["median_ms"] for name, one in found["loops"].items()} == {"plain": 40, "kernels": 20}


def test_on_a_cpu_there_is_one_loop() -> None:
    found = prediction(TINY, (1, 8, 8), 2, CPU, torch.float32, images=2)
    assert found["loop"] == {"kind": "plain", **found["loops"]["plain"]}
    assert list(found["loops"]) == ["plain"]


def test_ways_too_large_to_be_there_at_once_are_timed_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, gib = torch.device("cuda"), 2**30
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (16 * gib, 24 * gib))
    assert measure._fit_together([4 * gib, 3 * gib, 2 * gib], gpu)
    assert not measure._fit_together([7 * gib, 3 * gib, 2 * gib], gpu)
    assert measure._fit_together([15 * gib], gpu)
    groups: list[list[str]] = []

    def timed(subjects: Any, *_: Any) -> dict[str, dict[str, float]]:
        groups.append([subject.name for subject in subjects])
        return {name: {"median_ms": 1.0} for name in groups[-1]}

    alone = {"batch": 4, "peak_bytes": None, "flop": 1, "bytes": 1}
    monkeypatch.setattr(measure, "_alone", lambda *_: alone)
    monkeypatch.setattr(measure, "_timed", timed)
    setting = measure.Setting(
        CPU, torch.float32, Path(), 1, 1, dict.fromkeys(("flop_per_second", "bytes_per_second"), 1.0), str
    )
    names = [subject.name for subject in SIDE_BY_SIDE]
    for fits, expected in ((False, [[name] for name in names]), (True, [names])):
        groups.clear()
        monkeypatch.setattr(measure, "_fit_together", lambda *_, fits=fits: fits)
        rows = measure._rows("demo", TINY, SIDE_BY_SIDE, setting)
        assert groups == expected
        assert [row["timed_in_turn"] for row in rows] == [fits] * len(names)


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
    for file in (written, tmp_path / "bench.md", figure, tmp_path / "speed.svg"):
        assert str(file) in shown.splitlines()[-1]
    found = json.loads(written.read_text())
    assert [row["name"] for row in found["rows"]] == [subject.name for subject in SIDE_BY_SIDE]
    for row in found["rows"]:
        assert row["least_ms"] <= row["median_ms"] <= row["most_ms"]
        assert row["share_of_roofline"] == pytest.approx(row["floor_ms"] / row["median_ms"])
    assert figure.stat().st_size > 5_000
    assert (tmp_path / "speed.svg").is_file()


def made_up_findings() -> dict[str, Any]:
    """What a benchmark of several presets finds, with numbers of a GPU."""
    ways = {"fast": [subject.name for subject in SIDE_BY_SIDE], "a-preset-with-a-very-long-name-indeed-it-is": ["ff"]}
    times = {"median_ms": 24.5, "least_ms": 24.0, "most_ms": 25.0, "images_per_second": 95_813.0}
    work = {"flop": 5_265_000_000_000, "bytes": 29_789_000_000, "floor_ms": 7.0, "bound": "arithmetic"}
    size = {"batch": 512, "peak_bytes": 2**32, "parameters_per_backward": 4_887_812, "share_of_roofline": 0.29}
    rows = [
        {"preset": preset, "name": name, "about": f"{name} in words", **times, **work, **size}
        for preset, names in ways.items()
        for name in names
    ]
    speed = {"images_per_second": 149_511.0, "median_ms": 2.0}
    guess = {"loop": speed, "together": speed, "late": speed, "largest_difference": 0.01, "largest_score": 1.0}
    guess["loops"] = {"plain": speed, "kernels": speed}
    return {
        "environment": {"device_name": "a slide rule", "torch": "2.11.0", "dtype": "bfloat16"},
        "ceilings": {"flop_per_second": 8e14, "bytes_per_second": 4e12},
        "rows": rows,
        "prediction": [{"classes": classes, **guess} for classes in (10, 100, 200)],
    }


def test_bars_stand_upright_and_rows_begin_at_the_top() -> None:
    time, memory, speed = drawn(made_up_findings()).axes
    assert time.yaxis_inverted()
    assert memory.yaxis_inverted()
    assert not speed.yaxis_inverted()
    bottom, top = speed.get_ylim()
    assert all(bar.get_y() == 0 and bottom < bar.get_height() < top for bar in speed.patches)  # type: ignore[attr-defined]


def test_no_word_of_the_figure_runs_into_another() -> None:
    figure = drawn(made_up_findings())
    figure.draw_without_rendering()
    labels = figure.axes[0].get_yticklabels()
    assert all(len(line) <= LABEL for label in labels for line in label.get_text().splitlines())
    for words in (labels, figure.axes[2].texts, [one.title for one in figure.axes]):
        boxes = [one.get_window_extent() for one in words]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.52, "0.52"), (466.4, "466"), (999.7, "1 k"), (1_788, "1.8 k"), (95_813, "96 k"), (149_511, "150 k")],
)
def test_large_numbers_are_short(value: float, words: str) -> None:
    assert short(value) == words


def test_an_earlier_benchmark_is_shown_and_drawn_without_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goodness.cli.bench.bench", lambda *_, **__: pytest.fail("it measured"))
    place, figure = tmp_path / "earlier.json", tmp_path / "again.png"
    place.write_text(json.dumps(made_up_findings()))
    assert main(["bench", "--from", str(place), "--figure", str(figure)]) == 0
    shown = capsys.readouterr().out
    assert "a slide rule" in shown
    assert "5,265" in shown
    assert "…" not in shown
    assert figure.is_file()
    assert main(["bench", "demo", "--from", str(place)]) == 2
    assert "leave out demo" in capsys.readouterr().err
    assert main(["bench", "--from", str(tmp_path / "nothing.json")]) == 2
    for contents in ("[]", "no JSON"):
        place.write_text(contents)
        assert main(["bench", "--from", str(place)]) == 2
        assert "is not of goodness bench" in capsys.readouterr().err


def test_a_figure_that_cannot_be_drawn_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goodness.cli.bench.bench", lambda *_, **__: pytest.fail("it measured"))
    monkeypatch.setattr("goodness.cli.bench.importlib.util.find_spec", lambda name: None)
    assert main(["bench", "demo", "--figure", str(tmp_path / "figure.png")]) == 2
    assert "pip install 'goodness[plots]'" in capsys.readouterr().err


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
