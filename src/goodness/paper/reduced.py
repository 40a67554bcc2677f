"""A run's files, cut down to what the tables, figures and findings read: small enough for a repository.

Nothing in them names a person, a machine or a path: what is kept of environment.json is named field by field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

DIGITS = 5
DRAWN, COUNTED = 3, 2
"""Digits of the single images' margins: at the deepest block they are drawn, at the others counted by their sign."""
MOST_EPOCHS = 30
"""Epochs that keep what their blocks measured; of the others of a long run accuracy and time stay."""

ENVIRONMENT = (
    "goodness",
    "python",
    "torch",
    "numpy",
    "safetensors",
    "cpu",
    "cores",
    "threads",
    "device",
    "device_name",
    "cuda",
    "cudnn",
    "driver",
    "dtype",
    "dtype_reason",
    "method",
    "method_version",
    "health_version",
    "source",
    "parts",
    "commit",
    "commit_is_dirty",
    "started",
)
"""What stays of environment.json as it is. Left out: the command, where the data lies, the system's own build."""
TRAIN = (
    "loss",
    "g_pos",
    "sep_cur_mined",
    "sep_rate",
    "rule_weight",
    "grad_norm",
    "experts_effective",
    "load_variance",
)
"""What stays of a block's line in metrics.jsonl, beside each term's own loss."""
FROM_ROOT = r"(?:[\\/]|~|file:|[A-Za-z]:[\\/])"
"""How a path begins that names a place of one machine."""
EXAMPLE = ("margin", "past", "weight", "ratio", "measured")
"""What stays of an example whose gradients were taken."""


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Every float of plain data, to so many digits.

    >>> rounded({"a": [0.123456789, 12], "b": "c"})
    {'a': [0.12346, 12], 'b': 'c'}
    """
    if isinstance(value, Mapping):
        return {name: rounded(one, digits) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one, digits) for one in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def environment(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, hardware and hashes; without what is of one machine alone."""
    kept = {name: facts[name] for name in ENVIRONMENT if name in facts}
    if "platform" in facts:
        kept["platform"] = str(facts["platform"]).split("-")[0]
    if isinstance(data := facts.get("data"), Mapping):
        kept["data"] = {"provenance": without_place(str(data.get("provenance", ""))), "sha256": data.get("sha256")}
    if "resumed" in facts:
        kept["resumed"] = [environment(life) for life in facts["resumed"]]
    return kept


def without_place(provenance: str) -> str:
    """Where data came from, without the folders it lies in.

    Data sets write `PLACE: what was checked`: of the place its last name stays, unless it is an address. A folder may
    have a colon in its name too: its place ends at the last colon behind a slash, though that costs words. Behind the
    place only a path from the root or from a home folder is cut: other words may have a slash.

    >>> without_place("/home/user/data/cifar-10-binary.tar.gz: lengths checked, train/val apart")
    'cifar-10-binary.tar.gz: lengths checked, train/val apart'
    """
    parts = provenance.split(": ")
    is_address = "://" in parts[0] and "file://" not in parts[0]  # which is no place of one machine
    names = [] if is_address else [re.sub(r"\w+://\S+", "", part) for part in parts[:-1]]
    end = max((count for count, name in enumerate(names, 1) if re.search(r"[\\/]", name)), default=1)
    place, rest = ": ".join(parts[:end]), ": ".join(parts[end:])
    colon = ": " if len(parts) > 1 else ""
    if not is_address and (colon or re.match(FROM_ROOT, place)):
        place = re.split(r"[\\/]", place.rstrip("\\/"))[-1]
    return place + colon + re.sub(rf"(?<!\S){FROM_ROOT}\S*[\\/]", "", rest)


def metrics(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A line an epoch. Of a long run `MOST_EPOCHS` keep their blocks, evaluated ones first and evenly spread."""
    judged = [place for place, line in enumerate(lines) if "val" in line]
    others = [place for place, line in enumerate(lines) if "val" not in line]
    whole = set(_spread(judged, MOST_EPOCHS))
    whole |= set(_spread(others, MOST_EPOCHS - len(whole)))
    return [_line(line, place in whole or place == len(lines) - 1) for place, line in enumerate(lines)]


def _spread(places: Sequence[int], most: int) -> list[int]:
    """At most so many of them, the first and the last included."""
    if len(places) <= most:
        return list(places)
    if most < 2:
        return list(places[len(places) - most :])
    return [places[round(k * (len(places) - 1) / (most - 1))] for k in range(most)]


def _line(line: Mapping[str, Any], is_whole: bool) -> dict[str, Any]:
    kept: dict[str, Any] = {"epoch": line["epoch"]}
    train = line.get("train")
    if is_whole and isinstance(train, Mapping):
        kept["train"] = {name: rounded(value) for name, value in train.items() if name != "blocks"}
        if "blocks" in train:
            kept["train"]["blocks"] = [
                {name: rounded(value) for name, value in block.items() if name in TRAIN or name.startswith("loss_")}
                for block in train["blocks"]
            ]
    if "val" in line:
        kept["val"] = rounded({name: value for name, value in line["val"].items() if name != "blocks"})
    if "seconds" in line:
        kept["seconds"] = line["seconds"]  # what an epoch took is a small difference of two large ones
    return kept


def health(found: Mapping[str, Any]) -> dict[str, Any]:
    """Block health with the images' own weights left out, and their margins to fewer digits.

    Early exit stays as it is: a finding looks for the point that loses no more than half a point.
    """
    kept = {name: value for name, value in found.items() if name != "attenuation_weights"}
    blocks = kept.pop("attenuation_points", None)
    exact = {name: kept[name] for name in ("early_exit",) if name in kept}
    small = {**rounded(kept), **exact}
    if not blocks:
        return small
    points = [*(rounded(block, COUNTED) for block in blocks[:-1]), rounded(blocks[-1], DRAWN)]
    return {**small, "attenuation_points": points}


def theory(found: Mapping[str, Any]) -> dict[str, Any]:
    """The check of the theorems; of the single examples those at the deepest block, which a figure shows."""
    blocks = [{name: value for name, value in block.items() if name != "examples"} for block in found["blocks"]]
    if blocks:
        examples = found["blocks"][-1].get("examples", [])
        blocks[-1]["examples"] = [{name: one.get(name) for name in EXAMPLE} for one in examples]
    return rounded({**found, "blocks": blocks})
