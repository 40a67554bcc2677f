"""The report: one HTML file about one or more runs that opens anywhere, offline, and says which blocks ride for free.

`page_data` gathers, in plain JSON data, whatever each run has; `render` makes the page of it. A run may be unfinished,
killed, older than this version or robbed of its files: the page says what is missing and shows the rest.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import shlex
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, TypeVar

import torch

from goodness import api
from goodness.config import differences, from_dict, to_dict
from goodness.diagnostics import health as diagnosis
from goodness.diagnostics.margins import worst_margin
from goodness.errors import RunError, UserError
from goodness.report import page_figures as figures_of
from goodness.report.page_figures import is_number, named_blocks, number
from goodness.runs import Run
from goodness.training.durable import read_json, read_lines, write_durably
from goodness.training.run import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")

MOST_IMAGES = 2000
"""Images on which the page computes health itself, evenly chosen from the test split."""
ABOUT_AS_ACCURATE = 0.02
"""Accuracies that differ by less than this do not tell a riding network from a working one."""
VERDICTS = ["works", "rides", "dead"]
STAGES = {"s1": "Forward-Forward", "s2": "readout", "bp": "backpropagation"}
STATES = {
    "finished": "finished",
    "training": "training now",
    "stopped": "stopped before its end",
    "unfinished": "not finished",
}
MOST_ROWS = 500
"""Of a table behind a figure."""
TABLES = {
    "aspects": "Aspects: weight in the block's goodness, and separation",
    "routing": "Routing to the experts",
}
"""What a block has beside numbers."""
MEANINGS = {
    "sep_cur": "goodness of the right label minus the strongest wrong one's, this block alone, mean over the images.",
    "sep_cur_mined": "the same against a wrong label drawn at random, the hardest of a few.",
    "sep_cur_rate": "share of images for which this block alone is right.",
    "evidence": "mean of the block's own margin, wrong answers counted as nothing: what the verdicts compare.",
    "sep": "as sep_cur, for the sum of blocks 0 to d.",
    "sep_rate": "share of images whose right label leads the mined wrong one, blocks 0 to d summed.",
    "own": "share of the block's own evidence in all evidence up to it; the rest is inherited.",
    "attenuation": "R: what is left of the block's gradient once the earlier blocks' evidence has entered its loss.",
    "free_riding": "F: the mean of 1 − min(1, R); 0 where the block learns from its own errors alone.",
    "rule_weight": "how strongly the collaboration rule lets earlier blocks' evidence into the loss.",
    "g_pos": "goodness under the right label.",
    "g_neg": "goodness under the mined wrong label.",
    "g_worst": "goodness under the strongest wrong label.",
    "accuracy": "of the network cut off after this block.",
    "saturation": "DS: that accuracy over the accuracy of all blocks.",
    "loss_collapse": "LC: what is left of the loss at the summed margin. Small together with a small sep_cur: riding.",
}
RESULT_KEYS = ("reported", "weights", "accuracy", "health", "parameters", "epochs", "seconds")


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
                figures_of.save(one.figure, page.parent / "figures" / one.file)
    except OSError as trouble:
        raise UserError(f"cannot write to {page.parent}: {trouble.strerror}; choose another --out") from trouble
    write_durably(page, render(data, drawn, files="figures" if figures else None).encode())
    return page


def require_report_packages() -> None:
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as trouble:
        raise UserError(f"the report needs {trouble.name}: pip install 'goodness[report]'") from None


# What a run has


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


def run_data(run: Run, key: str, name: str, *, device: str = "cpu", compute: bool = True) -> dict[str, Any]:
    """One run, whatever state its folder is in; `missing` says in words what could not be had."""
    missing: list[str] = []
    config = _try(missing, "the configuration", lambda: _config(run.path), {})
    is_finished = (run.path / "result.json").exists()
    result = _try(missing, "the result", lambda: _object(run.path / "result.json"), {}) if is_finished else {}
    absent = [part for part in RESULT_KEYS if part not in result]
    if result and absent:
        missing.append(f"result.json has no {', '.join(absent)}: another version of goodness wrote it")
    lines = _try(missing, "the measures of the epochs", lambda: read_lines(run.path / "metrics.jsonl"), [])
    stage = _stage(run.path, config)
    state = _state(run.path, is_finished)
    epochs = _part(config.get("readout") if stage == "s2" else config, "epochs")
    data: dict[str, Any] = {
        "id": key,
        "name": name,
        "path": str(run.path),
        "resume": f"goodness resume {shlex.quote(str(run.path))}",
        "stage": stage,
        "state": state,
        "config": config,
        "rule": rule_in_words(config) if stage == "s1" else STAGES[stage],
        "epochs": {"done": len(lines), "of": epochs},
        "seconds": result.get("seconds", lines[-1].get("seconds") if lines else None),
        "parameters": result.get("parameters") if is_number(result.get("parameters")) else None,
        "environment": _try(missing, "where it ran", lambda: _object(run.path / "environment.json"), {}),
        "lines": lines,
        "missing": missing,
    }
    if not lines and not is_finished:
        missing.append("no epoch has ended yet: there is nothing to show")
    elif not lines:
        missing.append("metrics.jsonl: no epochs are on record, so there are no curves over training")
    data["classes"] = _classification(run, is_finished, missing)
    data["health"] = _health(run, stage, result, missing, device, compute) if is_finished else None
    data["accuracy"] = _try(missing, "the accuracy", lambda: _accuracy(result, data["classes"], lines), None)
    data["blocks"] = _try(missing, "the blocks", lambda: _blocks(data, result), None) if stage == "s1" else None
    if stage == "s1" and data["blocks"] is None and (lines or is_finished):
        missing.append("nothing says how its blocks fare")
    training = [_part(_part(line, "train"), "blocks") for line in lines]
    data["training"] = [_plain(block) for block in training[-1]] if training and isinstance(training[-1], list) else []
    data["convergence"] = {
        share: _from_one(_try([], "", lambda share=share: diagnosis.convergence(lines, share / 100), None))
        for share in (95, 99)
    }
    return data


def _try(missing: list[str], what: str, read: Callable[[], T], otherwise: T) -> T:
    """What `read` gives; where it fails `otherwise`, and a line in `missing` with the reason."""
    try:
        return read()
    except Exception as trouble:  # a folder can be damaged in ways that nobody has thought of, and the page must stand
        missing.append(f"{what}: {str(trouble) or type(trouble).__name__}")
        return otherwise


def _object(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict):
        raise RunError(f"{path} is not what a run writes")
    return found


def _config(path: Path) -> dict[str, Any]:
    """As this version reads it, fields that came later filled in; as it stands where this version cannot."""
    raw = _object(path / "config.json")
    try:
        return to_dict(from_dict(raw))
    except UserError:
        return raw


def _stage(path: Path, config: dict[str, Any]) -> str:
    if RunFolder(path, None).backbone_path.is_file():
        return "s2"
    return "bp" if config.get("trainer") == "backprop" else "s1"


def _state(path: Path, is_finished: bool) -> str:
    if is_finished:
        return "finished"
    held = is_held(path)
    return "unfinished" if held is None else "training" if held else "stopped"


def is_held(path: Path) -> bool | None:
    """Whether a process works on the run, by its lock; None where one cannot know.

    A shared lock is asked for and dropped at once; it is refused while a run holds its own.
    """
    try:
        import fcntl

        with open(path / "run.lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    except (ImportError, OSError):
        return None
    return False


def _classification(run: Run, is_finished: bool, missing: list[str]) -> dict[str, Any] | None:
    """Confusion and margins from the saved predictions, which a readout and a control have too."""
    if not is_finished:
        return None

    def read() -> dict[str, Any]:
        saved = RunFolder(run.path, None).read_predictions("test")
        scores, labels = torch.from_numpy(saved["scores"]).double(), torch.from_numpy(saved["labels"])
        count, said = scores.shape[1], scores.argmax(dim=1)
        confusion = torch.bincount(labels * count + said, minlength=count * count).reshape(count, count)
        margins = worst_margin(scores, labels).sort().values
        some = torch.linspace(0, len(margins) - 1, min(200, len(margins)), dtype=torch.float64).round().long()
        return {
            "n": len(labels),
            "accuracy": float((said == labels).double().mean()),
            "confusion": confusion.tolist(),
            "margins": margins[some].tolist(),
            "names": [str(label) for label in range(count)],
        }

    return _try(missing, "the predictions", read, None)


def _health(
    run: Run, stage: str, result: dict[str, Any], missing: list[str], device: str, compute: bool
) -> dict[str, Any] | None:
    """Block health: in full where result.json has it, else from weights and data."""
    kept = _part(_part(result, "health"), "test")
    if stage != "s1":
        return None
    if isinstance(kept, dict) and "verdict" in kept:
        return kept
    if not compute:
        return None

    def work() -> dict[str, Any]:
        config = run.config
        data = api.load_data(config, api._remembered_data_dir(run.path))
        rows = data.test
        some = torch.linspace(0, len(rows) - 1, min(len(rows), MOST_IMAGES), dtype=torch.float64).round().long()
        few = dataclasses.replace(rows, images=rows.images[some], labels=rows.labels[some], indices=rows.indices[some])
        found = diagnosis.health(run, dataclasses.replace(data, test=few), device=device)
        return {**found, "of": len(rows)}

    return _try(missing, "block health from the weights", work, None)


def _part(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _accuracy(
    result: dict[str, Any], classes: dict[str, Any] | None, lines: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """The best accuracy to report that there is: the result's, the predictions', or the last on validation."""
    reported = _part(result, "reported")
    if is_number(_part(reported, "accuracy")):
        rows = [
            row for row in result.get("accuracy") or [] if _part(row, "split") == "test" and is_number(row.get("n"))
        ]
        found = {"value": reported["accuracy"], "split": "test", "n": rows[-1]["n"] if rows else None}
        return found | {name: reported[name] for name in ("accuracy_tta", "top5") if is_number(reported.get(name))}
    if classes:
        return {"value": classes["accuracy"], "split": "test", "n": classes["n"]}
    judged = [_part(line, "val") for line in lines if is_number(_part(_part(line, "val"), "accuracy"))]
    return {"value": judged[-1]["accuracy"], "split": "validation", "n": judged[-1].get("n")} if judged else None


# What is said of it


def _blocks(data: dict[str, Any], result: dict[str, Any]) -> dict[str, Any] | None:
    """Each block's measures and verdict, from the best source there is, with that source in words."""
    health = data["health"]
    if health:
        of, n = health.get("of") or health.get("n"), health.get("n")
        images = f"{n:,} of the {of:,}" if n and of and n < of else f"{n:,}" if n else "the"
        return _judged(health["blocks"], f"{images} test images", health["verdict"])
    kept = _part(_part(result, "health"), "test")
    kept = kept.get("blocks") if isinstance(kept, dict) else kept
    if _are_blocks(kept):
        return _judged(kept, "what result.json keeps of the test images", None)
    for part, name in (("val", "validation"), ("train", "training")):
        for line in reversed(data["lines"]):
            blocks = _part(_part(line, part), "blocks")
            if _are_blocks(blocks):
                return _judged(blocks, f"{name} images, epoch {_from_one(line.get('epoch'))}", None)
    return None


