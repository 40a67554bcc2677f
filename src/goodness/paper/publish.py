"""Publish a pool: every finished run as a few small files, and the tables, figures and verdicts that follow from them.

What is published is a pool itself: `Pool` reads it as it reads the runs. It has no weights and no scores, only what
was predicted. It is built beside its place and put there whole, so that a failure leaves what was there before. Only
files that it writes itself are replaced: a user's own stay, links too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goodness.durable import copy_contents, read_json, remove_tree
from goodness.errors import DAMAGE, RunError, UserError
from goodness.paper import reduced
from goodness.paper.exchange import BUILDING, alone_with, beside, is_free, put_in_place
from goodness.paper.pool import Need, Pool, Stage1Alone, refuse_two_trainings, stage_2, weights, what_lies_in
from goodness.paper.published_page import make_way, require_folder, write_page
from goodness.paper.same_data import SameData
from goodness.paper.scales import Scale
from goodness.runs.consistency import refuse_mixed_files
from goodness.runs.predictions import PREDICTED, VIEWS, packed, read_predicted
from goodness.runs.run import Run, about_backbone, environment_of
from goodness.runs.run_folder import RunFolder
from goodness.sweep.cell import CellFolder
from goodness.sweep.collect import are_versions
from goodness.sweep.published import PUBLISHED, SEALED, about_publication, is_published, seal_of
from goodness.sweep.theory import THEORY, examples_kept, has_theory, is_kept, kept_theory
from goodness.training.signals import as_interrupts

NOT_PUBLISHED: Mapping[str, str] = {
    "weights": "too large",
    "scores of the classes": "too large; what was predicted under each view is in predicted.npz",
    "measures of the blocks at every epoch": f"of a long run at {reduced.MOST_EPOCHS} epochs, and without what no "
    "table or figure reads",
}
"""What a published run lacks, and why."""

FILES = (
    *("config.json", "environment.json", "result.json", "metrics.jsonl", "health.json", "backbone.json"),
    *(THEORY, PREDICTED, PUBLISHED),
)
"""What is written of a stage. All else in its folder is the user's."""


