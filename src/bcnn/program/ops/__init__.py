"""The ops a network lowers to. One class an op: fields, shape rule, meaning, counts."""

from bcnn.program.ops.base import Floats, Indices, Op, Part, Shape, Words, replicated
from bcnn.program.ops.binary_conv import BinaryConv, Branch, words
from bcnn.program.ops.channels import Concat, Select, Upsample
from bcnn.program.ops.endings import Add, Affine, Clip, Ending, Gate, PReLU, ReLU, Sigmoid, Sign
from bcnn.program.ops.pools import AbsMean, AvgPool, ChannelAvg, GlobalAvgPool, MaxPool
from bcnn.program.ops.real import Constant, Conv, Input, Linear, Pointwise
from bcnn.program.ops.window import Window

__all__ = [
    "AbsMean",
    "Add",
    "Affine",
    "AvgPool",
    "BinaryConv",
    "Branch",
    "ChannelAvg",
    "Clip",
    "Concat",
    "Constant",
    "Conv",
    "Ending",
    "Floats",
    "Gate",
    "GlobalAvgPool",
    "Indices",
    "Input",
    "Linear",
    "MaxPool",
    "Op",
    "PReLU",
    "Part",
    "Pointwise",
    "ReLU",
    "Select",
    "Shape",
    "Sigmoid",
    "Sign",
    "Upsample",
    "Window",
    "Words",
    "replicated",
    "words",
]
