"""A frozen text encoder of `transformers`: texts to vectors. It was trained by backpropagation; no block of ours is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from goodness.data.embedded import About
from goodness.errors import DataError
from goodness.home import from_home
from goodness.training.checkpoint import weights_sha256

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
            self.tokeniser = AutoTokenizer.from_pretrained(place)
            # safetensors alone: the older format is a pickle
            model, found = AutoModel.from_pretrained(place, use_safetensors=True, output_loading_info=True)
        except (OSError, ValueError, KeyError) as trouble:
            reason = str(trouble).strip().splitlines()[0]
            raise DataError(
                f"no encoder '{name}' ({reason}): give a folder with config.json, tokenizer.json and "
                "model.safetensors, or a public name and a network"
            ) from None
        absent = set(found["missing_keys"])  # such weights are drawn at random
        if any(pool == "pooler" or not key.startswith("pooler.") for key in absent):
            raise DataError(f"the encoder '{name}' lacks weights ({min(absent)}): take another, or --pool mean")
        limit = getattr(model.config, "max_position_embeddings", max_tokens)
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

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors `[texts, numbers]` float32."""
        batch = self.tokeniser(
            list(texts), padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        ).to(self.device)
        with torch.inference_mode():
            out = self.model(**batch)
            if self.pool == "pooler":
                vectors = out.pooler_output
            else:
                real = batch["attention_mask"].unsqueeze(-1).float()
                vectors = (out.last_hidden_state.float() * real).sum(dim=1) / real.sum(dim=1)
        return vectors.float().cpu().numpy()