def _from_one(epoch: Any) -> Any:
    """metrics.jsonl counts epochs from 0, people from 1."""
    return epoch + 1 if is_number(epoch) else epoch


def _are_blocks(blocks: Any) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(blocks, list) and any(is_number(_alone(block)) for block in blocks)


def _alone(block: Any) -> Any:
    """What the block separates by itself: against the strongest wrong label, else against a mined one."""
    found = _part(block, "sep_cur")
    return found if is_number(found) else _part(block, "sep_cur_mined")


def _judged(blocks: list[dict[str, Any]], source: str, verdicts: list[dict[str, str]] | None) -> dict[str, Any]:
    blocks = [_plain(block) for block in blocks]
    evidence = [_evidence(block) for block in blocks]
    best = max([one for one in evidence if one is not None], default=0.0)
    verdicts = verdicts or provisional_verdicts(blocks)
    judged = [
        {
            "depth": depth,
            "verdict": verdict["verdict"] if _part(verdict, "verdict") in VERDICTS else "unknown",
            "reason": str(_part(verdict, "reason") or ""),
            "alone": _alone(block),
            "evidence": one,
            "share": one / best if one is not None and best > 0 else None,
        }
        for depth, (block, verdict, one) in enumerate(zip(blocks, verdicts, evidence))
    ]
    return {"source": source, "measures": blocks, "judged": judged}


