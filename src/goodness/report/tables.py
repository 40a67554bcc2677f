"""Tables for the terminal, from plain data."""

from __future__ import annotations

import itertools
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from goodness.presets import section_of
from goodness.report.names import DEMO_NAMES

STAGES = {"s1": "", "s2": "Stage 2 ", "bp": "backpropagation "}
"""How a stage's accuracy is announced."""


def demo_table(result: dict[str, Any]) -> Table:
    """Per rule and block: current separation, separation rate, gradient left, accuracy of blocks 0..d."""
    table = Table(title="The same network, digits, four collaboration rules (test images)", title_justify="left")
    table.add_column("rule", no_wrap=True)
    table.add_column("block", justify="right")
    table.add_column("sep_cur", justify="right")
    table.add_column("sep_rate", justify="right")
    table.add_column("gradient left", justify="right")
    table.add_column("accuracy, blocks 0..d", justify="right")
    for rule in result["rules"]:
        for depth, block in enumerate(rule["blocks"]):
            table.add_row(
                DEMO_NAMES[rule["name"]] if depth == 0 else "",
                str(depth),
                f"{block['sep_cur']:.2f}",
                f"{block['sep_rate']:.3f}",
                f"{100 * block['attenuation']:.1f} %",
                f"{100 * block['accuracy']:.1f} %",
                end_section=depth == len(rule["blocks"]) - 1,
            )
    table.caption = (
        "sep_cur: goodness of the right digit minus the strongest wrong one's, in this block alone. sep_rate: share of "
        "images whose right digit leads a mined wrong one, blocks 0..d summed. gradient left: share of the block's own "
        "gradient that its history leaves it."
    )
    table.caption_justify = "left"
    return table


def result_table(result: dict[str, Any]) -> Table | str:
    """A finished run: accuracies, and each block's health on the test split."""
    reported = result["reported"]
    text = f"{STAGES[reported['stage']]}test accuracy {100 * reported['accuracy']:.2f} %"
    if "accuracy_tta" in reported:
        text += f", with flip TTA {100 * reported['accuracy_tta']:.2f} %"
    epoch = result["weights"][reported["weights"]]["epoch"] + 1
    text += f"   ({reported['weights']} weights, epoch {epoch}; {result['seconds']:.0f} s)"
    return health_table(text, result["health"].get("test", []))


def evaluation_table(found: dict[str, Any]) -> Table | str:
    text = f"{STAGES[found['stage']]}{found['split']} accuracy {100 * found['accuracy']:.2f} %"
    if "top5" in found:
        text += f", top-5 {100 * found['top5']:.2f} %"
    tta = "flip TTA, " if found["tta"] else ""
    text += f"   ({tta}{found['weights']} weights, {found['blocks_used']} blocks, {found['n']} images)"
    return health_table(text, found.get("blocks", []))


def health_table(title: str, blocks: list[dict[str, Any]]) -> Table | str:
    """A row a block under the title; the title alone where there are no blocks to tell apart."""
    if not blocks:
        return title
    table = Table(title=title, title_justify="left")
    table.add_column("block", justify="right")
    for heading in ("sep_cur", "sep_rate", "gradient left", "accuracy, blocks 0..d"):
        table.add_column(heading, justify="right")
    for depth, block in enumerate(blocks):
        table.add_row(
            str(depth),
            f"{block['sep_cur']:.2f}",
            f"{block['sep_rate']:.3f}",
            f"{100 * block['attenuation']:.3g} %",
            f"{100 * block['accuracy']:.2f} %",
        )
    return table


