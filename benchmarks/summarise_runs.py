"""Turn run folders into small JSON files and one Markdown table, for results that are kept in the repository.

    python benchmarks/summarise_runs.py OUT RUN [RUN ...]

Writes OUT/<run>.json (what was set, where it ran, what came out, and the epochs that were evaluated, numbers to five
digits) and OUT/README.md (the table).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from goodness.config import differences
from goodness.paper.reduced import rounded
from goodness.presets import preset
from goodness.runs.run import READOUT, Run

KEPT = ("device_name", "torch", "cuda", "cudnn", "driver", "dtype", "python", "commit", "commit_is_dirty")
KEPT += ("method", "method_version", "health_version")


def summary(run: Run) -> dict:
    config, result = run.config, run.result
    environment = json.loads((run.path / "environment.json").read_text())
    changed = differences(config, preset(config.preset))
    return {
        "preset": config.preset,
        "stage": run.stage,
        "config": json.loads((run.path / "config.json").read_text()),
        "changes": {name: new for name, (_, new) in changed.items()},
        "seed": config.seed,
        "environment": {name: environment.get(name) for name in KEPT},
        "result": result,
        "epochs": [rounded(line) for line in run.metrics if "val" in line],
    }


def percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.2f} %"


def table(summaries: dict[str, dict]) -> str:
    lines = [
        "| run | test, single crop | test, flip TTA | `sep_cur` by block (test) | accuracy by blocks used (test) "
        "| seconds | hardware |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, one in summaries.items():
        reported, health = one["result"]["reported"], one["result"]["health"].get("test", [])
        where = one["environment"]
        lines.append(
            f"| {name} | {percent(reported['accuracy'])} | {percent(reported.get('accuracy_tta'))} "
            f"| {' '.join(format(block['sep_cur'], '.2f') for block in health)} "
            f"| {' '.join(format(100 * block['accuracy'], '.2f') for block in health)} "
            f"| {one['result']['seconds']:.0f} | {where['device_name']}, torch {where['torch']}, {where['dtype']} |"
        )
    lines += ["", "Each row is one seed (n = 1). Settings that differ from the preset:", ""]
    for name, one in summaries.items():
        changes = ", ".join(f"`{key}` {value}" for key, value in one["changes"].items()) or "none"
        lines.append(f"- {name}: preset `{one['preset']}`, {changes}")
    return "\n".join(lines) + "\n"


def name_of(run: Run) -> str:
    """The folder's name; that of a readout in its usual place would be the same for all."""
    folder = run.path.resolve()
    return f"{folder.parent.name}-{folder.name}" if folder.name == READOUT else folder.name


def main() -> None:
    out, runs = Path(sys.argv[1]), [Run(Path(one)) for one in sys.argv[2:]]
    out.mkdir(parents=True, exist_ok=True)
    summaries = {name_of(run): summary(run) for run in runs}
    for name, one in summaries.items():
        (out / f"{name}.json").write_text(json.dumps(one) + "\n")
    (out / "README.md").write_text(
        "# Runs kept here\n\nMade by `python benchmarks/summarise_runs.py`.\n\n" + table(summaries)
    )


if __name__ == "__main__":
    main()
