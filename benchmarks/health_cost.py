"""What block health costs in a training step: the same steps with the measures and without, in turn.

    python benchmarks/health_cost.py [--preset demo] [--device cpu]
    python benchmarks/health_cost.py --preset gamma0-dense --device cuda

Made-up images. Without means that a step measures the loss alone, which it needs anyway. Both steppers start from the
same weights; after a warm-up they make steps in turn, and each step is timed by itself: device events on a GPU, the
process's own time on a CPU, which other programs do not lengthen. Medians; the median of the differences with its 95 %
bootstrap interval; the share. Last, what an epoch that is evaluated adds: the gradient norms of all terms.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import goodness.training.step as step_module
from goodness.api import make_config, prepared
from goodness.bench.subjects import made_up
from goodness.runs.run_folder import RunFolder, choose_device, choose_dtype, environment
from goodness.training.stage1 import Stage1

TARGET = 0.05


def loss_alone(facts: object, values: dict[str, Tensor], loss: Tensor) -> dict[str, Tensor]:
    """In the place of `training_measures`."""
    return {"loss": loss.detach()}


def judge_plainly(objective, facts, extras):  # as `judge_block`, which a compiler would else see only once
    total, values = objective(facts, extras)
    measured = loss_alone(facts, values, total)
    return total, (tuple(measured), torch.stack([value.float() for value in measured.values()]))


def milliseconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        began = time.process_time()
        work()
        return 1000 * (time.process_time() - began)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int, default=None, help="the preset's own by default")
    parser.add_argument("--steps", type=int, default=60, help="timed steps of each kind")
    parser.add_argument("--warmup", type=int, default=10)
    args = parser.parse_args()
    device = choose_device(args.device)
    dtype, why = choose_dtype(device)
    config = make_config(args.preset, {} if args.batch is None else {"batch": args.batch})
    data = made_up(config, 4 * config.batch)
    with tempfile.TemporaryDirectory() as folder, prepared(device, False):
        stages = {}
        for name, judge in (("with", step_module.judge_block), ("without", judge_plainly)):
            stage = Stage1(config, data, RunFolder.create(Path(folder) / name), device=device, dtype=dtype)
            stage.stepper._judge = stage.stepper.compiled(judge)
            stages[name] = stage
        rows = torch.arange(config.batch, device=device)

        def step(stage: Stage1, place: int) -> None:
            stage.position.step = place
            stage.accumulate(stage.step(rows, stage.moment()))

        for place in range(args.warmup):
            for stage in stages.values():
                step(stage, place)
        times: dict[str, list[float]] = {name: [] for name in stages}
        for place in range(args.steps):
            order = list(stages) if place % 2 else list(stages)[::-1]
            for name in order:
                times[name].append(milliseconds(lambda name=name, place=place: step(stages[name], place), device))
        once = milliseconds(stages["with"].term_gradient_norms, device)
        once = min(once, milliseconds(stages["with"].term_gradient_norms, device))
    plain = statistics.median(times["without"])
    differences = np.array(times["with"]) - np.array(times["without"])
    draws = np.random.default_rng(0).choice(differences, (5000, len(differences)))
    low, high = np.percentile(np.median(draws, axis=1), (2.5, 97.5))
    share = float(np.median(differences)) / plain
    hardware = environment(device, dtype, why)["device_name"]
    hardware += "" if device.type == "cuda" else f", threads: {torch.get_num_threads()}"
    print(f"{args.preset}, batch {config.batch}, {hardware}, torch {torch.__version__}, {why}")
    with_them = statistics.median(times["with"])
    print(f"step without measures {plain:.3f} ms, with {with_them:.3f} ms (medians of {args.steps})")
    print(f"measures {np.median(differences):.3f} ms a step, 95 % interval {low:.3f} to {high:.3f} ms")
    print(f"share of the step {100 * share:.2f} % ({100 * low / plain:.2f} to {100 * high / plain:.2f} %)")
    print(f"target {100 * TARGET:.0f} %: {'met' if share < TARGET else 'MISSED'}")
    print(f"gradient norms of all terms, once per judged epoch: {once:.1f} ms, {once / plain:.1f} steps")


if __name__ == "__main__":
    main()
