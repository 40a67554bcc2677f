"""A run's folder: its files, the lock that keeps a second run out, and the facts about where it ran."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from goodness.durable import PARTIAL, sweep_partial, sync_folder, write_durably
from goodness.errors import RunError, UserError, nearest
from goodness.runs.checkpoint import Checkpoints
from goodness.runs.lock import LOCK, acquire, now, release

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    Numbers = ArrayLike | Tensor

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKPOINTS = "checkpoints"
_BACKBONE = "backbone.json"
_DRIVER = Path("/sys/module/nvidia/version")


WEIGHTS_SHA256 = "weights_sha256"
"""In result.json, and in other files of a run: of all that it had learned at its end, so of which training they are."""
EPOCHS_SHA256 = "epochs_sha256"
"""In result.json: of what metrics.jsonl said when the run ended."""


def epochs_sha256(lines: Sequence[Mapping[str, Any]]) -> str:
    """A hash of what metrics.jsonl says of every epoch, but for the time it took: the same for equal trainings."""
    told = [{name: line.get(name) for name in ("epoch", "train", "val")} for line in lines]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


class RunFolder:
    """One run's files. Opened for writing it holds the folder's lock until `close` or the end of the process.

    The kernel drops the lock when the process dies, by SIGKILL too, so a dead run never blocks its own
    resumption. The lock file itself stays: removing it would let two processes each lock a file of that name.
    """

    def __init__(self, path: Path, lock: int | None) -> None:
        """Use `create` or `open`."""
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> RunFolder:
        """A new run's folder, locked. Refused where anything lies already: runs must not mix."""
        path = Path(path)
        try:
            if path.exists() and not path.is_dir():
                raise UserError(f"{path} is a file, not a folder; choose another --out")
            path.mkdir(parents=True, exist_ok=True)
            if _contents(path) and not _looks_like_a_run(path):  # before the lock leaves a file there
                raise _not_empty(path)
            lock = acquire(path / LOCK)
            try:
                _refuse_another_run(path)
                sweep_partial(path)
                (path / _CHECKPOINTS).mkdir(exist_ok=True)
                sync_folder(path)
                sync_folder(path.parent)
            except BaseException:
                release(lock)
                raise
        except OSError as trouble:
            raise UserError(f"cannot use {path}: {trouble.strerror}; choose another --out") from trouble
        return cls(path, lock)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, for_writing: bool = True) -> RunFolder:
        """An existing run. For reading only it takes no lock, and works while the run goes on."""
        path = Path(path)
        if not path.is_dir():
            siblings = [folder.name for folder in path.parent.glob("*") if (folder / "config.json").is_file()]
            hint = f" in {path.parent}, {nearest(path.name, siblings)}" if siblings else ""
            raise UserError(f"there is no run folder {path}{hint}")
        if not (path / "config.json").is_file():
            raise UserError(f"{path} is not a run folder: it has no config.json; `goodness train` makes one")
        if not for_writing:
            return cls(path, None)
        lock = acquire(path / LOCK)
        sweep_partial(path)
        try:
            (path / _CHECKPOINTS).mkdir(exist_ok=True)
        except OSError as trouble:
            release(lock)
            raise UserError(f"cannot use {path}: {trouble.strerror}") from trouble
        return cls(path, lock)

    @property
    def is_locked(self) -> bool:
        """Whether this object holds the folder's lock."""
        return self._lock is not None

    @property
    def config_path(self) -> Path:
        return self.path / "config.json"

    @property
    def environment_path(self) -> Path:
        return self.path / "environment.json"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def result_path(self) -> Path:
        return self.path / "result.json"

    @property
    def block_predictions_path(self) -> Path:
        """Predicted classes of the reported weights, on test and validation images, for every way to use the blocks."""
        return self.path / "predictions_blocks.npz"

    @property
    def health_path(self) -> Path:
        """A finished Stage 1's block health in full, of its reported weights on the test images."""
        return self.path / "health.json"

    @property
    def backbone_path(self) -> Path:
        """In a readout's folder: which run's weights it reads. Written before config.json, which makes it a run."""
        return self.path / _BACKBONE

    @property
    def is_finished(self) -> bool:
        """A run writes result.json last."""
        return self.result_path.is_file()

    @functools.cached_property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path / _CHECKPOINTS)

    def predictions_path(self, name: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            raise ValueError(f"'{name}' cannot be part of a file name: letters, digits, '.', '_' and '-' only")
        return self.path / f"predictions_{name}.npz"

    def write_predictions(self, name: str, scores: Numbers, labels: Numbers, indices: Numbers) -> Path:
        """Keep `scores` [n, classes], `labels` [n] and the images' places in their split, `indices` [n]."""
        arrays = {
            "scores": _as_array(scores),
            "labels": _as_array(labels).astype(np.int64),
            "indices": _as_array(indices).astype(np.int64),
        }
        shapes = {key: array.shape for key, array in arrays.items()}
        count = arrays["scores"].shape[:1]
        if arrays["scores"].ndim != 2 or shapes["labels"] != count or shapes["indices"] != count:
            raise ValueError(f"predictions '{name}' need scores [n, classes], labels [n], indices [n]; got {shapes}")
        if arrays["scores"].dtype == object:
            raise ValueError(f"predictions '{name}': the scores are Python objects, not numbers")
        content = io.BytesIO()
        np.savez(content, **arrays)  # no array of objects among them, so no pickle
        path = self.predictions_path(name)
        write_durably(path, content.getvalue())
        return path

    def write_block_predictions(self, arrays: Mapping[str, Numbers]) -> None:
        """Keep the classes that each block alone, the first blocks and all blocks but one predict, by array name."""
        content = io.BytesIO()
        kept = {name: _as_array(values) for name, values in arrays.items()}
        kinds = {name: np.int32 if name.endswith(".indices") else np.int16 for name in kept}
        np.savez_compressed(content, allow_pickle=False, **{name: kept[name].astype(kinds[name]) for name in kept})
        write_durably(self.block_predictions_path, content.getvalue())

    def read_predictions(self, name: str) -> dict[str, np.ndarray]:
        """`scores`, `labels` and `indices` as they were written."""
        path = self.predictions_path(name)
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {key: archive[key] for key in ("scores", "labels", "indices")}
        except FileNotFoundError:
            files = set(self.path.glob("predictions_*.npz")) - {self.block_predictions_path}
            known = sorted(file.stem.removeprefix("predictions_") for file in files)
            none = "it has lost them: restore them from a copy" if self.is_finished else "it is not finished"
            hint = nearest(name, known) if known else none
            raise UserError(f"there are no predictions '{name}' in {self.path}; {hint}") from None
        except Exception as trouble:  # a damaged archive can fail in any way
            raise RunError(f"{path} cannot be read ({trouble}); restore it from a copy") from trouble

    def close(self) -> None:
        """Give the folder back. Safe to call twice."""
        lock, self._lock = self._lock, None
        if lock is not None:
            release(lock)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def default_run_path(preset: str, data: str, seed: int, root: str | os.PathLike[str] = "runs") -> Path:
    """`runs/<preset>-<data>-s<seed>-<n>` with the n after the highest that exists."""
    stem = "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", part).strip("-.") or "x" for part in (preset, data))
    stem += f"-s{seed}-"
    endings = [folder.name.removeprefix(stem) for folder in Path(root).glob("*") if folder.name.startswith(stem)]
    highest = max((int(ending) for ending in endings if ending.isdecimal()), default=0)
    return Path(root) / f"{stem}{highest + 1}"


