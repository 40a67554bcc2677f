"""What a run loads before its first step: the compiler, where it compiles, while the data is read."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import goodness
from goodness import api, kernels
from goodness.errors import ConfigError, DataError
from goodness.training import compiler_import as start
from goodness.training.compiler_import import compiler_loading
from tiny_runs import shrunk

CPU = torch.device("cpu")


@pytest.mark.parametrize("choice", ["on", "off"])
def test_the_compiler_is_there_when_the_data_is_and_only_where_it_is_needed(choice: str) -> None:
    script = """
import sys, torch
from goodness.api import make_config
from goodness.training.compiler_import import compiler_loading
config = make_config("demo", {"step.compile": sys.argv[1]})
with compiler_loading(config, torch.device("cpu")):
    pass
print("torch._inductor.compile_fx" in sys.modules)
"""
    shown = subprocess.run([sys.executable, "-c", script, choice], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == str(choice == "on")


def test_trouble_with_the_data_is_told_and_the_thread_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[threading.Thread] = []
    monkeypatch.setattr(start, "_load_compiler", lambda device: seen.append(threading.current_thread()))
    with pytest.raises(DataError), compiler_loading(shrunk("demo", {"step.compile": "on"}), CPU):
        raise DataError("no such file")
    (thread,) = seen
    assert thread is not threading.main_thread()
    assert not thread.is_alive()


def test_what_both_threads_may_import_is_there_before_the_second_begins() -> None:
    script = """
import sys, torch
from goodness.api import make_config
from goodness.training import compiler_import as start
start._load_compiler = lambda device: print("torch._dynamo" in sys.modules)
with start.compiler_loading(make_config("demo", {"step.compile": "on"}), torch.device("cpu")):
    pass
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "True"


def test_a_compiler_that_cannot_be_imported_is_no_trouble_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        if name != "torch._dynamo":
            raise ImportError(name)

    monkeypatch.setattr(start.importlib, "import_module", broken)
    with compiler_loading(shrunk("demo", {"step.compile": "on"}), CPU):
        pass


def test_every_file_that_brings_an_operation_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(kernels.importlib, "import_module", loaded.append)
    kernels.load()
    files = Path(kernels.__file__).parent.glob("*.py")
    assert loaded == sorted(f"goodness.kernels.{file.stem}" for file in files if "_op(" in file.read_text())


def test_the_network_is_tried_on_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def refuse(*_: object) -> None:
        seen.append(torch.get_num_threads())
        raise ConfigError("too large")

    before = torch.get_num_threads()
    monkeypatch.setattr(api, "refuse_what_cannot_be_built", refuse)
    torch.set_num_threads(2)
    try:
        with pytest.raises(ConfigError):
            goodness.train("demo", out=tmp_path / "run", device="cpu")
        assert seen == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_no_command_waits_for_the_compiler() -> None:
    program = (
        "import importlib, pkgutil, sys, goodness.api, goodness.cli\n"
        "for one in pkgutil.iter_modules(goodness.cli.__path__): importlib.import_module(f'goodness.cli.{one.name}')\n"
        "print('torch._dynamo' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_the_command_imports_none_of_its_commands_before_it_knows_which() -> None:
    program = "import sys, goodness.cli; print([name for name in sys.modules if name.startswith('goodness.bench')])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_looking_at_a_run_needs_no_compiler(tmp_path: Path) -> None:
    """torch's optimisers import it; what reads a finished run has none."""
    goodness.train("demo", data="digits-sample", epochs=1, out=tmp_path / "run", device="cpu")
    program = (
        "import sys; from goodness.cli import main; main(sys.argv[1:]); print('torch._dynamo' in sys.modules or "
        "'torch._inductor' in sys.modules)"
    )
    for command in ("health", "eval"):
        asked = [sys.executable, "-c", program, command, str(tmp_path / "run"), "--device", "cpu"]
        found = subprocess.run(asked, capture_output=True, text=True, check=True)
        assert found.stdout.splitlines()[-1] == "False", command
