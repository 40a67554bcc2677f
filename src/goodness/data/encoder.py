"""A frozen text encoder of `transformers`: texts to vectors. It was trained by backpropagation; no block of ours is."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from goodness.data.embedded import About
from goodness.errors import DataError, tells_of_full_memory
from goodness.paths import from_home
from goodness.tensor_file import weights_sha256

Pool = Literal["mean", "pooler"]


class FrozenEncoder:
    """An encoder from a folder or by its public name; `mean` averages a text's tokens, `pooler` is its own summary."""

    def __init__(
        self, name: str, *, pool: Pool = "mean", max_tokens: int = 256, device: torch.device | str = "cpu"
    ) -> None:
        try:
            from transformers import AutoModel, AutoTokenizer  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise DataError("texts are embedded with transformers: pip install 'goodness[text]'") from None
        is_folder = from_home(name).is_dir()
        place = str(from_home(name)) if is_folder else name
        try:
            self.tokeniser = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
            # safetensors alone: the older format is a pickle; and no code that the folder brings along
            model, found = AutoModel.from_pretrained(
                place, use_safetensors=True, output_loading_info=True, trust_remote_code=False
            )
        except Exception as trouble:  # a damaged folder ends in anything there
            _let_through(trouble)
            raise DataError(
                f"no encoder '{name}' ({_reason(trouble)}): give a folder with config.json, tokenizer.json and "
                "model.safetensors, or a public name and a network"
            ) from trouble
        if len(self.tokeniser) <= len(set(self.tokeniser.all_special_ids)):  # what is made of a folder without one
            raise DataError(f"the tokenizer of '{name}' knows no word: the folder lacks tokenizer.json or vocab.txt")
        absent = set(found["missing_keys"])  # such weights are drawn at random
        if any(pool == "pooler" or not key.startswith("pooler.") for key in absent):
            raise DataError(f"the encoder '{name}' lacks weights ({min(absent)}): take another, or --pool mean")
        limit = getattr(model.config, "max_position_embeddings", None)
        limit = limit if isinstance(limit, int) and limit > 0 else max_tokens  # -1 where positions are relative
        if not 2 < max_tokens <= limit:
            raise DataError(f"--max-tokens {max_tokens}: '{name}' takes 3 to {limit}")
        self.model = model.to(device).eval().requires_grad_(False)
        self.pool, self.max_tokens, self.device = pool, max_tokens, device
        weights = {key: value for key, value in model.state_dict().items() if key not in absent}
        self.about = About(
            encoder=Path(place).resolve().name if is_folder else name,
            encoder_sha256=weights_sha256(weights),
            pool=pool,
            max_tokens=max_tokens,
        )
        self._try(name)

    def _try(self, name: str) -> None:
        """A short text beside the longest: what is no encoder of texts is refused before the texts are read."""
        try:
            self(["a", "a " * self.max_tokens])
        except DataError:
            raise
        except Exception as trouble:
            _let_through(trouble)
            raise DataError(
                f"'{name}' cannot turn texts of {self.max_tokens} tokens into vectors ({_reason(trouble)}): take an "
                "encoder of texts, such as bert-base-uncased, or fewer --max-tokens"
            ) from trouble

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors `[texts, numbers]` float32."""
        batch = self.tokeniser(
            list(texts), padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        )
        known, largest = getattr(self.model.config, "vocab_size", None), int(batch["input_ids"].max())
        if isinstance(known, int) and largest >= known:
            raise DataError(
                f"the tokenizer of '{self.about.encoder}' gives token {largest} and its weights know {known}: they do "
                "not belong together, take both from one place"
            )
        batch = batch.to(self.device)
        with torch.inference_mode():
            out = self.model(**batch)
            if self.pool == "pooler":
                vectors = getattr(out, "pooler_output", None)
                if vectors is None:
                    raise DataError(f"'{self.about.encoder}' has no summary of a text: take --pool mean")
            else:
                real = batch["attention_mask"].unsqueeze(-1).float()
                vectors = (out.last_hidden_state.float() * real).sum(dim=1) / real.sum(dim=1)
        return vectors.float().cpu().numpy()


def _let_through(trouble: Exception) -> None:
    """Memory that is used up is no fault of the encoder's."""
    if tells_of_full_memory(trouble):
        raise trouble


def _reason(trouble: Exception) -> str:
    """The beginning of whatever another library says, on one line."""
    return textwrap.shorten(str(trouble).strip() or type(trouble).__name__, 200, placeholder=" ...")
