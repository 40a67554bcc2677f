"""The wrong image: another class wherever the batch allows, every image used once."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from goodness.local.streams import concatenate, wrong_images


def partners(labels: list[int], classes: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(len(labels) + classes, generator=generator)
    return wrong_images(torch.tensor(labels), draws[: len(labels)], draws[len(labels) :]).tolist()


def clashes(labels: list[int], partner: list[int] | tuple[int, ...]) -> int:
    return sum(labels[i] == labels[j] for i, j in enumerate(partner))


batches = st.lists(st.integers(0, 4), min_size=2, max_size=40)


@given(batches, st.integers(0, 10_000))
def test_partners_are_a_permutation_without_clash_unless_a_class_fills_more_than_half(
    labels: list[int], seed: int
) -> None:
    partner = partners(labels, 5, seed)
    assert sorted(partner) == list(range(len(labels)))
    largest = max(labels.count(c) for c in set(labels))
    if 2 * largest <= len(labels):
        assert clashes(labels, partner) == 0


@given(st.lists(st.integers(0, 2), min_size=2, max_size=6), st.integers(0, 10_000))
def test_no_permutation_has_fewer_clashes(labels: list[int], seed: int) -> None:
    fewest = min(clashes(labels, order) for order in itertools.permutations(range(len(labels))))
    assert clashes(labels, partners(labels, 3, seed)) == fewest


def test_every_image_of_another_class_can_become_the_partner() -> None:
    labels = [0, 0, 1, 1, 2, 2]
    seen = {partners(labels, 3, seed)[0] for seed in range(300)}
    assert seen == {2, 3, 4, 5}


def test_streams_are_laid_out_pos1_pos2_nl_ni() -> None:
    views = torch.arange(12.0).reshape(3, 4, 1)
    partner = torch.tensor([2, 3, 1, 0])

    def flat(streams: Tensor) -> list[float]:
        return streams.flatten().tolist()

    assert flat(concatenate(views, None)) == [float(i) for i in range(12)]
    # the wrong image comes from the third view, whose rows are 8, 9, 10, 11
    assert flat(concatenate(views, partner)) == [float(i) for i in range(12)] + [10.0, 11.0, 9.0, 8.0]
