"""The paper's theorems, checked on a trained network: does block d's gradient shrink as Theorem 1 says it must?

m  block d's own margin: the right label's goodness minus that of the wrong label this block finds hardest
P  what the rule's weight w multiplies: the earlier blocks' margin to the same label, summed or decaying
M = m + w P, what the cumulative loss l_beta sees;   R = |l_beta'(M)| / |l_beta'(m)|

identity  gradient of l_beta(M) = R * gradient of l_beta(m), over all of block d's parameters  (Eq. param_attenuation)
sandwich  exp(-beta w P) <= R <= min(1, 2 exp(-beta w P)) where m >= 0 and P >= 0              (Theorem attenuation)
floor     |dJ/dm| >= lambda w_i beta sigmoid(-beta m), J = l_beta(M) + lambda w_i l_beta(m)    (Theorem gradient_floor)
coverage  the share of examples with m >= 0 and P >= 0; the paper has means alone              (Tab assumption_coverage)

M and its gradient come from the library's own ledger, rule and terms, as in training, and not from the formulas above:
a history that is not detached, or a loss with something more in it, fails the check.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from goodness.config import Config
from goodness.errors import RunError, UserError
from goodness.health.theory_report import (
    TOLERANCE,
    BlockTheory,
    Coverage,
    Example,
    Floor,
    Identity,
    Sandwich,
    TheoryReport,
)
from goodness.methods.cumulative.barrier import attenuation, barrier, barrier_slope, envelope, residual_weights
from goodness.methods.cumulative.evidence import block_goodness, chunk_sizes
from goodness.methods.cumulative.facts import Facts, PerStream
from goodness.methods.cumulative.ledger import Ledger
from goodness.methods.cumulative.terms import Block, Current
from goodness.nn.network import Network

if TYPE_CHECKING:
    import os

    from goodness.runs.run import Run

MEASURABLE = 1e-280
"""Gradients shorter than this lose digits to underflow and are told from nothing: they are not judged."""
DUST = torch.finfo(torch.float64).tiny
"""Numbers below it have fewer digits; bounds that small are compared up to it."""
COVERAGE = 2000
"""Images on which the coverage is counted, unless told otherwise: half a per cent is ten of them."""


def check_theory(
    network: Network,
    config: Config,
    images: Tensor,
    labels: Tensor,
    *,
    examples: int = 64,
    coverage: int = COVERAGE,
    seed: int = 0,
) -> TheoryReport:
    """Check identity, sandwich and floor, and count the coverage, with the run's own rule at the end of training.

    `network` is one to predict with; `images` are `[n, C, H, W]`, uint8 or in [0, 1]. The seed picks `coverage` of
    them, and among these the `examples` whose gradients are taken, in float64 on the CPU. Goodness under all labels,
    which coverage and the choice of the hardest wrong label need, is computed where and as precise as the network is.
    """
    _require_data(network, images, labels, examples, coverage)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    chosen = order[: max(examples, coverage)]
    images, labels = images[chosen.to(images.device)], labels.cpu()[chosen]
    goodness = _goodness(network, images, config.keep.memory_mb)
    exact = copy.deepcopy(network).to("cpu", torch.float64).eval().requires_grad_(True)
    blocks = []
    for depth in range(1, len(network.blocks)):
        wrong = hardest_wrong(goodness[depth], labels)
        facts = facts_of(config, len(goodness), _pairs(goodness[: depth + 1], labels, wrong))
        found = []
        for place in range(min(examples, len(images))):
            image = _pixels(images[place : place + 1].cpu(), torch.float64)
            pair = int(labels[place]), int(wrong[place])
            found.append(check_example(exact, config, depth, image, pair, index=int(chosen[place])))
        blocks.append(_check_block(config, facts, tuple(found)))
    return TheoryReport(
        rule=_rule_in_words(config),
        history=config.history,
        beta=config.beta,
        examples=min(examples, len(images)),
        coverage_examples=len(images),
        blocks=tuple(blocks),
        note=_note(config, blocks),
    )


def theory_of_run(
    run: Run,
    *,
    split: str = "test",
    examples: int = 64,
    coverage: int = COVERAGE,
    seed: int = 0,
    device: str = "cpu",
    data_dir: str | os.PathLike[str] | None = None,
) -> TheoryReport:
    """The same for a finished Stage 1 on disk, its reported weights and its own data.

    The device takes the goodness under all labels; gradients are float64 on the CPU wherever that is.
    """
    from goodness import api
    from goodness.preflight import refuse_other_data
    from goodness.runs.run_folder import choose_device

    if run.stage == "s2":
        raise UserError(f"{run.path} is a readout; the theorems are about its Stage 1, {run.backbone.path}")
    if run.is_of_a_method:
        raise UserError(f"{run.path} was trained by {run.config.method.kind}; the theorems are about method cumulative")
    if run.stage == "bp":
        raise UserError(f"{run.path} was trained by backpropagation: no block has a loss of its own to check")
    if split not in ("train", "val", "test"):
        raise UserError(f"unknown split '{split}'; choose train, val or test")
    config, chosen = run.config, choose_device(device)
    network = run.network(device=str(chosen))
    data = api.load_data(config, data_dir or api._remembered_data_dir(run.path))
    refuse_other_data(network, data, run)
    rows = data.split(split)
    if not len(rows):
        raise UserError(f"{data.name} has no {split} split here")
    with api.prepared(chosen, config.deterministic):
        found = check_theory(network, config, rows.images, rows.labels, examples=examples, coverage=coverage, seed=seed)
    return dataclasses.replace(found, weights_sha256=str(run.result["weights_sha256"]))


# The pair of hypotheses, and what a block knows of it


def hardest_wrong(scores: Tensor, labels: Tensor) -> Tensor:
    """The wrong label with the highest goodness, `[n]`, from one block's `[n, classes]`."""
    return scores.scatter(1, labels[:, None], -torch.inf).argmax(dim=1)


