"""Checkpoints: one verified file of tensors each, of which the newest that reads back whole is where a run goes on."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from goodness.durable import sweep_partial, sync_folder
from goodness.errors import RunError, nearest
from goodness.tensor_file import Damaged, read_tensors, write_tensors

_STEP_FILE = re.compile(r"step-(\d{9}|[1-9]\d{9,})\.safetensors")
_WEIGHT_NAME = re.compile(r"(?!step-\d+$)[A-Za-z0-9][A-Za-z0-9._-]*")


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
            return read_tensors(path)
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
                return read_tensors(path)
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
        sweep_partial(self.folder)  # no other process writes here
        write_tensors(path, tensors, state)

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
