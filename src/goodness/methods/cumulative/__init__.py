"""The heart: how a block learns from itself. Pure functions and small classes on tensors, nothing else."""