def _pairs(goodness: Tensor, labels: Tensor, wrong: Tensor) -> Iterator[PerStream]:
    """Right and wrong label's goodness `[n]`, block after block, from `[blocks, n, classes]`."""
    for scores in goodness:
        right, other = (scores.gather(1, which[:, None]).squeeze(1) for which in (labels, wrong))
        yield PerStream(right, other, None)


def pair_goodness(network: Network, image: Tensor, label: int, wrong: int, depth: int) -> Iterator[PerStream]:
    """The same with its graph, for one image `[1, C, H, W]`; each hypothesis keeps its label through all blocks."""
    tokens, hypotheses = network.tokens(image).repeat(2, 1, 1), torch.tensor([label, wrong])
    for d in range(depth + 1):
        output = network.block(d)(tokens, hypotheses)
        yield PerStream(output.goodness[:1], output.goodness[1:], None)
        tokens = network.hand_on(output.tokens)


def facts_of(config: Config, blocks: int, goodness: Iterable[PerStream]) -> Facts:
    """What the last of these blocks knows: weight and history as its training had them, at the end of it.

    The earlier blocks enter the ledger one by one, as in `Stepper`. Terms that look at tokens have nothing here.
    """
    ledger, facts = Ledger(config.history), None
    for one in goodness:
        nothing = torch.zeros_like(one.pos)
        no_aspects = PerStream(nothing[:, None], nothing[:, None], None)
        weight = config.rule.weight(ledger.past(one.pos.detach(), blocks, progress=1.0))
        history, history_aspects = ledger.history(one, no_aspects)
        facts = Facts(
            depth=ledger.depth,
            blocks=blocks,
            labels=torch.zeros(len(one.pos), dtype=torch.int64),
            beta=config.beta,
            eta=0.0,
            goodness=one,
            aspects=no_aspects,
            active=(False,),
            earlier=ledger.earlier(one),
            weight=weight,
            history=history,
            history_aspects=history_aspects,
            tokens_in=nothing,
            tokens_out=nothing,
            pooled=nothing,
            notes={},
            neutral=None,
        )
        ledger.add(one, no_aspects, weight)
    if facts is None:
        raise ValueError("there is no block to know anything")
    return facts


def _past(facts: Facts) -> Tensor:
    """P: the margin that the rule's weight multiplies."""
    return facts.history.pos - facts.history.nl


# Theorem 1: the identity and the sandwich


def check_example(
    network: Network, config: Config, depth: int, image: Tensor, pair: tuple[int, int], index: int = 0
) -> Example:
    """Block d's two gradients on one image under a pair of labels (right, wrong), against each other."""
    with torch.enable_grad():
        facts = facts_of(config, len(network.blocks), pair_goodness(network, image, *pair, depth))
        local, cumulative = gradients(network, config, facts)
    margin, past, weight = facts.margins()[0].detach(), _past(facts).detach(), facts.weight.detach()
    ratio = attenuation(margin, past, weight, config.beta)
    measured, cosine, error = _compare(local, cumulative, float(ratio))
    inherited = (facts.weight, facts.history.pos, facts.history.nl)
    return Example(
        index=index,
        wrong=pair[1],
        margin=float(margin),
        past=float(past),
        weight=float(weight),
        ratio=float(ratio),
        measured=measured,
        cosine=cosine,
        error=error,
        is_detached=not any(value.requires_grad for value in inherited),
    )


