"""One training step for any method of local learning; it knows the seam and no method.

`set` takes in all plain numbers. `inside` is the step: the batch passes through the blocks, unit by unit; each unit
looks (`look`: its loss and what it hands on), learns (`learn`: gradients, check, update, average) and hands on.
Sequential: one unit at a time. Fused: one backward for all units. `inside` is what a recording replays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from goodness.compilation import compiled
from goodness.config import Optim
from goodness.config import Step as StepOptions
from goodness.draws import Draws
from goodness.errors import ConfigError
from goodness.methods.base import Method, Moment, Out, Plan, Signal, Step
from goodness.precision import autocast
from goodness.step_context import Measured
from goodness.step_context import Moment as Place
from goodness.training.finite import Guard, NonFiniteLoss
from goodness.training.optim import (
    average_decay,
    clip,
    gradient_norm,
    learning_rate,
    make_recordable,
    move_towards,
    perturb,
    set_learning_rate,
    unit_optimiser,
)

Unit = tuple[int, ...]


@dataclass
class Turn:
    """A unit of blocks in one step."""

    unit: Unit
    learns: bool
    entered: Signal
    notes: dict[int, Signal] = field(default_factory=dict)  # what was prepared for each block, once a step
    loss: Tensor = field(default_factory=lambda: torch.zeros(()))
    measures: Signal = field(default_factory=dict)
    more: dict[int, Signal] = field(default_factory=dict)
    handed: Signal = field(default_factory=dict)


class Trainer:
    """A method, its teacher and its optimisers."""

    def __init__(
        self,
        method: Method,
        optim: Optim,
        options: StepOptions,
        *,
        draws: Draws,
        dtype: torch.dtype = torch.float32,
        guard: Guard | None = None,
        kind: str | None = None,
    ) -> None:
        """With a guard, steps can be recorded. With a `kind` they are compiled, and share graphs with their kind."""
        self.method, self.optim, self.options = method, optim, options
        self.draws, self.device, self.dtype, self.guard = draws, draws.device, dtype, guard
        self.blocks = len(method.blocks)
        self.teacher = method.averaged()
        self.optimisers: dict[Unit, torch.optim.Optimizer] = {}
        self.ages = [0] * self.blocks
        self.owned = [[one for group in method.owned(d) for one in group["params"]] for d in range(self.blocks)]
        self._require_owners()
        self.is_averaged = optim.ema > 0 or method.wants_teacher()
        theirs = {**dict(self.teacher.named_parameters()), **dict(self.teacher.named_buffers())}
        names = {id(value): name for name, value in (*method.named_parameters(), *method.named_buffers())}
        # Running statistics are averaged too: averaged weights have other activations than the latest.
        followed = {(depth, "weights"): list(own) for depth, own in enumerate(self.owned)}
        followed |= {(depth, "statistics"): statistics(method, depth) for depth in range(self.blocks)}
        self._pairs: dict[tuple[int, str], tuple[list[Tensor], list[Tensor]]] = {
            place: ([theirs[names[id(one)]] for one in own], own) for place, own in followed.items() if own
        }
        self.judges = (*STATE, *method.fitted)
        self._memories = [b for name, b in method.named_buffers() if "." not in name and name not in self.judges]
        self._running = [b for name, b in method.named_buffers() if "." in name]
        self._shares: dict[tuple[int, str], float | Tensor] = {
            place: 0.0 if guard is None else torch.zeros((), device=self.device) for place in self._pairs
        }
        self._pass = unit_pass if kind is None else compiled(unit_pass, kind)
        self._step: Step | None = None
        self._waiting: list[int] = []

    # One step, top to bottom.

    def step(self, views: Tensor, labels: Tensor, place: Place, moment: Moment) -> list[Measured | None]:
        """All units that learn now learn once from views `[views, batch, C, H, W]`; what each says, by last block."""
        return self.inside(views, labels, place, self.set(place, moment))

    def set(self, place: Place, moment: Moment) -> Plan:
        """Everything that moves from step to step and is a plain number."""
        plan, optim = self.checked(self.method.plan(moment)), self.optim
        rate = learning_rate(place.total_step, place.total_steps, optim.lr, optim.warmup, optim.schedule)
        for unit, factor in zip(plan.units, plan.rates or [1.0] * len(plan.units)):
            set_learning_rate(self.optimiser(unit), rate * factor)
        learning = {depth for unit in plan.units for depth in unit}
        self._waiting = [depth for depth, age in enumerate(self.ages) if age and depth not in learning]
        for depth in (*learning, *self._waiting):  # averages also follow blocks that have ceased to learn
            share = 1 - average_decay(self.ages[depth], optim.ema)
            self.aim((depth, "weights"), share)
            self.aim((depth, "statistics"), 1.0 if self.ages[depth] < SETTLING else share)
            self.ages[depth] += 1
        for module in (self.method, *([self.teacher] if self.is_averaged else [])):
            module.progress.fill_(place.total_step / place.total_steps)
        return plan

    def inside(self, views: Tensor, labels: Tensor, place: Place, plan: Plan) -> list[Measured | None]:
        """The step itself. No plain number in here moves, but for those in the plan."""
        said: list[Measured | None] = [None] * self.blocks
        waiting: list[Turn] = []
        signal = self.enter(views, labels, place, plan)
        for unit in passed(plan.units):  # down to the last that learns
            turn = Turn(unit, unit in plan.units, signal)
            self.look(turn, place)
            if turn.learns:
                waiting.append(turn)
                if self.options.mode == "sequential":
                    self.learn([waiting.pop()], place, said)
                if self.options.handoff == "after_update":
                    self.look(turn, place, again=True)
            signal = turn.handed
        if waiting:
            self.learn(waiting, place, said)
        self.follow(tuple(self._waiting))
        self.copy_buffers()
        return said

    @torch.no_grad()
    def enter(self, views: Tensor, labels: Tensor, place: Place, plan: Plan) -> Signal:
        """The batch's signal at block 0, with the labels."""

        def draw(purpose: str, *shape: int) -> Tensor:
            return self.draws((len(labels), *shape), purpose, place.epoch, place.step)

        self._step = Step(draw, self.teacher, plan.told)
        images = views[0] if self.method.views == 1 else views.transpose(0, 1)
        with autocast(self.device, self.dtype), buffers_kept(self._running if self.method.later else []):
            signal = self.method.streams(images, labels, self._step)
        return {"labels": labels, **signal}

    def look(self, turn: Turn, place: Place, again: bool = False) -> None:
        """A unit's loss, and what it hands on, detached. Looking again gives the same on the same weights."""
        self.draws.seed_modules("unit", place.epoch, place.step, turn.unit[-1])
        learns = turn.learns and not again
        with torch.set_grad_enabled(learns), autocast(self.device, self.dtype), self.frozen(turn, again):
            for depth in turn.unit if overrides(self.method, "prepare") else ():
                self.prepare(depth, turn)
            loss, on, turn.more, measures = self._pass(self.method, turn.unit, turn.entered, turn.notes, learns)
        if learns:
            turn.loss, turn.measures = loss, measures
            if not loss.requires_grad:
                raise ConfigError(f"the loss of block {turn.unit[-1]} gives it nothing to learn from")
        turn.handed = {**turn.entered, **on}

    def learn(self, turns: list[Turn], place: Place, said: list[Measured | None]) -> None:
        """Gradients (under SAM those at each unit's perturbed weights), the check, the update, the averages."""
        first = [(turn.loss.detach(), turn.measures, turn.more) for turn in turns]
        norms = self.gradients(turns)
        if self.optim.sam:
            norms = self.sharpened(turns, norms, place)
        self.require_finite(turns, [loss for loss, _, _ in first], norms, place)
        for turn, norm, (loss, measures, more) in zip(turns, norms, first):
            clip(self.parameters(turn.unit), norm, self.optim.clip)
            self.optimisers[turn.unit].step()
            self.optimisers[turn.unit].zero_grad(set_to_none=True)
            self.remember(more)
            self.follow(turn.unit)
            values = [one.detach().float() for one in (loss, *measures.values(), norm)]
            said[turn.unit[-1]] = ("loss", *measures, "grad_norm"), torch.stack(values)

    # What the step calls.

    def gradients(self, turns: list[Turn]) -> list[Tensor]:
        """One backward for all: no path leads from one unit's loss to another's blocks."""
        torch.stack([turn.loss for turn in turns]).sum().backward()
        return [gradient_norm(self.parameters(turn.unit)) for turn in turns]

    def sharpened(self, turns: list[Turn], norms: list[Tensor], place: Place) -> list[Tensor]:
        """Move each unit's weights up its gradient, look again at the same signals, move back."""
        put_back, handed = [], [turn.handed for turn in turns]
        for turn, norm in zip(turns, norms):
            put_back.append(perturb(self.parameters(turn.unit), norm, self.optim.sam))
            self.optimisers[turn.unit].zero_grad(set_to_none=True)
        with buffers_kept(self._running):  # until after the backward: a graph may hold a running statistic
            for turn in turns:
                self.look(turn, place)
            norms = self.gradients(turns)
        for turn, first, undo in zip(turns, handed, put_back):
            turn.handed = first
            undo()
        return norms

    def require_finite(self, turns: list[Turn], losses: list[Tensor], norms: list[Tensor], place: Place) -> None:
        values = torch.stack([one.float() for one in (*losses, *norms)])
        if self.guard is not None:
            self.guard.note(values)
        elif not bool(values.isfinite().all()):
            for turn, loss, norm in zip(turns, losses, norms):
                if not bool(torch.stack([loss.float(), norm.float()]).isfinite().all()):
                    what = f"the loss is {float(loss)} with a gradient norm of {float(norm)}"
                    raise NonFiniteLoss(turn.unit[-1], what, place)

    @torch.no_grad()
    def remember(self, more: dict[int, Signal]) -> None:
        """The method's memories; as they were where the step was not finite."""
        if not overrides(self.method, "after_step"):
            return
        before = [] if self.guard is None else [one.clone() for one in self._memories]
        for depth, kept in more.items():
            self.method.after_step(depth, kept)
        if self.guard is not None:
            self.guard.undo(self._memories, before)

    def aim(self, place: tuple[int, str], share: float) -> None:
        """Set how far the teacher's block will move; in a tensor, where a recorded step reads it."""
        kept = self._shares.get(place)
        if isinstance(kept, Tensor):
            kept.fill_(share)
        elif kept is not None:
            self._shares[place] = share

    def follow(self, unit: Unit) -> None:
        """Move the teacher's blocks towards these; not where the step was not finite."""
        if self.is_averaged:
            for place, share in self._shares.items():
                if place[0] in unit:
                    move_towards(self._pairs[place], share if self.guard is None else share * (1 - self.guard.bad))

    @torch.no_grad()
    def copy_buffers(self) -> None:
        """The teacher takes over what the method remembers, but for what it judges by and what is averaged."""
        if self.is_averaged:
            theirs = dict(self.teacher.named_buffers())
            followed = {id(one) for _, own in self._pairs.values() for one in own}
            for name, value in self.method.named_buffers():
                if name not in self.judges and id(value) not in followed:
                    theirs[name].copy_(value)

    def prepare(self, depth: int, turn: Turn) -> None:
        """What the method adds for a block, once a step; later blocks of a unit see what earlier ones give."""
        if depth in turn.notes or self._step is None:
            return
        scouted = turn.unit[: turn.unit.index(depth)]
        modules = [module[before] for before in scouted for module in (self.method.blocks, self.method.parts)]
        with torch.no_grad(), buffers_kept([one for module in modules for one in module.buffers()]):
            signal = turn.entered
            for before in scouted:
                signal = {**signal, **turn.notes[before]}
                signal = {**signal, **self.method.through(before, signal).on}
            turn.notes[depth] = self.method.prepare(depth, signal, self._step)

    @contextlib.contextmanager
    def frozen(self, turn: Turn, again: bool) -> Iterator[None]:
        """Blocks that only hand on are in evaluation mode, and looking again moves no running statistic."""
        if turn.learns:
            with buffers_kept(self._running if again else []):
                yield
            return
        resting = [module[depth] for depth in turn.unit for module in (self.method.blocks, self.method.parts)]
        for module in resting:
            module.eval()
        try:
            yield
        finally:
            for module in resting:
                module.train()

    def checked(self, plan: Plan) -> Plan:
        """Refuse units that are no runs of neighbouring blocks, each block in one at most."""
        depths = [depth for unit in plan.units for depth in unit]
        are_runs = all(unit and unit == tuple(range(unit[0], unit[0] + len(unit))) for unit in plan.units)
        are_known = depths == sorted(set(depths)) and all(0 <= depth < self.blocks for depth in depths)
        if not depths or not are_runs or not are_known:
            raise ConfigError(f"plan must name runs of neighbouring blocks among {self.blocks}, in order: {plan.units}")
        if plan.rates is not None and len(plan.rates) != len(plan.units):
            raise ConfigError(f"plan has {len(plan.units)} units and {len(plan.rates)} rates")
        return plan

    def optimiser(self, unit: Unit) -> torch.optim.Optimizer:
        """A unit's own; made when it first learns, never within a recording."""
        if unit not in self.optimisers:
            groups = [{"rate": 1.0, **group} for depth in unit for group in self.method.owned(depth) if group["params"]]
            if not groups:
                raise ConfigError(f"block {', '.join(map(str, unit))} has nothing to learn")
            self.optimisers[unit] = unit_optimiser(groups, self.optim)
            if self.guard is not None:
                make_recordable(self.optimisers[unit], self.device, self.guard.bad)
        return self.optimisers[unit]

    def parameters(self, unit: Unit) -> list[nn.Parameter]:
        return self.owned[unit[0]] if len(unit) == 1 else [one for depth in unit for one in self.owned[depth]]

    def evaluated(self) -> Method:
        """The method with averaged weights, in evaluation mode; without an average, with those of now."""
        if not self.is_averaged:
            own = {name: value for name, value in self.teacher.state_dict().items() if name in self.judges}
            self.teacher.load_state_dict({**self.method.state_dict(), **own})
        return self.teacher

    def _require_owners(self) -> None:
        """Every parameter is learned by one block."""
        names = {id(value): name for name, value in self.method.named_parameters() if value.requires_grad}
        found: dict[int, int] = {}
        for depth, own in enumerate(self.owned):
            for one in own:
                if found.setdefault(id(one), depth) != depth:
                    raise ConfigError(f"blocks {found[id(one)]} and {depth} share the parameter {names[id(one)]}")
        left = [name for place, name in names.items() if place not in found]
        if left:
            raise ConfigError(f"no block owns the parameter {left[0]}: see Method.owned")


