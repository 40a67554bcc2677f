"""The command line: `goodness COMMAND`; alone in knowing a terminal."""

from __future__ import annotations

import errno
import importlib
import io
import sys
from collections.abc import Callable, Sequence

from goodness import __version__, startup

if startup.is_command():
    startup.hold()

from goodness.cli.terminal import err, escape, out
from goodness.errors import RunError, UserError, nearest, tells_of_full_memory

try:
    import tyro  # noqa: F401
except ImportError:
    sys.exit("the goodness command needs tyro: pip install tyro rich")

startup.release()

ABOUT = """Forward-Forward networks, trained block by block, and a clear view of which blocks work.

  goodness demo               see blocks ride for free, on digits, in a few minutes on a laptop
  goodness presets            the named runs
  goodness train PRESET       train one (--help lists every setting)
  goodness resume RUN         go on with a run that was stopped or killed
  goodness readout RUN        Stage 2: train an attentive readout on a finished run
  goodness sweep PRESET...    several presets, several seeds: each run once, then means; goes on after any stop
  goodness paper [TABLE]      the paper's tables, ours beside it; goodness reproduce TABLE trains what one needs
  goodness publish POOL       its runs as small files for a repository; goodness paper reads them
  goodness results            the runs in the store results/; goodness results add RUN... puts some there
  goodness eval RUN           score a finished run again
  goodness health RUN         which blocks work and which ride for free
  goodness report RUN...      one page, readable offline; goodness watch RUN shows it while a run trains
  goodness compare RUN RUN... means over seeds, paired differences, where predictions differ
  goodness theory RUN         the paper's theorems, checked on the run's own blocks
  goodness audit PRESET|RUN   no gradient crosses a block: the proof
  goodness bench              how fast this machine trains and predicts, beside backpropagation
  goodness data list          the data sets; also: data get NAME, data check NAME, data embed NAME (texts)

Each command takes --help. Docs: README.md, docs/decisions.md."""

Command = Callable[[list[str]], int]


def _command(module: str, name: str) -> Command:
    """A command whose module is imported when the command is called."""

    def run(arguments: list[str]) -> int:
        return getattr(importlib.import_module(f"goodness.cli.{module}"), f"{name}_command")(arguments)

    return run


COMMANDS: dict[str, Command] = {
    "demo": _command("training", "demo"),
    "presets": _command("listing", "presets"),
    "train": _command("training", "train"),
    "resume": _command("training", "resume"),
    "readout": _command("training", "readout"),
    "sweep": _command("sweep", "sweep"),
    "cell": _command("sweep", "cell"),
    "paper": _command("paper", "paper"),
    "reproduce": _command("paper", "reproduce"),
    "publish": _command("publish", "publish"),
    "results": _command("results", "results"),
    "eval": _command("training", "eval"),
    "health": _command("health", "health"),
    "report": _command("health", "report"),
    "watch": _command("health", "watch"),
    "compare": _command("health", "compare"),
    "theory": _command("health", "theory"),
    "audit": _command("health", "audit"),
    "bench": _command("bench", "bench"),
    "data": _command("listing", "data"),
}


IF_MEMORY_ENDS = {
    "train": "Try a smaller --batch, --model.width or --keep.memory-mb",
    "resume": "Its settings are fixed: take another --device, or start anew with a smaller --batch (--readout.batch)",
    "readout": "Try a smaller --readout.batch, --readout.width or --keep.memory-mb",
    "reproduce": "Fewer --jobs at once may do",
    "cell": "Fewer --jobs at once may do, or --set with a smaller batch or keep.memory_mb",
    "audit": "Try a smaller --batch",
}


KEEP_CHECKPOINTS = ("demo", "train", "resume", "readout", "sweep", "cell", "reproduce")
"""Commands that go on where they were."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 when all is well, 2 for a mistake in what was asked, 1 for a run's own trouble."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal of few letters shows '?', not a traceback
    command = arguments[0] if arguments else ""
    if command in ("", "-h", "--help", "help"):
        out.print(ABOUT, markup=False, soft_wrap=True)
        return 0 if command else 2
    if command == "--version":
        out.print(f"goodness {__version__}")
        return 0
    try:
        if command not in COMMANDS:
            raise UserError(f"unknown command '{command}': {nearest(command, COMMANDS, cutoff=0.6)}")
        return COMMANDS[command](arguments[1:])
    except (UserError, RunError) as trouble:
        err.print(f"[bold red]goodness:[/] {escape(str(trouble))}", soft_wrap=True)
        return trouble.exit_code
    except KeyboardInterrupt:
        err.print("interrupted at once" + ("; the last checkpoint stands" if command in KEEP_CHECKPOINTS else ""))
        return 130
    except BrokenPipeError:
        return 1
    except (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError) as trouble:
        advice = "; a file stands where a folder belongs: move it away" if isinstance(trouble, FileExistsError) else ""
        err.print(f"goodness: {trouble.filename}: {trouble.strerror}{advice}", markup=False, soft_wrap=True)
        return 2
    except OSError as trouble:
        full = "; free some room and run the same command again" if trouble.errno == errno.ENOSPC else ""
        err.print(f"goodness: {trouble}{full}", markup=False, soft_wrap=True)
        return 2 if trouble.errno == errno.ENAMETOOLONG else 1
    except (MemoryError, RuntimeError) as trouble:
        if not tells_of_full_memory(trouble):
            raise
        err.print(
            f"goodness: it does not fit in memory: {(str(trouble) or 'all is used').splitlines()[0]}. "
            f"{IF_MEMORY_ENDS.get(command, 'Close what else is running, or take another --device')}",
            markup=False,
            soft_wrap=True,
        )
        return 1


if __name__ == "__main__":
    sys.exit(main())
