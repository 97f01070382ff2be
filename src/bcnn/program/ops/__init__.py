"""The ops a network lowers to. One class an op: fields, shape rule, meaning, counts."""

from bcnn.program.ops.base import Floats, Indices, Op, Part, Shape, Shorts, Values, Words, replicated
from bcnn.program.ops.binary_conv import BinaryConv, Branch, words
from bcnn.program.ops.channels import Concat, Select, Upsample
from bcnn.program.ops.endings import Add, Affine, Clip, Ending, Gate, PReLU, ReLU, Sigmoid, Sign
from bcnn.program.ops.fixed_binary import FixedBinaryConv, FixedBranch
from bcnn.program.ops.fixed_endings import (
    Bound,
    FixedAdd,
    FixedAffine,
    FixedClip,
    FixedGate,
    FixedPReLU,
    FixedSign,
    Shift,
    Table,
)
from bcnn.program.ops.fixed_pools import FixedAbsMean, FixedAvgPool, FixedChannelAvg, FixedGlobalAvgPool
from bcnn.program.ops.fixed_real import FixedConstant, FixedConv, FixedDepthwise, FixedInput
from bcnn.program.ops.pools import AbsMean, AvgPool, ChannelAvg, GlobalAvgPool, MaxPool
from bcnn.program.ops.real import Constant, Conv, Input, Linear, Pointwise
from bcnn.program.ops.window import Window

__all__ = [
    "AbsMean",
    "Add",
    "Affine",
    "AvgPool",
    "BinaryConv",
    "Bound",
    "Branch",
    "ChannelAvg",
    "Clip",
    "Concat",
    "Constant",
    "Conv",
    "Ending",
    "FixedAbsMean",
    "FixedAdd",
    "FixedAffine",
    "FixedAvgPool",
    "FixedBinaryConv",
    "FixedBranch",
    "FixedChannelAvg",
    "FixedClip",
    "FixedConstant",
    "FixedConv",
    "FixedDepthwise",
    "FixedGate",
    "FixedGlobalAvgPool",
    "FixedInput",
    "FixedPReLU",
    "FixedSign",
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
    "Shift",
    "Shorts",
    "Sigmoid",
    "Sign",
    "Table",
    "Upsample",
    "Values",
    "Window",
    "Words",
    "replicated",
    "words",
]