def _plain(block: Any) -> dict[str, Any]:
    """A block's measures as the page can show them: numbers, and the two kinds that are tables of their own."""
    pairs = block.items() if isinstance(block, dict) else ()
    return {name: one for name, one in pairs if (isinstance(one, dict) if name in TABLES else is_number(one))}


def _evidence(block: dict[str, Any]) -> float | None:
    """The mean of max(0, margin) where it is known, else the mean margin, at least zero.

    Of the means that against a mined label comes first: with many classes the other is below zero for all blocks.
    """
    for name in ("evidence", "sep_cur_mined", "sep_cur"):
        if is_number(found := _part(block, name)):
            return max(0.0, found)
    return None


def provisional_verdicts(blocks: list[dict[str, Any]]) -> list[dict[str, str]]:
    """`health`'s verdicts as far as mean separation and attenuation give them: no block is called dead by these."""
    evidence = [_evidence(block) for block in blocks]
    best, first = max([one for one in evidence if one is not None], default=0.0), evidence[0] or 0.0
    told = []
    for depth, (block, one) in enumerate(zip(blocks, evidence)):
        attenuation = _part(block, "attenuation")
        left = attenuation if is_number(attenuation) else 1.0
        if one is None or best <= 0:
            told.append({"verdict": "unknown", "reason": "nothing separates yet" if best <= 0 else "not on record"})
        elif depth and (
            (one < diagnosis.COLLAPSED * best and left < diagnosis.ATTENUATED) or one < diagnosis.VANISHED * first
        ):
            reason = f"by itself it separates {_share(one / best)} of what the best block does"
            told.append({"verdict": "rides", "reason": f"{reason}, and {_share(left)} of its gradient is left"})
        else:
            reason = f"by itself it separates {_share(one / best)} of what the best block does"
            told.append({"verdict": "works", "reason": reason})
    return told


