"""CPU time of a step of `hinton`, of a plain torch loop with the same updates, and of fflib: one thread, in turn.

    OMP_NUM_THREADS=1 python docs/dev/cpu_methods.py --width 500 [--steps 50] [--rounds 15] [--peer 0.03]
    OMP_NUM_THREADS=1 python docs/dev/cpu_methods.py --width 2000 --steps 10 --fflib FOLDER

Images are made up, of MNIST's shape; batches of 128, two layers, Adam. FOLDER holds fflib 0.3.0, from
`pip install --no-deps --target FOLDER fflib==0.3.0`; only its layer is imported, since the package wants torchvision.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goodness.config import override
from goodness.data.images import ImageData, Split
from goodness.draws import epoch_order
from goodness.presets import preset
from goodness.runs.run_folder import RunFolder
from goodness.training.local import LocalLearning

BATCH, STEPS_AN_EPOCH = 128, 50
COUNT = BATCH * STEPS_AN_EPOCH


def made_up() -> ImageData:
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> Split:
        images = torch.randint(0, 256, (count, 1, 28, 28), generator=generator, dtype=torch.uint8)
        labels = torch.randint(0, 10, (count,), generator=generator)
        return Split(images=images, labels=labels, indices=torch.arange(count))

    return ImageData(
        name="made-up",
        classes=tuple("0123456789"),
        train=split(COUNT),
        val=split(10),
        test=split(10),
        mean=(0.13,),
        std=(0.31,),
        flips=False,
        provenance="made up",
    )


def ours(data: ImageData, width: int, peer: float, folder: RunFolder) -> Callable[[int], None]:
    changes = {
        "network": "mlp",
        "network.widths": (width, width),
        "batch": BATCH,
        "epochs": 1000,
        "optim.kind": "adam",
        "optim.weight_decay": 0.0,
        "optim.schedule": "constant",
        "method.peer": peer,
    }
    loop = LocalLearning(
        override(preset("hinton"), changes), data, folder, device=torch.device("cpu"), dtype=torch.float32
    )

    def run(steps: int) -> None:
        order = epoch_order(COUNT, 1, 0)
        for rows in order.split(BATCH)[:steps]:
            loop.accumulate(loop.step(rows, loop.moment()))
            loop.position.step += 1

    return run


def batches(data: ImageData, steps: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    order = torch.randperm(COUNT).split(BATCH)[:steps]
    return [(rows, data.train.labels[rows], torch.randint(0, 9, (BATCH,))) for rows in order]


def bare(data: ImageData, width: int, peer: float) -> Callable[[int], None]:
    """Every layer in turn: both labels forward, the loss, backward, Adam."""
    layers = [nn.Sequential(nn.Linear(before, width), nn.ReLU()) for before in (784, width)]
    optimisers = [torch.optim.Adam(layer.parameters(), lr=1e-3, fused=True) for layer in layers]
    activity = [torch.full((width,), 0.5) for _ in layers]

    def run(steps: int) -> None:
        for rows, labels, offsets in batches(data, steps):
            right = data.train.images[rows].flatten(1).float() / 255
            wrong = right.clone()
            right[:, :10] = F.one_hot(labels, 10)
            wrong[:, :10] = F.one_hot((labels + 1 + offsets) % 10, 10)
            x = torch.cat([right, wrong])
            for depth, (layer, optimiser) in enumerate(zip(layers, optimisers)):
                h = layer(x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-8))
                g = h.square().sum(-1) - width
                loss = (F.softplus(-g[:BATCH]).mean() + F.softplus(g[BATCH:]).mean()) / 2
                if peer:
                    mean = 0.9 * activity[depth] + 0.1 * h[:BATCH].mean(0)
                    loss = loss + peer * (mean.mean() - mean).square().mean()
                    activity[depth] = mean.detach()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                x = h.detach()

    return run


def fflib(data: ImageData, width: int, folder: Path) -> Callable[[int], None]:
    """`FFSuite._train` with `FFNet.run_train_combined`, fflib's example settings: threshold 20, rate 0.02."""
    for name in ("fflib", "fflib.nn", "fflib.utils"):
        package = types.ModuleType(name)
        package.__path__ = [str(folder / name.replace(".", "/"))]
        sys.modules[name] = package
    spec = importlib.util.find_spec("fflib.nn.ff_linear")
    assert spec is not None
    layer_of = importlib.import_module("fflib.nn.ff_linear").FFLinear
    layers = [layer_of(before, width, 20, 0.02) for before in (794, width)]

    def run(steps: int) -> None:
        for rows, labels, offsets in batches(data, steps):
            x = data.train.images[rows].flatten(1).float() / 255
            right = torch.cat([x, F.one_hot(labels, 10).float()], 1)
            wrong = torch.cat([x, F.one_hot((labels + 1 + offsets) % 10, 10).float()], 1)
            for layer in layers:
                layer.run_train(right, wrong)
                right, wrong = layer(right), layer(wrong)

    return run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=500)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peer", type=float, default=0.03)
    parser.add_argument("--fflib", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = made_up()
    with RunFolder.create(Path(tempfile.mkdtemp()) / "run") as folder:
        ways = {"bare loop": bare(data, given.width, given.peer), "hinton": ours(data, given.width, given.peer, folder)}
        if given.fflib:
            ways["fflib"] = fflib(data, given.width, given.fflib)
        found: dict[str, list[float]] = {name: [] for name in ways}
        for run in ways.values():
            run(3)
        for _ in range(given.rounds):
            for name, run in ways.items():
                begun = time.process_time()
                run(given.steps)
                found[name].append((time.process_time() - begun) / given.steps * 1000)
    for name, times in found.items():
        ratio = statistics.median(mine / theirs for mine, theirs in zip(found["hinton"], times))
        print(f"{name}: {statistics.median(times):.2f} ms a step; hinton takes {ratio:.3f} times that")


if __name__ == "__main__":
    main()
