"""Where the paper says two things: each statement with its place, and which one we take.

A statement that stands in a table names its cell of numbers.csv and repeats what is printed there; a test compares the
two. One from the text, a caption or an equation is told in our words, or is its number. Here are numbers with two
values and values with two labels; sentences, settings and cited work are in `claims`.
"""

from __future__ import annotations

from goodness.paper.claims import CITED, CLAIMS, SETTINGS
from goodness.paper.numbers import cell
from goodness.paper.statements import Contradiction, Kind, Statement, at, said
from goodness.report.words import markdown_line

FULL_HNM, FULL_ASPECTS, FULL = (
    "Full CP-FAIR baseline (k=8→16)",
    "Full CP-FAIR baseline (4 aspects + EMA)",
    "None (full CP-FAIR baseline)",
)
FAIR_ROW = "FF backbone + depth-scaled (cp-fair), FF, FF-pipeline"
K0, K0_CUMULATIVE = "Adpt tau=1, kappa=0", "Adpt tau=1, kappa=0 (cumul)"
T3, PREVIOUS2 = "Adpt tau=3, kappa=0 (cumul)", "Adpt tau=1, kappa=2 (prev)"
LOCAL = "gamma=0 (purely local)"

NUMBERS = (
    Contradiction(
        kind="number",
        name="cp-fair-s1-tta",
        what="cp-fair, seed 42, Stage 1 with TTA",
        statements=(
            at("multiseed", "42", "S1 (TTA)", 91.36),
            at("bp_ff_ablation", FAIR_ROW, "Test TTA", 91.36),
            at("per_class", "Overall", "cp-fair", 91.36),
            at("component_ablation", FULL, "S1 TTA", 91.31),
            at("hnm_ksweep", FULL_HNM, "S1 TTA", 91.31),
            at("aspect_ema_ablation", FULL_ASPECTS, "S1 TTA", 91.31),
        ),
        ours="91.36 for the run; an ablation's difference is to its own table's full model.",
    ),
    Contradiction(
        kind="number",
        name="cp-fair-s2-tta",
        what="cp-fair, seed 42, Stage 2 with TTA",
        statements=(
            at("multiseed", "42", "S2 (TTA)", 91.27),
            at("component_ablation", FULL, "S2 (TTA)", 91.24),
            at("hnm_ksweep", FULL_HNM, "S2 (TTA)", 91.24),
            at("aspect_ema_ablation", FULL_ASPECTS, "S2 (TTA)", 91.24),
        ),
        ours="91.27 for the run; an ablation's difference is to its own table's full model.",
    ),
    Contradiction(
        kind="number",
        name="gamma0-s2-seed-42",
        what="gamma = 0, seed 42, Stage 2 with TTA",
        statements=(
            at("gamma0_multiseed", "42", "S2 (TTA)", "—"),
            at("tiny_imagenet_config", "S2 Top-1 (TTA)", "CIFAR-10 (gamma=0)", 91.49),
        ),
        ours="Not recorded; the mean is of seeds 123 and 456. cp-fair without history has 91.49 too.",
    ),
    Contradiction(
        kind="number",
        name="multi-tech-tta",
        what="multi-tech, Stage 1 with TTA",
        statements=(
            at("full_main_results", "multi-tech (ours)", "Test TTA", 91.22),
            at("in_text", "multi-tech", "Test TTA", 91.25),
        ),
        ours="The table's.",
    ),
    Contradiction(
        kind="number",
        name="lcff-separation",
        what="LCFF at L4/D256, sep_cur_nl of the first and of the last block",
        statements=(
            at("gamma_sweep", "LCFF (gamma=1.0)", "sep_cur_nl L0", 2.32),
            at("freeriding", "LCFF-prefix (gamma=1.0, no fix)", "sep_cur_nl (L0)", 2.10),
            at("gamma_sweep", "LCFF (gamma=1.0)", "sep_cur_nl L3", 0.70),
            at("freeriding", "LCFF-prefix (gamma=1.0, no fix)", "sep_cur_nl (L3)", 0.64),
        ),
        ours="gamma_sweep's, which has all four blocks; both where they are compared with ours.",
    ),
    Contradiction(
        kind="number",
        name="lcff-accuracy",
        what="LCFF at L4/D256 and the two it is compared with, accuracy on validation images",
        statements=(
            at("freeriding", "LCFF-prefix (gamma=1.0, no fix)", "Val", 91.36),
            at("in_text", "LCFF-prefix", "final accuracy", 91.14),
            at("freeriding", "cp-fair (gamma=0.7 + fix)", "Val", 91.90),
            at("freeriding", "gamma=0 (purely local, validation-selected)", "Val", 91.98),
            at("in_text", "CP-FAIR and No-all-collab", "final accuracy", 91.80),
        ),
        ours="The table's; the text's may be those of the last epoch.",
    ),
    Contradiction(
        kind="number",
        name="cifar100-baseline-spread",
        what="CIFAR-100 baseline, spread of Stage 2 with TTA over three seeds",
        statements=(
            at("cifar100_multiseed", "Mean ± Std", "S2 (TTA)", "66.77 ± 0.27"),
            at("in_text", "CIFAR-100 baseline, S2 TTA", "spread over seeds", 0.15),
        ),
        ours="0.27, which is that of the three seeds printed.",
    ),
    Contradiction(
        kind="number",
        name="cifar100-top-5-spread",
        what="CIFAR-100 under gamma = 0, spread of Stage 2's top-5",
        statements=(
            at("cifar100_dissociation_multiseed", LOCAL, "S2 TTA top-5", "90.78 ± 0.18"),
            at("cifar100_comparison", "Ours, S1 + S2 (frozen-feature attentive head)", "Top-5", "90.78 ± 0.21"),
            at("cifar100_dissociation_multiseed", "Range across regimes", "S2 TTA top-5", 0.21),
        ),
        ours="0.18; 0.21 is the range over the three rules.",
    ),
    Contradiction(
        kind="number",
        name="margins-of-the-figure",
        what="L4/D128, mean margins on 1,024 test images of the same three checkpoints",
        statements=(
            at("assumption_coverage", "gamma=0 (block-local), block 3", "m", 2.54),
            at("in_text", "L4, D128, gamma=0", "m, block 3", 2.8),
            at("assumption_coverage", "gamma=0.7 (CP-FAIR-style), block 1", "m", 2.36),
            at("in_text", "L4, D128, gamma=0.7", "m, block 1", 2.65),
            at("assumption_coverage", "gamma=1.0 (LCFF), block 0", "m", 1.74),
            at("in_text", "L4, D128, gamma=1.0", "m, block 0", 1.9),
        ),
        ours="The table's, whose sums and ratios come out.",
    ),
    Contradiction(
        kind="number",
        name="tiny-s1-one-view",
        what="Tiny ImageNet, Stage 1 without TTA",
        statements=(
            at("related_work_3ds", "Ours (gamma=0, S1, single-crop)", "Tiny ImageNet", "—"),
            at("in_text", "Tiny ImageNet, gamma=0", "d=4", 48.75),
            said("fig:tinyimagenet_perseed", "shows it for three seeds"),
        ),
        ours="48.75 of seed 42, all four blocks; the note under the table says that it was not logged.",
    ),
    Contradiction(
        kind="number",
        name="stage-2-gain",
        what="What Stage 2 adds on CIFAR-100",
        statements=(
            at("in_text", "Stage 2 over Stage 1, CIFAR-100", "gain", 0.34),
            at("in_text", "Stage 2 over Stage 1, CIFAR-100 and Tiny ImageNet", "gain", "+2–3 pp"),
            at("dissociation", LOCAL, "S1 TTA", 66.93),
            at("dissociation", LOCAL, "S2 TTA", 69.23),
            at("cifar100_multiseed", "Mean ± Std", "S1 (no-TTA)", 65.00),
            at("cifar100_multiseed", "Mean ± Std", "S2 (no-TTA)", 65.34),
        ),
        ours="Two points for the three rules; 0.34 is the older baseline's, without TTA.",
    ),
    Contradiction(
        kind="number",
        name="goodness-of-memory",
        what="How much smaller goodness is with normalised tokens than with memory",
        statements=(
            said("sec:method", "5 times"),
            said("sec:secondary_analysis", "3.4 times"),
            at("in_text", "nomem-l2", "g+ L3", "about 3.4"),
            at("in_text", "baseline", "g+ L3", "about 11.6"),
        ),
        ours="3.4 times, which is the quotient of the two.",
    ),
    Contradiction(
        kind="number",
        name="lead-over-asge",
        what="Distance to ASGE on CIFAR-10, one view",
        statements=(
            said("sec. 4.2", "within 0.10 points, from seed 42"),
            said("notes under tab:related_work_3ds", "within 0.12 points, from the mean"),
            at("gamma0_multiseed", "42", "S1 (no-TTA)", 90.52),
            at("related_work_3ds", "Ours (gamma=0, S1, single-crop)", "CIFAR-10", "90.50 ± 0.05"),
            at("related_work_3ds", "Gong et al. (2025)", "CIFAR-10", 90.62),
        ),
        ours="The mean over seeds: 0.12 points below.",
    ),
    Contradiction(
        kind="number",
        name="tau-3-of-four-blocks",
        what="L4/D128 under the gate with tau 3, kappa 0, all four blocks",
        statements=(
            at("gated_full", T3, "Acc (S1)", 85.98),
            at("accuracy_degradation", "Adpt tau=3, kappa=0", "L4 Acc (%)", 87.66),
            at("in_text", "L4, D128, Adpt tau=3, kappa=0", "d=4", 87.06),
        ),
        ours="85.98 as Stage 1, 87.66 as Stage 2 with TTA; the truncation's 87.06 is of neither.",
    ),
    Contradiction(
        kind="number",
        name="one-block-of-d128",
        what="D128, tau 3, kappa 0, predicting from the first block, which learns alone at any depth",
        statements=(
            at("in_text", "L4, D128, Adpt tau=3, kappa=0", "d=1", 87.40),
            at("depth_truncation_L8", "Adpt tau=3, kappa=0", "d=1", 78.52),
        ),
        ours="78.52; the first block sees no other, so that depth cannot make nine points.",
    ),
    Contradiction(
        kind="number",
        name="conditions-of-the-correlation",
        what="Conditions at L4 and L8 that the correlation of free-riding and accuracy is over",
        statements=(
            said("fig:accuracy_vs_ratio", "all 15"),
            said("sec:gated_full", "nine rows at L4"),
            said("tab:L8_sep", "nine rows at L8"),
        ),
        ours="Six gates at L4 and nine rules at L8 make 15, but give r = -0.31, not the -0.49 printed.",
    ),
)

