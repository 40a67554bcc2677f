"""Branches that each added runs to the store merge without a conflict, and to the same results in any order."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from made_up import another_run

from goodness.runs.store import add, predictions, rows
from goodness.runs.store.columns import TABLES

ROOT = Path(__file__).parents[3]


def git(folder: Path, *arguments: str) -> str:
    names = {f"GIT_{who}_{what}": "someone@example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    others = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**others, **names, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_twelve_runs_from_three_clones(cell: Path, tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    (origin / "results").mkdir(parents=True)
    for name in (".gitattributes", *(f"results/{table}.csv" for table in TABLES)):
        shutil.copyfile(ROOT / name, origin / name)
    for table in TABLES:  # as empty as the first commit of it, whatever has been added since
        place = origin / "results" / f"{table}.csv"
        place.write_text(place.read_text().splitlines(keepends=True)[0])
    git(origin, "init", "--quiet", "--initial-branch", "main")
    git(origin, "add", ".")
    git(origin, "commit", "--quiet", "--message", "Begin")
    branches = ("a", "b", "c")
    for number, branch in enumerate(branches):
        clone = tmp_path / branch
        git(tmp_path, "clone", "--quiet", str(origin), str(clone))
        runs = [
            another_run(cell / "run", tmp_path / "runs" / f"s{seed}", seed)
            for seed in range(4 * number, 4 * number + 4)
        ]
        add(runs, clone / "results")
        git(clone, "add", "results/*.csv", "results/arrays")
        git(clone, "commit", "--quiet", "--message", "Add runs")
        git(origin, "fetch", "--quiet", str(clone), f"HEAD:{branch}")
    merged = []
    for place, order in enumerate(itertools.permutations(branches)):
        clone = tmp_path / f"merged-{place}"
        git(tmp_path, "clone", "--quiet", str(origin), str(clone))
        for branch in order:
            git(clone, "merge", "--quiet", "--no-edit", f"origin/{branch}")
        store = clone / "results"
        for table in TABLES:
            lines = (store / f"{table}.csv").read_text().splitlines()
            assert [number for number, line in enumerate(lines) if line.startswith("run,")] == [0]
        merged.append({table: rows(store, table) for table in TABLES})
        assert len(pd.read_csv(store / "runs.csv")) == 12
        for row in rows(store):
            assert len(predictions(store, row["run"])["test.labels"]) == row["test_images"]
    assert sorted(row["seed"] for row in merged[0]["runs"]) == list(range(12))
    assert [len(merged[0][table]) for table in ("epochs", "blocks")] == [12 * 2 * (1 + 2), 12 * 2 * 2]
    assert all(one == merged[0] for one in merged)