def headline(run: dict[str, Any], runs: Sequence[dict[str, Any]]) -> dict[str, str]:
    """One sentence on the run in plain words, and its tone: works, rides, dead or unknown."""
    accuracy = run["accuracy"]
    right = f"{100 * accuracy['value']:.1f} % of the {accuracy['split']} images right" if accuracy else ""
    if run["blocks"] is None:
        if run["stage"] != "s1":
            what = "A readout" if run["stage"] == "s2" else "Trained end to end by backpropagation"
            said = f"{what}: it has no blocks of its own to judge" + (f"; {right}." if right else ".")
        elif not run["lines"] and run["state"] != "finished":
            said = (
                "It has not ended its first epoch yet."
                if run["state"] == "training"
                else "It ended before its first epoch did."
            )
        else:
            said = "Nothing in its folder says how its blocks fare" + (f"; {right}." if right else ".")
        return {"text": said, "tone": "unknown"}
    judged = run["blocks"]["judged"]
    riding = [one for one in judged if one["verdict"] == "rides"]
    dead = [one["depth"] for one in judged if one["verdict"] == "dead"]
    if riding:
        said = _riding_in_words(riding, judged) + _what_accuracy_hides(run, runs)
        said += f" {named_blocks(dead).capitalize()} {'is' if len(dead) == 1 else 'are'} dead." if dead else ""
        tone = "rides"
    elif dead:
        reason = judged[dead[0]]["reason"]
        said = f"{named_blocks(dead).capitalize()} {'is' if len(dead) == 1 else 'are'} dead: {reason}."
        tone = "dead"
    elif all(one["verdict"] == "works" for one in judged):
        weakest = min((one["share"] for one in judged if one["share"] is not None), default=1.0)
        every = f"All {len(judged)} blocks work" if len(judged) > 1 else "Its one block works"
        said = f"{every}: alone, each separates at least {_share(weakest)} of what the best block does."
        tone = "works"
    else:
        said, tone = "It is too early to tell its blocks apart: none separates right from wrong yet.", "unknown"
    if run["state"] != "finished":
        done, of = run["epochs"]["done"], run["epochs"]["of"]
        said = f"So far ({done} of {of or '?'} epochs): {said[0].lower()}{said[1:]}"
    return {"text": said, "tone": tone}


