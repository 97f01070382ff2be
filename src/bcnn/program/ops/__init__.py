"""The ops a network lowers to. One class an op: fields, shape rule, meaning, counts."""

from bcnn.program.ops.base import Floats, Indices, Op, Part, Shape, Shorts, Values, Words, replicated
from bcnn.program.ops.binary_conv import BinaryConv, Branch, FixedBinaryConv, FixedBranch, words
from bcnn.program.ops.channels import Concat, Select, Upsample
from bcnn.program.ops.conv import Conv, FixedConv, FixedDepthwise, Linear
from bcnn.program.ops.curves import Clip, FixedClip, FixedPReLU, FixedSign, PReLU, ReLU, Sigmoid, Sign, Table
from bcnn.program.ops.endings import Add, Affine, Bound, Ending, FixedAdd, FixedAffine, FixedGate, Gate, Shift
from bcnn.program.ops.input import Constant, FixedConstant, FixedInput, Input
from bcnn.program.ops.pointwise import Pointwise
from bcnn.program.ops.pools import AbsMean, AvgPool, ChannelAvg, GlobalAvgPool, MaxPool
from bcnn.program.ops.window import Window