@dataclass(frozen=True)
class Published:
    """What was written."""

    folder: Path
    scale: str
    runs: tuple[Need, ...]
    """Those of the pools, new or again."""
    kept: tuple[Need, ...]
    """Those that were published before and are in none of the pools."""
    left_out: Mapping[str, str]
    """Folders of the pools that were not published, and why."""
    earlier: tuple[str, ...] = ()
    """Folders published before, of runs or of their Stage 2, that the scale or the preset of today does not ask for;
    they stay, read by nothing."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Folders published before that gave way to another training, and what they had that it has not."""
    removed: Mapping[str, str] = field(default_factory=dict)
    """Folders of a published Stage 2 that went when its run was published again without it, and why."""

    @property
    def size(self) -> int:
        """Bytes of the whole folder."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())


@dataclass
class _Gathered:
    """The finished runs of several pools: which pools have each. Those of one run are the same training."""

    scale: Scale
    where: dict[Need, list[Pool]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def publish(
    pools: Sequence[str | Path],
    out: str | Path,
    *,
    scale: Scale | None = None,
    mixed_versions: bool = False,
    figures: bool = True,
) -> Published:
    """Publish the finished runs of these pools in a folder; runs that it has and they have not stay there.

    The scale is that of the runs. Runs that the pool would not average are refused, and so is a folder of other things.
    Where sources have the same training of a run, Stage 2 and the check of the theorems come from any that has them.
    """
    if not pools:
        raise UserError("name the folder of runs: goodness publish runs/paper/short --out results/paper-short")
    given = Path(out)
    sources = [Path(one) for one in pools]
    for folder in sources:
        if not folder.is_dir():
            raise UserError(f"there is no folder of runs {folder}; goodness reproduce makes one")
    try:
        out = given.resolve()
    except (RuntimeError, OSError) as trouble:  # a link to itself
        raise UserError(f"{given} leads nowhere ({trouble}); choose another --out") from None
    with as_interrupts(), alone_with(out):
        return _publish(sources, given, out, scale, mixed_versions, figures)


def _publish(
    sources: Sequence[Path], given: Path, out: Path, scale: Scale | None, mixed_versions: bool, figures: bool
) -> Published:
    known = _publication(out)
    mixed_versions = mixed_versions or bool(known and known.get("mixed_versions"))
    gathered = _gather(sources, scale, mixed_versions)
    if known is not None and known["scale"] != gathered.scale.name:
        raise UserError(f"{out} is a publication at the scale {known['scale']}, these runs are {gathered.scale.name}")
    building = beside(out, BUILDING)
    try:
        if known is not None:
            copy_contents(out, building, as_they_are=True)
        building.mkdir(exist_ok=True)
        before = Pool(out, gathered.scale, mixed_versions)
        replaced = _replaced(before, gathered)
        for need, having in gathered.where.items():
            old = before.run(*need)
            _publish_cell([*having, before] if old is not None and not flaw(old) else having, need, building)
        removed = _removed(before, building, [need for need in gathered.where if need not in replaced])
        _write(building / PUBLISHED, {"scale": gathered.scale.name, "mixed_versions": mixed_versions})
        whole = Pool(building, gathered.scale, mixed_versions)
        _refuse_what_does_not_belong_together(whole)
        needs, earlier = _read_and_not(whole)
        name = given.name if given.is_absolute() else given.as_posix()
        write_page(whole, name, figures=figures, earlier=earlier)
        put_in_place(building, out)
    finally:
        remove_tree(building)
    kept = tuple(need for need in needs if need not in gathered.where)
    return Published(
        out,
        gathered.scale.name,
        tuple(gathered.where),
        kept,
        gathered.left_out,
        tuple(earlier),
        {before.cell(*need).folder_name: gone for need, gone in replaced.items()},
        removed,
    )


# Which runs


def _removed(before: Pool, now: Path, needs: Iterable[Need]) -> dict[str, str]:
    """Folders of a Stage 2 that were there before and are not any more, and why."""
    found: dict[str, str] = {}
    for need in needs:
        name = _readout_of(before, need)
        if (before.path / name / "config.json").is_file() and not (now / name / "config.json").is_file():
            found[name] = _flaw_of_stage_2(before, need)
    return found


def _replaced(before: Pool, gathered: _Gathered) -> dict[Need, str]:
    """Published runs that give way to another training of theirs, and what goes with them."""
    found: dict[Need, str] = {}
    for need, pools in gathered.where.items():
        old, new = before.run(*need), pools[0].run(*need)
        if old is None or new is None or weights(old) == weights(new):
            continue
        has_next = any((second := stage_2(pool, need)) and not flaw(second) for pool in pools)
        gone = ["its Stage 2"] if stage_2(before, need) and not has_next else []
        if has_theory(old) and all(_flaw_of_check(run) for pool in pools if (run := pool.run(*need))):
            gone.append("its check of the theorems")
        found[need] = " and ".join(gone)
    return found


def _publication(out: Path) -> dict[str, Any] | None:
    """What an older publication in this folder says of itself; None where nothing lies there."""
    if is_free(out):
        return None
    if not is_published(out):
        raise UserError(f"{out} holds other things than a publication; choose another --out")
    known = about_publication(out)
    if "scale" not in known:
        raise UserError(f"{out} is a single published run; --out is the folder of a whole publication")
    return known


def _gather(folders: Sequence[Path], scale: Scale | None, mixed_versions: bool) -> _Gathered:
    found: list[tuple[Path, Scale, Need]] = []
    left_out: dict[str, str] = {}
    for folder in folders:
        for cell, what in _cells_in(folder, scale):
            if what is None:
                left_out[cell.name] = "no run of the paper's at any scale"
            else:
                found.append((folder, *what))
    scales = dict.fromkeys(one.name for _, one, _ in found)
    if not found:
        raise UserError(f"{' and '.join(map(str, folders))} hold no run of the paper's; goodness reproduce makes them")
    if len(scales) > 1:
        raise UserError(f"the runs are of the scales {' and '.join(scales)}; publish each into a folder of its own")
    gathered = _Gathered(found[0][1], left_out=left_out)
    for folder, one, need in found:
        pool = Pool(folder, one, mixed_versions)
        here, name = pool.look(*need), pool.cell(*need).folder_name
        if why := here.why if here.run is None else flaw(here.run):
            left_out[name] = why
            continue
        if why := _flaw_of_stage_2(pool, need):
            left_out[f"{name}, Stage 2"] = why
        if here.run is not None and is_kept(here.run) and (why := _flaw_of_check(here.run)):
            left_out[f"{name}, check of the theorems"] = why
        others = gathered.where.setdefault(need, [])
        for other in others:
            refuse_two_trainings(other, pool, need)
        others.append(pool)
    if not gathered.where:
        which, why = next(iter(left_out.items()))
        raise UserError(
            f"no run in {' and '.join(map(str, folders))} is finished and whole ({which}: {why}); there is nothing to "
            "publish"
        )
    return gathered


def flaw(run: Run) -> str:
    """What a finished stage lacks of what is published of it; empty where it is whole."""
    folder, epochs = RunFolder(run.path, None), run.result["epochs"]
    try:
        lines = run.metrics
        if len(lines) != epochs:
            return f"its metrics.jsonl has {len(lines)} of {epochs} epochs"
        parts: dict[Path, Callable[[], Any]] = {
            folder.metrics_path: lambda: reduced.metrics(lines),
            folder.result_path: lambda: run.result,
            folder.environment_path: lambda: reduced.environment(environment_of(run)),
        }
        if run.stage == "s1":
            parts[folder.health_path] = lambda: reduced.health(read_json(folder.health_path))
        for path, part in parts.items():
            if not _can_be_written(part):
                return f"{path} is damaged: it has what no run writes, or a number that is not finite"
        if run.stage == "s2":
            about_backbone(run.path)
        refuse_mixed_files(run)
    except (RunError, UserError, OSError) as trouble:
        return str(trouble)
    except DAMAGE:
        return f"a file in {run.path} is damaged"
    return ""


def _can_be_written(part: Callable[[], Any]) -> bool:
    try:
        json.dumps(part(), allow_nan=False)
    except DAMAGE:
        return False
    return True


def _flaw_of_check(run: Run) -> str:
    """Why the check of the theorems that a run keeps cannot be published, or that it keeps none; empty where it can."""
    found = kept_theory(run)
    if isinstance(found, str):
        return found
    return "" if _can_be_written(lambda: reduced.theory(found)) else f"{run.path / THEORY} is damaged"


def _flaw_of_stage_2(pool: Pool, need: Need) -> str:
    """The same of the Stage 2 that lies beside a run, of other settings too; empty where there is none."""
    second = stage_2(pool, need)
    if second is not None:
        return flaw(second)
    return pool.look(*need, readout=True).why if _has_another_stage_2(pool, need) else ""


def _has_another_stage_2(pool: Pool, need: Need) -> bool:
    """Whether what lies beside a run is no Stage 2 that is asked for today."""
    return isinstance(pool.run(*need), Stage1Alone)


def _readout_of(pool: Pool, need: Need) -> str:
    """Its folder in the pool."""
    path = CellFolder(pool.path / pool.cell(*need).folder_name).readout.path
    return path.relative_to(pool.path).as_posix()


def _cells_in(folder: Path, scale: Scale | None) -> Iterator[tuple[Path, tuple[Scale, Need] | None]]:
    """Every cell's folder, and what lies in it."""
    for cell in sorted(folder.iterdir()):
        if (cell / "cell.json").is_file():
            yield cell, what_lies_in(cell, scale)