def choose_device(name: str = "auto") -> torch.device:
    """The device of that name; for "auto" a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    available = ["auto", "cpu"]
    if torch.cuda.is_available():
        available += ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        available.append("mps")
    if name in available:
        return torch.device(name)
    reason = ""
    if name.startswith("cuda") and "cuda" not in available:
        reason = " (torch sees no GPU)" if torch.version.cuda else " (this torch was built without CUDA)"
    raise UserError(f"there is no device '{name}' here{reason}; choose one of: {', '.join(available)}")


def memory_of(device: torch.device) -> int | None:
    """All the bytes that the device has, used or not; None where that cannot be found out."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    with contextlib.suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def choose_dtype(device: torch.device) -> tuple[torch.dtype, str]:
    """The dtype of the forward passes, and why. Weights and losses stay float32 in either case."""
    if device.type != "cuda":
        return torch.float32, f"float32: bfloat16 autocast is for CUDA, and this is {device.type}"
    name = torch.cuda.get_device_name(device)
    with torch.cuda.device(device):
        is_supported = torch.cuda.is_bf16_supported(including_emulation=False)
    if is_supported:
        return torch.bfloat16, f"bfloat16 autocast: {name} computes it natively"
    return torch.float32, f"float32: {name} has no native bfloat16"


def environment(device: torch.device, dtype: torch.dtype, dtype_reason: str) -> dict[str, Any]:
    """What a reader of the results needs to know about where they came from; ready for JSON."""
    from goodness import __version__  # of the source that runs, installed or not; that module imports this one

    commit, is_dirty = _source_commit()
    is_cuda = device.type == "cuda"
    return {
        "goodness": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "safetensors": _version("safetensors"),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "device_name": torch.cuda.get_device_name(device) if is_cuda else _cpu_model(),
        "cuda": torch.version.cuda if is_cuda else None,
        "cudnn": torch.backends.cudnn.version() if is_cuda else None,
        "driver": _driver_version() if is_cuda else None,
        "dtype": str(dtype).removeprefix("torch."),
        "dtype_reason": dtype_reason,
        "commit": commit,
        "commit_is_dirty": is_dirty,
        "command": _as_typed(sys.argv),
        "started": now(),
    }


