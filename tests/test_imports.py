"""Imports point one way: from commands down to kernels, never up, and never in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "goodness"

LAYERS = (
    ("errors", "registry", "durable", "tensor_file", "precision", "compilation", "paths", "startup"),
    ("draws", "step_context", "versions"),
    ("kernels",),
    ("parts",),
    ("nn",),
    ("methods", "data"),
    ("config", "own_parts", "presets"),
    ("health",),
    ("runs",),
    ("training",),
    ("preflight", "unused_settings", "api"),
    ("sweep", "report", "paper"),
    ("demo", "bench"),
    ("cli",),
)
"""Rooms from the ground up. A room imports from its own layer and from those below."""

APART = (("methods", "data"),)
"""Rooms of one layer that do not import each other."""

STILL_UPWARD = {
    ("api", "report.tensorboard"),
    ("health.locality", "training.step"),
    ("health.of_runs", "api"),
    ("health.of_runs", "preflight"),
    ("health.of_runs", "runs.run"),
    ("health.of_runs", "runs.run_folder"),
    ("health.theory", "api"),
    ("health.theory", "preflight"),
    ("health.theory", "runs.run_folder"),
    ("methods.cumulative.passes", "health.margins"),
    ("preflight", "report.tensorboard"),
    ("report.bench_figure", "bench.notes"),
    ("runs.consistency", "sweep.published"),
    ("runs.store.add", "paper.scales"),
    ("runs.store.add", "sweep.cell"),
    ("runs.store.rows", "sweep.cell"),
    ("sweep.workers", "cli"),
}
"""Imports that point up still; the list only gets shorter."""


def imports() -> Iterator[tuple[str, str]]:
    """Pairs of modules, the first of which imports the second, but for types alone."""
    for file in sorted(ROOT.rglob("*.py")):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(file.read_text())
        for_types = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if node in for_types:
                continue
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "goodness":
                below = (node.module or "").removeprefix("goodness").removeprefix(".")
                for alias in node.names:
                    inner = f"{below}.{alias.name}".removeprefix(".")
                    is_module = (ROOT / f"{inner.replace('.', '/')}.py").exists() or (
                        ROOT / inner.replace(".", "/")
                    ).is_dir()
                    yield name, inner if is_module else below
            elif isinstance(node, ast.Import):
                yield from (
                    (name, a.name.removeprefix("goodness.")) for a in node.names if a.name.startswith("goodness.")
                )


def room(module: str) -> str:
    return module.split(".")[0]


def layer(module: str) -> int:
    (found,) = [place for place, rooms in enumerate(LAYERS) if room(module) in rooms]
    return found


PAIRS = sorted({(a, b) for a, b in imports() if b and a not in ("__init__", "__main__", "goodness")})


def test_every_module_has_a_layer() -> None:
    assert {room(a) for a, _ in PAIRS} <= {room for rooms in LAYERS for room in rooms}


def test_no_import_points_up() -> None:
    assert {(a, b) for a, b in PAIRS if layer(b) > layer(a)} == STILL_UPWARD


@pytest.mark.parametrize("rooms", APART)
def test_rooms_side_by_side_do_not_know_each_other(rooms: tuple[str, ...]) -> None:
    assert [(a, b) for a, b in PAIRS if room(a) != room(b) and {room(a), room(b)} <= set(rooms)] == []
