"""One core per test process, the same examples every time, and Triton without a GPU."""

import os

import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is defined
torch.set_num_threads(1)
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")
