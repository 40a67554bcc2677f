"""The sweep itself: cells started, watched, tried a second time and collected, in a folder that can be gone on with."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from goodness import api
from goodness.data.images import fingerprint
from goodness.durable import copy_contents, sync_folder
from goodness.errors import RunError, UserError
from goodness.paths import from_home
from goodness.runs.lock import acquire, release
from goodness.runs.run_folder import choose_device
from goodness.sweep.cell import Cell, CellFolder
from goodness.sweep.collect import Results, collect
from goodness.sweep.engine import STOPPED, Engine, Handle, How, LocalEngine, cores, share_of_cores
from goodness.sweep.plan import (
    LOCK,
    SWEEP,
    Plan,
    default_folder,
    each_once,
    make_cells,
    refuse_another_sweep,
    refuse_other_things,
)
from goodness.sweep.plugins import described, refuse_other_plugins, resume_command
from goodness.sweep.progress import Place, Snapshot
from goodness.sweep.published import is_published
from goodness.sweep.sharing import Fixed, Measured, Seen, Slots
from goodness.sweep.state import (
    Standing,
    difference,
    make_ready,
    record_failure,
    refuse_another,
    set_aside,
    standing,
)
from goodness.sweep.tables import RESULTS, write_results
from goodness.training.loop import Interrupted
from goodness.training.signals import StopRequest

TRIES = 2
"""A cell that fails is tried once more."""
PAUSE = 0.5
"""Seconds between two looks at the cells."""

COMING = ".coming"
"""How the name of a folder ends that is being copied."""

Watcher = Callable[[Snapshot], None]
Choice = Callable[[Sequence[Cell]], Cell]
"""Which of the waiting cells comes next."""
DataKey = tuple[str, int, int | None]
"""A data set and how it is split."""


def sweep(
    names: str | Sequence[str],
    *,
    seeds: Iterable[int] | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    changes: Mapping[str, Any] | None = None,
    scale: str | None = None,
    readout: bool = False,
    device: str = "auto",
    data_dir: str | os.PathLike[str] | None = None,
    plugins: Sequence[str] = (),
    mixed_versions: bool = False,
    engine: Engine | None = None,
    watch: Watcher | None = None,
) -> Results:
    """Train suites and presets over seeds, and return the means: `goodness.sweep("demo", seeds=[1, 2, 3])`.

    The same call again goes on where it was: finished cells are skipped. A cell that fails is tried once more, and then
    shown as missing. `jobs` cells run at once; None is one per core, and on a GPU as many as a measurement says pay.
    """
    names = [names] if isinstance(names, str) else list(names)
    cells = make_cells(names, seeds=seeds, changes=changes, scale=scale, readout=readout)
    folder = Path(out) if out is not None else default_folder(names)
    how = How(device=device, data_dir=_absolute(data_dir), plugins=_absolute_plugins(plugins))
    given, data = described(how.plugins), _checked(cells, how, jobs)
    with _opened(folder):
        known = refuse_another_sweep(folder, cells)
        threads = known.threads if known else _threads(how, jobs, len(cells))
        plan = Plan(
            cells=tuple(cells),
            how=how,
            plugins=given,
            threads=threads,
            mixed_versions=mixed_versions,
            sharing=known.sharing if known else {},
        )
        return _carry_out(plan, folder, data, jobs, engine, watch)


def resume_sweep(
    folder: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    device: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    plugins: Sequence[str] = (),
    mixed_versions: bool = False,
    engine: Engine | None = None,
    watch: Watcher | None = None,
) -> Results:
    """Go on with the sweep in this folder as it was asked for; device and place of the data may be others.

    `plugins` are needed where the sweep began with some: the folder has their names and hashes, and imports none.
    """
    folder = Path(folder)
    plan = Plan.read(folder)
    how = How(
        device=device or plan.how.device,
        data_dir=_absolute(data_dir) or plan.how.data_dir,
        plugins=_absolute_plugins(plugins),
    )
    given, mixed_versions = described(how.plugins), mixed_versions or plan.mixed_versions
    refuse_other_plugins(plan.plugins, given, folder, mixed_versions=mixed_versions)
    data = _checked(plan.cells, how, jobs)
    with _opened(folder):
        plan = dataclasses.replace(Plan.read(folder), how=how, plugins=given, mixed_versions=mixed_versions)
        return _carry_out(plan, folder, data, jobs, engine, watch)


def fill(
    cells: Sequence[Cell],
    folder: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    how: How | None = None,
    mixed_versions: bool = False,
    engine: Engine | None = None,
    pause: float | None = None,
    again: str = "",
    watch: Watcher | None = None,
    finished: Mapping[str, Path] | None = None,
) -> None:
    """Carry these cells to their end in a folder that may hold others too, which are left alone.

    What a sweep refuses is refused here: a folder of other things, a run that is not the cell's. `again` is the command
    that goes on where this one was stopped. `finished` has folders of cells that are done elsewhere, by name: they are
    copied.
    """
    folder, how = Path(folder), how or How()
    cells, given = each_once(cells), described(how.plugins)
    data = _checked([cell for cell in cells if cell.folder_name not in (finished or {})], how, jobs)  # copies need none
    with _opened(folder):
        known = Plan.read(folder) if (folder / SWEEP).is_file() else None
        wanted = {cell.folder_name for cell in cells}
        others = [cell for cell in known.cells if cell.folder_name not in wanted] if known else []
        plan = Plan(
            cells=(*others, *cells),
            how=how,
            plugins=tuple(dict.fromkeys([*(known.plugins if known else ()), *given])),
            threads=known.threads if known else _threads(how, jobs, cores()),  # more cells may come
            mixed_versions=mixed_versions,
            sharing=known.sharing if known else {},
        )
        _take_over(finished or {}, cells, plan, folder, data)
        _begin(cells, plan, folder, data)
        _run_cells(cells, plan, folder, jobs, engine, watch, pause, again)


def _take_over(
    finished: Mapping[str, Path], cells: Sequence[Cell], plan: Plan, folder: Path, data: Mapping[DataKey, str]
) -> None:
    """Copy cells that are done elsewhere, each whole or not at all.

    A published run that lies here has no weights to go on from: where it lacks what is asked for now, it is set aside.
    """
    mixed = plan.mixed_versions
    lacking: list[str] = []
    for cell in cells:
        path, source, wanted = folder / cell.folder_name, finished.get(cell.folder_name), data.get(_data_key(cell))
        if source is not None:
            refuse_another(cell, source, wanted, mixed_versions=mixed, instead=f"leave {source.parent} out")
        if is_published(path / "run") and (source is not None or standing(cell, path).state != "done"):
            refuse_another(cell, path, wanted, mixed_versions=mixed)
            lacking.append(cell.folder_name)
    for cell in cells:  # of a copy that was cut short
        shutil.rmtree(folder / f".{cell.folder_name}{COMING}", ignore_errors=True)
    if finished:
        plan.write(folder)
    asked = {cell.folder_name: cell for cell in cells}
    for name, source in finished.items():
        path = folder / name
        if (path / "run").exists() and name not in lacking:  # begun here
            continue
        coming = folder / f".{name}{COMING}"
        copy_contents(source, coming)
        _leave_out_another_stage_2(asked[name], coming, data.get(_data_key(asked[name])), mixed)
        if path.exists():
            _exchange(path, coming)
        else:
            coming.rename(path)
        sync_folder(folder)
    for name in set(lacking) - set(finished):
        set_aside(folder / name, CellFolder(folder / name).run)


def _leave_out_another_stage_2(cell: Cell, coming: Path, data: str | None, mixed_versions: bool) -> None:
    """A Stage 2 that was not asked for is copied along with its run, but not one that would be refused later: it would
    be in the way of the right one."""
    readout = CellFolder(coming).readout
    if "s2" in cell.stages or not readout.path.is_dir():
        return
    with contextlib.suppress(UserError, RunError):
        if not difference(cell.config, readout, data, "s2", mixed_versions=mixed_versions):
            return
    shutil.rmtree(readout.path)


def _exchange(path: Path, coming: Path) -> None:
    """A cell's run by one that has more; the run itself comes last, so that there never is half of one."""
    if (path / "run").exists():  # else an exchange was cut short behind this
        set_aside(path, CellFolder(path).run)
    for child in sorted(coming.iterdir(), key=lambda child: child.name == "run"):
        child.replace(path / child.name)
    coming.rmdir()
    sync_folder(path)


