"""predictions_blocks.npz: what each block alone, the first blocks and all blocks but one predict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import goodness as library
from goodness.methods.cumulative.evidence import block_predictions
from tiny_runs import BLOBS, blobs_at_hand


@pytest.fixture(autouse=True)
def _blobs() -> Iterator[None]:
    with blobs_at_hand():
        yield


def test_every_way_to_use_the_blocks_against_a_loop_over_images() -> None:
    goodness = torch.randn(3, 40, 5, generator=torch.Generator().manual_seed(0))
    found = block_predictions(goodness)
    for image in range(40):
        for depth in range(3):
            used = {"alone": [depth], "first": range(depth + 1), "without": [d for d in range(3) if d != depth]}
            for name, blocks in used.items():
                scores = [sum(float(goodness[d, image, label]) for d in blocks) for label in range(5)]
                assert int(found[name][depth, image]) == scores.index(max(scores)), (name, depth, image)


def test_one_block_cannot_be_left_out() -> None:
    assert set(block_predictions(torch.randn(1, 4, 3))) == {"alone", "first"}


@pytest.mark.parametrize("trainer", ["ff", "backprop"])
def test_a_run_keeps_predictions_that_give_its_accuracies(tmp_path: Path, trainer: str) -> None:
    run = library.train("demo", out=tmp_path / "run", changes={**BLOBS, "trainer": trainer, "epochs": 1})
    rows = [row for row in run.result["accuracy"] if row["weights"] == run.result["reported"]["weights"]]
    with np.load(tmp_path / "run" / "predictions_blocks.npz", allow_pickle=False) as arrays:
        for split, count in (("test", 40), ("val", 20)):
            labels = arrays[f"{split}.labels"]
            assert len(labels) == count
            assert len(np.unique(arrays[f"{split}.indices"])) == count
            for tta, name in ((False, "first"), (True, "first_tta")):
                predicted = arrays[f"{split}.{name}"]
                told = [row["top1"] for row in rows if (row["split"], row["tta"]) == (split, tta)]
                assert (predicted == labels).mean(axis=1).tolist() == pytest.approx(told)
            if trainer == "ff":
                assert np.array_equal(arrays[f"{split}.alone"][0], arrays[f"{split}.first"][0])
                assert np.array_equal(arrays[f"{split}.without"][-1], arrays[f"{split}.first"][-2])
