"""Every accuracy that the paper prints for a run with a preset of its name, in per cent; the numbers are numbers.csv's.

The mean where it gives mean ± std, else seed 42's. A number that stands in two tables with two values has both, one in
its field and one in the note. All are test accuracies but `val`; for Tiny ImageNet the test set is its validation set.
"""

from __future__ import annotations

from dataclasses import dataclass

from goodness.paper.numbers import about, cell, table


@dataclass(frozen=True, kw_only=True)
class Reported:
    """One run's row: S1 is the sum of goodness, S2 the Stage-2 readout (for backpropagation, s1 is the classifier)."""

    seeds: int
    """Over how many seeds; 1 where the paper does not say."""
    where: str
    """Labels of the tables, or of the section where a table has none."""
    val: float | None = None
    """Best validation accuracy, seed 42."""
    s1: float | None = None
    s1_tta: float | None = None
    s2: float | None = None
    s2_tta: float | None = None
    note: str = ""
    """Standard deviations, and what the paper says elsewhere."""


FIELDS = {
    "val_accuracy": "val",
    "accuracy": "s1",
    "accuracy_tta": "s1_tta",
    "s2_accuracy": "s2",
    "s2_accuracy_tta": "s2_tta",
}
"""Which field a metric of numbers.csv fills."""


def reported(preset: str, labels: str, note: str = "", *, s1: float | None = None, where: str = "") -> Reported:
    """A preset's row: of these tables' cells a mean before seed 42's, and the first table's before the next one's.

    `s1` is for a number that stands under another metric, `where` for the tables to name if they are not those.
    """
    found: dict[str, float] = {} if s1 is None else {"s1": s1}
    seeds = 1
    for label in labels.split():
        there = [one for one in table(label) if one.preset == preset and one.seed in (None, 42)]
        for one in sorted(there, key=lambda one: one.seed is not None):
            if one.metric in FIELDS and one.value is not None:
                found.setdefault(FIELDS[one.metric], one.value)
                seeds = max(seeds, one.n or 1)
    return Reported(
        seeds=seeds, where=", ".join(about(label).where for label in (where or labels).split()), **found, note=note
    )


def rows_of(label: str, notes: dict[str, str]) -> dict[str, Reported]:
    """A row for every preset that one table names."""
    presets = dict.fromkeys(one.preset for one in table(label) if one.preset)
    return {preset: reported(preset, label, notes.get(preset, "")) for preset in presets}


def number(label: str, row: str, column: str) -> float:
    value = cell(label, row, column).value
    assert value is not None, f"{label} / {row} / {column} is not a number"
    return value


def shown(label: str, row: str, *columns: str) -> tuple[str, ...]:
    """Numbers of one row for a note, to two places."""
    return tuple(f"{number(label, row, column):.2f}" for column in columns)


def std(label: str, preset: str) -> str:
    """The spreads of a preset's accuracies in one table."""
    means = (one for one in table(label) if one.preset == preset and one.metric in FIELDS and one.spread is not None)
    return "std " + ", ".join(f"{one.spread:.2f}" for one in means)


def mean_and_spread(label: str, row: str, column: str) -> str:
    one = cell(label, row, column)
    return f"{one.value:.2f} ({one.spread:.2f})"


S1, S1_TTA, S2, S2_TTA = "S1 (no-TTA)", "S1 (TTA)", "S2 (no-TTA)", "S2 (TTA)"
FULL = "None (full CP-FAIR baseline)"


