"""The diagrams of the documentation: drawn from the code, and those on disk are what the code draws."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

import goodness
from goodness.nn.head import AspectHead

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw", DOCS / "figures" / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words_of(svg: str) -> list[str]:
    """What is written in a diagram: matplotlib notes every piece of text beside its outlines."""
    return sorted(html.unescape(" ".join(found.split())) for found in re.findall(r"<!--(.*?)-->", svg, re.DOTALL))


@pytest.mark.parametrize("name", ["architecture", "training_step"])
def test_the_diagram_on_disk_is_the_one_that_the_code_draws(
    name: str, drawing: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("diagrams")
    drawing.main(folder)
    kept = (DOCS / "figures" / f"{name}.svg").read_text("utf-8")
    ElementTree.fromstring(kept)
    assert len(words_of(kept)) > 15
    assert words_of(kept) == words_of((folder / f"{name}.svg").read_text("utf-8"))
    assert f"figures/{name}.svg" in (DOCS / "design.md").read_text("utf-8")


def test_the_diagrams_name_what_the_code_has(drawing: ModuleType) -> None:
    from matplotlib.text import Text

    network, step = (
        "\n".join(text.get_text() for text in drawing.DIAGRAMS[name]().findobj(Text))
        for name in ("architecture", "training_step")
    )
    assert all(name in network for name in AspectHead.names)
    assert all(stream in step for stream in ("pos1", "pos2", "nl", "ni"))
    assert "32 experts" in network
    assert "of 8 to 16 drawn" in step


def test_every_place_and_registry_that_the_design_page_names_is_there() -> None:
    page = (DOCS / "design.md").read_text("utf-8")
    places = [place for place in re.findall(r"`([a-z_/]+(?:\.py|/))`", page) if "/" in place]
    assert len(places) > 8
    for place in places:
        roots = [DOCS.parent, DOCS.parent / "src" / "goodness"]
        assert any((root / place).exists() for root in roots), place
    for name in re.findall(r"register_[a-z]+", page):
        assert hasattr(goodness, name), name
