"""What a run's folder has to say, as plain JSON data, whatever state it is in.

A run may be unfinished, killed, older than this version or robbed of its files: `missing` says in words what could not
be had, and the rest is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import torch

from goodness import api
from goodness.config import from_dict, to_dict
from goodness.durable import is_number, read_json, read_lines
from goodness.errors import RunError, UserError
from goodness.health import of_runs as diagnosis
from goodness.health.block_health import ATTENUATED, COLLAPSED, VANISHED, evenly
from goodness.health.margins import worst_margin
from goodness.report.page_words import STAGES, rule_in_words, share_in_words
from goodness.report.words import part_of
from goodness.runs.lock import LOCK, is_held
from goodness.runs.predictions import read_predicted
from goodness.runs.run import Run, is_readout
from goodness.runs.run_folder import RunFolder
from goodness.sweep.published import is_published

T = TypeVar("T")


MOST_IMAGES = 2000
"""Images on which the page computes health itself, evenly chosen from the test split."""
VERDICTS = ["works", "rides", "dead"]
TABLES = {
    "aspects": "Aspects: weight in the block's goodness, and separation",
    "routing": "Routing to the experts",
}
"""What a block has beside numbers."""
RESULT_KEYS = ("reported", "weights", "accuracy", "health", "parameters", "epochs", "seconds")


def run_data(run: Run, key: str, name: str, *, device: str = "cpu", compute: bool = True) -> dict[str, Any]:
    """One run, whatever state its folder is in; `missing` says in words what could not be had."""
    missing: list[str] = []
    config = attempt(missing, "the configuration", lambda: _config(run.path), {})
    is_finished = (run.path / "result.json").exists()
    result = attempt(missing, "the result", lambda: _object(run.path / "result.json"), {}) if is_finished else {}
    absent = [part for part in RESULT_KEYS if part not in result]
    if result and absent:
        missing.append(f"result.json has no {', '.join(absent)}: another version of goodness wrote it")
    lines = attempt(missing, "the measures of the epochs", lambda: read_lines(run.path / "metrics.jsonl"), [])
    stage = _stage(run.path, config)
    state = _state(run.path, is_finished)
    epochs = part_of(config.get("readout") if stage == "s2" else config, "epochs")
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
        "environment": attempt(missing, "where it ran", lambda: _object(run.path / "environment.json"), {}),
        "lines": lines,
        "missing": missing,
    }
    if not lines and not is_finished:
        missing.append("no epoch has ended yet: there is nothing to show")
    elif not lines:
        missing.append("metrics.jsonl: no epochs are on record, so there are no curves over training")
    data["classes"] = _classification(run, is_finished, missing)
    data["health"] = _health(run, stage, missing, device, compute) if is_finished else None
    data["per_class"] = attempt(missing, "the accuracy of each class", lambda: _per_class(data), [])
    data["accuracy"] = attempt(missing, "the accuracy", lambda: _accuracy(result, data["classes"], lines), None)
    data["blocks"] = attempt(missing, "the blocks", lambda: _blocks(data, result), None) if stage == "s1" else None
    if stage == "s1" and data["blocks"] is None and (lines or is_finished):
        missing.append("nothing says how its blocks fare")
    training = [part_of(part_of(line, "train"), "blocks") for line in lines]
    data["training"] = [_plain(block) for block in training[-1]] if training and isinstance(training[-1], list) else []
    data["convergence"] = {
        share: _from_one(attempt([], "", lambda share=share: diagnosis.convergence(lines, share / 100), None))
        for share in (95, 99)
    }
    return data


def attempt(missing: list[str], what: str, read: Callable[[], T], otherwise: T) -> T:
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
    with contextlib.suppress(RunError, UserError):  # a damaged one is shown as far as it goes
        if is_readout(path):
            return "s2"
    return "bp" if config.get("trainer") == "backprop" else "s1"


def _state(path: Path, is_finished: bool) -> str:
    if is_finished:
        return "finished"
    held = is_held(path / LOCK)
    return "unfinished" if held is None else "training" if held else "stopped"


def _classification(run: Run, is_finished: bool, missing: list[str]) -> dict[str, Any] | None:
    """Confusion and margins from the saved predictions, which a readout and a control have too; a published run has no
    scores, and so no margins."""
    if not is_finished:
        return None

    def read() -> dict[str, Any]:
        if is_published(run.path):
            missing.append("the margins of the predictions: class scores were not published")
            seen, some = read_predicted(run), []
            labels, said = torch.from_numpy(seen.labels), torch.from_numpy(seen.classes)
            count = int(torch.maximum(labels, said).max()) + 1
        else:
            saved = RunFolder(run.path, None).read_predictions("test")
            scores, labels = torch.from_numpy(saved["scores"]).double(), torch.from_numpy(saved["labels"])
            count, said = scores.shape[1], scores.argmax(dim=1)
            margins = worst_margin(scores, labels).sort().values
            some = margins[evenly(len(margins), 200)].tolist()
        confusion = torch.bincount(labels * count + said, minlength=count * count).reshape(count, count)
        return {
            "n": len(labels),
            "accuracy": float((said == labels).double().mean()),
            "confusion": confusion.tolist(),
            "margins": some,
            "names": [str(label) for label in range(count)],
        }

    return attempt(missing, "the predictions", read, None)


def _per_class(data: dict[str, Any]) -> list[dict[str, Any]]:
    """How many images each class has, and how many of them are right."""
    found = data["health"] if part_of(data["health"], "confusion") else data["classes"]
    if not found:
        return []
    names = found.get("classes") or found["names"]
    counts = found["confusion"]
    return [{"name": name, "n": sum(row), "right": row[place]} for place, (name, row) in enumerate(zip(names, counts))]


def _health(run: Run, stage: str, missing: list[str], device: str, compute: bool) -> dict[str, Any] | None:
    """Block health: as the run has left it, else from weights and data."""
    if stage != "s1":
        return None
    path = RunFolder(run.path, None).health_path
    kept = attempt(missing, "block health", lambda: _health_file(path), None) if path.exists() else None
    if kept is not None or not compute:
        return kept

    def work() -> dict[str, Any]:
        config = run.config
        data = api.load_data(config, api._remembered_data_dir(run.path))
        rows = data.test
        some = evenly(len(rows), MOST_IMAGES)
        few = dataclasses.replace(rows, images=rows.images[some], labels=rows.labels[some], indices=rows.indices[some])
        found = diagnosis.health(run, dataclasses.replace(data, test=few), device=device)
        return {**found, "of": len(rows)}

    return attempt(missing, "block health from the weights", work, None)


def _health_file(path: Path) -> dict[str, Any]:
    kept = _object(path)
    if not _are_blocks(kept.get("blocks")) or len(part_of(kept, "verdict") or ()) != len(kept["blocks"]):
        raise RunError(f"{path} is not what a run writes")
    return kept


def _accuracy(
    result: dict[str, Any], classes: dict[str, Any] | None, lines: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """The best accuracy to report that there is: the result's, the predictions', or the last on validation."""
    reported = part_of(result, "reported")
    if is_number(part_of(reported, "accuracy")):
        rows = [
            row for row in result.get("accuracy") or [] if part_of(row, "split") == "test" and is_number(row.get("n"))
        ]
        found = {"value": reported["accuracy"], "split": "test", "n": rows[-1]["n"] if rows else None}
        return found | {name: reported[name] for name in ("accuracy_tta", "top5") if is_number(reported.get(name))}
    if classes:
        return {"value": classes["accuracy"], "split": "test", "n": classes["n"]}
    judged = [part_of(line, "val") for line in lines if is_number(part_of(part_of(line, "val"), "accuracy"))]
    return {"value": judged[-1]["accuracy"], "split": "validation", "n": judged[-1].get("n")} if judged else None


def _blocks(data: dict[str, Any], result: dict[str, Any]) -> dict[str, Any] | None:
    """Each block's measures and verdict, from the best source there is, with that source in words."""
    health, kept = data["health"], part_of(part_of(result, "health"), "test")
    if health:
        of, n = health.get("of") or health.get("n"), health.get("n")
        images = f"{n:,} of the {of:,}" if n and of and n < of else f"{n:,}" if n else "the"
        return _judged(_with_accuracies(health["blocks"], kept), f"{images} test images", health["verdict"])
    if _are_blocks(kept):
        return _judged(kept, "what result.json keeps of the test images", None)
    for part, name in (("val", "validation"), ("train", "training")):
        for line in reversed(data["lines"]):
            blocks = part_of(part_of(line, part), "blocks")
            if _are_blocks(blocks):
                return _judged(blocks, f"{name} images, epoch {_from_one(line.get('epoch'))}", None)
    return None


