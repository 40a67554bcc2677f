"""The report: one HTML file about one or more runs that opens anywhere, offline, and says which blocks ride for free.

`page_data` gathers, in plain JSON data, whatever each run has; `render` makes the page of it. A run may be unfinished,
killed, older than this version or robbed of its files: the page says what is missing and shows the rest.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from goodness.config import differences
from goodness.durable import is_number, write_durably
from goodness.errors import UserError
from goodness.report import page_figures as figures_of
from goodness.report.across_figures import depth_figure, kappa_figure
from goodness.report.inline_svg import about, as_inline_svg, save
from goodness.report.page_words import (
    MEANINGS,
    STAGES,
    STATES,
    cell,
    headline,
    share_in_words,
    summary,
    time_in_words,
)
from goodness.report.run_data import TABLES, alone_of, attempt, run_data
from goodness.report.words import number, part_of, slug
from goodness.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 500
"""Of a table behind a figure."""


def write_report(runs: Sequence[Run], out: Path, *, figures: bool = True, device: str = "cpu") -> Path:
    """Write the page about these runs, and return where it lies; with `figures`, a folder of PNG and SVG beside it.

    `out` is the HTML file, or a folder in which it becomes report.html.
    """
    require_report_packages()
    if not runs:
        raise UserError("a report needs at least one run")
    page = Path(out) if Path(out).suffix.lower() in (".html", ".htm") else Path(out) / "report.html"
    data = page_data(runs, device=device)
    drawn = draw(data)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        if figures and drawn:
            (page.parent / "figures").mkdir(exist_ok=True)
            for one in drawn:
                save(one.figure, page.parent / "figures" / one.file)
    except OSError as trouble:
        raise UserError(f"cannot write to {page.parent}: {trouble.strerror}; choose another --out") from trouble
    write_durably(page, render(data, drawn, files="figures" if figures else None).encode(errors="replace"))
    return page


def require_report_packages() -> None:
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as trouble:
        raise UserError(f"the report needs {trouble.name}: pip install 'goodness[report]'") from None


def page_data(runs: Sequence[Run], *, device: str = "cpu", compute: bool = True) -> dict[str, Any]:
    """Everything the page says, as plain data. Without `compute`, nothing is worked out from weights: it is quick."""
    names = _short_names([run.path for run in runs])
    found = [
        run_data(run, f"run-{place}", name, device=device, compute=compute)
        for place, (run, name) in enumerate(zip(runs, names))
    ]
    for one in found:
        one["headline"] = headline(one, found)
    return {
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "runs": found,
        "summary": summary(found),
        "differences": config_differences(found),
        "sweeps": kappa_sweeps(found),
    }


# Across runs


def config_differences(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every field in which the runs' configurations are not all the same, with each run's value (None: not there)."""
    configs = [run["config"] for run in runs]
    found: dict[str, list[Any]] = {}
    for place, config in enumerate(configs):
        for name, (base, own) in differences(config, configs[0]).items() if config and configs[0] else ():
            found.setdefault(name, [base] * len(configs))[place] = own
    return [{"field": name, "values": values} for name, values in found.items() if name != "format"]


