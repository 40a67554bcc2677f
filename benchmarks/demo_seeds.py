"""Repeat the demo over seeds; write the table of docs/demo.md, and the first seed's table and figure for README.

    python benchmarks/demo_seeds.py [--seeds 1 2 3] [--out runs/demo-seeds]

Finished seeds are kept: started again, it runs what is missing.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from pathlib import Path

import torch

from goodness.demo import RULES, run_demo, shows_free_riding
from goodness.report.figures import demo_figure
from goodness.report.names import DEMO_NAMES
from goodness.runs.run_folder import environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, default=Path("runs/demo-seeds"))
    parser.add_argument("--page", type=Path, default=Path("docs/demo.md"))
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    args = parser.parse_args()
    results = {}
    for seed in args.seeds:
        kept = args.out / f"s{seed}" / "demo.json"
        results[seed] = json.loads(kept.read_text()) if kept.is_file() else run_demo(kept.parent, seed=seed)[0]
        print(f"seed {seed}: {results[seed]['seconds']} s", flush=True)
    args.page.write_text(page(results))
    args.page.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    first = results[args.seeds[0]]
    demo_figure(first, args.page.with_suffix(".png"), shows_free_riding(first))
    before, _, rest = args.readme.read_text().partition("<!-- demo -->")
    after = rest.partition("<!-- /demo -->")[2]
    args.readme.write_text(f"{before}<!-- demo -->\n{short_table(first)}<!-- /demo -->{after}")


def short_table(result: dict) -> str:
    """One line per rule, for README."""
    lines = [
        "| rule | `sep_cur` of block 0 | 1 | 2 | 3 | gradient left to block 3 | test accuracy |",
        "|---|---|---|---|---|---|---|",
    ]
    for rule in result["rules"]:
        separations = " | ".join(f"{block['sep_cur']:.2f}" for block in rule["blocks"])
        left = f"{100 * rule['blocks'][-1]['attenuation']:.1f} %"
        lines.append(f"| {DEMO_NAMES[rule['name']]} | {separations} | {left} | {100 * rule['accuracy']:.1f} % |")
    return "\n".join(lines) + "\n"


def page(results: dict[int, dict]) -> str:
    where = environment(torch.device("cpu"), torch.float32, "")
    seeds = ", ".join(map(str, results))
    lines = [
        "# The demo over seeds",
        "",
        f"Made by `python benchmarks/demo_seeds.py`: seeds {seeds} (n = {len(results)}), {where['cpu']}, "
        f"{where['cores']} cores, torch {where['torch']}, Python {platform.python_version()}. Test split, 597 digits. "
        "Mean, and sample standard deviation in brackets.",
        "",
        "| rule | block | `sep_cur` | `sep_rate` | attenuation | accuracy, blocks 0..d |",
        "|---|---|---|---|---|---|",
    ]
    for index, rule in enumerate(RULES):
        for depth in range(len(results[next(iter(results))]["rules"][index]["blocks"])):
            blocks = [one["rules"][index]["blocks"][depth] for one in results.values()]
            cells = [
                spread([block["sep_cur"] for block in blocks], 2),
                spread([block["sep_rate"] for block in blocks], 3),
                spread([block["attenuation"] for block in blocks], 3),
                spread([100 * block["accuracy"] for block in blocks], 1) + " %",
            ]
            lines.append(f"| {DEMO_NAMES[rule] if depth == 0 else ''} | {depth} | " + " | ".join(cells) + " |")
    times = ", ".join(f"{one['seconds']:.0f} s" for one in results.values())
    lines += ["", f"Time for the four rules together, one process a core: {times}.", ""]
    return "\n".join(lines)


def spread(values: list[float], digits: int) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ({deviation:.{digits}f})"


if __name__ == "__main__":
    main()
