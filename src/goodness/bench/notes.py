"""What the columns of a benchmark mean, in the words that the terminal's tables and the page share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goodness.bench.prediction import PLAIN, WITH_KERNELS

LOOPS = {PLAIN: "loop over labels by torch alone", WITH_KERNELS: "loop over labels by our kernels"}
"""What prediction is held against, by kind."""
FLOOR = (
    "the least time that the counted arithmetic, or the memory traffic of its operands, takes at this machine's own "
    "ceilings"
)


def times(found: dict[str, Any]) -> str:
    """How the milliseconds of a step came about."""
    counts = "the measurements"
    if {"steps", "repeats"} <= found.keys():
        steps, repeats = found["steps"], found["repeats"]
        counts = f"{repeats} {_one_or_more('measurement', repeats)} of {steps} {_one_or_more('step', steps)}"
    is_in_turn = all(row.get("timed_in_turn", False) for row in found["rows"])
    order = "in rounds in which every way has its turn" if is_in_turn else "one way after the other"
    return f"the median of {counts}, {order}"


def ways(found: dict[str, Any]) -> dict[str, str]:
    """What the short names mean; of two presets that have one in common, in the words of the first."""
    named: dict[str, str] = {}
    for row in found["rows"]:
        named.setdefault(row["name"], row["about"])
    return named


def peak(found: dict[str, Any]) -> str:
    """What is counted as the memory of a way."""
    if str(found["environment"].get("device", "")).startswith("cuda"):
        return "the most that torch had allocated on the GPU at once: weights, optimiser, images, activations"
    if all(row["peak_bytes"] is None for row in found["rows"]):
        return "not measured on this system"
    return (
        "by how much the process's resident memory grew at most (Linux's VmHWM, less what was resident before) while "
        "the way was built and made its first steps: weights, optimiser, images, activations"
    )


def time_note(found: dict[str, Any]) -> str:
    told = ". ".join(f"{name}: {about}" for name, about in ways(found).items())
    return f"ms a step: {times(found)}. One epoch is the data set's training images, without evaluation. {told}."


def work_note(found: dict[str, Any]) -> str:
    return f"peak: {peak(found)}. at once: parameters that one backward computes gradients of. floor: {FLOOR}."


def loops(row: dict[str, Any]) -> dict[str, Any]:
    """The loops that prediction was held against, by kind; a file of one loop has that of torch alone."""
    return row.get("loops", {PLAIN: row["loop"]})


def kinds_of_loops(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Those that every row has."""
    return [kind for kind in LOOPS if all(kind in loops(row) for row in rows)]


def prediction_note(found: dict[str, Any]) -> str:
    apart = max((row["largest_difference"] / row["largest_score"] for row in found["prediction"]), default=0.0)
    has_two = WITH_KERNELS in kinds_of_loops(found["prediction"])
    kinds = "by torch alone, and through this package's kernels" if has_two else "by torch alone"
    return (
        f"loop: one label after the other, the stem computed once; on a GPU compiled, {kinds}. Scores of all labels "
        f"together and of the loop by torch alone differ by {apart:.1g} of the largest at most. late labels: another "
        "network, in which the labels enter behind each block (--model.label late) and share one pass."
    )


def memory_unit(found: dict[str, Any]) -> tuple[str, int]:
    """GiB, or MiB where no way needs one: its name and its bytes."""
    largest = max((row["peak_bytes"] or 0 for row in found["rows"]), default=0)
    return ("GiB", 2**30) if largest >= 2**30 else ("MiB", 2**20)


def _one_or_more(name: str, count: int) -> str:
    return name if count == 1 else f"{name}s"


def machine(found: dict[str, Any]) -> str:
    """The machine and its ceilings in a line."""
    environment, most = found["environment"], found["ceilings"]
    return (
        f"{environment['device_name']}, torch {environment['torch']}, {environment['dtype']}; ceilings "
        f"{most['flop_per_second'] / 1e12:.3g} TFLOP/s, {most['bytes_per_second'] / 1e12:.3g} TB/s"
    )
