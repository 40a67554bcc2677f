"""The demo: its JSON, its figure, going on after a stop, and the finding itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import goodness
from goodness.demo import RULES, demo_sentence


def demo(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "goodness", "demo", "--out", str(folder), "--json", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_the_demo_ends_with_one_json_object_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    first = demo(folder, "--epochs", "1")
    deadline = time.monotonic() + 120
    while not (folder / "local" / "metrics.jsonl").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    _, error = first.communicate(timeout=120)
    assert first.returncode == 143
    assert f"goodness demo --out {folder}" in " ".join(error.split())
    second = demo(folder, "--epochs", "1")
    output, error = second.communicate(timeout=300)
    assert second.returncode == 0, error
    result = json.loads(output.strip().splitlines()[-1])
    assert [rule["name"] for rule in result["rules"]] == list(RULES) == ["local", "gated", "constant", "lcff"]
    for rule in result["rules"]:
        assert len(rule["blocks"]) == 4
        assert rule["accuracy"] == rule["blocks"][-1]["accuracy"] <= 1
        for block in rule["blocks"]:
            assert block.keys() == {"sep_cur", "sep_rate", "attenuation", "accuracy"}
        assert (folder / rule["name"] / "result.json").exists()
    assert result["seconds"] > 0
    assert "left" in error  # progress tells the time left
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "demo.svg").exists()


@pytest.mark.slow
def test_the_last_block_rides_for_free_under_lcff_and_works_under_local(tmp_path: Path) -> None:
    runs = {rule: goodness.train("demo", rule=rule, epochs=6, out=tmp_path / rule).result for rule in ("local", "lcff")}
    deepest = {rule: result["health"]["test"][-1]["sep_cur"] for rule, result in runs.items()}
    assert deepest["local"] >= 1
    assert deepest["local"] >= 3 * deepest["lcff"]
    accuracies = [result["reported"]["accuracy"] for result in runs.values()]
    assert min(accuracies) >= 0.94
    assert max(accuracies) - min(accuracies) <= 0.03
    left = {rule: result["health"]["test"][-1]["attenuation"] for rule, result in runs.items()}
    assert left["local"] == 1
    assert left["lcff"] < 0.1


def test_the_sentence_says_what_the_numbers_say() -> None:
    def result(deepest: dict[str, float]) -> dict:
        return {
            "rules": [
                {"name": name, "accuracy": 0.97, "blocks": [{"sep_cur": value}]} for name, value in deepest.items()
            ]
        }

    collapsed = demo_sentence(result({"local": 2.0, "gated": 2.1, "constant": 0.4, "lcff": 0.05}))
    assert "rides for free" in collapsed
    assert "0.05" in collapsed
    easy = result({"local": 2.0, "gated": 2.1, "constant": 0.4, "lcff": 0.05})
    for rule in easy["rules"]:
        rule["blocks"][0]["accuracy"] = 0.965
    assert "the first block alone has 96.5 % already" in demo_sentence(easy)
    easy["rules"][2]["blocks"][0]["accuracy"] = 0.9
    assert "first block alone" not in demo_sentence(easy)
    healthy = demo_sentence(result({"local": 2.0, "gated": 2.1, "constant": 1.9, "lcff": 1.8}))
    assert "rides for free" not in healthy
