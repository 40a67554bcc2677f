"""Tables of the diagnosing commands, from plain data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from goodness.report.words import what_later_blocks_cost

SAYS_NOTHING = 0.995
"""From here on the prediction-stability bound rounds to every image."""


def blocks_table(found: dict[str, Any], name: str) -> Table:
    """A row a block: what it separates by itself, what its history leaves it, what it adds."""
    text = f"{name}: {found['split']} accuracy {100 * found['accuracy']:.2f} % on {found['n']} images"
    table = Table(title=text, title_justify="left")
    table.add_column("block", justify="right")
    for heading in ("sep_cur", "right alone", "own share", "gradient left", "accuracy, blocks 0..d"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for depth, block in enumerate(found["blocks"]):
        table.add_row(
            str(depth),
            f"{block['sep_cur']:z.2f}",
            _percent(block["sep_cur_rate"]),
            _percent(block["own"]),
            _percent(block["attenuation"]),
            f"{100 * block['accuracy']:.2f} %",
            found["verdict"][depth]["verdict"],
        )
    table.caption = (
        "sep_cur: goodness of the right label minus the strongest wrong one's, in this block alone. right alone: share "
        "of images for which that is positive. own share: the block's part of the evidence of blocks 0..d. gradient "
        "left: the share of its own gradient that its history leaves it, against a mined wrong label. Verdicts "
        "compare the blocks' own evidence: the mean of that lead, a wrong answer counted as nothing."
    )
    table.caption_justify = "left"
    return table


def verdict_lines(found: dict[str, Any]) -> Iterator[str]:
    """One plain sentence for each block that does not pull its weight, one for all where every block does; and one
    where the later blocks do harm."""
    idle = [(depth, one) for depth, one in enumerate(found["verdict"]) if one["verdict"] != "works"]
    for depth, one in idle:
        yield f"block {depth} {one['verdict']}: {one['reason']}"
    if not idle:
        yield "every block works: by itself it tells right labels from wrong ones"
    cost = what_later_blocks_cost(found["truncation"])
    if cost:
        yield cost
    if (apart := along_the_stream(found)) is not None:
        yield apart


def along_the_stream(found: Mapping[str, Any]) -> str | None:
    """A sentence where a block separates far more along the stream of training than where hypotheses keep their label;
    None where no block meets two labels, or an older report does not say."""
    blocks = found["blocks"]
    if not found.get("stream", {}).get("meets_two_labels") or not all("sep_stream" in block for block in blocks):
        return None
    gaps = [block["sep_stream"] - block["sep_cur_mined"] for block in blocks]
    is_alike = abs(gaps[0]) < abs(blocks[0]["sep_stream"]) / 4  # else draws or views differ
    is_wide = any(gap > block["sep_stream"] / 2 > 0.05 for gap, block in zip(gaps[1:], blocks[1:]))
    if found.get("tta") or not is_alike or not is_wide:
        return None
    streams, kept = (" ".join(f"{block[name]:z.2f}" for block in blocks) for name in ("sep_stream", "sep_cur_mined"))
    return (
        f"with a wrong label mined anew at every block, as training has it, the blocks separate {streams} on these "
        f"images (sep_stream); where every hypothesis keeps its label, as in prediction, {kept} (sep_cur_mined): a "
        "block that meets two labels can tell a wrong one without the image"
    )


def groups_table(found: dict[str, Any]) -> Table:
    """A row a group: accuracy over seeds, what each block separates, how many predictions are close calls."""
    table = Table(title="Runs" + (" (flip TTA)" if found["tta"] else ""), title_justify="left")
    table.add_column("")
    table.add_column("runs")
    for heading in ("seeds", "test accuracy", "sep_cur by block", "margin at most 0.1"):
        table.add_column(heading, justify="right")
    for letter, group in zip(_letters(), found["groups"]):
        separations = " ".join(f"{one['mean']:z.2f}" for one in group["sep_cur"]) if group["sep_cur"] else "-"
        table.add_row(
            letter,
            group["name"],
            " ".join(map(str, group["seeds"])),
            _mean(group["accuracy"]),
            separations,
            "-" if group["bands"] is None else _percent(group["bands"]["0.1"]),
        )
    table.caption = "margin: the best class's score minus the second's; close calls are what a small change can flip."
    table.caption_justify = "left"
    return table


def pairs_table(found: dict[str, Any]) -> Table:
    """A row a pair: the accuracy difference with its interval, and where the two disagree."""
    table = Table(title="Pairs, image by image", title_justify="left")
    table.add_column("pair", no_wrap=True)
    is_bounded = any(pair["stability_bound"] < SAYS_NOTHING for pair in found["pairs"])
    headings = ("accuracy", "95 % interval", "first alone right", "second alone", "other class")
    for heading in (*headings, "at most") if is_bounded else headings:
        table.add_column(heading, justify="right")
    letters = dict(zip((group["name"] for group in found["groups"]), _letters()))
    for pair in found["pairs"]:
        table.add_row(
            f"{letters[pair['a']]} - {letters[pair['b']]}",
            f"{100 * pair['mean']:+.2f} pp",
            f"{100 * pair['low']:+.2f} to {100 * pair['high']:+.2f}",
            str(pair["a_only"]),
            str(pair["b_only"]),
            _percent(pair["predictions_differ"]),
            *([_percent(pair["stability_bound"]) if pair["stability_bound"] < SAYS_NOTHING else "-"] * is_bounded),
        )
    table.caption = "other class: share of images on which the two name different classes" + (
        "; at most: the share that their scores, so far apart, allow (the prediction-stability bound), - where that is "
        "all of them."
        if is_bounded
        else ". Their scores are too far apart for the prediction-stability bound to say more (--json has it)."
    )
    table.caption_justify = "left"
    return table


def theory_table(rows: list[dict[str, Any]]) -> Table:
    """A row a block from the second on: what was checked, how exactly it holds, and where the theorem applies."""
    table = Table(title="The theorems on this run's blocks", title_justify="left")
    table.add_column("block", justify="right")
    for heading in ("gradient identity", "bounds on R", "gradient floor", "m and P >= 0", "mean R", "holds"):
        table.add_column(heading, justify="right")
    for row in rows:
        floor = (
            "-" if row["floor_violations"] is None else f"{row['floor_violations']} of {row['floor_examples']} broken"
        )
        error = row["identity_largest_error"]
        table.add_row(
            str(row["block"]),
            f"{row['identity_violations']} of {row['identity_measured']} broken, error {_tiny(error)}",
            f"{row['sandwich_violations']} of {row['sandwich_inside']} broken",
            floor,
            _percent(row["coverage_both"]),
            f"{row['coverage_mean_clipped_ratio']:.3g}",
            "yes" if row["holds"] else "NO",
        )
    table.caption = (
        "gradient identity: the cumulative loss's gradient is R times the local one's, in all of the block's "
        "parameters. m and P >= 0: share of images inside the theorem's assumptions. mean R: of min(1, R), against "
        "the wrong label that this block finds hardest (goodness health: a mined one)."
    )
    table.caption_justify = "left"
    return table


def audit_table(what: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"Locality of {what}", title_justify="left")
    for heading in ("loss of block", "its own parameters", "foreign parameters", "reached", "the first of them"):
        table.add_column(heading, justify="right")
    for row in rows:
        first = row["leaks"][0]["parameter"] if row["leaks"] else "-"
        table.add_row(str(row["block"]), str(row["own"]), str(row["foreign"]), str(len(row["leaks"])), first)
    return table


def method_audit_table(what: str, found: dict[str, Any]) -> Table:
    """A row a trait of what the audit of a method found."""
    together = sorted(unit for unit in found["units"] if len(unit) > 1)
    first = f"; first {found['leaks'][0]['parameter']}" if found["leaks"] else ""
    traits = {
        "locality": found["tag"],
        "blocks that learn together": ", ".join("-".join(map(str, unit)) for unit in together) or "none",
        "edges that gradients cross": ", ".join(f"{a}-{b}" for a, b in found["edges"]) or "none",
        "foreign gradients": f"{len(found['leaks'])}{first}",
        "later blocks enter": ", ".join("-".join(map(str, unit)) for unit in found["later"]) or "no",
        "labels used": "yes" if found["uses_labels"] else "no",
        "readout fitted": "yes" if found["readout"] else "no",
        "found, and declared away": ", ".join(found["undeclared"]) or "nothing",
    }
    table = Table(title=f"Locality of {what}", title_justify="left", show_header=False)
    for name, value in traits.items():
        table.add_row(name, value)
    return table


def _letters() -> Iterator[str]:
    """A, B, ... Z, AA, AB, ...: short names for groups."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for length in itertools.count(1):
        for letters in itertools.product(alphabet, repeat=length):
            yield "".join(letters)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _tiny(value: float | None) -> str:
    return "-" if value is None else f"{value:.0e}"


def _mean(value: dict[str, Any] | None) -> str:
    if value is None:
        return "-"
    spread = "" if value["std"] is None else f" ± {100 * value['std']:.2f}"
    return f"{100 * value['mean']:.2f}{spread} % (n = {value['n']})"
