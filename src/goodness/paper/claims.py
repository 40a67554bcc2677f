"""Sentences of the paper that its tables do not bear out, settings told in two ways, and cited work told otherwise."""

from __future__ import annotations

from goodness.paper.statements import Contradiction, at, said

K0_CUMULATIVE, K2_CUMULATIVE = "Adpt tau=1, kappa=0 (cumul)", "Adpt tau=1, kappa=2 (cumul)"
PREVIOUS0, PREVIOUS2 = "Adpt tau=1, kappa=0 (prev)", "Adpt tau=1, kappa=2 (prev)"
LOCAL_GATED, LOCAL_CUMULATIVE, GATED_CUMULATIVE = (
    "gamma=0 vs. kappa=0",
    "gamma=0 vs. cumulative",
    "kappa=0 vs. cumulative",
)
RIGHT, WRONG = "Flips, a right, b wrong, seed 42", "Flips, a wrong, b right, seed 42"
LATER_RIGHT, LATER_WRONG = "Flips, a right, b wrong, seed 456", "Flips, a wrong, b right, seed 456"
DEEPER, TRIPLED = "Sun et al. (2025), 17-layer ResNet", "Sun et al. (2025), 17-layer ResNet-CHx3 (3× ch.)"

CLAIMS = (
    Contradiction(
        kind="claim",
        name="balanced-flips",
        what="CIFAR-100: predictions that go from right to wrong and from wrong to right",
        statements=(
            said("prop:prediction_stability, app:gated_full", "within about 10 % of each other on every seed"),
            at("paired_dissociation", LOCAL_GATED, RIGHT, 256),
            at("paired_dissociation", LOCAL_GATED, WRONG, 226),
            at("paired_dissociation", LOCAL_CUMULATIVE, RIGHT, 294),
            at("paired_dissociation", LOCAL_CUMULATIVE, WRONG, 257),
            at("paired_dissociation", GATED_CUMULATIVE, LATER_RIGHT, 365),
            at("paired_dissociation", GATED_CUMULATIVE, LATER_WRONG, 330),
        ),
        ours="Within 15 %.",
    ),
    Contradiction(
        kind="claim",
        name="health-of-the-pairs",
        what="CIFAR-100: how far the deepest separation differs between two rules",
        statements=(
            said("caption of tab:paired_dissociation", "4 to 5 times in the same pairs"),
            at("dissociation_ci", LOCAL_GATED, "Diag. ratio", 2.79),
            at("dissociation_ci", LOCAL_CUMULATIVE, "Diag. ratio", 4.97),
            at("dissociation_ci", GATED_CUMULATIVE, "Diag. ratio", 1.78),
        ),
        ours="The table of ratios: 4 to 5 times in one pair of three.",
    ),
    Contradiction(
        kind="claim",
        name="gain-per-block",
        what="L8/D128: what each further block adds",
        statements=(
            said("tab:depth_truncation_L8, app:gated_full", "1 to 2 points each"),
            at("depth_truncation_L8", "Adpt tau=1, kappa=0", "d=1", 78.60),
            at("depth_truncation_L8", "Adpt tau=1, kappa=0", "d=2", 82.32),
            at("depth_truncation_L8", "Adpt tau=1, kappa=0", "d=7", 86.82),
            at("depth_truncation_L8", "Adpt tau=1, kappa=0", "d=8", 86.96),
        ),
        ours="From 3.7 points for the second block down to 0.1 for the eighth.",
    ),
    Contradiction(
        kind="claim",
        name="most-damaging-removal",
        what="cp-fair: the single change that costs most (points, Stage 2, TTA)",
        statements=(
            said("caption of tab:aspect_ema_ablation, fig:aspect_ema_ablation", "removing EMA is the most damaging"),
            at("aspect_ema_ablation", "No EMA teacher (eval-EMA also disabled)", "Delta (pp)", -0.34),
            said("sec:hnm_deep_dive", "NI-only is the largest single drop in either ablation set"),
            at("hnm_ksweep", "NI only (wrong-image neg.)", "Delta (pp)", -0.87),
            at("component_ablation", "Hard negative mining → random neg.", "Delta (pp)", -0.45),
            at("component_ablation", "Multi-aspect → single aspect", "Delta (pp)", -0.41),
        ),
        ours="The numbers: within its own table alone, EMA.",
    ),
    Contradiction(
        kind="claim",
        name="monotonic-goodness",
        what="L8/D128: goodness that is called monotonic over depth",
        statements=(
            at("L8_gpos", PREVIOUS0, "Pattern", "Monotonic ↑"),
            at("L8_gpos", PREVIOUS0, "g+_cur L6", 3.93),
            at("L8_gpos", PREVIOUS0, "g+_cur L7", 3.91),
            at("L8_gpos", K2_CUMULATIVE, "Pattern", "Monotonic ↑"),
            at("L8_gpos", K2_CUMULATIVE, "g+_cur L0", 1.69),
            at("L8_gpos", K2_CUMULATIVE, "g+_cur L1", 1.57),
        ),
        ours="The numbers: both fall once.",
    ),
    Contradiction(
        kind="claim",
        name="monotonic-separation",
        what="L8/D128: separation that is called monotonic over depth",
        statements=(
            said("sec:gated_L8, fig:scaling_L8", "kappa 0 and gamma = 0 rise from block to block"),
            at("L8_sep", K0_CUMULATIVE, "sep_cur_nl L2", 4.71),
            at("L8_sep", K0_CUMULATIVE, "sep_cur_nl L3", 4.43),
            at("L8_sep", "gamma=0 (no collab)", "sep_cur_nl L6", 3.04),
            at("L8_sep", "gamma=0 (no collab)", "sep_cur_nl L7", 3.02),
        ),
        ours="The numbers: both fall once.",
    ),
    Contradiction(
        kind="claim",
        name="only-free-rider-of-eight-blocks",
        what="L8/D128: which rules let the last block ride for free",
        statements=(
            said("sec:gated_L8_gpos", "kappa 2 on the previous block alone"),
            at("L8_sep", PREVIOUS2, "L7/L0", 0.45),
            at("L8_sep", "Constant gamma=0.7", "L7/L0", 0.33),
            at("L8_sep", "LCFF (gamma=1.0)", "L7/L0", 0.07),
        ),
        ours="The only gate; the constant gamma and LCFF more so.",
    ),
    Contradiction(
        kind="claim",
        name="least-loss-with-depth",
        what="Which gates lose least from four blocks to eight",
        statements=(
            said("caption of tab:accuracy_degradation", "kappa 4, and those on the previous block, with -0.18"),
            at("accuracy_degradation", "Adpt prev-only kappa=0", "Delta (pp)", -0.18),
            at("accuracy_degradation", "Adpt prev-only kappa=2", "Delta (pp)", -0.62),
        ),
        ours="kappa 4, and kappa 0 on the previous block.",
    ),
    Contradiction(
        kind="claim",
        name="healthiest-of-four-blocks",
        what="L4/D128: which rule has the healthiest last block",
        statements=(
            said("caption of tab:dissociation_full", "kappa 0, over three seeds"),
            at("dissociation_full", "L4, D128, Adaptive kappa=0 (3 seeds)", "sep_cur_nl (deep)", 2.29),
            at("gated_full", "gamma=0 (no collab)", "sep_cur_nl L3", 2.61),
        ),
        ours="gamma = 0, which the table leaves out at this scale.",
    ),
    Contradiction(
        kind="claim",
        name="peak-of-the-constant-gamma",
        what="L4/D128 under a constant gamma: blocks needed for its best accuracy",
        statements=(
            said("sec:secondary_analysis", "all four"),
            said("sec:secondary_analysis, fig:depth_truncation", "two"),
            at("in_text", "L4, D128, Constant gamma=0.7", "d=2", 87.48),
        ),
        ours="Two, as the figure says.",
    ),
    Contradiction(
        kind="claim",
        name="gamma0-beats-all",
        what="CIFAR-10: gamma = 0 against the other variants",
        statements=(
            said("sec:method", "matches or beats every other"),
            at("full_main_results", "gamma=0 (purely local, validation-selected)", "Test no-TTA", 90.50),
            at("full_main_results", "gamma-ramp", "Test no-TTA", 90.82),
            at("full_main_results", "baseline", "Test no-TTA", 90.69),
            at("full_main_results", "nomem-l2 (ours)", "Test no-TTA", 90.56),
        ),
        ours="It is the best on validation images; on test images all are within a point.",
    ),
    Contradiction(
        kind="claim",
        name="collapse-on-cifar10",
        what="Separation over depth on CIFAR-10 under a constant gamma",
        statements=(
            said("tab:cifar100_metrics", "falls from block to block, unlike on CIFAR-100"),
            at("gated_full", "Constant gamma=0.7", "sep_cur_nl L0", 1.16),
            at("gated_full", "Constant gamma=0.7", "sep_cur_nl L1", 2.16),
            at("gated_full", "Constant gamma=0.7", "sep_cur_nl L3", 0.74),
        ),
        ours="It rises once and then falls, on both data sets.",
    ),
    Contradiction(
        kind="claim",
        name="cat-below-average",
        what="CIFAR-10: how far cats are below the overall accuracy",
        statements=(
            said("sec. D", "12 to 17 points"),
            at("per_class", "Overall", "pfx-frz", 90.95),
            at("per_class", "cat", "pfx-frz", 80.2),
            at("per_class", "Overall", "fixed-nl", 91.15),
            at("per_class", "cat", "fixed-nl", 74.5),
        ),
        ours="10.75 to 16.65 points.",
    ),
    Contradiction(
        kind="claim",
        name="best-with-horses",
        what="CIFAR-10: which variant knows horses best",
        statements=(
            said("tab:per_class", "nomem-l2, in bold"),
            at("per_class", "horse", "nomem-l2", 94.6),
            at("per_class", "horse", "cp-lc", 95.1),
        ),
        ours="cp-fair-lc.",
    ),
    Contradiction(
        kind="claim",
        name="stage-2-on-text",
        what="What Stage 2 adds on IMDb and AG News",
        statements=(
            said("app:textdomain", "0.2 to 1.0 points"),
            at("text_domain_full", "AG News", "Stage-1", 93.38),
            at("text_domain_full", "AG News", "Stage-2", 93.36),
        ),
        ours="0.28 points on IMDb; it takes 0.02 away on AG News.",
    ),
    Contradiction(
        kind="claim",
        name="dead-sharpness",
        what="The sharpness aspect without memory",
        statements=(
            said("app:loss_formulas", "always zero, and no gradient comes from it"),
            at("aspect_ema_ablation", "Attn sharpness only (lambda_2=0.3)", "S2 (TTA)", 91.26),
        ),
        ours="Dead: the row is cp-fair without any aspect loss.",
    ),
    Contradiction(
        kind="claim",
        name="stage-2-of-all-variants",
        what="Over how many variants the mean gain of Stage 2 is taken",
        statements=(
            said("sec:secondary_analysis", "all 13"),
            at("full_config", "gamma-ramp", "Epochs", "200+0"),
            at("full_config", "dp-fair", "Epochs", "362+0"),
        ),
        ours="Two of the 13 have no Stage 2.",
    ),
    Contradiction(
        kind="claim",
        name="dp-fair-complete",
        what="Whether dp-fair is a complete run",
        statements=(
            said("caption of tab:per_class", "one of seven that are"),
            said("tab:full_main_results", "marked as one that is not, for want of Stage 2"),
        ),
        ours="Its Stage 1 is complete.",
    ),
    Contradiction(
        kind="claim",
        name="coverage-of-mining",
        what="Share of the wrong labels that the first draws of mining are expected to reach",
        statements=(
            said("caption of tab:tiny_imagenet_config", "comparable on both data sets"),
            said("caption of tab:tiny_imagenet_config", "about 60 % on CIFAR-10, about 10 % on Tiny ImageNet"),
            at("tiny_imagenet_config", "HNM k", "CIFAR-10 (gamma=0)", "8 → 16"),
            at("tiny_imagenet_config", "HNM k", "Tiny ImageNet", "20 → 40"),
        ),
        ours="The draws as given.",
    ),
)