LABELS = (
    Contradiction(
        kind="label",
        name="kappa-0-of-four-blocks",
        what="L4/D128 under the gate with tau 1, kappa 0, seed 42",
        statements=(
            at("gated_full", K0_CUMULATIVE, "Acc (S1)", 85.87),
            at("gated_k0_multiseed", "L4, D128, 42", "S2 (TTA)", "85.87"),
            at("accuracy_degradation", K0, "L4 Acc (%)", 87.20),
        ),
        ours="85.87 as Stage 1. The mean of 86.69 takes it in as Stage 2 with TTA, beside 87.23 and 86.96.",
    ),
    Contradiction(
        kind="label",
        name="constant-and-lcff-of-four-blocks",
        what="L4/D128 under a constant gamma and LCFF: which stage the accuracy is of",
        statements=(
            at("gated_full", "Constant gamma=0.7", "Acc (S1)", 86.17),
            at("dissociation_full", "L4, D128, Constant gamma=0.7", "Test (S2 TTA)", "86.17"),
            at("gated_full", "LCFF (gamma=1.0)", "Acc (S1)", 85.79),
            at("dissociation_full", "L4, D128, LCFF gamma=1.0", "Test (S2 TTA)", "85.79"),
        ),
        ours="Stage 1, so the table that sets them beside the gate's Stage 2 compares two things.",
    ),
    Contradiction(
        kind="label",
        name="best-of-eight-blocks",
        what="Which rule is the most accurate at L8/D128",
        statements=(
            said("sec:gated_L8", "gamma = 0"),
            at("L8_sep", "gamma=0 (no collab)", "Acc (TTA)", 87.21),
            at("L8_sep", T3, "Acc (TTA)", 87.26),
            said("sec:gated_L8_gpos", "kappa 2 on the previous block, with 87.30 as Stage 2"),
            at("L8_sep", PREVIOUS2, "Acc (TTA)", 87.02),
            at("depth_truncation_L8", "Adpt prev-only kappa=2", "d=8", 87.30),
        ),
        ours="tau 3, kappa 0 in L8_sep; the 87.30 is Stage 1 of the truncation.",
    ),
    Contradiction(
        kind="label",
        name="worst-of-eight-blocks",
        what="Which rule is the least accurate at L8/D128",
        statements=(
            said("app:gated_full", "kappa 0, with 86.88"),
            at("L8_sep", K0_CUMULATIVE, "Acc (TTA)", 86.88),
            at("L8_sep", "LCFF (gamma=1.0)", "Acc (TTA)", 86.79),
            at("L8_sep", "Adpt tau=1, kappa=2 (cumul)", "Acc (TTA)", 86.62),
        ),
        ours="kappa 2.",
    ),
    Contradiction(
        kind="label",
        name="test-or-validation-of-the-gates",
        what="Which images the gates' accuracies are shares of",
        statements=(
            said("fig:accuracy_vs_ratio", "test images, 10,000"),
            said("tab:accuracy_degradation and tab:depth_truncation_L8", "all multiples of 0.02 %: shares of 5,000"),
        ),
        ours="We compare with our test accuracy, and say so: the paper's may be the validation images'.",
    ),
    Contradiction(
        kind="label",
        name="severity-of-free-riding",
        what="L4/D128: which run rides more for free",
        statements=(
            at("dissociation_full", "L4, D128, Constant gamma=0.7", "Free-riding", "Moderate"),
            at("dissociation_full", "L4, D128, Constant gamma=0.7", "sep_cur_nl (deep)", 0.74),
            at("dissociation_full", "L4, D128, LCFF gamma=1.0", "Free-riding", "Severe"),
            at("dissociation_full", "L4, D128, LCFF gamma=1.0", "sep_cur_nl (deep)", 0.94),
        ),
        ours="By the measure: the constant gamma.",
    ),
    Contradiction(
        kind="label",
        name="sep-of-all-blocks",
        what="sep_nl",
        statements=(
            said("eq:diagnostics", "a mean margin of summed goodness, to the worst label"),
            at("freeriding", "gamma=0 (purely local, validation-selected)", "sep_nl (L3)", 0.995),
            said("app:gated_full", "0.918 misses about 8 % of examples: a rate"),
        ),
        ours="Both measures: `sep`, the margin, and `sep_rate`, which the tables print.",
    ),
    Contradiction(
        kind="label",
        name="sep-of-one-block",
        what="sep_cur_nl",
        statements=(
            said("eq:diagnostics", "positive goodness minus the worst wrong label's"),
            at("gated_full", "gamma=0 (no collab)", "sep_cur_nl L0", 1.16),
            at("gated_full", "gamma=0 (no collab)", "g+_cur L0", 1.70),
            at("gated_full", "gamma=0 (no collab)", "g-_cur L0", 0.54),
        ),
        ours="Both measures: `sep_cur`, worst label, and `sep_cur_mined`, which the tables print (g+ minus g-).",
    ),
)

