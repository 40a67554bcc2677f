"""Checkpoints: one safetensors file each, the tensors as its body and everything else as JSON in its header.

Nothing here is ever pickled, so a checkpoint from a stranger can hold wrong numbers but cannot run code. Each
file carries a hash of its own content; one that does not match is never used.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from goodness.errors import RunError, nearest
from goodness.training.durable import sweep_partial, sync_folder, write_durably

_STEP_FILE = re.compile(r"step-(\d{9}|[1-9]\d{9,})\.safetensors")
_WEIGHT_NAME = re.compile(r"(?!step-\d+$)[A-Za-z0-9][A-Za-z0-9._-]*")


class Damaged(Exception):
    """A file that is not what was written; the message says how that was seen."""


class Checkpoints:
    """The checkpoints and weight files of one folder, for one writing process (see RunFolder's lock).

    `notes` collects one sentence per damaged file that was passed over, for the caller to show.
    """

    def __init__(self, folder: str | Path, keep: int = 1) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        self.folder = Path(folder)
        self.keep = keep
        self.notes: list[str] = []

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> Path:
        """Write the checkpoint of `step`; when this returns, it is on the disk and has been read back.

        Only then are older ones removed, all but the newest `keep`. Later ones go too: a run that saves step
        150 while 200 exists has gone back (200 was damaged), and 200 must not count as the newest again.
        """
        if step < 0:
            raise ValueError(f"a step counts from 0, not {step}")
        path = self._step_path(step)
        self._write(path, tensors, state)
        older = [number for number in self.steps() if number < step]
        kept = {step, *older[len(older) - (self.keep - 1) :]}
        self._remove(self._step_path(number) for number in self.steps() if number not in kept)
        return path

    def latest(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors (on the CPU) and state of the newest checkpoint that reads back whole, or None.

        None with entries in `notes` means that there were checkpoints and all are damaged.
        """
        for _ in range(10):  # a reader without the lock may see a file go between listing and opening it
            try:
                return self._newest_intact()
            except FileNotFoundError:
                continue
        raise RunError(f"the checkpoints in {self.folder} keep changing; wait for the run that writes them")

    def steps(self) -> list[int]:
        """The steps that have a file, in order, intact or not."""
        if not self.folder.is_dir():
            return []
        matches = (_STEP_FILE.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def save_weights(self, name: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> Path:
        """Write `<name>.safetensors`, as safely as a checkpoint and never pruned by one.

        A run that can be killed anywhere writes the new weights, then the checkpoint whose state names them,
        then calls `discard_weights_except`: at every moment the newest checkpoint names a file that exists.
        """
        path = self._weights_path(name)
        self._write(path, tensors, metadata)
        return path

    def load_weights(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors (on the CPU) and metadata of a weight file, verified."""
        path = self._weights_path(name)
        try:
            return _read(path)
        except FileNotFoundError:
            known = self._weight_names()
            hint = nearest(name, known) if known else "there are no weight files"
            raise RunError(f"there is no {path.name} in {self.folder}; {hint}") from None
        except (Damaged, OSError) as trouble:
            raise RunError(f"{path} cannot be used: {trouble}; restore it from a copy or train again") from trouble

    def discard_weights_except(self, names: Iterable[str]) -> None:
        """Remove the weight files that are not in `names`; step files stay."""
        kept = {self._weights_path(name) for name in names}
        self._remove(path for path in map(self._weights_path, self._weight_names()) if path not in kept)

    def _step_path(self, step: int) -> Path:
        return self.folder / f"step-{step:09d}.safetensors"

    def _weights_path(self, name: str) -> Path:
        name = name.removesuffix(".safetensors")
        if not _WEIGHT_NAME.fullmatch(name):
            raise ValueError(f"'{name}' cannot name a weight file: letters, digits, '.', '_', '-', and not 'step-N'")
        return self.folder / f"{name}.safetensors"

    def _weight_names(self) -> list[str]:
        names = sorted(path.stem for path in self.folder.glob("*.safetensors"))
        return [name for name in names if _WEIGHT_NAME.fullmatch(name)]

    def _newest_intact(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        for step in reversed(self.steps()):
            path = self._step_path(step)
            try:
                return _read(path)
            except FileNotFoundError:
                raise
            except OSError as trouble:  # a missing permission, say: to start again from nothing would be wrong
                raise RunError(f"could not read {path}: {trouble.strerror}; make it readable") from trouble
            except Damaged as trouble:
                note = f"{path} was passed over: {trouble}"
                if note not in self.notes:
                    self.notes.append(note)
        return None

    def _write(self, path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
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
                _read(unfinished, meant)
            except Damaged as trouble:
                raise RunError(
                    f"{path} did not read back as it was written ({trouble}). What was there before is "
                    "untouched; the disk or the memory of this machine is failing: write to another disk"
                ) from trouble

        self._make_folder()
        sweep_partial(self.folder)
        write_durably(path, content, check=check)

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as trouble:
            raise RunError(f"could not create {self.folder}: {trouble.strerror}; choose another folder") from trouble

    def _remove(self, paths: Iterable[Path]) -> None:
        """A file that cannot be removed costs space, not correctness, so it does not stop a run."""
        removed = False
        for path in list(paths):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                removed = True
        if removed:
            with contextlib.suppress(OSError):
                sync_folder(self.folder)


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


def flatten_state(prefix: str, tree: object) -> tuple[dict[str, Tensor], Any]:
    """Split a tree of dict, list, tuple, Tensor and scalars (an optimiser's state_dict, say) into named
    tensors and a skeleton that JSON holds exactly; `unflatten_state` joins them again.

    In the skeleton a scalar stands for itself and everything else is an object with one key: "tensor" (its
    name), "dict" (a list of pairs, since JSON would turn the integer keys of an optimiser into text), "list"
    or "tuple". The tensors are the tree's own, not copies.
    """
    tensors: dict[str, Tensor] = {}

    def visit(node: object, place: str) -> Any:
        if isinstance(node, Tensor):
            name = place
            while name in tensors:  # the keys 1 and "1", or "a.b" and a dict in a dict, give the same place
                name += "~"
            tensors[name] = node
            return {"tensor": name}
        if isinstance(node, dict):
            for key in node:
                if not isinstance(key, (str, int)) or isinstance(key, bool):
                    raise TypeError(f"the key {key!r} at {place} is neither text nor an integer; it cannot be saved")
            return {"dict": [[key, visit(part, f"{place}.{key}")] for key, part in node.items()]}
        if isinstance(node, (list, tuple)):
            kind = "list" if isinstance(node, list) else "tuple"
            return {kind: [visit(part, f"{place}.{number}") for number, part in enumerate(node)]}
        if node is None or isinstance(node, (str, bool)):
            return node
        if isinstance(node, float):
            return float(node)  # a numpy.float64 is a float too; keep the plain one
        if isinstance(node, int):
            return int(node)
        raise TypeError(f"{place} is a {type(node).__name__}, which a checkpoint cannot hold; make it a tensor")

    return tensors, visit(tree, prefix)


def unflatten_state(tensors: Mapping[str, Tensor], skeleton: Any) -> Any:
    """The tree that `flatten_state` took apart. `tensors` may hold more than this skeleton names."""
    if not isinstance(skeleton, dict):
        return skeleton
    ((kind, content),) = skeleton.items()
    if kind == "tensor":
        if content not in tensors:
            raise RunError(f"the checkpoint lacks the tensor '{content}'; {nearest(content, tensors)}")
        return tensors[content]
    if kind == "dict":
        return {key: unflatten_state(tensors, part) for key, part in content}
    if kind in ("list", "tuple"):
        parts = [unflatten_state(tensors, part) for part in content]
        return parts if kind == "list" else tuple(parts)
    raise RunError(f"the checkpoint has a part of an unknown kind '{kind}'; a newer version may have written it")


def _read(path: Path, meant: str | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
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
        raise Damaged(f"not a readable checkpoint ({type(trouble).__name__}: {trouble})") from trouble
    if found != stored or (meant is not None and found != meant):
        raise Damaged(f"its content has the hash {found[:12]}…, and {(meant or stored)[:12]}… was written")
    return tensors, state


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
        raise TypeError(f"{place} is a {type(value).__name__}; a checkpoint's state holds what JSON holds exactly")


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
