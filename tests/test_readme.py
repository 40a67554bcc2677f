"""What the front page and the guides promise: their commands exist, their code runs, their links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from goodness.cli import COMMANDS
from goodness.runs.store import rows

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
GUIDES = [README, *(DOCS / f"{name}.md" for name in ("usage", "health", "sweeps", "own-parts", "paper-tables"))]
MOVED = [DOCS / f"{name}.md" for name in ("glossary", "performance", "reliability", "run-folder")]


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter there, with the package of this checkout; it must succeed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def code_block(page: Path, having: str) -> str:
    """The one Python example of the page that has these words."""
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) if having in block]
    return block


def command(page: Path, start: str) -> list[str]:
    """The arguments of the one command of the page that starts so, without `goodness` and comment."""
    (line,) = re.findall(rf"^    goodness ({re.escape(start)}.*)$", page.read_text(), re.MULTILINE)
    return line.partition("#")[0].split()


def test_the_example_of_own_parts_runs_from_python_and_as_a_plugin(tmp_path: Path) -> None:
    example = code_block(DOCS / "own-parts.md", "register_term")
    (tmp_path / "my_parts.py").write_text(example.replace("epochs=3", "epochs=1"))
    done = python(tmp_path, "my_parts.py")
    assert 0 < float(done.stdout.split()[-1]) < 1
    arguments = command(DOCS / "own-parts.md", "train demo --plugin")
    python(tmp_path, "-m", "goodness", *arguments, "--epochs", "1", "--out", "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["rule"] == {"kind": "half-life", "gamma": 1.0}
    assert config["objective"]["small-energy"] == {"kind": "small-energy", "weight": 0.02}


def test_another_method_on_the_front_page_trains_and_is_audited(tmp_path: Path) -> None:
    python(tmp_path, "-m", "goodness", *command(README, "train demo --method"), "--epochs", "1", "--out", "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["method"]["kind"] == "mono-forward"
    python(tmp_path, "-m", "goodness", *command(README, "audit"))


def test_the_python_example_on_the_front_page_runs(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(code_block(README, "goodness.train").replace("seed=1)", "seed=1, epochs=1)"))
    done = python(tmp_path, "example.py")
    (config,) = tmp_path.glob("runs/*/config.json")
    assert json.loads(config.read_text())["rule"]["kind"] == "gated"
    assert re.search(r"^tensor\(\[(\d, ){4}\d\]\)$", done.stdout, re.MULTILINE)


def test_the_python_example_of_the_commands_page_runs(tmp_path: Path) -> None:
    example = code_block(DOCS / "usage.md", "rule.kappa").replace("seed=1,", "seed=1, epochs=1,")
    short = example.replace("readout(run.path)", 'readout(run.path, changes={"readout.epochs": 1})')
    (tmp_path / "example.py").write_text(short)
    python(tmp_path, "example.py")
    (config,) = tmp_path.glob("runs/*/config.json")
    assert json.loads(config.read_text())["rule"]["kappa"] == 2.0


def test_the_sweep_example_runs(tmp_path: Path) -> None:
    example = code_block(DOCS / "sweeps.md", "goodness.sweep").replace('"epochs": 5', '"epochs": 1')
    (tmp_path / "example.py").write_text("import goodness\n\n" + example)
    assert "n=3" in python(tmp_path, "example.py").stdout


@pytest.mark.parametrize("page", [*GUIDES, *MOVED], ids=lambda page: page.stem)
def test_the_files_that_a_page_links_to_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_commands_that_a_page_names_exist(page: Path) -> None:
    named = set(re.findall(r"(?:^    |`)goodness ([a-z]+)\b", page.read_text(), re.MULTILINE))
    assert named
    assert named <= COMMANDS.keys()


def test_make_demo_and_make_test_are_targets_and_on_the_front_page() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in README.read_text()
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_the_table_of_sprint_is_the_mean_of_the_runs_kept_here() -> None:
    kept = json.loads((ROOT / "results" / "cifar10-sprint" / "sprint.json").read_text())["result"]["reported"]
    runs = [(row["data"], row["accuracy"], row["accuracy_tta"]) for row in rows(ROOT / "results") if is_sprint(row)]
    runs.append(("cifar10", kept["accuracy"], kept["accuracy_tta"]))
    table = README.read_text().split("<!-- sprint -->")[1].split("<!-- /sprint -->")[0]
    found = re.findall(r"^\| (CIFAR-\d+) \| (\d+) \| ([\d.]+) % \| ([\d.]+) % \|", table, re.MULTILINE)
    assert [name for name, *_ in found] == ["CIFAR-10", "CIFAR-100"]
    for name, count, *told in found:
        scores = [both for data, *both in runs if data == name.lower().replace("-", "")]
        assert len(scores) == int(count)
        means = [100 * sum(column) / len(scores) for column in zip(*scores)]
        assert [float(one) for one in told] == pytest.approx(means, abs=0.0051)


def is_sprint(row: dict[str, object]) -> bool:
    """By its own recipe, on whatever data."""
    return row["preset"] == "sprint" and set(str(row["changes"] or "").split()) <= {"data=cifar100"}