SETTINGS = (
    Contradiction(
        kind="setting",
        name="sam-of-gamma0",
        what="Whether gamma = 0 learns under SAM",
        statements=(
            said("sec:full_config, app:efficiency", "yes, as all variants"),
            at("tiny_imagenet_config", "SAM", "CIFAR-10 (gamma=0)", "No"),
        ),
        ours="No; `lcff`, `cp-fair` and `gated` do.",
    ),
    Contradiction(
        kind="setting",
        name="memory-and-normalised-tokens",
        what="The default of memory and of L2 normalisation",
        statements=(
            said("sec:method, app:loss_formulas", "memory off, tokens normalised"),
            at("full_config", "default", "Mem", "yes"),
            at("full_config", "default", "Special", "no L2 norm"),
        ),
        ours="The table for `baseline` and its kin, Method for the others.",
    ),
    Contradiction(
        kind="setting",
        name="matched-augmentation",
        what="Whether FF and BP (strong) see the same augmentation",
        statements=(
            said("caption of tab:efficiency", "matched"),
            said("captions of tab:bp_ff_ablation and tab:aug_recipes", "not identical"),
            at("aug_recipes", "RandomResizedCrop scale", "FF-pipeline (Stage-1)", "(0.3, 1.0)"),
            at("aug_recipes", "RandomResizedCrop scale", "BP-strong control", "(0.8, 1.0)"),
        ),
        ours="Two recipes, as in aug_recipes.",
    ),
    Contradiction(
        kind="setting",
        name="size-of-the-stripped-backbone",
        what="Parameters of the stripped backbone under backpropagation",
        statements=(
            said("rows of tab:bp_ff_ablation", "6 to 8 million"),
            at("efficiency", "FF-stripped, BP (strong aug)", "Params", 5.54),
        ),
        ours="Ours has its own count, which `goodness presets` prints.",
    ),
    Contradiction(
        kind="setting",
        name="cifar100-backbone",
        what="The network of gamma = 0 on CIFAR-100",
        statements=(
            said("captions of tab:main_dissociation and tab:cifar100_dissociation_multiseed", "dense, no experts"),
            at(
                "cifar100_comparison",
                "Ours, S1 (strict-local FF backbone)",
                "Backbone",
                "MoE-Transformer, L=4, D=256",
            ),
        ),
        ours="Dense.",
    ),
    Contradiction(
        kind="setting",
        name="history",
        what="What block d inherits",
        statements=(
            said("eq:cum_margin", "gamma times the plain sum of earlier margins"),
            said("app:loss_formulas", "gamma times what block d - 1 had, so that older blocks fade"),
            at("in_text", "L4, D128, Constant gamma=0.7", "g+_total L3", 2.73),
        ),
        ours="The sum, which makes the 2.73: 0.38 + 0.7 (1.71 + 1.10 + 0.55). The other is `history decay`.",
    ),
    Contradiction(
        kind="setting",
        name="weights-written-twice",
        what="lambda_depth and lambda_recon",
        statements=(
            said("eq:total_loss", "weigh their terms in the sum"),
            said("app:loss_formulas", "stand inside the terms too"),
        ),
        ours="Once.",
    ),
    Contradiction(
        kind="setting",
        name="where-wrong-labels-come-from",
        what="Among which labels mining looks for a wrong one",
        statements=(
            said("alg:hnm", "all wrong classes"),
            said("sec:secondary_analysis", "those of the batch, so that large batches have harder ones"),
        ),
        ours="All wrong classes.",
    ),
    Contradiction(
        kind="setting",
        name="epochs-of-stage-2",
        what="How long Stage 2 lasts",
        statements=(
            said("sec:experiments", "20 epochs at most"),
            at("full_config", "fixed-nl", "Epochs", "460+300"),
            at("full_config", "block0-label", "Epochs", "460+300"),
        ),
        ours="20, and 300 for these two.",
    ),
    Contradiction(
        kind="setting",
        name="size-of-stage-2",
        what="Parameters of the Stage-2 readout",
        statements=(
            at("cifar100_comparison", "Ours, S1 + S2 (frozen-feature attentive head)", "Params", "+~1 M"),
            said("fig:stage2_pipeline", "1040 to 1536 features, attention and GEGLU: 18 million by our count"),
        ),
        ours="The diagram; a width of 320 makes about a million.",
    ),
    Contradiction(
        kind="setting",
        name="third-checkpoint-of-the-theorem",
        what="What the run with gamma = 0.7 of the attenuation figures has beside its gamma",
        statements=(
            said("fig:grad_attenuation", "nothing: only gamma differs"),
            said("rows of tab:assumption_coverage", "it is CP-FAIR-style"),
        ),
        ours="Nothing: `d128-cumulative`.",
    ),
    Contradiction(
        kind="setting",
        name="augmentation-of-deeperforward",
        what="DeeperForward's 86.22 on CIFAR-10",
        statements=(
            at("related_work", "Sun et al. (2025)", "Aug.", "RandCrop+Flip"),
            said("notes under tab:related_work", "no augmentation; 88.72 with it"),
        ),
        ours="No augmentation.",
    ),
)

