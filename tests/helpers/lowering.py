"""What the tests of lowering share: lower with the samples' normalisation, compare with torch, expect a refusal."""

import copy
from typing import Any

import pytest
import samples
import torch

from bcnn.base.errors import UserError
from bcnn.lowering.compare import compare, compare_on
from bcnn.lowering.lower import Lowering, image_size, sample_image
from bcnn.program import ops

_last: Any = ()  # exporting takes most of the time: what `lowered` made, and of which network


def lowered(network, size=None):
    global _last
    lowering = Lowering(network, sample_image(image_size(network, size)), samples.MEAN, samples.STD)
    program = lowering.program((), 1.0, {})
    lowering.ops = copy.deepcopy(lowering.ops)  # some tests change those of the program
    _last = lowering, network, copy.deepcopy(network.state_dict())
    return program


def compared(network, program, seed=0):
    image = samples.image(*program.shapes[0][:2], seed)
    if _last and _last[1] is network and _same(_last[2], network.state_dict()):
        return compare_on(_last[0], program, image)
    return compare(network, program, image, samples.MEAN, samples.STD)


def _same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def binary_convs(program):
    return [op for op in program.ops if isinstance(op, ops.BinaryConv)]


def refused(network, size, *words):
    with pytest.raises(UserError) as raised:
        lowered(network, size)
    assert all(word in str(raised.value) for word in words), str(raised.value)