def presets_table(rows: list[dict[str, Any]], *, changes: bool = True) -> Table:
    """One row per preset under its section's title; readable at a hundred columns, without the changes at eighty."""
    table = Table(title="Presets: goodness train NAME", title_justify="left", box=box.HORIZONTALS, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("what it is")
    if changes:
        table.add_column("differs from its base", overflow="fold")  # no setting's name is cut short
    table.add_column("paper", justify="right", no_wrap=True)
    sized = any(row["parameters"] is not None for row in rows)
    if sized:
        table.add_column("size", justify="right", no_wrap=True)
    for section, group in itertools.groupby(rows, key=lambda row: section_of(row["name"])):
        table.add_row("", f"[bold]{escape(section)}[/bold]")
        for row in group:
            base = escape(f"{row['base']}: {_changes(row['changes'])}" if row["base"] else "-")
            about = " ".join(row["about"].split())
            size = [f"{row['parameters'] / 1e6:.2f} M"] if sized else []
            middle = [base] if changes else []
            table.add_row(row["name"], escape(about), *middle, _in_the_paper(row.get("paper")), *size)
        table.add_section()
    of_size = "size: parameters, the terms' own included." if sized else "Sizes: goodness presets WORD."
    table.caption = ("" if changes else "What each changes: goodness presets WORD, or a wider terminal. ") + (
        "paper: what it prints for this run, per cent: Stage 1 on the test images, below it with flip TTA (S2: Stage 2 "
        f"with TTA, where it has no other). {of_size}"
    )
    table.caption_justify = "left"
    return table


def results_table(rows: list[dict[str, Any]], *, wide: bool) -> Table:
    """A row a run of the store; `wide` adds how and when each was made. Readable at eighty columns without."""
    table = Table(box=box.HORIZONTALS, pad_edge=False)
    table.add_column("run", overflow="fold")
    for heading in ("stage", "scale"):
        table.add_column(heading, no_wrap=True)
    for heading in ("epochs", "test", "TTA"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("method", "device", "started") if wide else ():
        table.add_column(heading, overflow="fold")
    for row in rows:
        scores = ("-" if row[name] is None else f"{100 * row[name]:.2f}" for name in ("accuracy", "accuracy_tta"))
        method = f"{row['method']} {row['method_version']}"
        made = (method, row["device"] or "", row["started"] or "") if wide else ()
        table.add_row(
            escape(row["run"]),
            row["stage"],
            escape(row["scale"] or "-"),
            str(row["epochs"]),
            *scores,
            *map(escape, made),
        )
    table.caption = (
        f"{len(rows)} runs. test, TTA: test accuracy in per cent, single crop and with the mirrored image. "
        "All columns: --json, or runs.csv."
    )
    table.caption_justify = "left"
    return table


def _in_the_paper(reported: dict[str, Any] | None) -> str:
    """S1 over S1 with TTA; where the paper has neither, S2 with TTA and the word for it."""
    s1, s1_tta, s2_tta = ((reported or {}).get(name) for name in ("s1", "s1_tta", "s2_tta"))
    if s1 is None and s1_tta is None:
        return "-" if s2_tta is None else f"{s2_tta:.2f}\nS2"
    return "\n".join("-" if one is None else f"{one:.2f}" for one in (s1, s1_tta)).removesuffix("\n-")


def _changes(changes: dict[str, Any]) -> str:
    """Changed fields in words; a part that comes, goes or is exchanged is one entry with its settings behind it."""
    kinds = {name: value for name, value in changes.items() if name.endswith(".kind")}
    kinds.pop("model.stem.kind", None)  # no part: a setting of that name
    exchanged = {name.removesuffix(".kind"): value for name, value in kinds.items()}
    words: dict[str, list[str]] = {name: [] for name in exchanged}
    plain = []
    for name, value in changes.items():
        parent, _, leaf = name.rpartition(".")
        if parent not in exchanged:
            plain.append(f"{name} {_setting(value)}")
        elif leaf != "kind" and value is not None:
            words[parent].append(f"{leaf} {_setting(value)}")
    for name, kind in exchanged.items():
        settings = f" ({', '.join(words[name])})" if words[name] else ""
        what = "off" if kind is None else "on" if name.endswith(f".{kind}") else kind
        plain.append(f"{name} {what}{settings}")
    return "; ".join(plain)


def _setting(value: Any) -> str:
    """A value as one would type it: no brackets around several numbers."""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def data_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Data sets: --data NAME", title_justify="left")
    for heading in ("name", "classes", "image", "train / val / test", "here", "where"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        shape = "x".join(str(side) for side in row["shape"]) if row["shape"] else "?"
        sizes = " / ".join("?" if row[part] is None else f"{row[part]:,}" for part in ("train", "val", "test"))
        table.add_row(
            row["name"], str(row["classes"] or "?"), shape, sizes, "yes" if row["present"] else "no", row["stored"]
        )
    return table


def facts_table(title: str, facts: dict[str, Any]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, _flat(value))
    return table


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_flat(one)}" for name, one in value.items())
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], dict):
            return "\n".join(_flat(one) for one in value)
        return ", ".join(_flat(one) for one in value)
    return f"{value:.4f}" if isinstance(value, float) else str(value)
