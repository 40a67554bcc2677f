"""A frozen encoder of transformers, tiny and made here: padding does not count, and what cannot serve is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from goodness.data.encoder import FrozenEncoder
from goodness.errors import DataError

transformers = pytest.importorskip("transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("encoder") / "small-bert"
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizerFast(vocab={word: i for i, word in enumerate(WORDS)}).save_pretrained(path)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, **sizes)
    transformers.BertModel(config).save_pretrained(path)
    return path


def test_a_text_has_the_same_vector_alone_and_beside_a_longer_one(folder: Path) -> None:
    for pool in ("mean", "pooler"):
        encoder = FrozenEncoder(str(folder), pool=pool, max_tokens=16)
        short, long = "the cat", "the cat sat on a mat on the mat"
        both = encoder([short, long])
        assert both.shape == (2, 8)
        assert both.dtype == np.float32
        np.testing.assert_allclose(both[0], encoder([short])[0], atol=1e-5)
        assert not np.allclose(both[0], both[1])


def test_what_is_beyond_the_longest_text_does_not_count(folder: Path) -> None:
    encoder = FrozenEncoder(str(folder), max_tokens=5)
    np.testing.assert_allclose(encoder(["the cat sat"]), encoder(["the cat sat on a mat"]), atol=1e-6)


def test_it_says_what_it_is_and_not_where(folder: Path) -> None:
    one, other = (FrozenEncoder(str(folder), max_tokens=size).about for size in (8, 16))
    assert one.encoder == "small-bert"
    assert (one.pool, one.max_tokens) == ("mean", 8)
    assert one.encoder_sha256 == other.encoder_sha256
    assert len(one.encoder_sha256) == 64


def test_what_cannot_serve_is_refused_with_advice(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="takes 3 to 32"):
        FrozenEncoder(str(folder), max_tokens=33)
    with pytest.raises(DataError, match=r"give a folder with config.json"):
        FrozenEncoder(str(tmp_path))


def test_a_summary_that_was_never_trained_is_refused(folder: Path, tmp_path: Path) -> None:
    model = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False)
    model.save_pretrained(tmp_path / "bare")
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "bare")
    assert FrozenEncoder(str(tmp_path / "bare"), max_tokens=8)(["a cat"]).shape == (1, 8)
    with pytest.raises(DataError, match=r"lacks weights \(pooler\..*--pool mean"):
        FrozenEncoder(str(tmp_path / "bare"), pool="pooler", max_tokens=8)


def cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def changed(name: str, **settings: object) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(
        json.dumps({**json.loads((folder / name).read_text()), **settings})
    )


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (cut("model.safetensors", 500), "no encoder '.*' .*header"),
        (cut("model.safetensors", 0), "no encoder '.*' .*header"),
        (cut("tokenizer_config.json", 1), "no encoder"),
        (lambda folder: (folder / "tokenizer.json").write_text("[]"), "no encoder"),
        (lambda folder: (folder / "tokenizer_config.json").write_text("[]"), "no encoder"),
        (lambda folder: (folder / "config.json").write_text("[]"), "no encoder"),
        (changed("config.json", hidden_size=16), "no encoder"),
        (changed("config.json", hidden_size="8"), "no encoder"),
        (changed("config.json", model_type="gpt2"), "lacks weights"),
        (changed("tokenizer_config.json", pad_token=None), "into vectors .*padding token"),
        (lambda folder: [(folder / name).unlink() for name in ("tokenizer.json", "vocab.txt")], "knows no word"),
    ],
)
def test_a_folder_that_is_damaged_or_of_something_else_is_refused(
    damage: Callable[[Path], object], told: str, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    damage(copy)
    with pytest.raises(DataError, match=told):
        FrozenEncoder(str(copy), max_tokens=8)