def _read_and_not(pool: Pool) -> tuple[list[Need], list[str]]:
    """The runs that a publication reads, and the folders in it that it does not: of settings that have changed."""
    needs: list[Need] = []
    earlier: list[str] = []
    for cell, what in _cells_in(pool.path, pool.scale):
        if what is None or pool.run(*what[1]) is None:
            earlier.append(cell.name)
        else:
            needs.append(what[1])
            earlier += [_readout_of(pool, what[1])] if _has_another_stage_2(pool, what[1]) else []
    return needs, earlier


def _refuse_what_does_not_belong_together(pool: Pool) -> None:
    """What the pool would not hold together is not published together."""
    same = SameData(pool)
    for preset in dict.fromkeys(what[1][0] for _, what in _cells_in(pool.path, pool.scale) if what is not None):
        seeds = pool.seeds(preset)
        trouble = pool.trouble(preset, seeds) or pool.trouble(preset, seeds, readout=True)
        if trouble:
            can_accept = are_versions(trouble) and not pool.mixed_versions
            accept = "accept it with --mixed-versions, or " if can_accept else ""
            raise UserError(
                f"the runs of {preset} are not of one kind ({trouble}); {accept}publish them in another folder"
            )
        for seed in seeds:
            if why := same.difference(preset, seed):
                raise UserError(f"{preset}, seed {seed}, has {why}; publish them in another folder")