def kappa_sweeps(runs: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Groups of gated runs that differ in kappa and, seed apart, in nothing else; each run with what the dial shows."""
    groups: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for run in runs:
        config = run["config"]
        if part_of(config.get("rule"), "kind") != "gated" or not run["blocks"] or not run["accuracy"]:
            continue
        deepest = alone_of(run["blocks"]["measures"][-1])
        if not is_number(config["rule"].get("kappa")) or not is_number(deepest):
            continue
        point = {"name": run["name"], "kappa": config["rule"]["kappa"], "sep_cur": deepest}
        point["accuracy"] = run["accuracy"]["value"]
        for other, members in groups:
            if differences(config, other).keys() <= {"rule.kappa", "seed", "preset"}:
                members.append(point)
                break
        else:
            groups.append((config, [point]))
    return [members for _, members in groups if len({one["kappa"] for one in members}) > 1]


def _short_names(paths: Sequence[Path]) -> list[str]:
    """The shortest endings of the paths that tell them apart; a readout's begins with its run."""
    parts = [path.resolve().parts for path in paths]
    names = []
    for one in parts:
        length = 2 if one[-1] == "readout" else 1
        while length < len(one) and sum(other[-length:] == one[-length:] for other in parts) > 1:
            length += 1
        names.append("/".join(one[-length:]))
    return names


# From data to page


class Drawn(NamedTuple):
    """A figure in its place on the page."""

    where: str  # a run's id, or "across"
    name: str
    file: str  # without ending
    figure: Figure
    svg: str  # the same, for the page


def draw(data: dict[str, Any]) -> list[Drawn]:
    """Every figure that the data has numbers for; one that cannot be drawn is told among what is missing."""
    found: list[Drawn] = []

    def add(where: str, name: str, file: str, missing: list[str], make: Callable[[], Figure]) -> None:
        def drawn() -> Drawn:
            figure = make()
            return Drawn(where, name, file, figure, as_inline_svg(figure, f"{where}-{name}"))

        one = attempt(missing, f"the figure '{name}' cannot be drawn", drawn, None)
        if one is not None:
            found.append(one)

    many = [
        run for run in data["runs"] if run["blocks"] and all(is_number(one["alone"]) for one in run["blocks"]["judged"])
    ]
    for measure, name in (("sep_cur", "alone"), ("accuracy", "accuracy")):
        compared = [one for run in many if (one := _by_depth(run, measure))]
        if len(compared) > 1:
            add("across", name, f"runs-{name}", [], partial(depth_figure, compared, measure))
    for place, sweep in enumerate(data["sweeps"]):
        add("across", f"kappa-{place}", f"runs-kappa-{place}", [], partial(kappa_figure, sweep))
    for run in data["runs"]:
        for name, make in figures_of_run(run).items():
            file = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{run['name']}-{name}").strip("-.")
            add(run["id"], name, file, run["missing"], make)
    return found


def _by_depth(run: dict[str, Any], measure: str) -> dict[str, Any] | None:
    judged, measures = run["blocks"]["judged"], run["blocks"]["measures"]
    values = [one["alone"] for one in judged] if measure == "sep_cur" else [one.get(measure) for one in measures]
    rides = [one["depth"] for one in judged if one["verdict"] == "rides"]
    return {"name": run["name"], "values": values, "rides": rides} if all(map(is_number, values)) else None


def figures_of_run(run: dict[str, Any]) -> dict[str, Callable[[], Figure]]:
    """What can be drawn of a run, by name, in the order of the page."""
    lines, health, classes = run["lines"], run["health"] or {}, run["classes"] or {}
    blocks = run["blocks"] or {"measures": [], "judged": []}
    verdicts = [one["verdict"] for one in blocks["judged"]]
    found: dict[str, Callable[[], Figure]] = {}
    has_curves = figures_of.by_epoch(lines, "val", "sep_cur") or figures_of.by_epoch(lines, "train", "sep_cur_mined")
    if has_curves:
        found["curves"] = lambda: figures_of.curves_figure(lines)
        found["heat-map"] = lambda: figures_of.heatmap_figure(lines)
    elif any(is_number(part_of(part_of(line, "val"), "accuracy")) for line in lines):
        found["learning"] = lambda: figures_of.learning_figure(lines)
    if any(is_number(part_of(block, "own")) for block in blocks["measures"]):
        found["own-share"] = lambda: figures_of.own_share_figure(blocks["measures"], verdicts)
    if health.get("attenuation_points"):
        beta = health.get("beta", run["config"].get("beta", 4.0))
        points, weights = health["attenuation_points"], health.get("attenuation_weights")
        found["attenuation"] = lambda: figures_of.attenuation_figure(points, weights, beta)
    cut = [part_of(block, "accuracy") for block in blocks["measures"]]
    if cut and all(map(is_number, cut)):
        found["truncation"] = lambda: figures_of.truncation_figure(cut)
    if health.get("early_exit"):
        found["early-exit"] = lambda: figures_of.early_exit_figure(health["early_exit"])
    margins, confusion = (
        health.get("margins") or classes.get("margins"),
        health.get("confusion") or classes.get("confusion"),
    )
    if margins:
        found["margins"] = lambda: figures_of.margins_figure(margins, run["stage"] == "s1")
    if confusion:
        names = health.get("classes") or classes["names"]
        found["confusion"] = lambda: figures_of.confusion_figure(confusion, names)
    return found


def render(
    data: dict[str, Any],
    drawn: Sequence[Drawn],
    *,
    files: str | None = None,
    live: float | None = None,
    version: str = "",
) -> str:
    """The page. `files` is the folder of the saved figures, for its links.

    `live` are the seconds after which it asks its server for news, with the `version` that it has.
    """
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "cell": cell,
        "fingerprint": _fingerprint,
        "number_names": _number_names,
        "number": lambda value: number(value) if is_number(value) else "–",
        "share": share_in_words,
        "slug": slug,
        "time": time_in_words,
        "unbroken": lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%"),
    }
    template = environment.from_string(resources.files("goodness.report").joinpath("page.html.j2").read_text("utf-8"))
    shown: dict[str, list[dict[str, Any]]] = {}
    for one in drawn:
        told = {
            "key": f"{one.where}-{one.name}",
            "file": one.file,
            "about": about(one.figure),
            "svg": one.svg,
        }
        shown.setdefault(one.where, []).append(told)
    return template.render(
        data=data,
        figures=shown,
        files=files,
        live=live,
        version=version,
        stages=STAGES,
        states=STATES,
        meanings=MEANINGS,
        tables=TABLES,
        most_rows=MOST_ROWS,
    )


def _number_names(blocks: Sequence[dict[str, Any]]) -> list[str]:
    """The measures that any of the blocks has as a number: the columns of a table."""
    return list(dict.fromkeys(name for block in blocks for name in block if is_number(block[name])))


def _fingerprint(script: str) -> str:
    """The hash by which the page's own policy knows its one script."""
    return base64.b64encode(hashlib.sha256(str(script).encode()).digest()).decode()