def _riding_in_words(riding: list[dict[str, Any]], judged: list[dict[str, Any]]) -> str:
    reference = judged[0] if (judged[0]["evidence"] or 0) > 0 else max(judged, key=lambda one: one["evidence"] or 0)
    shares = [_share((one["evidence"] or 0) / (reference["evidence"] or 1)) for one in riding]
    listed = shares[0] if len(shares) == 1 else f"{', '.join(shares[:-1])} and {shares[-1]}"
    verbs = ("rides", "it separates") if len(riding) == 1 else ("ride", "they separate")
    who = named_blocks([one["depth"] for one in riding]).capitalize()
    return f"{who} {verbs[0]} for free: alone {verbs[1]} {listed} of what block {reference['depth']} does"


def _what_accuracy_hides(run: dict[str, Any], runs: Sequence[dict[str, Any]]) -> str:
    """Whether the accuracy gives the riding away, judged against a working run on the same data where there is one."""
    accuracy = run["accuracy"]
    if not accuracy:
        return "."
    value = f"{100 * accuracy['value']:.1f} %"
    healthy = [
        one["accuracy"]["value"]
        for one in runs
        if one["blocks"]
        and one["accuracy"]
        and all(block["verdict"] == "works" for block in one["blocks"]["judged"])
        and one["config"].get("data") == run["config"].get("data")
    ]
    if not healthy:
        return f"; its accuracy alone, {value}, would not tell you."
    if accuracy["value"] > max(healthy) - ABOUT_AS_ACCURATE:
        return f"; the accuracy, {value}, does not show it."
    return f"; its accuracy is {value}, where all blocks work up to {100 * max(healthy):.1f} %."


def summary(runs: Sequence[dict[str, Any]]) -> str:
    """The page in one sentence."""
    judged = [run for run in runs if run["blocks"]]
    riding = [run for run in judged if run["headline"]["tone"] == "rides"]
    if len(runs) == 1:
        return runs[0]["headline"]["text"]
    if not judged:
        return f"None of these {len(runs)} runs says how its blocks fare."
    accuracies = [100 * run["accuracy"]["value"] for run in judged if run["accuracy"]]
    said = f"In {len(riding)} of {len(judged)} runs later blocks ride for free on earlier ones"
    said = said if riding else f"In none of these {len(judged)} runs does a block ride for free"
    if riding and len(accuracies) > 1 and max(accuracies) - min(accuracies) < 100 * ABOUT_AS_ACCURATE:
        return f"{said}, and the accuracies, {min(accuracies):.1f} to {max(accuracies):.1f} %, do not show it."
    return f"{said}; accuracies are {min(accuracies):.1f} to {max(accuracies):.1f} %." if accuracies else f"{said}."