# One run


def _publish_cell(pools: Sequence[Pool], need: Need, target: Path) -> None:
    """A run as the first pool has it, and what that lacks from others that have the same training; all of them have it
    whole, if not its Stage 2."""
    runs = [(pool, run) for pool in pools if (run := pool.run(*need)) is not None]
    first = runs[0][1]
    same = [(pool, run) for pool, run in runs if weights(run) == weights(first)]
    checked = max(
        (run for _, run in same if not _flaw_of_check(run)), key=examples_kept, default=None
    )  # the first of equals
    readout = next((found for pool, _ in same if (found := stage_2(pool, need)) and not flaw(found)), None)
    cell = pools[0].cell(*need, readout=readout is not None)
    place = CellFolder(target / cell.folder_name)
    _clear(place)
    place.write(cell)
    if CellFolder(first.path.parent).shared_path.exists():
        place.mark_shared()
    _publish_run(first, place.run.path)
    if checked is not None:
        _write(place.run.path / THEORY, reduced.theory(read_json(checked.path / THEORY)), indent=None)
    seal(place.run.path)
    if readout is not None:
        _publish_run(readout, place.readout.path)
        seal(place.readout.path)


def _clear(place: CellFolder) -> None:
    """Remove what was published of a cell before."""
    stages = (place.readout.path, place.run.path)
    for folder in (place.path, *stages):
        require_folder(folder)
    for file in (place.cell_path, place.shared_path, *(stage / name for stage in stages for name in FILES)):
        make_way(file)
    for folder in (*stages, place.path):
        with contextlib.suppress(OSError):  # something of the user's is in it, or it is not there
            folder.rmdir()


def _publish_run(run: Run, target: Path) -> None:
    """The small files of one stage."""
    target.mkdir(exist_ok=True)
    if is_published(run.path):
        for file in (run.path / name for name in FILES):
            if file.is_file():
                shutil.copyfile(file, target / file.name)
        return
    folder = RunFolder(run.path, None)
    _write(target / "config.json", read_json(folder.config_path))
    _write(target / "environment.json", reduced.environment(environment_of(run)))
    _write(target / "result.json", run.result, indent=None)
    lines = [json.dumps(line, separators=(",", ":")) + "\n" for line in reduced.metrics(run.metrics)]
    (target / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    if folder.health_path.is_file():
        _write(target / "health.json", reduced.health(read_json(folder.health_path)), indent=None)
    if folder.backbone_path.is_file():
        _write(target / folder.backbone_path.name, {**about_backbone(run.path), "run": ".."})
    views = {view: folder.predictions_path(view) for view in VIEWS if folder.predictions_path(view).is_file()}
    (target / PREDICTED).write_bytes(packed({view: read_predicted(run, view) for view in views}))
    hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in views.values()}
    _write(target / PUBLISHED, {"sha256": hashes, "not_published": dict(NOT_PUBLISHED)})


def seal(target: Path) -> None:
    """Write down which files were published together."""
    there = [target / name for name in FILES if name != PUBLISHED and (target / name).is_file()]
    hashes = {file.name: seal_of(file) for file in there}
    _write(target / PUBLISHED, {**about_publication(target), SEALED: hashes})


def _write(path: Path, value: Any, indent: int | None = 2) -> None:
    separators = (",", ":") if indent is None else None
    make_way(path)
    text = json.dumps(value, indent=indent, separators=separators, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8")
