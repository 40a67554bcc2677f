"""README's promises: its commands exist, and its example of own parts runs as printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter there, with the package of this checkout; it must succeed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def code_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_example_of_own_parts_runs_from_python_and_as_a_plugin(tmp_path: Path) -> None:
    example = next(block for block in code_blocks() if "register_rule" in block)
    (tmp_path / "my_parts.py").write_text(example.replace("epochs=3", "epochs=1"))
    done = python(tmp_path, "my_parts.py")
    assert 0 < float(done.stdout.split()[-1]) < 1
    command = re.search(r"`goodness (train demo --plugin [^`]*)`", README)
    assert command is not None
    python(tmp_path, "-m", "goodness", *command[1].split(), "--epochs", "1", "--out", "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["rule"] == {"kind": "half-life", "gamma": 1.0}
    assert config["objective"]["small-energy"] == {"kind": "small-energy", "weight": 0.02}


def test_the_python_snippet_runs_as_printed_but_for_its_length(tmp_path: Path) -> None:
    snippet = next(block for block in code_blocks() if "rule.kappa" in block)
    (tmp_path / "snippet.py").write_text(snippet.replace("seed=1,", "seed=1, epochs=1,"))
    python(tmp_path, "snippet.py")
    (config,) = tmp_path.glob("runs/*/config.json")
    assert json.loads(config.read_text())["rule"]["kappa"] == 2.0


def test_the_files_that_readme_links_to_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_two_commands_are_make_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in README
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text()
