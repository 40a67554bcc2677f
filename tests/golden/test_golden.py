"""An unchanged configuration computes the same numbers as before. README.md says what to do when one of these fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from golden.compute import FILE, augmentation, differences, in_float64, makers, readout, training

RECORDED = json.loads(FILE.read_text())
MAKERS = makers()
ENTRIES = [(section, name) for section, made in MAKERS.items() for name in made]


def test_every_golden_value_is_still_computed_and_every_computed_value_is_golden() -> None:
    assert {(section, name) for section, values in RECORDED.items() for name in values} == set(ENTRIES)


@pytest.mark.parametrize(("section", "name"), ENTRIES, ids=[" ".join(entry) for entry in ENTRIES])
def test_values_are_the_golden_ones(section: str, name: str) -> None:
    assert differences(RECORDED[section][name], MAKERS[section][name]()) == []


def test_sequential_steps_give_the_values_of_fused_ones() -> None:
    with in_float64():
        assert differences(RECORDED["training"]["cp-fair"], training("cp-fair", {"step.mode": "sequential"})) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"beta": 4.001},
        {"eta": 0.501},
        {"negatives": "online"},
        {"negatives.k_first": 7},
        {"objective.curr.rho": 3.001},
        {"objective.recon.weight": 0.0501},
        {"optim.clip": 2.0},
        {"optim.ema": 0.6},
        {"optim.lr": 1.001e-3},
        {"optim.sam": 1e-4},
        {"optim.warmup": 0.6},
        {"optim.weight_decay": 0.0501},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_change_is_noticed_in_training(changes: dict[str, Any]) -> None:
    with in_float64():
        assert differences(RECORDED["training"]["cp-fair-dense"], training("cp-fair-dense", changes)) != []


@pytest.mark.parametrize("changes", [{"readout.lr": 1.001e-3}, {"readout.weight_decay": 0.0501}], ids=str)
def test_a_change_is_noticed_in_stage_2(changes: dict[str, Any]) -> None:
    with in_float64():
        assert differences(RECORDED["readout"]["plain"], readout("plain", changes)) != []


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("ff", {"jitter": 0.41}),
        ("ff", {"crop_scale": (0.31, 1.0)}),
        ("ff", {"blur_probability": 0.45}),
        ("bp-strong", {"randaugment_magnitude": (9, 10)}),
        ("weak", {"pad": 3}),
        ("sprint", {"erase": 7}),
    ],
    ids=str,
)
def test_a_moved_bound_of_an_augmentation_is_noticed(recipe: str, changes: dict[str, Any]) -> None:
    with in_float64():
        assert differences(RECORDED["augmentation"][recipe], augmentation(recipe, **changes)) != []
