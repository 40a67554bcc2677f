"""How fast this machine trains and predicts, Forward-Forward and backpropagation side by side."""

from goodness.bench.measure import bench

__all__ = ["bench"]
