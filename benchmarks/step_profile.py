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
from goodness.data.images import ImageData, Split
from goodness.training.run import RunFolder, choose_device, choose_dtype
from goodness.training.stage1 import Stage1


def made_up(count: int) -> Split:
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8)
    return Split(images=images, labels=torch.randint(0, 10, (count,)), indices=torch.arange(count))


def milliseconds(function: Callable[[int], object], device: torch.device, repeats: int) -> float:
    if device.type != "cuda":
        started = time.perf_counter()
        for i in range(repeats):
            function(i)
        return 1000 * (time.perf_counter() - started) / repeats
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for i in range(repeats):
        function(i)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats


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
    data = ImageData(
        name="made up",
        classes=tuple("abcdefghij"),
        train=made_up(args.batch * (args.repeats + 1)),
        val=made_up(8),
        test=made_up(8),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        flips=True,
        provenance="random numbers",
    )
    with tempfile.TemporaryDirectory() as folder, prepared(device, False):
        stage = Stage1(config, data, RunFolder.create(Path(folder) / "run"), device=device, dtype=dtype)
        rows = torch.arange(args.batch, device=device)
        labels = stage.data.train.labels[rows]

        def step(i: int) -> None:
            stage.position.step = i
            moment = stage.moment()
            stage.accumulate(stage.stepper(stage.views(rows, moment, 3), labels, moment))

        began = time.perf_counter()
        for i in range(5):
            step(i)
        print(f"{args.preset}, batch {args.batch}, {device}, torch {torch.__version__}, {why}")
        print(f"first five steps, compilation included: {time.perf_counter() - began:.1f} s")
        moment, stepper = stage.moment(), stage.stepper
        views = stage.views(rows, moment, 3)
        situation = stepper.first(views, labels, moment)
        pieces: dict[str, Callable[[int], object]] = {
            "whole step": step,
            "three augmented views": lambda i: stage.views(rows, moment, 3),
            "stem forward": lambda i: stepper.start(views, labels, moment),
            "mining of block 0": lambda i: stepper.mine(0, situation.tokens, labels, None, moment),
            "loss of block 0, forward": lambda i: stepper.loss(situation),
            "stem and block 0, forward and backward": lambda i: stepper.loss(situation.again(stepper)).loss.backward(),
        }
        for name, piece in pieces.items():
            piece(0)
            print(f"{name:42} {milliseconds(piece, device, args.repeats):9.2f} ms")
        if device.type == "cuda":
            print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
        if args.kernels:
            kinds = [torch.profiler.ProfilerActivity.CPU]
            kinds += [torch.profiler.ProfilerActivity.CUDA] if device.type == "cuda" else []
            with torch.profiler.profile(activities=kinds) as profile:
                step(0)
            order = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
            print(profile.key_averages().table(sort_by=order, row_limit=30))


if __name__ == "__main__":
    main()