CONTRADICTIONS: tuple[Contradiction, ...] = NUMBERS + LABELS + CLAIMS + SETTINGS + CITED
"""All of them."""

HEADINGS: dict[Kind, str] = {
    "number": "Numbers with two values",
    "label": "Values with two labels",
    "claim": "Sentences that the tables do not bear out",
    "setting": "Settings told in two ways",
    "cited": "Cited work told otherwise than it tells itself",
}


def of_table(label: str) -> list[Contradiction]:
    """Those that have to do with a number of this table."""
    cited = ((one, statement.cell) for one in CONTRADICTIONS for statement in one.statements)
    return list(dict.fromkeys(one for one, place in cited if place is not None and place[0] == label))


def in_a_line(one: Contradiction) -> str:
    """For the foot of a table: what is said, without the places."""
    said_of_it = " / ".join(dict.fromkeys(_says(statement) for statement in one.statements))
    return f"Contradiction *{one.name}*, {one.what}: {said_of_it}. We take: {one.ours}"


def as_page() -> str:
    """All of them as a page of Markdown."""
    cited = sum(one.kind == "cited" for one in CONTRADICTIONS)
    intro = (
        f"Where the paper says two things ({len(CONTRADICTIONS) - cited} places), or another thing than the work that "
        f"it cites ({cited}), found when its numbers were entered and its system was built. Each statement has its "
        "place: a table's label with row and column, or a section's, figure's or equation's label. What we take is in "
        "the last column; `goodness paper TABLE` names those of a table, by the names in brackets."
    )
    lines = ["# Where the paper contradicts itself, or what it cites", "", intro]
    for kind, heading in HEADINGS.items():
        lines += ["", f"## {heading}", "", "| of what | the paper says | we take |", "|---|---|---|"]
        for one in (one for one in CONTRADICTIONS if one.kind == kind):
            says = "<br>".join(_statement(statement) for statement in one.statements)
            lines.append(markdown_line((f"{one.what} (*{one.name}*)", says, one.ours)))
    return "\n".join(lines) + "\n"


def _statement(one: Statement) -> str:
    """`91.36: tab:multiseed, 42, S1 (TTA)`."""
    if one.cell is None:
        return f"{_says(one)}: {one.where}"
    label, row, column = one.cell
    table = "in the text" if label == "in_text" else f"tab:{label}"
    return f"{_says(one)}: {table}, {row}, {column}"


def _says(one: Statement) -> str:
    return str(one.says) if one.cell is None else cell(*one.cell).printed
