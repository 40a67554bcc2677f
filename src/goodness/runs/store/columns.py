"""The columns of the tables. A new column goes to the END of its list: rows that are there are never rewritten."""

from __future__ import annotations

RUNS = (
    "run",
    "stage",
    "scale",
    "preset",
    "data",
    "seed",
    "epochs",
    "method",
    "method_version",
    "health_version",
    "changes",
    "accuracy",
    "accuracy_tta",
    "top5",
    "top5_tta",
    "val_accuracy",
    "val_accuracy_tta",
    "weights",
    "weights_epoch",
    "blocks",
    "classes",
    "val_images",
    "test_images",
    "parameters",
    "steps",
    "seconds",
    "shared",
    "device",
    "torch",
    "dtype",
    "goodness",
    "commit",
    "commit_is_dirty",
    "source",
    "config_sha256",
    "data_sha256",
    "weights_sha256",
    "val_order",
    "test_order",
    "backbone",
    "batch",
    "started",
)

TERMS = ("aspects", "block", "curr", "supcon", "recon", "balance", "router-z", "depth", "mgc", "diversity", "probe")
TERMS += ("choice",)
"""Loss terms that have a column. Those of the user's own, and later ones, go to `more`."""

TRAINING = (
    "loss",
    *(f"loss_{term}" for term in TERMS),
    "g_pos",
    "sep_cur_mined",
    "sep_rate",
    "attenuation",
    "rule_weight",
    "grad_norm",
    "experts_effective",
    "load_variance",
)
"""What a block's row of epochs.csv has of the training, under the names of metrics.jsonl."""

VALIDATION = ("accuracy", "top5", "sep_cur", "attenuation")
"""The same of the validation images, there as val_NAME."""

EPOCHS = (
    "run",
    "epoch",
    "block",
    "seconds",
    "train_accuracy",
    *(f"val_{name}" for name in VALIDATION),
    *TRAINING,
    "more",
)

ASPECTS = ("align", "energy", "sharpness", "learned")

HEALTH = (
    "sep_cur",
    "sep",
    "sep_cur_mined",
    "sep_rate",
    "attenuation",
    "loss_collapse",
    "g_pos",
    "g_neg",
    "rule_weight",
    "rule_weight_p10",
    "rule_weight_p90",
    "saturation",
    "g_ni",
    "sep_cur_ni",
    "sep_cur_ni_rate",
    "sep_ni",
    "sep_ni_rate",
    "sep_cur_rate",
    "g_worst",
    "evidence",
    "own",
    "inherited",
    "free_riding",
    "sep_cur_mined_rate",
    "sep_mined",
    "residual_ess",
    "sep_stream",
    "sep_stream_rate",
    "g_stream",
    *(f"aspects_{name}_{measure}" for name in ASPECTS for measure in ("weight", "sep")),
    "routing_experts_effective",
    "routing_load_variance",
    "routing_experts_dead",
)
"""Measures of block health, under the names of health.json; nested ones joined by underscores."""

BLOCKS = (
    "run",
    "block",
    "split",
    "images",
    "accuracy_alone",
    "accuracy_first",
    "accuracy_first_tta",
    "accuracy_without",
    "top5_first",
    "top5_first_tta",
    "verdict",
    *HEALTH,
    "more",
)

TABLES = {"runs": RUNS, "epochs": EPOCHS, "blocks": BLOCKS}
KEYS = {"runs": ("run",), "epochs": ("run", "epoch", "block"), "blocks": ("run", "block", "split")}
"""What no two rows of a table have in common."""
EXACT = {name for columns in TABLES.values() for name in columns if "accuracy" in name or "top5" in name} | {"seconds"}
"""Columns whose numbers are not cut to five digits."""
NUMBERS = {
    *("seed", "epochs", "weights_epoch", "blocks", "classes", "val_images", "test_images", "parameters", "steps"),
    *("method_version", "health_version", "shared", "commit_is_dirty"),
    *(set(EPOCHS) | set(BLOCKS) | EXACT) - {"run", "split", "verdict", "more"},
}
"""Columns that are read as numbers or True and False; the others are words."""
