"""Commands that list and check: presets and data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from goodness.cli.terminal import err, out, parsed, print_json
from goodness.config import Config, differences
from goodness.data import sources
from goodness.data.encoder import FrozenEncoder
from goodness.data.text import ENCODER, TextData
from goodness.errors import UserError, nearest
from goodness.paper.accuracies import PAPER
from goodness.parts import ImageFacts
from goodness.presets import base_of, preset, presets, section_of
from goodness.report import tables
from goodness.report.progress import Progress
from goodness.runs.run_folder import choose_device

WIDE = 100
"""Columns of a terminal that has room for what every preset changes."""


@dataclass(kw_only=True)
class PresetsArgs:
    """List the named runs: what each is, how it differs from the one it derives from, what the paper has for it."""

    like: tyro.conf.Positional[tuple[str, ...]] = ()
    """Only presets with one of these words in their name: goodness presets d128 cnn."""
    json: bool = False
    """Print one JSON array instead of a table."""


@dataclass(kw_only=True)
class DataListArgs:
    """List the data sets: size, splits, where they are kept and whether they are there."""

    data_dir: Path | None = None
    """Where data sets are kept; else $GOODNESS_DATA, else the user's cache folder."""
    json: bool = False
    """Print one JSON array."""


@dataclass(kw_only=True)
class DataGetArgs:
    """Download a data set from its official place; resumable, size and hash verified."""

    name: tyro.conf.Positional[str]
    """Which data set."""
    data_dir: Path | None = None
    """Where data sets are kept; else $GOODNESS_DATA, else the user's cache folder."""


@dataclass(kw_only=True)
class DataCheckArgs:
    """Verify a data set that is here: sizes, hashes, label ranges, images per class."""

    name: tyro.conf.Positional[str]
    """Which data set, or folder:PATH."""
    data_dir: Path | None = None
    """Where data sets are kept; else $GOODNESS_DATA, else the user's cache folder."""
    json: bool = False
    """Print one JSON object."""


@dataclass(kw_only=True)
class DataEmbedArgs:
    """Turn the texts of a data set into vectors by a frozen encoder, once; runs read the vectors. A GPU makes it
    minutes. Needs `pip install 'goodness[text]'`."""

    name: tyro.conf.Positional[str]
    """Which data set: imdb, newsgroups, ag-news or texts:PATH."""
    encoder: str
    """A folder with an encoder of transformers, or a public name such as the paper's bert-base-uncased."""
    pool: Literal["mean", "pooler"] = "mean"
    """One vector of a text's tokens: their mean, or the encoder's own summary."""
    max_tokens: int = 256
    """Where a longer text is cut off."""
    batch: int = 64
    """Texts at a time."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""
    data_dir: Path | None = None
    """Where data sets are kept; else $GOODNESS_DATA, else the user's cache folder."""


def presets_command(arguments: list[str]) -> int:
    args = parsed(PresetsArgs, arguments, "goodness presets")
    words = [word.lower() for word in args.like]
    chosen = [name for name in presets if not words or any(word in name.lower() for word in words)]
    if not chosen:
        raise UserError(f"no preset has '{args.like[0]}' in its name; {nearest(words[0], presets)}")
    rows = [_preset_row(name, sized=bool(words) or args.json) for name in chosen]
    if args.json:
        print_json(rows)
    else:
        out.print(tables.presets_table(rows, changes=bool(words) or out.width >= WIDE))
    return 0


def _preset_row(name: str, sized: bool) -> dict[str, Any]:
    """`sized` counts the network's parameters, which takes a moment a preset."""
    config, base = preset(name), base_of(name)
    changed = {} if base is None else differences(config, preset(base))
    changed.pop("preset", None)
    return {
        "name": name,
        "section": section_of(name),
        "about": (presets[name].__doc__ or "").strip(),
        "base": base,
        "changes": {key: new for key, (_, new) in changed.items()},
        "data": config.data,
        "epochs": config.epochs,
        "paper": dataclasses.asdict(PAPER[name]) if name in PAPER else None,
        "parameters": _parameters(config) if sized else None,
    }


def _parameters(config: Config) -> int:
    """Of the network for its own data set's images and classes, terms included; nothing is allocated."""
    import torch

    from goodness.methods.build import build_method
    from goodness.nn.network import Network
    from goodness.nn.stripped import StrippedNetwork

    data = sources.find(config.data)
    shape, classes = data.shape or (3, 32, 32), data.class_count or 10
    if not config.is_cumulative:
        facts = ImageFacts(shape, classes, (0.0,) * shape[0], (1.0,) * shape[0])
        with torch.device("meta"):
            return sum(one.numel() for one in build_method(config, facts, config.seed).parameters())
    with torch.device("meta"):
        if config.trainer == "backprop":
            return StrippedNetwork(config.model, shape, classes).parameter_count()
        return Network(config.model, shape, classes, terms=config.objective).parameter_count()


def data_command(arguments: list[str]) -> int:
    actions: dict[str, Callable[[list[str]], int]] = {"list": _data_list, "get": _data_get, "check": _data_check}
    actions["embed"] = _data_embed
    if not arguments or arguments[0] in ("-h", "--help"):
        out.print("usage: goodness data list | get NAME | check NAME | embed NAME   (each takes --help)")
        return 0 if arguments else 2
    if arguments[0] not in actions:
        raise UserError(f"unknown action 'data {arguments[0]}': {nearest(arguments[0], actions)}")
    return actions[arguments[0]](arguments[1:])


def _data_list(arguments: list[str]) -> int:
    args = parsed(DataListArgs, arguments, "goodness data list")
    rows = sources.listing(args.data_dir)
    if args.json:
        print_json(rows)
    else:
        out.print(tables.data_table(rows))
        out.print("Your own images: --data folder:PATH, with PATH/train/<class>/* and PATH/test/<class>/*.")
        out.print("Your own texts: --data texts:PATH, with *.txt there. Texts are embedded first: goodness data embed.")
    return 0


def _data_get(arguments: list[str]) -> int:
    args = parsed(DataGetArgs, arguments, "goodness data get")
    with Progress(err) as progress:
        place = sources.get(args.name, args.data_dir, progress.bytes_listener(args.name))
    out.print(f"{args.name} is at {place}", markup=False, soft_wrap=True)
    dataset = sources.find(args.name)
    if isinstance(dataset, TextData) and not dataset.is_embedded(sources.cache_dir(args.data_dir)):
        out.print(f"next: goodness data embed {args.name} --encoder {ENCODER}", markup=False, soft_wrap=True)
    return 0


def _data_embed(arguments: list[str]) -> int:
    args = parsed(DataEmbedArgs, arguments, "goodness data embed")
    sources.find_texts(args.name)  # before an encoder is fetched
    encoder = FrozenEncoder(args.encoder, pool=args.pool, max_tokens=args.max_tokens, device=choose_device(args.device))
    with Progress(err) as progress:
        listener = progress.texts_listener(args.name)
        place = sources.embed(
            args.name, encoder, encoder.about, data_dir=args.data_dir, batch=args.batch, progress=listener
        )
    out.print(f"{args.name} is embedded at {place}", markup=False, soft_wrap=True)
    return 0


def _data_check(arguments: list[str]) -> int:
    args = parsed(DataCheckArgs, arguments, "goodness data check")
    facts = sources.check(args.name, args.data_dir)
    if args.json:
        print_json(facts)
    else:
        out.print(tables.facts_table(f"{args.name}: everything checks out", facts))
    return 0