def rule_in_words(config: dict[str, Any]) -> str:
    """
    >>> rule_in_words({"rule": {"kind": "constant", "gamma": 1.0}})
    'LCFF, γ = 1'
    """
    kind, gamma, kappa = (_part(config.get("rule"), name) for name in ("kind", "gamma", "kappa"))
    if kind == "constant" and is_number(gamma):
        return f"{'local' if gamma == 0 else 'LCFF' if gamma == 1 else 'constant'}, γ = {number(gamma)}"
    if kind == "gated" and is_number(kappa):
        return f"gated, κ = {number(kappa)}"
    return str(kind) if kind else "unknown"


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
        if _part(config.get("rule"), "kind") != "gated" or not run["blocks"] or not run["accuracy"]:
            continue
        deepest = _alone(run["blocks"]["measures"][-1])
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
            return Drawn(where, name, file, figure, figures_of.as_inline_svg(figure, f"{where}-{name}"))

        one = _try(missing, f"the figure '{name}' cannot be drawn", drawn, None)
        if one is not None:
            found.append(one)

    many = [
        run for run in data["runs"] if run["blocks"] and all(is_number(one["alone"]) for one in run["blocks"]["judged"])
    ]
    for measure, name in (("sep_cur", "alone"), ("accuracy", "accuracy")):
        compared = [one for run in many if (one := _by_depth(run, measure))]
        if len(compared) > 1:
            add("across", name, f"runs-{name}", [], partial(figures_of.depth_figure, compared, measure))
    for place, sweep in enumerate(data["sweeps"]):
        add("across", f"kappa-{place}", f"runs-kappa-{place}", [], partial(figures_of.kappa_figure, sweep))
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
    elif any(is_number(_part(_part(line, "val"), "accuracy")) for line in lines):
        found["learning"] = lambda: figures_of.learning_figure(lines)
    if any(is_number(_part(block, "own")) for block in blocks["measures"]):
        found["own-share"] = lambda: figures_of.own_share_figure(blocks["measures"], verdicts)
    if health.get("attenuation_points"):
        beta = health.get("beta", run["config"].get("beta", 4.0))
        points, weights = health["attenuation_points"], health.get("attenuation_weights")
        found["attenuation"] = lambda: figures_of.attenuation_figure(points, weights, beta)
    cut = health.get("truncation") or [_part(block, "accuracy") for block in blocks["measures"]]
    if cut and all(map(is_number, cut)):
        found["truncation"] = lambda: figures_of.truncation_figure(cut)
    if health.get("early_exit"):
        found["early-exit"] = lambda: figures_of.early_exit_figure(health["early_exit"])
    margins, confusion = (
        health.get("margins") or classes.get("margins"),
        health.get("confusion") or classes.get("confusion"),
    )
    if margins:
        found["margins"] = lambda: figures_of.margins_figure(margins)
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
        "share": _share,
        "slug": figures_of.slug,
        "time": _time,
        "unbroken": lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%"),
    }
    template = environment.from_string(resources.files("goodness.report").joinpath("page.html.j2").read_text("utf-8"))
    shown: dict[str, list[dict[str, Any]]] = {}
    for one in drawn:
        told = {
            "key": f"{one.where}-{one.name}",
            "file": one.file,
            "about": figures_of.about(one.figure),
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


def cell(value: Any) -> str:
    """A table cell: numbers to four digits, nothing as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, float):
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return f"{value:.4g}".replace("-", "−") if is_number(value) else str(value)


def _share(value: float | None) -> str:
    return "?" if value is None else "under 1 %" if 0 < value < 0.01 else f"{100 * value:.0f} %"


def _time(seconds: float | None) -> str:
    if not is_number(seconds) or seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _fingerprint(script: str) -> str:
    """The hash by which the page's own policy knows its one script."""
    return base64.b64encode(hashlib.sha256(str(script).encode()).digest()).decode()