def sweep_results(folder: str | os.PathLike[str]) -> Results:
    """The results of a sweep as far as it has come, from its folder alone."""
    plan = Plan.read(Path(folder))
    return collect(plan.cells, Path(folder), mixed_versions=plan.mixed_versions)


def _carry_out(
    plan: Plan,
    folder: Path,
    data: Mapping[DataKey, str],
    jobs: int | None,
    engine: Engine | None,
    watch: Watcher | None,
) -> Results:
    """A whole sweep, with its results."""
    _begin(plan.cells, plan, folder, data)
    if (folder / RESULTS).is_file():  # of a smaller sweep, perhaps: a kill must not leave it standing as the whole
        _keep_results(plan, folder)
    again = resume_command(folder, plan.how.plugins, jobs)
    try:
        _run_cells(plan.cells, plan, folder, jobs, engine, watch, again=again)
    except Interrupted:
        _keep_results(plan, folder)
        raise
    return _keep_results(plan, folder)


def _begin(cells: Iterable[Cell], plan: Plan, folder: Path, data: Mapping[DataKey, str]) -> None:
    """Refuse what lies there and is not of these cells, then write the plan down."""
    for cell in cells:
        where, wanted = folder / cell.folder_name, data.get(_data_key(cell))
        refuse_another(cell, where, wanted, mixed_versions=plan.mixed_versions)
    plan.write(folder)