SETTLING = 50
"""Steps of a block over which the teacher takes its running statistics as they are: they start at 0 and 1, and an
average would remember that."""
STATE = ("weights", "prefixes", "progress")
"""Buffers of a method that are the trainer's to set; with those that the method fits, the teacher's own."""


@contextlib.contextmanager
def buffers_kept(buffers: list[Tensor]) -> Iterator[None]:
    """Within, running statistics may move; afterwards they are as they were."""
    before = [one.clone() for one in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for one, value in zip(buffers, before):
                one.copy_(value)


def unit_pass(
    method: Method, unit: Unit, entered: Signal, notes: dict[int, Signal], learns: bool
) -> tuple[Tensor, Signal, dict[int, Signal], Signal]:
    """A unit's loss, what changes for the next block, detached, what each block adds for memories, and measures."""
    more: dict[int, Signal] = {}
    on: Signal = {}
    out = Out({})
    for depth in unit:
        entered = {**entered, **on, **notes.get(depth, {})}
        out = method.through(depth, entered)
        on = {**on, **notes.get(depth, {}), **out.on}
        more[depth] = {name: value.detach() for name, value in out.more.items()}
    on = {name: value.detach() for name, value in on.items()}  # in here, so that no compiled backward goes through it
    if not learns:
        return next(iter(entered.values())).new_zeros(()), on, more, {}
    loss = method.loss(unit[-1], entered, out)
    return loss, on, more, method.measures(unit[-1], entered, out)


def passed(units: tuple[Unit, ...]) -> list[Unit]:
    """Every run of blocks that the signal passes, down to the last that learns; blocks that do not learn run alone."""
    whose = {depth: unit for unit in units for depth in unit}
    return list(dict.fromkeys(whose.get(depth, (depth,)) for depth in range(1 + max(whose, default=-1))))


def statistics(method: Method, depth: int) -> list[Tensor]:
    """Floating-point buffers of a block and its parts: the running means and variances of batch norm."""
    modules = (method.blocks[depth], method.parts[depth])
    return [one for module in modules for one in module.buffers() if one.is_floating_point()]


def overrides(method: Method, name: str) -> bool:
    """Whether a method has its own version of what the seam has a default for."""
    return getattr(type(method), name) is not getattr(Method, name)