def _with_accuracies(blocks: list[dict[str, Any]], kept: Any) -> list[dict[str, Any]]:
    """The blocks with the accuracies of result.json, which are of all test images whatever these are of."""
    if not isinstance(kept, list) or len(kept) != len(blocks):
        return blocks
    measures = ("accuracy", "saturation")
    return [block | {name: one[name] for name in measures if name in _plain(one)} for block, one in zip(blocks, kept)]


def _from_one(epoch: Any) -> Any:
    """metrics.jsonl counts epochs from 0, people from 1."""
    return epoch + 1 if is_number(epoch) else epoch


def _are_blocks(blocks: Any) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(blocks, list) and any(is_number(alone_of(block)) for block in blocks)


def alone_of(block: Any) -> Any:
    """What the block separates by itself: against the strongest wrong label, else against a mined one."""
    found = part_of(block, "sep_cur")
    return found if is_number(found) else part_of(block, "sep_cur_mined")


def _judged(blocks: list[dict[str, Any]], source: str, verdicts: list[dict[str, str]] | None) -> dict[str, Any]:
    blocks = [_plain(block) for block in blocks]
    evidence = [_evidence(block) for block in blocks]
    best = max([one for one in evidence if one is not None], default=0.0)
    verdicts = verdicts or provisional_verdicts(blocks)
    judged = [
        {
            "depth": depth,
            "verdict": verdict["verdict"] if part_of(verdict, "verdict") in VERDICTS else "unknown",
            "reason": str(part_of(verdict, "reason") or ""),
            "alone": alone_of(block),
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
        if is_number(found := part_of(block, name)):
            return max(0.0, found)
    return None


def provisional_verdicts(blocks: list[dict[str, Any]]) -> list[dict[str, str]]:
    """`health`'s verdicts as far as mean separation and attenuation give them: no block is called dead by these."""
    evidence = [_evidence(block) for block in blocks]
    best, first = max([one for one in evidence if one is not None], default=0.0), evidence[0] or 0.0
    told = []
    for depth, (block, one) in enumerate(zip(blocks, evidence)):
        attenuation = part_of(block, "attenuation")
        left = attenuation if is_number(attenuation) else 1.0
        if one is None or best <= 0:
            told.append({"verdict": "unknown", "reason": "nothing separates yet" if best <= 0 else "not on record"})
        elif depth and ((one < COLLAPSED * best and left < ATTENUATED) or one < VANISHED * first):
            reason = f"by itself it separates {share_in_words(one / best)} of what the best block does"
            told.append({"verdict": "rides", "reason": f"{reason}, and {share_in_words(left)} of its gradient is left"})
        else:
            reason = f"by itself it separates {share_in_words(one / best)} of what the best block does"
            told.append({"verdict": "works", "reason": reason})
    return told