CITED = (
    Contradiction(
        kind="cited",
        name="next-strict-baseline",
        what="The best strictly local FF result below ASGE",
        statements=(
            said("sec. 4.2", "Distance-Forward, 88.20"),
            at("related_work", "Wu et al. (2024)", "Strict FF", "no (OG/DF)"),
            at("related_work", "Sun et al. (2025)", "C10 acc., augmented", 88.72),
        ),
        ours="DeeperForward with augmentation, by the paper's own columns.",
    ),
    Contradiction(
        kind="cited",
        name="who-reports-cifar100",
        what="Which FF works report accuracy on CIFAR-100",
        statements=(
            said("sec:related_work_full", "ASGE and HFF"),
            said(
                "sec:cifar100_metrics", "ASGE and DeeperForward, and CFFM for the first five; Distance-Forward does not"
            ),
            at("related_work_3ds", "Wu et al. (2024)", "CIFAR-100", 59.0),
            at("related_work_3ds", "Sun et al. (2025)", "CIFAR-100", 53.09),
            at("related_work_3ds", "Sarode et al. (2026)", "CIFAR-100", 54.34),
        ),
        ours="Those that related_work_3ds has a number for.",
    ),
    Contradiction(
        kind="cited",
        name="hinton-on-cifar10",
        what="The original FF on CIFAR-10",
        statements=(
            at("related_work", "Hinton (2022)", "C10 acc.", "~70%"),
            at("in_text", "Hinton (2022)", "CIFAR-10", "59–75%"),
            said("DeeperForward, Table 1", 59.00),
        ),
        ours="Quoted as the paper has it, with this note.",
    ),
    Contradiction(
        kind="cited",
        name="trifecta-on-cifar10",
        what="Trifecta on CIFAR-10",
        statements=(
            at("related_work", "Dooms et al. (2024)", "C10 acc.", 83.51),
            at("related_work_3ds", "Dooms et al. (2024)", "CIFAR-10", "~84"),
            said("notes under both tables", "83.51 is DeeperForward's reproduction"),
            said("DeeperForward, Table 1", "not marked as reproduced, only as with backpropagation in blocks"),
        ),
        ours="Quoted as the paper has it, with this note.",
    ),
    Contradiction(
        kind="cited",
        name="size-of-deeperforward",
        what="Parameters of DeeperForward's networks",
        statements=(
            at("cifar100_comparison", DEEPER, "Params", "~5–10 M"),
            at("cifar100_comparison", TRIPLED, "Params", "~15–45 M"),
            said("its code, as uploaded again by others", "30.6 and 275 million in the convolutions"),
        ),
        ours="The code's.",
    ),
    Contradiction(
        kind="cited",
        name="seeds-of-deeperforward",
        what="Over how many runs DeeperForward's 86.22 is taken",
        statements=(
            at("related_work", "Sun et al. (2025)", "Seeds", "n/r"),
            said("DeeperForward, Table 1", "five"),
        ),
        ours="Five.",
    ),
    Contradiction(
        kind="cited",
        name="readout-of-cffm",
        what="How CFFM predicts",
        statements=(
            at("related_work", "Aghagolzadeh and Ezoji (2025)", "Strict FF", "yes"),
            at("cifar100_comparison", "Aghagolzadeh and Ezoji (2025)", "Readout", "FF"),
            said("its code", "a linear head that backpropagation trains on the frozen encoder"),
        ),
        ours="Beside Stage 2, not beside Stage 1.",
    ),
    Contradiction(
        kind="cited",
        name="feedback-in-scff",
        what="SCFF's network",
        statements=(
            at("related_work", "Chen et al. (2025)", "Arch. (approx.)", "conv. + direct feedback"),
            said("its scripts for CIFAR-10", "no way of feedback; a linear readout by backpropagation"),
        ),
        ours="As the scripts have it.",
    ),
    Contradiction(
        kind="cited",
        name="who-reports-tiny-imagenet",
        what="Which FF works report Tiny ImageNet",
        statements=(
            said("sec:related_work_full", "SCFF and this paper alone"),
            said("README of CFFM's code", "CFFM too"),
        ),
        ours="No claim to be the first.",
    ),
    Contradiction(
        kind="cited",
        name="negative-passes",
        what="What the compared methods have in common",
        statements=(
            said("caption of tab:related_work", "positive and negative passes against a goodness per layer"),
            said("their code or papers", "DeeperForward, HFF, ASGE and CFFM have no negative pass"),
        ),
        ours="A goodness per layer.",
    ),
)
