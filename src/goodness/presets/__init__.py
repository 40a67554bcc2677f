"""Named runs: functions that return a configuration, each derived from another by a few named changes.

Every run that the paper names is here; what it prints for them is in `goodness.paper.accuracies`. Where a name or a
cell of its tables is not explained, the docstring says what we took it to mean (more in docs/decisions.md).
"""

from __future__ import annotations

from goodness.presets.naming import Changes as Changes
from goodness.presets.naming import add_variants as add_variants
from goodness.presets.naming import base_of as base_of
from goodness.presets.naming import preset as preset
from goodness.presets.naming import presets as presets
from goodness.presets.naming import variant as variant
from goodness.presets.naming import without as without

# In the order in which they are listed.
# isort: off
import goodness.presets.dense
import goodness.presets.paper_size
import goodness.presets.ablations
from goodness.presets.sweep import RULES as RULES
import goodness.presets.other_data
import goodness.presets.texts
import goodness.presets.controls
import goodness.presets.fast
import goodness.presets.laptop
import goodness.presets.hinton
import goodness.presets.cwc
import goodness.presets.deeperforward
import goodness.presets.scff
import goodness.presets.trifecta  # noqa: F401
# isort: on

SECTIONS = {
    "gamma0-dense": "Dense: start here",
    "gamma0": "The paper's size",
    "cp-fair-no-sam": "cp-fair, one part less",
    "cp-fair-k1": "cp-fair in detail",
    "d128-gamma0": "Rules at L4/D128",
    "l8-gamma0": "Rules at L8/D128",
    "cifar100-gamma0": "Other data sets",
    "text-imdb": "Texts",
    "bp-strong": "Controls",
    "sprint": "Accuracy per minute",
    "demo": "On a laptop",
    "hinton": "Other methods",
}
"""A title for each stretch of the presets above, by the name that it begins with."""


def section_of(name: str) -> str:
    """The title a preset stands under in a list; one that another module has registered stands under "Your own"."""
    if not presets[name].__module__.startswith(f"{__name__}."):
        return "Your own"
    title = ""
    for one in presets:
        title = SECTIONS.get(one, title)
        if one == name:
            break
    return title
