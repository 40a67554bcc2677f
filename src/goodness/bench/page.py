"""The benchmark as a page of Markdown: every row with every number, and what made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from goodness.bench import notes

HEADING = "# goodness bench"
"""How a page begins, and by which one is known that may be written over."""

TRAINING = (
    "recipe",
    "way",
    "batch",
    "ms/step, median",
    "least",
    "most",
    "s/epoch",
    "images/s",
    "peak memory",
    "parameters per backward",
    "of parameters",
    "GFLOP",
    "GB",
    "floor, ms",
    "bound by",
    "share of the floor's pace",
)
PREDICTION = (
    "classes",
    "way",
    "ms, median",
    "least",
    "most",
    "images/s",
    *(f"times the {one}" for one in notes.LOOPS.values()),
)
WAYS = {
    "together": "all labels together",
    **notes.LOOPS,
    "late": "late labels (another network)",
}


def page(found: dict[str, Any]) -> str:
    """What `bench` found, now or earlier: numbers that an older file has not are left out."""
    parts = [
        f"{HEADING}: {found['environment']['device_name']}",
        "Made-up images of each data set's size; nothing but the step, or the prediction, is timed.",
        "\n".join(f"- {fact}" for fact in _facts(found)),
        "## Training",
        _table(TRAINING, [_trained(row) for row in found["rows"]], words=2),
        "\n".join(f"- {name}: {meaning}." for name, meaning in _meanings(found)),
    ]
    if found["prediction"]:
        parts += [
            f"## Prediction with `{found['rows'][0]['preset']}`, every label of every image",
            _table(PREDICTION, [line for row in found["prediction"] for line in _predicted(row)], words=2),
            "\n".join(f"- {remark}." for remark in _remarks(found["prediction"])),
        ]
    return "\n\n".join(parts) + "\n"


def _facts(found: dict[str, Any]) -> Iterator[str]:
    """What a reader must know to believe the numbers, as far as the file tells."""
    known = {name: value for name, value in found["environment"].items() if value is not None}
    yield notes.machine(found)
    if "cpu" in known:
        threads = found.get("threads") or known.get("threads")
        yield f"{known['cpu']}, {known['cores']} cores, {threads} {'thread' if threads == 1 else 'threads'}"
    names = ("goodness", "python", "torch", "numpy", "safetensors", "cuda", "cudnn", "driver", "platform")
    yield ", ".join(f"{name} {known[name]}" for name in names if name in known)
    if "dtype_reason" in known:
        yield str(known["dtype_reason"])
    if "commit" in known:
        yield f"commit {known['commit']}{', with changes' if known.get('commit_is_dirty') else ''}"
    if "source" in known:
        yield f"source {known['source']}"
    if "command" in known:
        yield f"`{known['command']}`"
    if "started" in known:
        yield f"started {known['started']}"


def _meanings(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the columns of training are, and the ways."""
    for name, about in notes.ways(found).items():
        yield f"`{name}`", about
    yield "ms/step", notes.times(found)
    yield "s/epoch", "the data set's training images, without evaluation"
    yield "peak memory", notes.peak(found)
    yield "parameters per backward", "parameters whose gradients one backward computes together, at most"
    yield "GFLOP, GB", "what a step must compute, and what its large products read and write"
    yield "floor", notes.FLOOR


def _trained(row: dict[str, Any]) -> tuple[str, ...]:
    parameters = row.get("parameters")
    return (
        row["preset"],
        row["name"],
        str(row["batch"]),
        *_milliseconds(row),
        f"{row['epoch_s']:.2f}" if "epoch_s" in row else "-",
        f"{row['images_per_second']:,.0f}",
        _memory(row["peak_bytes"]),
        f"{row['parameters_per_backward']:,}",
        "-" if parameters is None else f"{parameters:,}",
        f"{row['flop'] / 1e9:,.3f}",
        f"{row['bytes'] / 1e9:,.4f}",
        f"{row['floor_ms']:.2f}",
        row["bound"],
        f"{100 * row['share_of_roofline']:.0f} %",
    )


def _predicted(row: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A line for every way, beside each loop that was timed."""
    loops = notes.loops(row)
    for name, about in WAYS.items():
        pace = loops.get(name) or row.get(name)
        if pace is None:
            continue
        speed = pace["images_per_second"]
        times = (f"{speed / loops[kind]['images_per_second']:.2f}" if kind in loops else "-" for kind in notes.LOOPS)
        yield str(row["classes"]), about, *_milliseconds(pace), f"{speed:,.0f}", *times


def _remarks(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    counts = sorted({row["images"] for row in rows if "images" in row})
    if counts:
        yield f"{' or '.join(f'{count:,}' for count in counts)} images at a time"
    yield "A loop takes one label after the other; the stem is computed once, and on a GPU the loop is compiled"
    yield (
        "Late labels enter behind each block (`--model.label late`), so that all share one pass: another network, with "
        "scores of its own"
    )
    apart = (
        f"{row['largest_difference']:.1g} under {row['classes']} classes, beside a largest score of "
        f"{row['largest_score']:.3g}"
        for row in rows
    )
    yield f"Scores of all labels together and of the loop by torch alone differ at most by {'; '.join(apart)}"


def _milliseconds(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{row[name]:.2f}" if name in row else "-" for name in ("median_ms", "least_ms", "most_ms"))


def _memory(size: int | None) -> str:
    if size is None:
        return "-"
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """A table whose first `words` columns are words, and the others numbers on the right."""
    lines = [_line(headings), "|" + "---|" * words + "--:|" * (len(headings) - words)]
    return "\n".join([*lines, *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
