"""Many runs as one: cells in folders of their own, carried to their end, and averaged over seeds."""

from goodness.sweep.cell import Cell as Cell
from goodness.sweep.collect import Results as Results
from goodness.sweep.engine import Engine as Engine
from goodness.sweep.engine import Handle as Handle
from goodness.sweep.run import resume_sweep as resume_sweep
from goodness.sweep.run import sweep as sweep
from goodness.sweep.run import sweep_results as sweep_results
from goodness.sweep.suites import Suite as Suite
from goodness.sweep.suites import suites as suites