def _variants() -> dict[str, Reported]:
    plain, tta = shown("gamma0_multiseed", "42", S1, S1_TTA)
    (elsewhere,) = shown("tiny_imagenet_config", "S2 Top-1 (TTA)", "CIFAR-10 (gamma=0)")
    fair = shown("multiseed", "42", S1, S1_TTA, S2, S2_TTA)
    ablated = shown("component_ablation", FULL, "S1 TTA", "S2 (TTA)")
    (lcff,) = shown("in_text", "LCFF-prefix", "final accuracy")
    (others,) = shown("in_text", "CP-FAIR and No-all-collab", "final accuracy")
    (again,) = shown("in_text", "multi-tech", "Test TTA")
    rows = rows_of(
        "full_main_results",
        {
            "multi-tech": f"sec:secondary_analysis says {again} with TTA.",
            "gamma-ramp": "Incomplete run; the same number stands with and without TTA.",
            "dp-fair": "Marked as an incomplete run (Stage 1 only).",
            "greedy-freeze": "The paper calls it degenerate.",
        },
    )
    return rows | {
        "gamma0": reported(
            "gamma0",
            "full_main_results gamma0_multiseed",
            f"{std('gamma0_multiseed', 'gamma0')}; S2 over seeds 123 and 456 alone. Seed 42: {plain}, TTA {tta}; its "
            f"S2 was not recorded (tab:gamma0_multiseed), yet tab:tiny_imagenet_config prints S2 TTA {elsewhere}.",
        ),
        "cp-fair": reported(
            "cp-fair",
            "full_main_results multiseed",
            f"{std('multiseed', 'cp-fair')}. Seed 42: {fair[0]}, TTA {fair[1]}, S2 {fair[2]}, TTA {fair[3]}; the "
            f"ablations' tables print S1 TTA {ablated[0]} and S2 TTA {ablated[1]} for it.",
        ),
        "lcff": reported(
            "lcff",
            "freeriding",
            f"No test accuracy is printed; the paragraph on convergence speed gives {lcff} (against {others}).",
        ),
    }


def _ablations() -> dict[str, Reported]:
    rows = rows_of("component_ablation", {})
    rows |= rows_of("hnm_ksweep", {"cp-fair-k1": "The row of cp-fair-no-mining again."})
    rows |= rows_of("aspect_ema_ablation", {"cp-fair-sharpness-only": "The aspect is dead where there is no memory."})
    del rows["cp-fair"]
    return rows


AS_S2 = "tab:dissociation_full prints the same number as S2 TTA."
TRUNCATED = "S1 is tab:depth_truncation_L8's with all blocks, TTA or not unsaid."


def _seeds(scale: str) -> str:
    """Seeds 123 and 456 of the gate with kappa 0."""
    columns = (S1, S1_TTA, S2, S2_TTA)
    each = [shown("gated_k0_multiseed", f"{scale}, D128, {seed}", *columns) for seed in (123, 456)]
    s1, s1_tta, s2, s2_tta = (" and ".join(pair) for pair in zip(*each))
    return f"{'S1 ' if scale == 'L8' else ''}{s1}, TTA {s1_tta}, S2 {s2}, TTA {s2_tta}."


# The gates' rows of Tables accuracy_degradation, L8_sep and depth_truncation_L8 are all multiples of 0.02: shares of
# 5,000 images (the validation split), it seems, where the test set has 10,000.
def _sweep_of_four() -> dict[str, Reported]:
    """At L4/D128: "Acc (S1)" of sec:gated_full, and "S2 final" of Table accuracy_degradation, which has gates alone."""
    (peak,) = shown("in_text", "L4, D128, Constant gamma=0.7", "d=2")
    whole, first = shown("in_text", "L4, D128, Adpt tau=3, kappa=0", "d=4", "d=1")
    (seed42,) = shown("gated_k0_multiseed", "L4, D128, 42", S2_TTA)
    (other,) = shown("accuracy_degradation", "Adpt tau=1, kappa=0", "L4 Acc (%)")
    gates = [one.preset for one in table("accuracy_degradation") if one.preset.startswith("d128-")]
    notes = {"d128-gated-t3-k0": f"sec:secondary_analysis: {whole} with all blocks, {first} with one."}
    rows = rows_of(
        "gated_full", {"d128-cumulative": f"{AS_S2} sec:secondary_analysis: {peak} at d = 2.", "d128-lcff": AS_S2}
    )
    rows |= {gate: reported(gate, "gated_full accuracy_degradation", notes.get(gate, "")) for gate in gates}
    return rows | {
        "d128-gated-t1-k0": reported(
            "d128-gated-t1-k0",
            "gated_full gated_k0_multiseed",
            f"{std('gated_k0_multiseed', 'd128-gated-t1-k0')} (S2 TTA). Seed 42's {seed42} is S1 in sec:gated_full, S2 "
            "TTA in tab:gated_k0_multiseed, where the mean takes it in; tab:accuracy_degradation has "
            f"{other}. Seeds 123 and 456: {_seeds('L4')}",
        )
    }


