"""What the page says in sentences: of a run, of all of them, of its measures and of a table's cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goodness.durable import is_number
from goodness.report.words import named_blocks, number, part_of, what_later_blocks_cost

ABOUT_AS_ACCURATE = 0.02
"""Accuracies that differ by less than this do not tell a riding network from a working one."""
STAGES = {"s1": "Forward-Forward", "s2": "readout", "bp": "backpropagation"}
STATES = {
    "finished": "finished",
    "training": "training now",
    "stopped": "stopped before its end",
    "unfinished": "not finished",
}
MEANINGS = {
    "sep_cur": "goodness of the right label minus the strongest wrong one's, this block alone, mean over the images.",
    "sep_cur_mined": "the same against a wrong label drawn at random, the hardest of a few.",
    "sep_cur_mined_rate": "share of images whose right label leads that one in this block alone.",
    "sep_stream": "as sep_cur_mined, each block mining anew on tokens with the wrong label before it, as in training.",
    "sep_stream_rate": "share of images for which that is positive.",
    "sep_cur_rate": "share of images for which this block alone is right.",
    "evidence": "mean of the block's own margin, wrong answers counted as nothing: what the verdicts compare.",
    "sep": "as sep_cur, for the sum of blocks 0 to d.",
    "sep_mined": "as sep_cur_mined, for the sum of blocks 0 to d.",
    "sep_rate": "share of images whose right label leads the mined wrong one, blocks 0 to d summed.",
    "sep_cur_ni": "goodness of the image minus that of another class's image under the same label, this block alone.",
    "sep_cur_ni_rate": "share of images for which that is positive.",
    "sep_ni": "as sep_cur_ni, for the sum of blocks 0 to d; sep_ni_rate the share of images where it is positive.",
    "own": "share of the block's own evidence in all evidence up to it; the rest is inherited.",
    "attenuation": "R: what is left of the block's gradient once the earlier blocks' evidence has entered its loss.",
    "free_riding": "F: the mean of 1 − min(1, R); 0 where the block learns from its own errors alone.",
    "rule_weight": "how strongly the collaboration rule lets earlier blocks' evidence into the loss.",
    "rule_weight_p10": "that weight, at the tenth percentile of the images; rule_weight_p90 at the ninetieth.",
    "residual_ess": "share of the images that the residual weights of the current-block loss in effect use.",
    "g_pos": "goodness under the right label.",
    "g_neg": "goodness under the mined wrong label.",
    "g_worst": "goodness under the strongest wrong label.",
    "g_stream": "goodness under the wrong label that the block mines anew, as in training.",
    "g_ni": "goodness of an image of another class under this one's label.",
    "accuracy": "of the network cut off after this block.",
    "saturation": "DS: that accuracy over the accuracy of all blocks.",
    "grad_norm": "length of the gradient of the block's whole loss; grad_norm_X: of its term X, with its coefficient.",
    "loss_collapse": "LC: what is left of the loss at the summed margin. Small together with a small sep_cur: riding.",
}


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
        said = f"{every}: alone, each separates at least {share_in_words(weakest)} of what the best block does."
        tone = "works"
    else:
        said, tone = "It is too early to tell its blocks apart: none separates right from wrong yet.", "unknown"
    cost = what_later_blocks_cost(_accuracies(run["blocks"].get("measures", [])))
    said += f" {cost[0].upper()}{cost[1:]}." if cost else ""
    if run["state"] != "finished":
        done, of = run["epochs"]["done"], run["epochs"]["of"]
        said = f"So far ({done} of {of or '?'} epochs): {said[0].lower()}{said[1:]}"
    return {"text": said, "tone": tone}


def _accuracies(blocks: Sequence[dict[str, Any]]) -> list[float]:
    """Of the network cut off behind every block; empty where one is not on record."""
    found = [part_of(block, "accuracy") for block in blocks]
    return found if all(map(is_number, found)) else []


def _riding_in_words(riding: list[dict[str, Any]], judged: list[dict[str, Any]]) -> str:
    reference = judged[0] if (judged[0]["evidence"] or 0) > 0 else max(judged, key=lambda one: one["evidence"] or 0)
    shares = [share_in_words((one["evidence"] or 0) / (reference["evidence"] or 1)) for one in riding]
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
    if run["state"] != "finished":  # which would not be a fair comparison
        return f"; its accuracy so far is {value}."
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
    if len(judged) == 1:
        text = judged[0]["headline"]["text"]
        return f"Of these {len(runs)} runs one has blocks to judge: {text[0].lower()}{text[1:]}"
    ended = [run for run in judged if run["state"] == "finished"] or judged
    accuracies = [100 * run["accuracy"]["value"] for run in ended if run["accuracy"]]
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
    kind, gamma, kappa = (part_of(config.get("rule"), name) for name in ("kind", "gamma", "kappa"))
    if kind == "constant" and is_number(gamma):
        return f"{'local' if gamma == 0 else 'LCFF' if gamma == 1 else 'constant'}, γ = {number(gamma)}"
    if kind == "gated" and is_number(kappa):
        return f"gated, κ = {number(kappa)}"
    return str(kind) if kind else "unknown"


def cell(value: Any) -> str:
    """A table cell: numbers to four digits, nothing as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, float):
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return f"{value:.4g}".replace("-", "−") if is_number(value) else str(value)


def share_in_words(value: float | None) -> str:
    return "?" if value is None else "under 1 %" if 0 < value < 0.01 else f"{100 * value:.0f} %"


def time_in_words(seconds: float | None) -> str:
    if not is_number(seconds) or seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
