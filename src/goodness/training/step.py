"""One training step of all blocks: sequential (the reference) and fused (the fast one), same numbers.

Both hand block d + 1 the tokens of block d's forward before its update, mine with the teacher's block alone (or, before
any update, with all its blocks up to that one), and clip, check and step block by block. So the order in which blocks
update does not matter to any of them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from goodness.compilation import compiled
from goodness.config import Config
from goodness.draws import Draws
from goodness.errors import ConfigError
from goodness.methods.cumulative.facts import Facts, PerStream
from goodness.methods.cumulative.ledger import Ledger
from goodness.methods.cumulative.negatives import Mined, Mining, keeps_prefix
from goodness.methods.cumulative.objective import Objective
from goodness.methods.cumulative.passes import (
    forward_block,
    forward_shared,
    judge_block,
    neutral_block,
    pass_block,
    score_block,
)
from goodness.methods.cumulative.prefix import Entry, WrongStream, ledger_of, wrong_stream
from goodness.methods.cumulative.streams import concatenate, positives_of, rows_of, wrong_images
from goodness.nn.block import BlockOutput
from goodness.nn.network import Network
from goodness.precision import autocast
from goodness.step_context import Measured, Moment
from goodness.training.finite import Guard, NonFiniteLoss
from goodness.training.modes import compiles, kind_of
from goodness.training.optim import (
    MovingAverage,
    block_optimisers,
    clip,
    gradient_norm,
    learning_rate,
    learning_window,
    make_recordable,
    perturb,
    set_learning_rate,
)

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class BlockInput:
    """What one block's loss is a function of, beside the block: enough to compute it again."""

    depth: int
    tokens: Tensor  # [streams * batch, tokens, width]; with the stem's graph at block 0, detached later
    rows: Tensor | None  # [streams * batch]; where no label enters the tokens, they are [views * batch, ...], and these
    # are each stream's among them
    neutral: Tensor | None  # [positives * batch, tokens, width], the positive views on a way that no label entered
    labels: Tensor  # [batch], right
    wrong: Tensor  # [wrong_labels * batch], the NL streams'
    ledger: Ledger
    progress: float | Tensor
    seed: tuple[str | int, ...]  # of whatever the block itself draws, dropout say
    stem_again: Callable[[Stepper], Tensor]  # block 0's tokens with a graph of their own
    prefixed: tuple[WrongStream, ...] = ()  # every block's wrong-label streams, where the negatives keep their prefix
    entries: tuple[Entry, ...] = ()  # of the earlier blocks, for a ledger that these streams have a part in

    def again(self, stepper: Stepper) -> BlockInput:
        """The same, with a stem graph that no backward has used up."""
        if self.depth > 0:
            return self
        tokens = self.stem_again(stepper)
        return replace(self, tokens=tokens, neutral=None if self.neutral is None else tokens[: len(self.neutral)])


class Judged(NamedTuple):
    """One block's loss with its graph, the facts, the tokens for the next block, and the measures."""

    loss: Tensor
    facts: Facts
    tokens_on: Tensor
    neutral_on: Tensor | None
    measured: Measured

    def with_norm(self, norm: Tensor) -> Measured:
        names, values = self.measured
        return (*names, "grad_norm"), torch.cat([values, norm.detach().to(values.dtype).reshape(1)])


