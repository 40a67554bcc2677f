"""A request to stop is a flag the loops read; impatience is answered at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from goodness.training import signals
from goodness.training.signals import StopRequest


@pytest.fixture(autouse=True)
def plain_handlers() -> Iterator[None]:
    """Python's own handlers, even where a shell in the background made Ctrl-C ignored."""
    previous = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    }
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)  # to this process the handler has run when this returns


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_sets_the_flag_and_the_exit_code_of_its_kind(number: int, code: int) -> None:
    with StopRequest() as stop:
        assert (stop.requested, stop.exit_code) == (False, 0)
        send(number)
        assert (stop.requested, stop.exit_code) == (True, code)
    assert stop.requested


def test_a_second_ctrl_c_interrupts_at_once_and_a_second_sigterm_does_not() -> None:
    with StopRequest() as stop:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        assert stop.exit_code == 143


def test_the_old_handlers_return_even_after_an_error() -> None:
    def own(*_: object) -> None: ...

    signal.signal(signal.SIGTERM, own)
    try:
        with StopRequest():
            assert signal.getsignal(signal.SIGTERM) is not own
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert signal.getsignal(signal.SIGTERM) is own
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_request_to_an_inner_loop_reaches_the_outer_one_and_the_loops_after_it() -> None:
    with StopRequest() as outer:
        with StopRequest() as inner:
            send(signal.SIGINT)
            assert inner.requested
        assert outer.requested
        assert outer.exit_code == 130
        with StopRequest() as next_one:
            assert next_one.requested
            with pytest.raises(KeyboardInterrupt):
                send(signal.SIGINT)
    with StopRequest() as fresh:
        assert not fresh.requested


def test_the_message_comes_once_and_its_failure_costs_nothing() -> None:
    codes = []

    def tell(code: int) -> None:
        codes.append(code)
        raise BrokenPipeError

    with StopRequest(tell) as stop:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        assert stop.requested
    assert codes == [143]


def test_outside_the_main_thread_it_does_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with StopRequest() as stop:
            seen.append((stop.requested, stop.exit_code, signal.getsignal(signal.SIGINT) is before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, 0, True)]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_process_in_a_loop_ends_by_itself_with_the_code_shells_expect(number: int, code: int) -> None:
    script = """
import sys, time
from goodness.training.signals import StopRequest
with StopRequest() as stop:
    print("ready", flush=True)
    while not stop.requested:
        time.sleep(0.01)
    print("saved", flush=True)
sys.exit(stop.exit_code)
"""
    source = str(Path(signals.__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert (output, process.returncode) == ("saved\n", code)


@pytest.mark.parametrize(
    ("handler", "code", "left"), [(signal.SIG_IGN, 0, "result.json"), (signal.SIG_DFL, 129, "checkpoints/step-*")]
)
def test_a_closed_terminal_stops_a_run_that_saves_unless_nohup_started_it(
    tmp_path: Path, handler: signal.Handlers, code: int, left: str
) -> None:
    sizes = ["--model.width", "16", "--model.block.heads", "2", "--model.block.hidden", "16"]
    sizes += ["--model.stem.channels", "8", "--batch", "120", "--epochs", "8"]
    process = subprocess.Popen(
        [sys.executable, "-m", "goodness", "train", "demo", *sizes, "--out", str(tmp_path / "run"), "--events"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline()  # the first step is done
    process.send_signal(signal.SIGHUP)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == code
    assert output, "the signal came while it trained"
    assert list((tmp_path / "run").glob(left))
    assert (tmp_path / "run" / "result.json").exists() == (code == 0)