def gradients(network: Network, config: Config, facts: Facts) -> tuple[Tensor, Tensor]:
    """Of l_beta(m) and of the library's cumulative loss, over all of the block's parameters end to end: `[p]` each."""
    own = list(network.owned(facts.depth).values())

    def flat(loss: Tensor) -> Tensor:
        found = torch.autograd.grad(loss, own, retain_graph=True, allow_unused=True)
        return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(own, found)])

    local = barrier(facts.margins()[0], facts.beta).mean()
    return flat(local), flat(_cumulative_term(config).loss(facts, None))


def _cumulative_term(config: Config) -> Block:
    """The run's own cumulative loss; the paper's where the objective has another in its place."""
    term = config.objective.get("block")
    return term if isinstance(term, Block) else Block()


def _compare(local: Tensor, cumulative: Tensor, ratio: float) -> tuple[float | None, float | None, float | None]:
    """Ratio of lengths, cosine, and |g_cumulative - R g_local| / |g_local|; None each where a gradient underflows."""
    (a, long_a), (b, long_b) = _unit(local), _unit(cumulative)
    if long_a < MEASURABLE or max(ratio * long_a, long_b) < MEASURABLE:
        return None, None, None
    measured = long_b / long_a
    return measured, float(a @ b), float(torch.linalg.vector_norm(measured * b - ratio * a))


def _unit(vector: Tensor) -> tuple[Tensor, float]:
    """Direction and length. Scaled first: the squares of 1e-170 would underflow."""
    largest = vector.abs().max()
    if largest == 0:
        return vector, 0.0
    scaled = vector / largest
    length = torch.linalg.vector_norm(scaled)
    return scaled / length, float(largest * length)


def check_sandwich(margin: Tensor, past: Tensor, weight: Tensor, ratio: Tensor, beta: float) -> tuple[int, int]:
    """How many examples are inside the theorem's assumptions, and how many of these break its bounds."""
    inside = (margin >= 0) & (past >= 0) & (weight >= 0)
    lower, upper = envelope(weight * past, beta)
    kept = (ratio >= lower * (1 - TOLERANCE) - DUST) & (ratio <= upper * (1 + TOLERANCE) + DUST)
    return int(inside.sum()), int((inside & ~kept).sum())


# Theorem gradient_floor


def check_floor(facts: Facts, block: Block, current: Current) -> Floor | None:
    """The floor under |dJ/dm| on the facts' examples, J's slope taken from the library's own terms.

    None where the term has no coefficient at this depth.
    """
    coefficient = current.coefficient(facts.depth, facts.blocks)
    if coefficient <= 0:
        return None
    margin = facts.margins()[0].detach()
    slope = discrimination_slope(facts, block, current)
    weights, lowest = torch.ones_like(margin), 1.0
    if current.residual:
        weights = residual_weights(facts.past_margins()[0], facts.beta, current.w_min, current.w_max)
        lowest = current.w_min / current.w_max
    floor = coefficient * weights * barrier_slope(margin, facts.beta)
    unresolved = margin <= 0
    uniform = coefficient * lowest * facts.beta / 2
    kept = (slope >= floor * (1 - TOLERANCE) - DUST) & (~unresolved | (slope >= uniform * (1 - TOLERANCE)))
    return Floor(
        coefficient=coefficient,
        examples=len(margin),
        unresolved=int(unresolved.sum()),
        violations=int((~kept).sum()),
        smallest_slack=float((slope - floor).min()),
        smallest_unresolved_slack=float((slope[unresolved] - uniform).min()) if unresolved.any() else None,
    )


def discrimination_slope(facts: Facts, block: Block, current: Current) -> Tensor:
    """|dJ/dm| `[n]` of J = l_beta(M) + lambda(d) w_i l_beta(m), by autograd through the two terms.

    Taken along g+, in which both margins have slope one. The terms are means over the examples, J is each one's own.
    """
    with torch.enable_grad():
        positive = facts.goodness.pos.detach().clone().requires_grad_(True)
        moving = dataclasses.replace(facts, goodness=facts.goodness._replace(pos=positive))
        coefficient = current.coefficient(facts.depth, facts.blocks)
        total = block.loss(moving, None) + coefficient * current.loss(moving, None)
        (slope,) = torch.autograd.grad(len(positive) * total, positive)
    return slope.abs()


# A block's summary


def _check_block(config: Config, facts: Facts, examples: tuple[Example, ...]) -> BlockTheory:
    """Everything about one block: the coverage examples as facts, the gradient examples one by one."""
    current = config.objective.get("curr")
    floor = check_floor(facts, _cumulative_term(config), current) if isinstance(current, Current) else None
    return BlockTheory(
        block=facts.depth,
        identity=summarise_identity(examples),
        sandwich=_summarise_sandwich(facts, examples),
        floor=floor,
        coverage=measure_coverage(facts),
        examples=examples,
    )