def _run_cells(
    cells: Sequence[Cell],
    plan: Plan,
    folder: Path,
    jobs: int | None,
    engine: Engine | None,
    watch: Watcher | None,
    pause: float | None = None,
    again: str = "",
) -> None:
    """Some of a plan's cells, or all, carried to their end."""
    kind = choose_device(plan.how.device).type
    slots: Slots = Fixed(jobs or (min(cores(), len(cells)) if kind == "cpu" else 1))
    if jobs is None and kind == "cuda":
        slots = Measured.remembered(plan.sharing)
    choose: Choice | None = None
    with contextlib.ExitStack() as stack:
        if engine is None and kind == "cuda":  # where a process that stays compiles once for all seeds of a preset
            from goodness.sweep.workers import WorkerEngine  # which its processes run by itself

            engine = workers = stack.enter_context(WorkerEngine(plan.how, plan.threads))
            choose = workers.choose
        engine = engine or LocalEngine(plan.how, plan.threads)
        try:
            Sweeper(cells, folder, engine, slots, watch, pause, again, choose).run()
        finally:
            if isinstance(slots, Measured) and slots.speeds:
                dataclasses.replace(plan, sharing=slots.as_dict()).write(folder)


def _keep_results(plan: Plan, folder: Path) -> Results:
    """The results as far as they go, written down; what is missing in them is marked."""
    results = collect(plan.cells, folder, mixed_versions=plan.mixed_versions)
    write_results(results, folder)
    return results


