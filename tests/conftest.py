"""One core per test process, and the same examples every time."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")