class Stepper:
    """Holds the network, its teacher and the optimisers, and makes steps."""

    def __init__(
        self,
        network: Network,
        config: Config,
        dtype: torch.dtype = torch.float32,
        draws: Draws | None = None,
        guard: Guard | None = None,
    ) -> None:
        """With a guard, steps can be recorded: they ask nothing of the device, and read what moves from tensors."""
        self.network = network
        self.config = config
        self.device = network.mean.device
        self.dtype = dtype
        self.draws = draws or Draws(self.device, config.seed)
        self.guard = guard
        self.progress: Tensor | None = None
        self.blocks = len(network.blocks)
        self.wrong_labels = config.negatives.count
        self.every_label = torch.arange(network.classes, device=self.device)
        self.positives = positives_of(config.views)
        self.streams = self.positives + self.wrong_labels + (1 if config.eta > 0 else 0)
        self.is_shared = config.model.label.is_late
        self.keeps_prefix = keeps_prefix(config.negatives)
        at_work = [term for term in config.objective.values() if term.weight != 0]
        self.wants_neutral = any(term.wants_neutral for term in at_work)
        self.wants_every = any(term.wants_every for term in at_work)
        self.objective = Objective(config.objective)
        self.teacher = MovingAverage(network, config.optim.ema)
        self.optimisers = block_optimisers(network, config.optim)
        self.owned = [list(network.owned(depth).values()) for depth in range(self.blocks)]
        self.fixed_shapes = compiles(config, self.device)
        if guard is not None:
            self.fixed_shapes = self.fixed_shapes or self.device.type == "cuda"
            self.progress = torch.zeros((), device=self.device)
            self.teacher.make_recordable(self.device)
            for optimiser in self.optimisers:
                make_recordable(optimiser, self.device, guard.bad)
        self._forward = self.compiled(forward_block)
        self._shared = self.compiled(forward_shared)
        self._score = self.compiled(score_block)
        self._pass = self.compiled(pass_block)
        self._neutral = self.compiled(neutral_block)
        self._judge = self.compiled(judge_block)
        self._stem = self.compiled(Network.tokens)

    def compiled(self, function: F) -> F:
        """The function itself, or its compiled form; shapes are fixed, and every depth may have a graph of its own."""
        if not compiles(self.config, self.device):
            return function
        return compiled(function, kind_of(self.config))

    def eager(self) -> Stepper:
        """This stepper with its functions as they are written: a compiled graph gives its gradients but once."""
        other = copy.copy(self)
        other.fixed_shapes = False
        other.draws = Draws(self.device, self.config.seed)  # what it asks for is no part of the steps
        other._forward, other._shared, other._score = forward_block, forward_shared, score_block
        other._pass, other._neutral, other._judge, other._stem = pass_block, neutral_block, judge_block, Network.tokens
        return other

    def autocast(self) -> torch.autocast:
        return autocast(self.device, self.dtype)

    def __call__(self, views: Tensor, labels: Tensor, moment: Moment) -> list[Measured]:
        """Train every block once on views `[views, batch, C, H, W]` of a batch; returns each block's measures."""
        self.set(moment)
        return self.step(views, labels, moment)

    def set(self, moment: Moment) -> None:
        """Everything that moves from step to step and is a plain number."""
        optim = self.config.optim
        for depth, optimiser in enumerate(self.optimisers):
            begin, end = self.window(depth, moment)
            rate = learning_rate(moment.total_step - begin, end - begin, optim.lr, optim.warmup, optim.schedule)
            set_learning_rate(optimiser, rate if self.learns(depth, moment) else 0.0)
            self.teacher.aim(depth, max(0, moment.total_step - begin))
        if self.progress is not None:
            self.progress.fill_(moment.progress)

    def signature(self, moment: Moment) -> Hashable:
        """What a recorded step was told of its moment: steps of another signature need another recording."""
        learning = tuple(self.learns(depth, moment) for depth in range(self.blocks))
        return learning, self.config.negatives.signature(moment.progress)

    def step(self, views: Tensor, labels: Tensor, moment: Moment) -> list[Measured]:
        """The step itself, once all is set."""
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        step = self._sequential if self.config.step.mode == "sequential" else self._fused
        measures = step(views, labels, moment)
        self.teacher.copy_buffers()
        return measures

    def window(self, depth: int, moment: Moment) -> tuple[int, int]:
        return learning_window(depth, self.blocks, moment.total_steps, self.config.optim.freeze)

    def learns(self, depth: int, moment: Moment) -> bool:
        """Whether the block takes a step now, or is not yet, or no longer, trained."""
        begin, end = self.window(depth, moment)
        return begin <= moment.total_step < end

    def _sequential(self, views: Tensor, labels: Tensor, moment: Moment) -> list[Measured]:
        measures = []
        situation = self.first(views, labels, moment)
        for depth in range(self.blocks):
            judged = self.judge(situation, moment)
            (norm,) = self.gradients([judged], [situation], moment)
            self.update(depth, judged.facts, norm, moment)
            measures.append(judged.with_norm(norm))
            if self.config.step.handoff == "after_update":
                judged = self._after_update(situation, judged)
            if depth + 1 < self.blocks:
                situation = self.next(situation, judged, moment)
        return measures

    def _fused(self, views: Tensor, labels: Tensor, moment: Moment) -> list[Measured]:
        judged: list[Judged] = []
        situations = [self.first(views, labels, moment)]
        for depth in range(self.blocks):
            judged.append(self.judge(situations[depth], moment))
            if depth + 1 < self.blocks:
                situations.append(self.next(situations[depth], judged[depth], moment))
        norms = self.gradients(judged, situations, moment)
        for depth in range(self.blocks):
            self.update(depth, judged[depth].facts, norms[depth], moment)
        return [one.with_norm(norm) for one, norm in zip(judged, norms)]

    def judge(self, situation: BlockInput, moment: Moment) -> Judged:
        """The block's loss, with a graph if the block learns now."""
        with torch.set_grad_enabled(self.learns(situation.depth, moment)):
            return self.loss(situation)

    def gradients(self, judged: list[Judged], situations: list[BlockInput], moment: Moment) -> list[Tensor]:
        """Fill the gradients of the blocks that learn and return all blocks' norms, zero where none is taken."""
        learning = [place for place, one in enumerate(situations) if self.learns(one.depth, moment)]
        norms = [torch.zeros((), device=self.device) for _ in situations]
        if learning:
            found = self._gradients([judged[i] for i in learning], [situations[i] for i in learning], moment)
            for place, norm in zip(learning, found):
                norms[place] = norm
        return norms

    def _gradients(self, judged: list[Judged], situations: list[BlockInput], moment: Moment) -> list[Tensor]:
        """The gradients' norms; under SAM, those at each block's perturbed weights.

        No path leads from one block's loss to another block, so one backward serves them all. SAM's second pass sees
        what the first saw, mining and draws included; the first pass's tokens and ledger are what goes on.
        """
        norms = self._backward(judged, situations, moment)
        radius = self.config.optim.sam
        if radius == 0:
            return norms
        undo = []
        for situation, norm in zip(situations, norms):
            undo.append(perturb(self.owned[situation.depth], norm, radius))
            self.optimisers[situation.depth].zero_grad(set_to_none=True)
        norms = self._backward([self.loss(situation.again(self)) for situation in situations], situations, moment)
        for put_back in undo:
            put_back()
        return norms

    def _backward(self, judged: list[Judged], situations: list[BlockInput], moment: Moment) -> list[Tensor]:
        torch.stack([one.loss for one in judged]).sum().backward()
        norms = [gradient_norm(self.owned[situation.depth]) for situation in situations]
        self.refuse_non_finite(judged, norms, situations, moment)
        return norms

    def first(self, views: Tensor, labels: Tensor, moment: Moment) -> BlockInput:
        """Block 0's input: the stem's tokens, mined wrong labels, an empty ledger."""
        tokens, rows = self.start(views, labels, moment)
        prefixed = self.prefixed(tokens, labels, moment) if self.keeps_prefix else ()
        return BlockInput(
            depth=0,
            tokens=tokens,
            rows=rows,
            neutral=tokens[: self.positives * len(labels)] if self.wants_neutral else None,
            labels=labels,
            wrong=prefixed[0].labels if prefixed else self.mine(0, tokens, labels, None, moment),
            ledger=Ledger(self.config.history),
            progress=moment.progress if self.progress is None else self.progress,
            seed=("block", moment.epoch, moment.step, 0),
            stem_again=lambda stepper: stepper.start(views, labels, moment)[0],
            prefixed=prefixed,
        )

    def next(self, before: BlockInput, judged: Judged, moment: Moment) -> BlockInput:
        """The next block's input: tokens handed on, labels mined anew, one more entry in the ledger."""
        depth, facts = before.depth + 1, judged.facts
        now = replace(before, depth=depth, neutral=judged.neutral_on, seed=("block", moment.epoch, moment.step, depth))
        if before.prefixed:
            stream, entry = before.prefixed[depth], Entry(facts.goodness.detach(), facts.aspects.detach(), facts.weight)
            entries = (*before.entries, entry)
            return replace(
                now,
                tokens=stream.replaced_in(judged.tokens_on, self.positives * len(before.labels)),
                wrong=stream.labels,
                ledger=ledger_of(entries, stream, self.config.history),
                entries=entries,
            )
        ledger = before.ledger.copy()
        ledger.add(facts.goodness, facts.aspects, facts.weight, facts.every)
        wrong = self.mine(depth, judged.tokens_on, before.labels, before.wrong, moment)
        return replace(now, tokens=judged.tokens_on, wrong=wrong, ledger=ledger)

    def prefixed(self, tokens: Tensor, labels: Tensor, moment: Moment) -> tuple[WrongStream, ...]:
        """Every block's wrong-label streams, from the stem's tokens; before any block has been updated."""
        first, found = self.positives * len(labels), list[WrongStream]()
        tokens = tokens.detach()
        stem = tokens[first : first + self.wrong_labels * len(labels)]
        for depth in range(self.blocks):
            wrong = self.mine(depth, tokens, labels, None, moment)
            self.draws.seed_modules("prefix", moment.epoch, moment.step, depth)
            with self.autocast():
                found.append(wrong_stream(self._forward, self.network, depth, stem, wrong))
        return tuple(found)

    @torch.no_grad()
    def _after_update(self, situation: BlockInput, judged: Judged) -> Judged:
        """Hand on what the block gives after its step; block 0's stem has made one too."""
        again = self.loss(situation.again(self))
        return judged._replace(tokens_on=again.tokens_on, neutral_on=again.neutral_on)

    def start(self, views: Tensor, labels: Tensor, moment: Moment) -> tuple[Tensor, Tensor | None]:
        """The streams' stem tokens, with the stem's graph; where streams share them, the views' and which are whose."""
        batch = len(labels)
        partner = None
        if self.config.eta > 0:
            draws = self.draws((batch + self.network.classes,), "ni", moment.epoch, moment.step)
            partner = wrong_images(labels, draws[:batch], draws[batch:])
        with self.autocast():
            tokens = self._stem(self.network, views.flatten(0, 1))
        if self.is_shared:
            return tokens, rows_of(len(views), batch, partner, self.wrong_labels, self.device)
        return concatenate(tokens.reshape(len(views), batch, *tokens.shape[1:]), partner, self.wrong_labels), None

    def hypotheses(self, labels: Tensor, wrong: Tensor) -> Tensor:
        """The label of every row of the streams: right, right, wrong, and right again for the wrong image."""
        return torch.cat([*[labels] * self.positives, wrong, *([labels] if self.config.eta > 0 else [])])

    @torch.no_grad()
    def mine(self, depth: int, tokens: Tensor, labels: Tensor, wrong: Tensor | None, moment: Moment) -> Tensor:
        """The wrong labels of the NL streams at this block, `[wrong_labels * batch]`.

        The tokens are those that the block takes in, or the stem's where the negatives keep their prefix.
        """
        negatives = self.config.negatives
        if wrong is not None and negatives.once:
            return wrong
        batch = len(labels)
        self.draws.seed_modules("mining block", moment.epoch, moment.step, depth)
        on_positive = isinstance(negatives, Mined) and negatives.mine_on == "pos"
        first = 0 if on_positive else self.config.views - 1 if self.is_shared else self.positives
        stream = tokens.detach()[first * batch : (first + 1) * batch]

        def scorer(network: Network) -> Callable[[Tensor, Tensor], Tensor]:
            def score(rows: Tensor, candidates: Tensor) -> Tensor:
                with torch.no_grad(), self.autocast():
                    tokens = stream
                    if self.keeps_prefix and depth > 0:
                        tokens, rows = stream[rows], torch.arange(len(rows), device=self.device)
                        for before in range(depth):
                            tokens = self._pass(network, network.block(before), tokens, candidates)
                    return self._score(network.block(depth), tokens, rows, candidates, self.every_label)

            return score

        mining = Mining(
            labels=labels,
            classes=self.network.classes,
            uniforms=self.draws((batch, negatives.uniforms), "mine", moment.epoch, moment.step, depth),
            depth=depth,
            blocks=self.blocks,
            progress=moment.progress,
            teacher=scorer(self.teacher.network),
            online=scorer(self.network),
            fixed_shapes=self.fixed_shapes,
        )
        return negatives.choose(mining)

    def loss(self, situation: BlockInput) -> Judged:
        """Block d's loss and the facts behind it; the same again when called again."""
        depth, labels, ledger, tokens = situation.depth, situation.labels, situation.ledger, situation.tokens
        block = self.network.block(depth)
        self.draws.seed_modules(*situation.seed)
        with self.autocast():
            hypotheses = self.hypotheses(labels, situation.wrong)
            every: Tensor | None = None
            if situation.rows is None:
                output, tokens_on = self._forward(self.network, block, tokens, hypotheses)
            else:
                asked, positive = self.every_label if self.wants_every else None, self.positives * len(labels)
                output, tokens_on, every = self._shared(
                    self.network, block, tokens, situation.rows, hypotheses, asked, positive
                )
            neutral, neutral_on = None, None
            if situation.neutral is not None:
                neutral, neutral_on = self._neutral(self.network, block, situation.neutral)
            goodness = PerStream.of_streams(output.goodness, self.streams, self.wrong_labels, self.positives)
            aspects = PerStream.of_streams(output.aspects, self.streams, self.wrong_labels, self.positives)
            weight = self.config.rule.weight(ledger.past(goodness.pos.detach(), self.blocks, situation.progress))
            self._require_shapes(depth, output, tokens, len(hypotheses), weight, len(goodness.pos))
            history, history_aspects = ledger.history(goodness, aspects)
            facts = Facts(
                depth=depth,
                blocks=self.blocks,
                labels=labels,
                beta=self.config.beta,
                eta=self.config.eta,
                goodness=goodness,
                aspects=aspects,
                active=block.head.active,
                earlier=ledger.earlier(goodness),
                weight=weight,
                history=history,
                history_aspects=history_aspects,
                tokens_in=tokens.detach(),
                tokens_out=output.tokens,
                pooled=output.pooled,
                notes=output.notes,
                neutral=neutral,
                positives=self.positives,
                every=every,
                history_every=None if every is None else ledger.history_every(every.detach()),
                progress=torch.as_tensor(situation.progress, dtype=torch.float32, device=self.device),
            )
            loss, measured = self._judge(self.objective.active(depth, self.blocks), facts, block.extras)
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise ConfigError(f"no term of the objective gives block {depth} anything to learn from")
        return Judged(loss, facts, tokens_on, neutral_on, measured)

    def _require_shapes(
        self, depth: int, output: BlockOutput, tokens: Tensor, rows: int, weight: Tensor, batch: int
    ) -> None:
        """Parts from outside keep their word, or hear which word it was."""
        width, grid = self.network.shapes[depth + 1]
        promised = (len(tokens), grid[0] * grid[1], width)
        if output.tokens.shape != promised:
            raise ConfigError(
                f"block '{self.config.model.block.kind}' must give tokens of the shape it gets (or that its "
                f"output_shape says), {list(promised)}, and gave {list(output.tokens.shape)}"
            )
        if output.goodness.shape != (rows,) or output.aspects.shape[:1] != (rows,):
            raise ConfigError(
                f"goodness '{self.config.model.goodness.kind}' must give one number and a row of aspects per row, "
                f"{rows}, and gave {list(output.goodness.shape)} and {list(output.aspects.shape)}"
            )
        if not isinstance(weight, Tensor) or weight.shape != (batch,):
            found = list(weight.shape) if isinstance(weight, Tensor) else weight
            raise ConfigError(f"rule '{self.config.rule.kind}' must give a weight per example, [{batch}]: {found}")

    def update(self, depth: int, facts: Facts, norm: Tensor, moment: Moment) -> None:
        """Clip, step and average block d; its terms may then update their memories."""
        bad = None if self.guard is None else self.guard.bad
        if self.learns(depth, moment):
            clip(self.owned[depth], norm, self.config.optim.clip)
            self.optimisers[depth].step()
            extras = self.network.block(depth).extras
            remembered = [] if self.guard is None else list(extras.buffers())
            before = [one.clone() for one in remembered]
            self.objective.after_step(facts, extras)
            if self.guard is not None:
                self.guard.undo(remembered, before)
        begin, _ = self.window(depth, moment)
        self.teacher.follow(depth, max(0, moment.total_step - begin), bad)

    def refuse_non_finite(
        self, judged: list[Judged], norms: list[Tensor], situations: list[BlockInput], moment: Moment
    ) -> None:
        """Stop before an update that would carry a NaN or an infinity into a weight; say where it came from."""
        values = torch.stack([value for one, norm in zip(judged, norms) for value in (one.loss.detach(), norm)])
        if self.guard is not None:
            self.guard.note(values)
            return
        if bool(values.isfinite().all()):
            return
        for one, norm, situation in zip(judged, norms, situations):
            if not bool(torch.stack([one.loss.detach(), norm]).isfinite().all()):
                raise NonFiniteLoss(situation.depth, self._culprit(one, norm, situation), moment)

    def _culprit(self, judged: Judged, norm: Tensor, situation: BlockInput) -> str:
        """The term whose value, or else whose gradient, is not finite; found by computing each one again."""
        values = {name.removeprefix("loss_"): float(value) for name, value in zip(*judged.measured)}
        for name in self.objective.terms:
            if not math.isfinite(values.get(name, 0.0)):
                return f"term '{name}' is {values[name]}"
        plain = self.eager()
        again = plain.loss(situation.again(plain))
        _, terms = self.objective(again.facts, self.network.block(situation.depth).extras)
        for name, value in terms.items():
            if value.requires_grad:
                owned = self.owned[situation.depth]
                gradients = torch.autograd.grad(value, owned, retain_graph=True, allow_unused=True)
                if any(one is not None and not bool(one.isfinite().all()) for one in gradients):
                    return f"the gradient of term '{name}' is not finite"
        return f"the gradient norm is {float(norm)}"
