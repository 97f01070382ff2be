"""What the tests of lowering share: lower with the samples' normalisation, compare with torch, expect a refusal."""

import pytest
import samples

from bcnn.base.errors import UserError
from bcnn.lowering.compare import compare
from bcnn.lowering.lower import lower
from bcnn.program import ops


def lowered(network, size=None):
    return lower(network, samples.MEAN, samples.STD, size=size)


def compared(network, program, seed=0):
    return compare(network, program, samples.image(*program.shapes[0][:2], seed), samples.MEAN, samples.STD)


def binary_convs(program):
    return [op for op in program.ops if isinstance(op, ops.BinaryConv)]


def refused(network, size, *words):
    with pytest.raises(UserError) as raised:
        lowered(network, size)
    assert all(word in str(raised.value) for word in words), str(raised.value)
