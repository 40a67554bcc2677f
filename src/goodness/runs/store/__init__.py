"""The store of results: three tables and one file of arrays per batch of runs, in one folder, that grow by appending.

runs.csv            a row a run
epochs.csv          rows of a run's training: of the network every epoch, of each block at most 30
blocks.csv          a row per run, block and split
arrays/BATCH.npz    the classes that the runs of one `goodness results add` predicted

results/README.md describes the columns and how the arrays are coded.
"""

from goodness.runs.store.add import Added as Added
from goodness.runs.store.add import add as add
from goodness.runs.store.read import predictions as predictions
from goodness.runs.store.read import rows as rows
