"""Whether the files of a finished run are of one training: its result against its predictions, its epochs and what it
says of its blocks."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import Any

from goodness.durable import is_number, read_json
from goodness.errors import RunError, UserError
from goodness.runs.predictions import PREDICTED, accuracy_of_tests, order_of_tests
from goodness.runs.run import Run, about_backbone
from goodness.runs.run_folder import EPOCHS_SHA256, WEIGHTS_SHA256, RunFolder, epochs_sha256
from goodness.sweep.published import exchanged_file, is_published
from goodness.versions import METHOD_VERSION

VERSIONS = (*METHOD_VERSION, "torch", "parts")
"""What software made a run, as `software_of` tells it; parts are those of the user's own, where it has some."""
ROUNDING = 1e-6
"""By how much two counts of the same images may differ."""
KEPT = 1e-5
"""The same of what a publication keeps of metrics.jsonl, which it rounds."""
VIEWS = {"accuracy": "test", "accuracy_tta": "test_tta"}
"""Where the predictions behind a reported accuracy are."""


def refuse_mixed_files(
    run: Run, backbone: Run | None = None, *, views: Collection[str] = tuple(VIEWS)
) -> dict[str, float]:
    """The reported accuracies of a finished run, all of which its own files bear out; of a Stage 2 also that it was
    trained on this backbone. An error where files of two runs are mixed, or where one is missing."""
    if name := exchanged_file(run.path):
        raise RunError(
            f"{run.path}: {name} is damaged, or not the file that was published with the others; restore it from a copy"
        )
    reported = run.result["reported"]
    scores = {name: _confirmed(run, name) for name in views if name in reported}
    _refuse_other_epochs(run)
    _refuse_other_health(run)
    if backbone is not None:
        _refuse_another_backbone(run, backbone)
    return scores


def has_predictions(run: Run, name: str = "accuracy") -> bool:
    """Whether the predictions behind a reported accuracy are there, sound or not."""
    kept = RunFolder(run.path, None).predictions_path(VIEWS[name])
    return any(file.is_file() for file in (run.path / PREDICTED, kept))


def test_order(run: Run) -> str:
    """A hash of the test images that a finished run was scored on, their labels and their order."""
    try:
        return order_of_tests(run)
    except (UserError, RunError) as trouble:
        raise _of_no_use(run, trouble) from None


def _confirmed(run: Run, name: str) -> float:
    """A reported accuracy that the run's own predictions have too."""
    told = run.result["reported"][name]
    try:
        counted = accuracy_of_tests(run, VIEWS[name])
    except (UserError, RunError) as trouble:
        raise _of_no_use(run, trouble) from None
    if not is_number(told) or abs(told - counted) > ROUNDING:
        raise RunError(f"{run.path}: its result has an {name} of {told}, its predictions {counted:.6g}; {_anew(run)}")
    return told


def _refuse_other_epochs(run: Run) -> None:
    """The epochs are those that result.json was made with, by their hash, where it has one. Where not: they are no
    more than it says, and the last one's accuracy on the validation images is the last weights'. What has no epochs at
    all is told by whoever needs them, and those of a publication are sealed."""
    result, lines = run.result, _lines(run)
    known = result.get(EPOCHS_SHA256)
    if known is not None and lines and not is_published(run.path) and epochs_sha256(lines) != known:
        count = f" ({len(lines)} of {result.get('epochs')} epochs)" if len(lines) != result.get("epochs") else ""
        raise RunError(
            f"{run.path}: its metrics.jsonl is damaged{count}, or of another training than its result.json; "
            f"{_anew(run)}"
        )
    rows = [row for row in result["accuracy"] if _is_of_last_epoch(row)]
    last, epochs = lines[-1].get("epoch") if lines else None, result.get("epochs")
    if isinstance(last, int) and isinstance(epochs, int) and last >= epochs:
        raise RunError(
            f"{run.path}: it has {last + 1} epochs in metrics.jsonl and {epochs} in result.json, so they are of two "
            f"runs; {_anew(run)}"
        )
    if not rows or epochs is None or last != epochs - 1:
        return
    found = lines[-1].get("val")
    line, kept = found.get("accuracy") if isinstance(found, dict) else None, rows[-1].get("top1")
    if is_number(line) and is_number(kept) and abs(line - kept) > KEPT:
        raise RunError(
            f"{run.path}: its last epoch has a validation accuracy of {line:.6g} in metrics.jsonl and of {kept:.6g} in "
            f"result.json, so they are of two runs; {_anew(run)}"
        )


def _refuse_other_health(run: Run) -> None:
    """The report of block health says of which training it is, as result.json does; older ones do not. A report that
    cannot be read is told by whoever needs it."""
    try:
        told = read_json(RunFolder(run.path, None).health_path)
    except RunError:
        return
    found, known = told.get(WEIGHTS_SHA256) if isinstance(told, dict) else None, run.result.get(WEIGHTS_SHA256)
    if found is not None and found != known:
        raise RunError(f"{run.path}: its health.json is of another training than its result.json; {_anew(run)}")


def _lines(run: Run) -> list[dict[str, Any]]:
    try:
        return run.metrics
    except (UserError, RunError, OSError):
        return []


def _is_of_last_epoch(row: Any) -> bool:
    return isinstance(row, dict) and (row.get("split"), row.get("weights"), row.get("tta")) == ("val", "last", False)


def _refuse_another_backbone(readout: Run, backbone: Run) -> None:
    known, here = about_backbone(readout.path).get("trained"), backbone.result.get("weights_sha256")
    if known is not None and known != here:  # older readouts do not say
        raise RunError(
            f"{readout.path} was trained on another run than {backbone.path}, which has other weights; {_anew(readout)}"
        )


def _of_no_use(run: Run, trouble: Exception) -> RunError:
    return RunError(f"{run.path} is finished and its predictions are of no use ({trouble}); {_anew(run)}")


def _anew(run: Run) -> str:
    return f"restore it from a copy, or remove it to train it anew (rm -r {shlex.quote(str(run.path))})"
