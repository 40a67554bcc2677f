"""Tables of the benchmark."""

from __future__ import annotations

from typing import Any

from rich.table import Table


def training_table(found: dict[str, Any]) -> Table:
    table = Table(
        title="Training",
        title_justify="left",
        caption="ms a step: median (least to most). at once: parameters that one backward computes gradients of. "
        "floor: the least time that counted arithmetic and memory traffic allow at this machine's own ceilings. "
        "One epoch is the data set's training images; evaluation is not in it.",
        caption_justify="left",
    )
    for name in ("run", "way", "ms a step", "s/epoch", "images/s", "peak GiB", "at once", "floor ms", "of the floor"):
        table.add_column(name, justify="left" if name in ("run", "way") else "right")
    for row in found["rows"]:
        memory = "-" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**30:.2f}"
        table.add_row(
            row["preset"],
            row["about"],
            f"{row['median_ms']:.2f} ({row['least_ms']:.2f} to {row['most_ms']:.2f})",
            f"{row['epoch_s']:.2f}" if "epoch_s" in row else "-",
            f"{row['images_per_second']:,.0f}",
            memory,
            f"{row['parameters_per_backward'] / 1e6:.2f} M",
            f"{row['floor_ms']:.2f} ({row['bound']})",
            f"{100 * row['share_of_roofline']:.0f} %",
        )
    return table


def prediction_table(found: dict[str, Any]) -> Table:
    table = Table(
        title="Prediction, every label of every image",
        title_justify="left",
        caption="loop: one label after the other, the stem computed once, compiled where there is a GPU. "
        "differs: largest difference of a score between the two, beside the largest score.",
        caption_justify="left",
    )
    for name in ("classes", "images/s", "images/s, loop", "times faster", "differs"):
        table.add_column(name, justify="right")
    for row in found["prediction"]:
        table.add_row(
            str(row["classes"]),
            f"{row['together']['images_per_second']:,.0f}",
            f"{row['loop']['images_per_second']:,.0f}",
            f"{row['times_faster']:.2f}",
            f"{row['largest_difference']:.1g} of {row['largest_score']:.3g}",
        )
    return table


def where(found: dict[str, Any]) -> str:
    """The machine and its ceilings in a line."""
    environment, most = found["environment"], found["ceilings"]
    return (
        f"{environment['device_name']}, torch {environment['torch']}, {environment['dtype']}; ceilings "
        f"{most['flop_per_second'] / 1e12:.3g} TFLOP/s, {most['bytes_per_second'] / 1e12:.3g} TB/s"
    )
