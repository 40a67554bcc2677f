"""The paper's tables: where each stands, and in one sentence of ours what it shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table of the paper, or a figure or the text where numbers are printed that no table has."""

    label: str
    """Its key in numbers.csv: the paper's label without `tab:`, a name of ours where the paper gives none."""
    caption: str
    section: str
    """The paper's number of the section; empty for `in_text`."""
    number: int | None = None
    """Which table of the paper it is, counted through main text and appendix; None if it is no table."""
    where: str
    """How the paper labels it, or the section it stands in."""


def _table(number: int | None, section: str, label: str, caption: str, where: str = "") -> Table:
    return Table(label=label, caption=caption, section=section, number=number, where=where or f"tab:{label}")


TABLES: tuple[Table, ...] = (
    _table(1, "4.2", "main_results", "Five variants on CIFAR-10, Stage 1, with and without TTA."),
    _table(2, "4.4", "bp_ff_ablation", "Backpropagation against FF on a plain CNN and on the FF backbone, CIFAR-10."),
    _table(3, "4.4", "main_dissociation", "CIFAR-100: three rules, health of the deepest block against accuracy."),
    _table(4, "A", "assumption_coverage", "Mean margins and attenuation per block on 1,024 test images, L4/D128."),
    _table(5, "B.1", "full_config", "How the thirteen variants differ; a dash is the default, first row."),
    _table(6, "B.2", "aug_recipes", "Augmentation of FF's Stage 1 and of the strong BP control."),
    _table(7, "B.2", "code_paper_map", "Names in the paper's code, and the letters for them in its text."),
    _table(8, "B.3", "full_main_results", "All thirteen variants on CIFAR-10, Stage 1."),
    _table(9, "B.3", "related_work", "Earlier FF methods on CIFAR-10: network, training and accuracy."),
    _table(10, "B.3", "related_work_3ds", "Earlier FF methods on CIFAR-10, CIFAR-100 and Tiny ImageNet."),
    _table(11, "B.4", "multiseed", "cp-fair over four seeds, both stages."),
    _table(12, "B.4", "gamma0_multiseed", "gamma = 0 over three seeds, both stages."),
    _table(13, "B.4", "gated_k0_multiseed", "The gate with kappa = 0 over three seeds, four and eight blocks of D128."),
    _table(
        14, "C.1", "gamma_sweep", "Separation and positive goodness per block under three gammas, L4/D256.", "sec. C.1"
    ),
    _table(
        15,
        "C.2",
        "gated_full",
        "Nine rules at L4/D128: separation and goodness per block, Stage 1.",
        "sec:gated_full",
    ),
    _table(16, "C.3", "L8_sep", "Nine rules at L8/D128: separation per block, ratio of goodness, accuracy."),
    _table(17, "C.3.1", "L8_gpos", "The six gates at L8/D128: positive goodness per block."),
    _table(18, "C.3.2", "depth_comparison", "Deepest block's goodness over the first's, four blocks against eight."),
    _table(19, "C.3.2", "accuracy_degradation", "The six gates' accuracy after Stage 2, four blocks against eight."),
    _table(20, "C.3.3", "depth_truncation_L8", "The six gates at L8/D128, predicting from the first d blocks."),
    _table(21, "C.4", "cifar100_metrics", "CIFAR-100 baseline (gamma = 0.7, 32 experts), per block, seed 42."),
    _table(22, "C.4", "cifar100_multiseed", "CIFAR-100 baseline over three seeds, both stages."),
    _table(23, "C.4", "cifar100_dissociation_multiseed", "CIFAR-100: three rules, health and accuracy, three seeds."),
    _table(24, "C.4", "cifar100_comparison", "Earlier FF methods on CIFAR-100, and the paper's gamma = 0."),
    _table(25, "C.5", "tiny_imagenet_multiseed", "Tiny ImageNet under gamma = 0 over three seeds."),
    _table(
        26, "C.5", "tiny_imagenet_config", "Settings of gamma = 0 on CIFAR-10 and Tiny ImageNet, and seed 42's results."
    ),
    _table(27, "D", "per_class", "Accuracy per class of CIFAR-10, seven variants, Stage 1 with TTA."),
    _table(28, "E.1", "hnm_ksweep", "cp-fair under other numbers of candidates and kinds of negatives."),
    _table(29, "E.2", "aspect_ema_ablation", "cp-fair with one aspect's loss alone, and without the moving average."),
    _table(30, "F", "dissociation", "CIFAR-100: three rules, health and accuracy of both stages."),
    _table(31, "F", "freeriding", "Signs of free-riding under three gammas, L4/D256, CIFAR-10."),
    _table(32, "F", "dissociation_full", "Deepest separation against accuracy over scales and data sets."),
    _table(33, "F", "gated", "Four rules at L4/D128: separation and positive goodness per block."),
    _table(34, "F", "paired_dissociation", "CIFAR-100: pairs of rules, paired bootstrap and changed predictions."),
    _table(35, "F", "dissociation_ci", "CIFAR-100: pairs of rules, ratio of health and interval of the difference."),
    _table(36, "G", "component_ablation", "cp-fair with one part less."),
    _table(37, "H", "text_domain_full", "FF blocks on frozen BERT embeddings, three text data sets."),
    _table(38, "I.1", "efficiency", "Parameters, seconds per epoch and activations, BP against FF."),
    _table(None, "J", "loss_decomposition", "The weights in the diagram of a block's loss.", "fig:loss_decomposition"),
    _table(None, "", "in_text", "Numbers printed in the text or in a figure's caption alone.", "text"),
)
