"""Where a training step's time goes, on this machine, with made-up images.

    python benchmarks/step_profile.py [PRESET] [--kernels]

Device events after warm-up on a GPU, wall clock on a CPU. --kernels adds the profiler's table.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from goodness.api import make_config, prepared
from goodness.bench.clock import milliseconds
from goodness.bench.subjects import made_up, stepping
from goodness.runs.run_folder import RunFolder, choose_device, choose_dtype
from goodness.training.stage1 import Stage1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="gamma0-dense")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--kernels", action="store_true")
    args = parser.parse_args()
    device = choose_device()
    dtype, why = choose_dtype(device)
    config = make_config(args.preset, {"batch": args.batch})
    data = made_up(config, args.batch * (args.repeats + 1))
    with tempfile.TemporaryDirectory() as folder, prepared(device, False):
        stage = Stage1(config, data, RunFolder.create(Path(folder) / "run"), device=device, dtype=dtype)
        rows = torch.arange(args.batch, device=device)
        labels = stage.data.train.labels[rows]

        next_step = stepping(stage)

        def step() -> None:
            stage.accumulate(next_step())

        began = time.perf_counter()
        for _ in range(5):
            step()
        print(f"{args.preset}, batch {args.batch}, {device}, torch {torch.__version__}, {why}")
        print(f"first five steps, compilation included: {time.perf_counter() - began:.1f} s")
        moment, stepper = stage.moment(), stage.stepper
        views = stage.views(rows, moment, 3)
        situation = stepper.first(views, labels, moment)
        pieces: dict[str, Callable[[], object]] = {
            "whole step": step,
            "three augmented views": lambda: stage.views(rows, moment, 3),
            "stem forward": lambda: stepper.start(views, labels, moment),
            "mining of block 0": lambda: stepper.mine(0, situation.tokens, labels, None, moment),
            "loss of block 0, forward": lambda: stepper.loss(situation),
            "stem and block 0, forward and backward": lambda: stepper.loss(situation.again(stepper)).loss.backward(),
        }
        for name, piece in pieces.items():
            piece()
            print(f"{name:42} {milliseconds(piece, device, args.repeats):9.2f} ms")
        if device.type == "cuda":
            print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
        if args.kernels:
            kinds = [torch.profiler.ProfilerActivity.CPU]
            kinds += [torch.profiler.ProfilerActivity.CUDA] if device.type == "cuda" else []
            with torch.profiler.profile(activities=kinds) as profile:
                step()
            order = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
            print(profile.key_averages().table(sort_by=order, row_limit=30))


if __name__ == "__main__":
    main()