def _as_typed(arguments: list[str]) -> str:
    """The command as one types it anywhere: no folder of this machine, and outside the working folder names alone."""
    program = Path(arguments[0]) if arguments else Path("goodness")
    name = "goodness" if program == _PACKAGE / "__main__.py" else program.name
    return shlex.join([name, *map(_without_folder, arguments[1:])])


def _without_folder(argument: str) -> str:
    """`/here/a/b` is `a/b`; `/elsewhere/b`, `~/b` and `../b` are `b`; alone or behind `option=` or `folder:`."""
    found = re.search(r"(?:^|[=:])((?:~[^/]*|\.\.)?/(?!/).*)$", argument)
    if found is None:
        return argument
    place = Path(found[1])
    with contextlib.suppress(OSError, ValueError):  # no such working folder any more, or not within it
        return argument[: found.start(1)] + str(place.relative_to(Path.cwd()))
    return argument[: found.start(1)] + place.name


def _contents(folder: Path) -> set[str]:
    """The names in a folder that mean something: not the lock, nor what a killed writer left."""
    if not folder.is_dir():
        return set()
    return {entry.name for entry in folder.iterdir() if entry.name != LOCK and not entry.name.endswith(PARTIAL)}


def _refuse_another_run(folder: Path) -> None:
    """A folder with a lock and nothing else passes: its process died before it wrote a configuration."""
    if "config.json" in _contents(folder):
        if "result.json" in _contents(folder):
            raise UserError(
                f"{folder} holds a finished run; `goodness eval {folder}` shows it, or choose another --out"
            )
        name = shlex.quote(str(folder))
        raise UserError(
            f"{folder} holds an unfinished run; `goodness resume {name}` goes on with it, `rm -r {name}` removes it, "
            "or choose another --out"
        )
    if _contents(folder) - {_CHECKPOINTS, _BACKBONE} or _contents(folder / _CHECKPOINTS):
        raise _not_empty(folder)


def _not_empty(folder: Path) -> UserError:
    return UserError(f"{folder} is not empty and holds no run that could go on; choose another --out")


def _looks_like_a_run(folder: Path) -> bool:
    """The lock is a run's first file and lasts; a copy made without it still has the other two."""
    return (folder / LOCK).exists() or ((folder / "config.json").exists() and (folder / _CHECKPOINTS).is_dir())


def _as_array(values: Numbers) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().to("cpu")
        return (values.float() if values.dtype in (torch.bfloat16, torch.float16) else values).numpy()
    return np.asarray(values)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # run from a source tree that was never installed
        return None


@functools.cache
def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _driver_version() -> str | None:
    with contextlib.suppress(OSError):  # at once, where Linux tells it
        return _DRIVER.read_text().strip()
    return _output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"])


def _source_commit() -> tuple[str | None, bool | None]:
    """The commit of the checkout this package runs from, and whether it has changes. (None, None) for an
    installed package, even one that lies in a virtual environment inside someone else's repository. GOODNESS_COMMIT
    names the commit of a copy that git cannot tell, or tells wrongly."""
    if told := os.environ.get("GOODNESS_COMMIT"):
        return told, False
    git = ["git", "-C", str(_PACKAGE)]
    top = _output([*git, "rev-parse", "--show-toplevel"])
    if not top or (Path(top) / "src" / "goodness").resolve() != _PACKAGE:
        return None, None
    commit = _output([*git, "rev-parse", "--verify", "HEAD"])
    status = _output([*git, "status", "--porcelain"]) if commit else None
    return commit or None, None if status is None else status != ""


def _output(command: list[str]) -> str | None:
    """What a command prints, or None where it is missing, fails or hangs."""
    # Inside a git hook GIT_DIR names that hook's repository; without the lock setting `status` would write.
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    variables["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, env=variables)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
