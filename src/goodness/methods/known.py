"""Every method that comes with the library: importing this registers them. A new one is one line here."""

from goodness.methods import cumulative_part as cumulative_part
from goodness.methods import cwc as cwc
from goodness.methods import deeperforward as deeperforward
from goodness.methods import mono_forward as mono_forward
