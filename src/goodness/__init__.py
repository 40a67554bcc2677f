"""goodness: Forward-Forward networks, trained block by block, and a clear view of which blocks work.

import goodness
run = goodness.train("demo", data="digits", seed=1)
print(run.accuracy)
"""

from goodness import startup

if startup.is_command():  # before torch is imported
    startup.hold()

from goodness.api import evaluate as evaluate
from goodness.api import load as load
from goodness.api import make_config as make_config
from goodness.api import readout as readout
from goodness.api import resume as resume
from goodness.api import train as train
from goodness.config import Config as Config
from goodness.config import override as override
from goodness.errors import ConfigError as ConfigError
from goodness.errors import DataError as DataError
from goodness.errors import RunError as RunError
from goodness.errors import UserError as UserError
from goodness.health.block_health import health_of_goodness as health_of_goodness
from goodness.health.locality import audit_locality as audit_locality
from goodness.health.measures import attenuation_bounds as attenuation_bounds
from goodness.health.measures import attenuation_ratio as attenuation_ratio
from goodness.health.measures import depth_saturation as depth_saturation
from goodness.health.measures import free_riding_index as free_riding_index
from goodness.health.measures import gate as gate
from goodness.health.measures import loss_collapse as loss_collapse
from goodness.health.measures import residual_weights as residual_weights
from goodness.health.of_runs import health as health
from goodness.health.stats import paired_bootstrap as paired_bootstrap
from goodness.health.stats import stability_bound as stability_bound
from goodness.methods.base import Method as Method
from goodness.methods.base import Out as Out
from goodness.methods.base import Plan as Plan
from goodness.methods.cumulative.facts import Facts as Facts
from goodness.methods.cumulative.facts import Past as Past
from goodness.methods.cumulative.negatives import Mining as Mining
from goodness.methods.readout import ByReadout as ByReadout
from goodness.nn.block import GoodnessHead as GoodnessHead
from goodness.nn.network import Network as Network
from goodness.parts import BlockPart as BlockPart
from goodness.parts import GoodnessPart as GoodnessPart
from goodness.parts import ImageFacts as ImageFacts
from goodness.parts import LabelPart as LabelPart
from goodness.parts import MethodPart as MethodPart
from goodness.parts import NegativesPart as NegativesPart
from goodness.parts import NetworkPart as NetworkPart
from goodness.parts import Rule as Rule
from goodness.parts import Term as Term
from goodness.parts import register_block as register_block
from goodness.parts import register_goodness as register_goodness
from goodness.parts import register_label as register_label
from goodness.parts import register_method as register_method
from goodness.parts import register_negatives as register_negatives
from goodness.parts import register_network as register_network
from goodness.parts import register_rule as register_rule
from goodness.parts import register_term as register_term
from goodness.presets import preset as preset
from goodness.runs.run import Run as Run
from goodness.runs.run import load_config as load_config
from goodness.sweep import Cell as Cell
from goodness.sweep import Suite as Suite
from goodness.sweep import resume_sweep as resume_sweep
from goodness.sweep import suites as suites
from goodness.sweep import sweep as sweep
from goodness.sweep import sweep_results as sweep_results

startup.release()

__version__ = "0.1.0"
