"""The wrong image: another class wherever the batch allows, every image used once."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from goodness.methods.cumulative.streams import concatenate, positives_of, rows_of, wrong_images


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


@given(st.sampled_from([1, 3]), st.integers(1, 3), st.booleans())
def test_rows_say_where_each_stream_is_among_the_views(views: int, wrong_labels: int, has_partner: bool) -> None:
    batch = 4
    tokens = torch.arange(views * batch * 2).reshape(views, batch, 2)
    partner = torch.tensor([2, 3, 1, 0]) if has_partner else None
    streams = concatenate(tokens, partner, wrong_labels)
    rows = rows_of(views, batch, partner, wrong_labels, tokens.device)
    assert torch.equal(tokens.flatten(0, 1)[rows], streams)
    assert len(streams) == (positives_of(views) + wrong_labels + has_partner) * batch
    assert torch.equal(streams[: positives_of(views) * batch], tokens[: positives_of(views)].flatten(0, 1))