def summarise_identity(examples: tuple[Example, ...]) -> Identity:
    """Counts and extremes; an example whose history brings a graph along is a violation in itself."""
    measured = [one for one in examples if one.measured is not None]
    return Identity(
        measured=len(measured),
        violations=sum(not one.obeys for one in examples),
        smallest_cosine=min((one.cosine for one in examples if one.cosine is not None), default=None),
        largest_error=max((one.error for one in examples if one.error is not None), default=None),
    )


def _summarise_sandwich(facts: Facts, examples: tuple[Example, ...]) -> Sandwich:
    margin, past = facts.margins()[0], _past(facts)
    by_formula = attenuation(margin, past, facts.weight, facts.beta)
    inside, violations = check_sandwich(margin, past, facts.weight, by_formula, facts.beta)
    table = [(one.margin, one.past, one.weight, one.measured) for one in examples if one.measured is not None]
    m, p, w, ratio = torch.tensor(table, dtype=torch.float64).reshape(-1, 4).unbind(dim=1)
    measured_inside, more = check_sandwich(m, p, w, ratio, facts.beta)
    return Sandwich(inside=inside, measured_inside=measured_inside, violations=violations + more)


def measure_coverage(facts: Facts) -> Coverage:
    """Shares and means over the facts' examples, each with its own weight under the rule."""
    margin, past, weight = facts.margins()[0], _past(facts), facts.weight
    ratio = attenuation(margin, past, weight, facts.beta)
    at_means = attenuation(margin.mean(), (weight * past).mean(), 1.0, facts.beta)
    return Coverage(
        examples=len(margin),
        margin_positive=float((margin >= 0).double().mean()),
        past_positive=float((past >= 0).double().mean()),
        both=float(((margin >= 0) & (past >= 0)).double().mean()),
        mean_margin=float(margin.mean()),
        mean_past=float(past.mean()),
        mean_weight=float(weight.mean()),
        mean_inherited=float((weight * past).mean()),
        mean_ratio=float(ratio.mean()),
        mean_clipped_ratio=float(ratio.clamp(max=1).mean()),
        ratio_at_means=float(at_means),
    )


# Images in, words out


def _pixels(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Images in [0, 1]."""
    return images.to(dtype) / 255 if images.dtype == torch.uint8 else images.to(dtype)


def _goodness(network: Network, images: Tensor, memory_mb: int | None) -> Tensor:
    """Goodness `[blocks, n, classes]` under all labels, in chunks; float64 on the CPU from here on."""
    rows, at_once = chunk_sizes(network, memory_mb)
    mean, found = network.mean, []
    for chunk in images.split(rows):
        found.append(block_goodness(network, _pixels(chunk.to(mean.device), mean.dtype), labels_at_once=at_once))
    goodness = torch.cat(found, dim=1).cpu().double()
    if not bool(goodness.isfinite().all()):
        raise RunError("the network's goodness is not finite on these images; nothing can be said about its gradients")
    return goodness


def _require_data(network: Network, images: Tensor, labels: Tensor, examples: int, coverage: int) -> None:
    if tuple(images.shape[1:]) != network.shape or labels.shape != images.shape[:1] or not len(images):
        raise UserError(
            f"expected images [n, {', '.join(map(str, network.shape))}] and a label each, got {list(images.shape)} "
            f"and {list(labels.shape)}"
        )
    if examples < 1 or coverage < 1:
        raise UserError(f"examples and coverage must be at least 1, got {examples} and {coverage}")


def _rule_in_words(config: Config) -> str:
    """The rule with its settings: `constant, gamma = 1.0`."""
    settings = dataclasses.asdict(config.rule).items()
    return ", ".join([config.rule.kind, *(f"{name} = {value}" for name, value in settings)])


def _note(config: Config, blocks: list[BlockTheory]) -> str:
    """What makes the numbers mean less than they seem to."""
    if not blocks:
        return "The network has one block: nothing is inherited, and the theorems say nothing about it."
    notes = []
    if all(block.coverage.mean_weight == 0 for block in blocks):
        notes.append(
            "The rule's weight is 0 at every block: no block sees what the earlier ones found, every gradient is the "
            "block's own, and R = 1 everywhere. The theorem holds trivially."
        )
    if config.history == "decay":
        notes.append("The history decays over depth (history = decay): P is the decayed sum that the rule weighs.")
    unseen = [str(block.block) for block in blocks if block.identity.measured == 0]
    if unseen:
        notes.append(f"Gradients too small for float64 on every example at block {', '.join(unseen)}.")
    return " ".join(notes)
