"""A step recorded once and replayed: on a GPU one CUDA graph, so that neither Python nor a thousand launches pace it.

What moves from step to step reaches a recorded step in three ways: random numbers through `Draws`, plain numbers
through tensors of one element that are set before each replay (learning rates, the teacher's share, progress), and
whatever else shapes the step through its signature: another signature, another recording.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from goodness.draws import Draws
from goodness.step_context import Moment, Said

WARM_STEPS = 3
"""Steps of each signature that run as they are before one is recorded: compilers and allocators settle in them."""


class Recording(Protocol):
    def replay(self, moment: Moment) -> Said: ...


class CudaGraph:
    """The step's kernels, in their order, on the tensors they were recorded with."""

    def __init__(self, step: Callable[[], Said], draws: Draws, stream: Any) -> None:
        self.draws, self.places, self.graph = draws, draws.places(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize(draws.device)
        capture = torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local")
        with draws.kept_in(self.places), capture:
            self.measured = step()

    def replay(self, moment: Moment) -> Said:
        self.draws.refill(self.places, moment.epoch, moment.step)
        self.graph.replay()
        return self.measured


class Repetition:
    """The readable twin of a CUDA graph, for any device: the step's own code, with all it was told at the recording."""

    def __init__(self, step: Callable[[], Said], draws: Draws) -> None:
        self.step, self.draws, self.places = step, draws, draws.places()

    def replay(self, moment: Moment) -> Said:
        self.draws.refill(self.places, moment.epoch, moment.step)
        with self.draws.kept_in(self.places):
            return self.step()


@dataclass
class _Known:
    """A signature's steps so far, and the recording of one."""

    warm: int = 0
    rows: Tensor | None = None
    recording: Recording | None = None


class Recorder:
    """Carries out steps: the first of each signature as they are, then by replaying a recording of one.

    `body(rows, moment)` is a step without its settings; whatever it takes from `moment` must be in `signature(moment)`
    or set before the call. Where the step cannot be recorded, all steps run as they are, and `notice` hears why.
    `kept` recordings stay at once, each with memory of its own: more than one where signatures take turns.
    """

    def __init__(
        self,
        body: Callable[[Tensor, Moment], Said],
        signature: Callable[[Moment], Hashable],
        draws: Draws,
        notice: Callable[[str], None],
        kept: int = 1,
    ) -> None:
        self.body, self.signature, self.draws, self.notice, self.kept = body, signature, draws, notice, kept
        self.is_cuda = draws.device.type == "cuda"
        draws.watches = True
        self.stream = torch.cuda.Stream(draws.device) if self.is_cuda else None
        self._known: dict[Hashable, _Known] = {}
        self._refused = False

    def __call__(self, rows: Tensor, moment: Moment) -> Said:
        signature = self.signature(moment)
        known = self._known.pop(signature, None) or _Known()
        self._known[signature] = known  # the latest last
        while len(self._known) > self.kept:
            del self._known[next(iter(self._known))]
        if known.recording is None and not self._refused and known.warm >= WARM_STEPS:
            self._record(known, rows, moment)
        if known.recording is None or known.rows is None:
            known.warm += 1
            return self._as_it_is(rows, moment)
        known.rows.copy_(rows)
        return known.recording.replay(moment)

    def _as_it_is(self, rows: Tensor, moment: Moment) -> Said:
        """On the stream that the recording will be made on, since gradients stay on the stream they began on."""
        if self.stream is None:
            measured = self.body(rows, moment)
            self.draws.look()
            return measured
        around = torch.cuda.current_stream(self.draws.device)
        self.stream.wait_stream(around)
        with torch.cuda.stream(self.stream):
            measured = self.body(rows, moment)
        self.draws.look()
        around.wait_stream(self.stream)
        return measured

    def _record(self, known: _Known, rows: Tensor, moment: Moment) -> None:
        if self.draws.has_drawn:
            self._refuse("a block draws random numbers of its own")
            return
        known.rows = places = rows.clone()
        step = lambda: self.body(places, moment)  # noqa: E731
        around = torch.cuda.current_stream(self.draws.device) if self.is_cuda else None
        try:
            known.recording = CudaGraph(step, self.draws, self.stream) if self.is_cuda else Repetition(step, self.draws)
        except RuntimeError as error:
            if around is not None:  # a recording that broke off leaves its stream in place
                torch.cuda.set_stream(around)
                torch.cuda.synchronize(self.draws.device)
            cause = error.__context__ or error
            self._refuse(str(cause).splitlines()[0] if str(cause) else repr(cause))

    def _refuse(self, why: str) -> None:
        self._refused = True
        self.notice(f"steps are not recorded, so they may be slower: {why}")
