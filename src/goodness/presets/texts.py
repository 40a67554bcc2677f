"""Texts: the paper's block on the vectors of a frozen encoder, which was itself trained by backpropagation."""

from __future__ import annotations

from goodness.presets.naming import Changes, variant
from goodness.presets.paper_size import SAM


@variant("text-imdb", of="gamma0")
def text_imdb() -> Changes:
    """IMDb: one vector a text, mapped to eight tokens; 16 experts, SAM. The paper trains 25 to 40 epochs, we 25."""
    return {
        "data": "imdb",
        "epochs": 25,
        "augment": "none",
        "model.stem.kind": "vector",
        "model.block.experts": 16,
        **SAM,
        "readout.epochs": 10,
    }


@variant("text-newsgroups", of="text-imdb")
def text_newsgroups() -> Changes:
    """20 Newsgroups by date, for 40 epochs: the smallest of the three and the one with the most classes."""
    return {"data": "newsgroups", "epochs": 40}


@variant("text-ag-news", of="text-imdb")
def text_ag_news() -> Changes:
    """AG News, otherwise as IMDb."""
    return {"data": "ag-news"}
