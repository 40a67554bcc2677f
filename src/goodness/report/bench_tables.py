"""Tables of the benchmark."""

from __future__ import annotations

from typing import Any

from rich.table import Table


def time_table(found: dict[str, Any]) -> Table:
    ways = {row["name"]: row["about"] for row in found["rows"]}
    table = Table(
        title="Training: time",
        title_justify="left",
        caption="ms a step: the median of the measurements. One epoch is the data set's training images, without "
        f"evaluation. {'. '.join(f'{name}: {about}' for name, about in ways.items())}.",
        caption_justify="left",
    )
    table.add_column("preset, way", overflow="fold")
    for name in ("ms a step", "least to most", "s/epoch", "images/s"):
        table.add_column(name, justify="right")
    for row in found["rows"]:
        table.add_row(
            f"{row['preset']} {row['name']}",
            f"{row['median_ms']:.2f}",
            f"{row['least_ms']:.2f} to {row['most_ms']:.2f}",
            f"{row['epoch_s']:.2f}" if "epoch_s" in row else "-",
            f"{row['images_per_second']:,.0f}",
        )
    return table


def work_table(found: dict[str, Any]) -> Table:
    table = Table(
        title="Training: memory and work",
        title_justify="left",
        pad_edge=False,  # or the widest of numbers would not fit in 80 columns
        caption="at once: parameters that one backward computes gradients of. floor: the least time that the counted "
        "arithmetic, or the memory traffic of its operands, takes at this machine's own ceilings.",
        caption_justify="left",
    )
    table.add_column("preset, way", overflow="fold")  # a name cut off is no name
    for name in ("peak\nGiB", "at once", "GFLOP", "GB", "floor\nms", "bound by", "of the\nfloor"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found["rows"]:
        table.add_row(
            f"{row['preset']} {row['name']}",
            "-" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**30:.2f}",
            f"{row['parameters_per_backward'] / 1e6:.2f} M",
            f"{row['flop'] / 1e9:,.0f}" if row["flop"] > 1e11 else f"{row['flop'] / 1e9:.3g}",
            f"{row['bytes'] / 1e9:,.3g}",
            f"{row['floor_ms']:.2f}",
            row["bound"],
            f"{100 * row['share_of_roofline']:.0f} %",
        )
    return table


def prediction_table(found: dict[str, Any]) -> Table:
    table = Table(
        title="Prediction, every label of every image",
        title_justify="left",
        caption="loop: one label after the other, the stem computed once, on a GPU compiled by torch alone. "
        "differs: largest difference of a score between the two, beside the largest score. late labels: another "
        "network, in which the labels enter behind each block (--model.label late) and share one pass.",
        caption_justify="left",
    )
    for name in ("classes", "images/s", "loop", "times", "differs", "late labels", "times the loop"):
        table.add_column(name, justify="right")
    for row in found["prediction"]:
        table.add_row(
            str(row["classes"]),
            f"{row['together']['images_per_second']:,.0f}",
            f"{row['loop']['images_per_second']:,.0f}",
            f"{row['together']['times_the_loop']:.2f}",
            f"{row['largest_difference']:.1g} of {row['largest_score']:.3g}",
            f"{row['late']['images_per_second']:,.0f}",
            f"{row['late']['times_the_loop']:.1f}",
        )
    return table


def where(found: dict[str, Any]) -> str:
    """The machine and its ceilings in a line."""
    environment, most = found["environment"], found["ceilings"]
    return (
        f"{environment['device_name']}, torch {environment['torch']}, {environment['dtype']}; ceilings "
        f"{most['flop_per_second'] / 1e12:.3g} TFLOP/s, {most['bytes_per_second'] / 1e12:.3g} TB/s"
    )