class Sweeper:
    """Carries the cells to their end: `run` returns when each is done or has failed twice."""

    def __init__(
        self,
        cells: Sequence[Cell],
        folder: Path,
        engine: Engine,
        slots: Slots,
        watch: Watcher | None = None,
        pause: float | None = None,
        again: str = "",
        choose: Choice | None = None,
    ) -> None:
        self.choose: Choice = choose or operator.itemgetter(0)
        self.again = again or resume_command(folder)
        self.cells = {cell.folder_name: cell for cell in cells}
        self.folder, self.engine, self.slots = folder, engine, slots
        self.pause = PAUSE if pause is None else pause
        self.watch = watch or (lambda snapshot: None)
        self.places: dict[str, Standing] = {}
        self.waiting: list[str] = []
        self.running: dict[str, Handle] = {}
        self.elsewhere: set[str] = set()  # another process works on them: left by a sweep that was killed
        self.tries: dict[str, int] = {}
        self.is_stopping = False

    def run(self) -> None:
        try:
            self.carry_on()
        except BaseException:
            for handle in self.running.values():  # nothing runs on behind the back of a sweep that broke
                handle.stop()
            raise

    def carry_on(self) -> None:
        with StopRequest() as stop:
            for name in self.cells:
                self.take_up(name)
            while self.waiting or self.running or self.elsewhere:
                if stop.requested:
                    self.stop()
                    raise Interrupted(
                        f"stopped, {self.count('done')} of {len(self.cells)} cells are done; go on with: {self.again}",
                        stop.exit_code,
                    )
                self.start_what_fits()
                self.look()
                self.show()
                if self.waiting or self.running or self.elsewhere:
                    time.sleep(self.pause)
        self.show()

    def take_up(self, name: str) -> None:
        """File a cell under what is to be done with it."""
        self.places[name] = now = standing(self.cells[name], self.folder / name)
        if now.state == "running":
            self.elsewhere.add(name)
        elif now.state != "done":
            self.tries.setdefault(name, 1 if now.state == "failed" else 0)
            self.waiting.append(name)

    def start_what_fits(self) -> None:
        while self.waiting and len(self.running) + len(self.elsewhere) < self.slots.limit:
            waiting = [self.cells[name] for name in self.waiting]
            telling = self.slots.wanted
            name = self.choose([cell for cell in waiting if cell.group in telling] or waiting).folder_name
            self.waiting.remove(name)
            cell, path = self.cells[name], self.folder / name
            make_ready(path)
            CellFolder(path).write(cell)
            self.tries[name] += 1
            self.running[name] = self.engine.start(cell, path)
            self.places[name] = dataclasses.replace(standing(cell, path), state="running", error="")

    def look(self) -> None:
        """See what has ended, and how far the rest has come."""
        for name, handle in list(self.running.items()):
            code = handle.poll()
            now = standing(self.cells[name], self.folder / name)
            if code is None:
                self.places[name] = dataclasses.replace(now, state="running", error="")
            else:
                del self.running[name]
                self.end(name, code, now)
        for name in list(self.elsewhere):
            now = self.places[name] = standing(self.cells[name], self.folder / name)
            if now.state != "running":
                self.elsewhere.discard(name)
                self.take_up(name)
        seen = {name: self.places[name] for name in (*self.running, *self.elsewhere)}
        for name in seen if len(seen) > 1 else ():
            CellFolder(self.folder / name).mark_shared()
        self.slots.observe(
            {
                name: Seen(self.cells[name].group, one.epoch, one.seconds, self.cells[name].epochs)
                for name, one in seen.items()
            }
        )

    def end(self, name: str, code: int, now: Standing) -> None:
        """A cell's process has ended: done, in another's hands, to be tried again, or failed."""
        self.places[name] = now
        if now.state == "done":
            return
        if now.state == "running":
            self.elsewhere.add(name)
            return
        if code in STOPPED:
            error = "stopped by another"
        else:
            error = record_failure(self.folder / name, code)
            self.places[name] = dataclasses.replace(now, state="failed", error=error)
        if "out of memory" in error.lower() or "does not fit in memory" in error:
            self.slots.too_many(len(self.running) + len(self.elsewhere) + 1)
        if self.tries[name] < TRIES:
            self.waiting.append(name)

    def stop(self) -> None:
        """Ask all cells to save, and wait until they have."""
        self.is_stopping = True
        for handle in self.running.values():
            handle.stop()
        while self.running:
            for name, handle in list(self.running.items()):
                if handle.poll() is not None:
                    del self.running[name]
                    self.places[name] = standing(self.cells[name], self.folder / name)
            self.show()
            if self.running:
                time.sleep(min(self.pause, 0.1))

    def count(self, state: str) -> int:
        return sum(one.state == state for one in self.places.values())

    def show(self) -> None:
        self.watch(
            Snapshot(
                places=[Place(self.cells[name], now) for name, now in self.places.items()],
                jobs=self.slots.limit,
                retried=frozenset(name for name, tries in self.tries.items() if tries >= TRIES),
                note="stopping: every running cell saves" if self.is_stopping else self.slots.note,
            )
        )


def _checked(cells: Iterable[Cell], how: How, jobs: int | None) -> dict[DataKey, str]:
    """The hash of each data set that is needed, as it is here. What cannot be done is told before a folder is made."""
    choose_device(how.device)
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs must be at least 1, got {jobs}")
    configs = {_data_key(cell): cell.config for cell in cells}
    return {key: fingerprint(api.load_data(config, how.data_dir)) for key, config in configs.items()}


def _data_key(cell: Cell) -> DataKey:
    return cell.config.data, cell.config.split_seed, cell.config.val


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """The sweep's folder, for this process alone."""
    refuse_other_things(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as trouble:
        raise UserError(f"cannot use {folder}: {trouble.strerror}; choose another --out") from trouble
    lock = acquire(folder / LOCK)
    try:
        yield
    finally:
        release(lock)


def _threads(how: How, jobs: int | None, cells: int) -> int:
    """A GPU's cells are few at a time, and their work is on the GPU."""
    by_default = cores() if choose_device(how.device).type == "cpu" else 2
    return share_of_cores(min(jobs or by_default, cells))


def _absolute(place: str | os.PathLike[str] | None) -> str | None:
    return None if place is None else str(from_home(place).resolve())


def _absolute_plugins(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(from_home(name).resolve()) if name.endswith(".py") else name for name in names)
