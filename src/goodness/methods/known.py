"""Every method that comes with the library, and their authors' networks: importing this registers them. A new one is
one line here."""

from goodness.methods import backprop as backprop
from goodness.methods import cwc as cwc
from goodness.methods import deeperforward as deeperforward
from goodness.methods import hinton as hinton
from goodness.methods import local_backprop as local_backprop
from goodness.methods import mono_forward as mono_forward
from goodness.methods import scff as scff
from goodness.methods import trifecta as trifecta
from goodness.methods.cumulative import part as part
from goodness.nn import scff_cnn as scff_cnn
from goodness.nn import trifecta_cnn as trifecta_cnn
