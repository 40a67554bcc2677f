"""Tensors in a file of their own: safetensors, the tensors as its body and everything else as JSON in its header.

Nothing here is ever pickled, so a file from a stranger can hold wrong numbers but cannot run code. Each carries a hash
of its own content; one that does not match is never used.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from goodness.durable import write_durably
from goodness.errors import RunError


class Damaged(Exception):
    """A file that is not what was written; the message says how that was seen."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write the file, in a folder that is made if need be; when this returns, it is on the disk and has been read back.

    What killed writers left beside it stays: to sweep is for those who know that the folder is theirs alone.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save

    _refuse_non_finite(path, tensors)
    _require_exact_json(dict(state), "state")
    on_cpu = _unshared_on_cpu(tensors)
    metadata = {"format": "pt", "state": json.dumps(dict(state))}
    metadata["sha256"] = meant = _content_sha256(on_cpu, metadata)
    try:
        content = save(on_cpu, metadata)
    except (SafetensorError, ValueError, KeyError) as trouble:
        raise RunError(f"{path} was not written: safetensors refused the tensors ({trouble})") from trouble

    def check(unfinished: Path) -> None:
        try:
            read_tensors(unfinished, meant)
        except Damaged as trouble:
            raise RunError(
                f"{path} did not read back as it was written ({trouble}). What was there before is "
                "untouched; the disk or the memory of this machine is failing: write to another disk"
            ) from trouble

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as trouble:
        raise RunError(f"could not create {path.parent}: {trouble.strerror}; choose another folder") from trouble
    write_durably(path, content, check=check)


def read_tensors(path: Path, meant: str | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state of a file, verified against its own hash and against `meant` where given."""
    from safetensors.torch import load

    try:
        data = path.read_bytes()
    except OSError as trouble:
        if trouble.errno == errno.EIO:
            raise Damaged("the disk cannot read it") from trouble
        raise
    try:  # damaged bytes can fail at any line here, in any way
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        metadata = header["__metadata__"]
        stored = metadata.pop("sha256")
        found = _content_sha256(tensors, metadata)
        state = json.loads(metadata["state"])
    except Exception as trouble:
        raise Damaged(f"not a readable file of tensors ({type(trouble).__name__}: {trouble})") from trouble
    if found != stored or (meant is not None and found != meant):
        raise Damaged(f"its content has the hash {found[:12]}…, and {(meant or stored)[:12]}… was written")
    return tensors, state


def weights_sha256(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the sorted names with each tensor's dtype, shape and bytes.

    The same for any device and any order of the mapping; another when one bit differs (0.0 is not -0.0).
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().to("cpu").contiguous()
        label = [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]
        digest.update(json.dumps(label).encode() + b"\n")
        if tensor.numel():
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _content_sha256(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    text = json.dumps([weights_sha256(tensors), sorted(metadata.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse_non_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        values = tensor.detach()
        if values.is_floating_point() and values.element_size() == 1:  # isfinite knows no 8-bit floats
            values = values.float()
        is_finite = torch.isfinite(values)
        if not bool(is_finite.all()):
            count = int((~is_finite).sum())
            raise RunError(
                f"{path} was not written: the tensor '{name}' has {count} of {tensor.numel()} values "
                "that are not finite. What was there before is untouched; a lower learning rate often helps"
            )


def _require_exact_json(value: object, place: str) -> None:
    """Refuse what JSON would bring back as something else (a tuple as a list, the key 1 as "1").

    NaN and infinity pass: Python reads them back exactly, and a run without a best epoch may say -inf.
    """
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{place} has the key {key!r}, which is not text; use flatten_state for such a dict")
            _require_exact_json(part, f"{place}.{key}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            _require_exact_json(part, f"{place}[{number}]")
    elif not (value is None or isinstance(value, (str, bool, int, float))):
        raise TypeError(f"{place} is a {type(value).__name__}; a state holds what JSON holds exactly")


def _unshared_on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous CPU tensors of which no two share memory (tied weights, views), as safetensors demands."""
    result: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().to("cpu").contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != tensor.numel() * tensor.element_size():
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        seen.add(tensor.untyped_storage().data_ptr())
        result[name] = tensor
    return result
