"""What is no encoder of texts is refused in one line, whatever the library that reads it raises: here a made-up one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from goodness.cli import main
from goodness.data.encoder import FrozenEncoder
from goodness.errors import DataError
from made_up_texts import write_folder


class Batch(dict[str, torch.Tensor]):
    def to(self, device: object) -> Batch:
        return self


class Tokeniser:
    """A token a letter."""

    all_special_ids = (0, 1)
    words, shift = 30, 0

    def __len__(self) -> int:
        return self.words

    def __call__(self, texts: list[str], max_length: int, **how: object) -> Batch:
        longest = min(max_length, max(map(len, texts)))
        ids = [[2 + self.shift + ord(letter) % 20 for letter in text[:longest]] for text in texts]
        mask = torch.tensor([[int(place < len(one)) for place in range(longest)] for one in ids])
        padded = torch.tensor([one + [0] * (longest - len(one)) for one in ids])
        return Batch(input_ids=padded, attention_mask=mask)


class Model(torch.nn.Module):
    config = SimpleNamespace(vocab_size=22, max_position_embeddings=-1)  # as where positions are relative

    def __init__(self, longest: int = 99) -> None:
        super().__init__()
        self.words, self.longest = torch.nn.Embedding(22, 6), longest

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> SimpleNamespace:
        if input_ids.shape[1] > self.longest:
            raise IndexError("index out of range in self")
        return SimpleNamespace(last_hidden_state=self.words(input_ids))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Stand in for transformers with this tokeniser and this model; an exception is raised instead."""

    def install(tokeniser: Any = None, model: Any = None) -> None:
        def giving(what: Any) -> SimpleNamespace:
            def from_pretrained(*_: object, **__: object) -> Any:
                if isinstance(what, Exception):
                    raise what
                return what

            return SimpleNamespace(from_pretrained=from_pretrained)

        module = ModuleType("transformers")
        loaded = model if isinstance(model, Exception) else (model or Model(), {"missing_keys": []})
        module.__dict__.update(AutoTokenizer=giving(tokeniser or Tokeniser()), AutoModel=giving(loaded))
        monkeypatch.setitem(sys.modules, "transformers", module)

    return install


def test_the_made_up_library_serves(library: Callable[..., None]) -> None:
    library()
    assert FrozenEncoder("some", max_tokens=16)(["a cat", "an eel swam"]).shape == (2, 6)


@pytest.mark.parametrize(
    "trouble",
    [
        SafetensorError("Error while deserializing header: header too small"),
        TypeError("'str' object cannot be interpreted as an integer"),
        AttributeError("'list' object has no attribute 'get'"),
        RuntimeError("size mismatch\nfor words.weight"),
        ValueError(""),
    ],
)
def test_what_cannot_be_read_is_refused_whatever_was_raised(library: Callable[..., None], trouble: Exception) -> None:
    for broken in ({"tokeniser": trouble}, {"model": trouble}):
        library(**broken)
        with pytest.raises(DataError, match=r"give a folder with config.json") as told:
            FrozenEncoder("some")
        assert (" ".join(str(trouble).split()) or "ValueError") in str(told.value)
        assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "trouble",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"),
        MemoryError(),
    ],
)
def test_memory_that_is_used_up_is_no_fault_of_the_encoders(library: Callable[..., None], trouble: Exception) -> None:
    library(model=trouble)
    with pytest.raises(type(trouble)) as told:
        FrozenEncoder("some")
    assert told.value is trouble


def test_a_tokenizer_without_words_or_of_other_weights_is_refused(library: Callable[..., None]) -> None:
    empty, other = Tokeniser(), Tokeniser()
    empty.words, other.shift = 2, 9
    library(tokeniser=empty)
    with pytest.raises(DataError, match="knows no word"):
        FrozenEncoder("some")
    library(tokeniser=other)
    with pytest.raises(DataError, match="its weights know 22: they do not belong together"):
        FrozenEncoder("some")


def test_what_cannot_take_texts_is_refused_before_they_are_read(
    library: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library(model=Model(longest=8))
    texts = f"texts:{write_folder(tmp_path / 'mine', train=2, test=1)}"
    command = ["data", "embed", texts, "--device", "cpu", "--encoder", "some"]
    assert main([*command, "--max-tokens", "9"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "'some' cannot turn texts of 9 tokens into vectors (index out of range in self)" in told
    assert main([*command, "--max-tokens", "8", "--pool", "pooler"]) == 2
    assert "no summary of a text: take --pool mean" in " ".join(capsys.readouterr().err.split())
    assert main([*command, "--max-tokens", "8"]) == 0
