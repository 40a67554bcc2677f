"""Every method that comes with the library: importing this registers them. A new one is one line here."""

from goodness.methods import backprop as backprop
from goodness.methods import cumulative_part as cumulative_part
from goodness.methods import hinton as hinton
from goodness.methods import local_backprop as local_backprop
from goodness.methods import mono_forward as mono_forward
