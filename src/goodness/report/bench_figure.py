"""The benchmark as a picture: time and memory of a step, and images predicted per second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FF, BP, FLOOR, LOOP, LATE = "#0072b2", "#d55e00", "#222222", "#9a9a9a", "#009e73"

WAYS = {"loop": "a loop over labels", "together": "all labels together", "late": "late labels, one pass"}


def bench_figure(found: dict[str, Any], path: Path) -> tuple[Path, Path]:
    """Bars side by side: milliseconds a step with the floor marked, peak memory, images per second. PNG and SVG."""
    from matplotlib.figure import Figure

    rows = found["rows"]
    has_memory = any(row["peak_bytes"] for row in rows)
    panels = 1 + has_memory + bool(found["prediction"])
    figure = Figure(figsize=(4.6 * panels + 1.2, 0.52 * len(rows) + 2.0), layout="constrained")
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    names = [f"{row['preset']}: {row['name']}" for row in rows]
    colours = [FF if row["name"].startswith("ff") else BP for row in rows]
    places = range(len(rows))

    time = axes.pop(0)
    bars = time.barh(places, [row["median_ms"] for row in rows], color=colours)
    time.bar_label(bars, fmt="%.3g", padding=3, fontsize=9)
    for place, row in enumerate(rows):
        time.plot([row["floor_ms"]] * 2, [place - 0.4, place + 0.4], color=FLOOR, linewidth=2)
    time.plot([], [], color=FLOOR, linewidth=2, label="floor: arithmetic or memory traffic")
    time.set_yticks(places, names)
    time.set_title("Time of a step (ms)")
    time.legend(frameon=False, fontsize=8, loc="lower right")
    if has_memory:
        memory = axes.pop(0)
        bars = memory.barh(places, [(row["peak_bytes"] or 0) / 2**30 for row in rows], color=colours)
        memory.bar_label(bars, fmt="%.2f", padding=3, fontsize=9)
        memory.set_yticks(places, [""] * len(rows))
        memory.set_title("Peak memory (GiB)")
    for one in figure.axes:
        one.invert_yaxis()
        one.margins(x=0.18)
    if axes:
        speed = axes[0]
        groups = found["prediction"]
        width = 0.28
        for shift, name, colour in ((-width, "loop", LOOP), (0.0, "together", FF), (width, "late", LATE)):
            heights = [row[name]["images_per_second"] for row in groups]
            bars = speed.bar(
                [place + shift for place in range(len(groups))], heights, width, color=colour, label=WAYS[name]
            )
            speed.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=8)
        speed.set_xticks(range(len(groups)), [f"{row['classes']} classes" for row in groups])
        speed.set_yscale("log")
        speed.margins(y=0.15)
        speed.set_title("Images predicted per second")
        speed.legend(frameon=False, fontsize=8)
    for one in figure.axes:
        one.spines[["top", "right"]].set_visible(False)
    environment = found["environment"]
    figure.suptitle(f"{environment['device_name']}, torch {environment['torch']}, {environment['dtype']}", fontsize=10)
    written = []
    for ending in (".png", ".svg"):
        place = path.parent / (path.name.removesuffix(".png").removesuffix(".svg") + ending)
        place.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(place, dpi=150)
        written.append(place)
    return written[0], written[1]
