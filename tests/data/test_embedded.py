"""Embedded texts: what 8 bits lose is bounded, order does not matter, and what is damaged is refused."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors import safe_open

from goodness.data import embedded, sources
from goodness.data.embedded import Corpus, Levels, Texts
from goodness.durable import PARTIAL
from goodness.errors import DataError
from goodness.tensor_file import write_tensors
from made_up_texts import ABOUT, encode

CORPUS = Corpus(
    classes=("short", "long"),
    train=Texts(["a", "the cat and the dog sat", "of", "to the end of the sea"], [0, 1, 0, 1]),
    test=Texts(["in a way of the world", "and"], [1, 0]),
)
NAMES = ("train", "test", "train_labels", "test_labels", "offset", "step")
NUMBERS = st.floats(-1e6, 1e6, width=32)


@given(arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 7)), elements=NUMBERS))
def test_a_number_comes_back_within_half_a_step_or_is_clipped_beyond_four_deviations(vectors: np.ndarray) -> None:
    levels = Levels.of(vectors)
    back = levels.numbers(levels.of_numbers(vectors))
    exact = vectors.astype(np.float64)
    mean, std = exact.mean(), exact.std()
    low, high = levels.offset, levels.offset + 255 * levels.step
    slack = 1e-9 * (1 + np.abs(exact).max())
    assert levels.step <= 8 * std / 255 + slack or std == 0 or levels.step == 1
    inside = (exact >= low - slack) & (exact <= high + slack)
    assert (np.abs(back - exact)[inside] <= levels.step / 2 + slack).all()
    assert (np.abs(exact - mean)[~inside] >= 4 * std - slack).all()
    assert (np.abs(back - exact.clip(low, high)) <= levels.step / 2 + slack).all()


def test_normal_numbers_lose_a_hundredth_of_their_deviation() -> None:
    vectors = np.random.default_rng(0).normal(3.0, 2.0, (500, 64)).astype(np.float32)
    levels = Levels.of(vectors)
    assert np.abs(levels.numbers(levels.of_numbers(vectors)) - vectors)[np.abs(vectors - 3) < 7.9].max() < 0.04


def test_numbers_that_are_all_alike_come_back_as_they_were() -> None:
    levels = Levels.of(np.full((3, 4), 2.5, dtype=np.float32))
    assert (levels.numbers(levels.of_numbers(np.full((2, 4), 2.5, dtype=np.float32))) == 2.5).all()


@pytest.mark.parametrize("batch", [1, 2, 4, 100])
def test_vectors_stand_in_the_order_of_the_texts_whatever_the_batch(tmp_path: Path, batch: int) -> None:
    lengths: list[list[int]] = []
    told: list[tuple[int, int]] = []

    def heard(texts: Sequence[str]) -> np.ndarray:
        lengths.append([len(text) for text in texts])
        return encode(texts)

    path = embedded.embed(CORPUS, heard, ABOUT, tmp_path, batch=batch, progress=lambda *both: told.append(both))
    assert path == tmp_path / "embedded.safetensors"
    flat = [length for some in lengths for length in some]
    assert flat == sorted(flat, reverse=True)  # texts of like length together, the longest first
    assert told[-1] == (6, 6)
    raw, facts = embedded.read(tmp_path, "mine")
    levels = Levels.of(encode(CORPUS.train.texts))
    assert torch.equal(raw.train.images, torch.from_numpy(levels.of_numbers(encode(CORPUS.train.texts)))[:, None, None])
    assert torch.equal(raw.test.images, torch.from_numpy(levels.of_numbers(encode(CORPUS.test.texts)))[:, None, None])
    assert raw.train.images.shape == (4, 1, 1, 24)
    assert (raw.train.labels.tolist(), raw.test.labels.tolist()) == ([0, 1, 0, 1], [1, 0])
    assert raw.classes == ("short", "long")
    for word in ("made-up", "trained by backpropagation", "pool mean", "256 tokens", "0" * 64):
        assert word in raw.provenance
    assert facts["texts_sha256"] == CORPUS.sha256()


def test_the_file_says_what_made_it_and_how_to_read_the_numbers(tmp_path: Path) -> None:
    path = embedded.embed(CORPUS, encode, ABOUT, tmp_path)
    with safe_open(str(path), framework="pt") as file:
        kept = file.metadata()["state"]
        tensors = {name: file.get_tensor(name) for name in NAMES}
    for word in ('"encoder": "made-up"', '"pool": "mean"', '"max_tokens": 256', '"classes": ["short", "long"]'):
        assert word in kept
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        "train": torch.uint8,
        "test": torch.uint8,
        "train_labels": torch.int64,
        "test_labels": torch.int64,
        "offset": torch.float64,
        "step": torch.float64,
    }
    back = tensors["offset"] + tensors["step"] * tensors["train"]
    assert (back.numpy() - encode(CORPUS.train.texts)).max() <= float(tensors["step"]) / 2 + 1e-9


def test_the_hash_of_the_texts_knows_texts_labels_and_split() -> None:
    one = Corpus(classes=("a", "b"), train=Texts(["x", "y"], [0, 1]), test=Texts(["z"], [0]))
    others = [
        Corpus(classes=("a", "c"), train=one.train, test=one.test),
        Corpus(classes=("a", "b"), train=Texts(["xy", ""], [0, 1]), test=one.test),
        Corpus(classes=("a", "b"), train=Texts(["x", "y"], [1, 0]), test=one.test),
        Corpus(classes=("a", "b"), train=Texts(["x"], [0]), test=Texts(["y", "z"], [1, 0])),
    ]
    assert len({one.sha256(), *(other.sha256() for other in others)}) == 5


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda texts: np.full((len(texts), 3), np.nan), "not finite"),
        (lambda texts: np.zeros((len(texts) + 1, 3)), "expected"),
        (lambda texts: np.zeros((len(texts), len(texts[0]))), "expected"),
        (lambda texts: np.zeros((len(texts), 0)), "one or more"),
        (lambda texts: np.float32(1), "one or more"),
    ],
)
def test_an_encoder_that_gives_something_else_is_refused_and_nothing_is_kept(tmp_path: Path, wrong, told: str) -> None:
    with pytest.raises(DataError, match=told):
        embedded.embed(CORPUS, wrong, ABOUT, tmp_path, batch=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", [3, 100, -1])
def test_a_damaged_file_is_refused_with_the_command_that_makes_it_again(tmp_path: Path, place: int) -> None:
    path = embedded.embed(CORPUS, encode, ABOUT, tmp_path)
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match="goodness data embed mine"):
        embedded.read(tmp_path, "mine")


def test_what_another_process_is_still_writing_beside_an_embedding_stays(tmp_path: Path) -> None:
    unfinished = tmp_path / f".{embedded.FILE}.abcd{PARTIAL}"
    unfinished.write_bytes(b"half")
    embedded.embed(CORPUS, encode, ABOUT, tmp_path)
    assert unfinished.read_bytes() == b"half"
    embedded.read(tmp_path, "mine")


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / embedded.FILE, {"weight": torch.zeros(3)}, {"step": 1})
    with pytest.raises(DataError, match="lacks what an embedding has"):
        embedded.read(tmp_path, "mine")


def test_vectors_without_numbers_are_refused(tmp_path: Path) -> None:
    from goodness.runs.checkpoint import Checkpoints

    embedded.embed(CORPUS, encode, ABOUT, tmp_path)
    tensors, facts = Checkpoints(tmp_path).load_weights("embedded")
    Checkpoints(tmp_path).save_weights("embedded", {**tensors, "train": tensors["train_labels"]}, facts)
    with pytest.raises(DataError, match="lacks what an embedding has"):
        embedded.read(tmp_path, "mine")


def test_images_are_not_embedded() -> None:
    with pytest.raises(DataError, match="only texts are embedded"):
        sources.embed("digits", encode, ABOUT)


def test_a_batch_of_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at least one text"):
        sources.embed(f"texts:{tmp_path}", encode, ABOUT, batch=0)


@pytest.mark.parametrize("outlier", [None, 1e30])
def test_vectors_that_come_to_a_few_levels_are_refused(outlier: float | None, tmp_path: Path) -> None:
    """All alike, or one number so far off that the others share a level."""
    texts = Texts([f"text {n}" for n in range(20)], [n % 2 for n in range(20)])
    corpus = Corpus(classes=("a", "b"), train=texts, test=texts)
    vectors = np.zeros((40, 8), dtype=np.float32)
    if outlier is not None:
        vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
        vectors[0, 0] = outlier
    with pytest.raises(DataError, match="of 256 levels"):
        embedded.embed(corpus, lambda some: vectors[: len(some)], ABOUT, tmp_path)
