"""Metrics for TensorBoard, beside metrics.jsonl."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from goodness.errors import UserError

Listener = Callable[[dict[str, Any]], None]


def summary_writer() -> Any:
    """TensorBoard's writer class, or an error that says how to get it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("keep.tensorboard needs TensorBoard: pip install 'goodness[tensorboard]'") from None
    return SummaryWriter


@contextmanager
def tensorboard_sink(folder: Path, also: Listener | None) -> Iterator[Listener]:
    """A listener that writes every epoch's numbers under `tensorboard/` and passes all events on."""
    writer = summary_writer()(folder / "tensorboard")

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "epoch":
            for part in ("train", "val"):
                for name, value in _scalars(event.get(part, {})):
                    writer.add_scalar(f"{part}/{name}", value, event["epoch"])
        if also is not None:
            also(event)

    try:
        yield listen
    finally:
        writer.close()


def _scalars(values: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, (int, float)):
            yield name, value
        elif name == "blocks":
            for depth, block in enumerate(value):
                for measure, number in block.items():
                    yield f"{measure}/block{depth}", number
