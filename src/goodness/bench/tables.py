"""Tables of the benchmark for a terminal of 80 columns."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from goodness.bench import notes


def time_table(found: dict[str, Any]) -> Table:
    table = _table("Training: time", notes.time_note(found))
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
    table = _table("Training: memory and work", notes.work_note(found))
    table.pad_edge = False  # or the widest of numbers would not fit in 80 columns
    unit, size = notes.memory_unit(found)
    table.add_column("preset, way", overflow="fold")  # a name cut off is no name
    for name in (f"peak\n{unit}", "at once", "GFLOP", "GB", "floor\nms", "bound by", "of the\nfloor"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found["rows"]:
        table.add_row(
            f"{row['preset']} {row['name']}",
            "-" if row["peak_bytes"] is None else f"{row['peak_bytes'] / size:.2f}",
            f"{row['parameters_per_backward'] / 1e6:.2f} M",
            f"{row['flop'] / 1e9:,.0f}" if row["flop"] > 1e11 else f"{row['flop'] / 1e9:.3g}",
            f"{row['bytes'] / 1e9:,.3g}",
            f"{row['floor_ms']:.2f}",
            row["bound"],
            f"{100 * row['share_of_roofline']:.0f} %",
        )
    return table


def prediction_table(found: dict[str, Any]) -> Table:
    table = _table("Prediction, every label of every image", notes.prediction_note(found))
    kinds = notes.kinds_of_loops(found["prediction"])
    times = ["times torch's loop", "times our loop"][: len(kinds)]
    for name in ("classes", "all labels together", *times, "late labels", *times):
        table.add_column(name, justify="right")
    for row in found["prediction"]:
        cells = [str(row["classes"])]
        for way in ("together", "late"):
            speed = row[way]["images_per_second"]
            cells.append(f"{speed:,.0f}")
            cells += [f"{speed / notes.loops(row)[kind]['images_per_second']:.2f}" for kind in kinds]
        table.add_row(*cells)
    return table


def _table(title: str, caption: str) -> Table:
    return Table(title=title, title_justify="left", caption=caption, caption_justify="left")