def _sweep_of_eight() -> dict[str, Reported]:
    """At L8/D128: "Acc (TTA)" of Table L8_sep, which other tables print as S2; S1 is the gates' truncation at d = 8."""
    whole = {one.preset: one for one in table("depth_truncation_L8") if one.column == "d=8"}
    best = whole["l8-gated-t1-k2-previous"].printed
    notes = {"l8-gated-t1-k2-previous": f" The text calls the {best} S2 and the best of L8."}
    where = "L8_sep accuracy_degradation depth_truncation_L8"
    rows = rows_of("L8_sep", dict.fromkeys(("l8-gamma0", "l8-cumulative", "l8-lcff"), AS_S2))
    for gate, one in whole.items():
        rows[gate] = reported(gate, "L8_sep", TRUNCATED + notes.get(gate, ""), s1=one.value, where=where)
    (first,) = shown("gated_k0_multiseed", "L8, D128, 42", S2_TTA)
    rows["l8-gated-t1-k0"] = reported(
        "l8-gated-t1-k0",
        "gated_k0_multiseed L8_sep",
        f"{std('gated_k0_multiseed', 'l8-gated-t1-k0')} (S2 TTA); seed 42 {first}. {TRUNCATED} Seeds 123 and 456: "
        f"{_seeds('L8')}",
        s1=whole["l8-gated-t1-k0"].value,
        where="gated_k0_multiseed L8_sep depth_truncation_L8",
    )
    more = (f"l8-32e-{rule}" for rule in ("gamma0", "cp-fair", "lcff"))
    return rows | {preset: reported(preset, "dissociation_full") for preset in more}


def _other_data() -> dict[str, Reported]:
    top5 = {
        preset: mean_and_spread("cifar100_dissociation_multiseed", row, "S2 TTA top-5")
        for preset, row in (("cifar100-gated", "Adaptive kappa=0"), ("cifar100-cumulative", "Cumulative (gamma>0)"))
    }
    local = mean_and_spread("cifar100_comparison", "Ours, S1 (strict-local FF backbone)", "Top-5")
    here = cell("cifar100_dissociation_multiseed", "gamma=0 (purely local)", "S2 TTA top-5")
    there = cell("cifar100_comparison", "Ours, S1 + S2 (frozen-feature attentive head)", "Top-5")
    (narrow,) = shown("in_text", "CIFAR-100 baseline, S2 TTA", "spread over seeds")
    (older,) = shown("cifar100_metrics", "S2 Top-5 (TTA)", "all")
    tiny = [mean_and_spread("tiny_imagenet_multiseed", "Mean ± Std", f"{stage} Top-5 (TTA)") for stage in ("S1", "S2")]
    notes = {preset: f"{std('dissociation', preset)}. Top-5: S2 {numbers}." for preset, numbers in top5.items()}
    notes["cifar100-gamma0"] = (
        f"{std('dissociation', 'cifar100-gamma0')}. Top-5: S1 {local}; S2 {here.value:.2f}, std {here.spread:.2f} here "
        f"and {there.spread:.2f} in tab:cifar100_comparison, which also calls the dense backbone a mixture of experts."
    )
    return {
        **{preset: reported(preset, "dissociation cifar100_dissociation_multiseed", notes[preset]) for preset in notes},
        "cifar100-baseline": reported(
            "cifar100-baseline",
            "cifar100_multiseed",
            f"{std('cifar100_multiseed', 'cifar100-baseline')} (the text says {narrow} of the last). Top-5: S2 TTA "
            f"{older}, seed 42.",
        ),
        "tiny-gamma0": reported(
            "tiny-gamma0",
            "tiny_imagenet_multiseed",
            f"{std('tiny_imagenet_multiseed', 'tiny-gamma0')} (TTA). S1 without TTA is seed 42's with four blocks; "
            f"tab:related_work_3ds says it was not logged. Top-5 TTA: S1 {tiny[0]}, S2 {tiny[1]}.",
            s1=number("in_text", "Tiny ImageNet, gamma=0", "d=4"),
        ),
    }


def _controls() -> dict[str, Reported]:
    """Table bp_ff_ablation, which has no TTA for them."""
    return {preset: row for preset, row in rows_of("bp_ff_ablation", {}).items() if preset not in ("gamma0", "cp-fair")}


def _texts() -> dict[str, Reported]:
    """On frozen embeddings; without TTA, since a text has no mirror image."""
    names = ("text-imdb", "text-newsgroups", "text-ag-news")
    label = "text_domain_full"
    return {name: reported(name, label, f"{std(label, name)}. Seeds 42, 43 and 44.") for name in names}


PAPER: dict[str, Reported] = (
    _variants() | _ablations() | _sweep_of_four() | _sweep_of_eight() | _other_data() | _texts() | _controls()
)
"""What the paper prints, by the preset's name."""
