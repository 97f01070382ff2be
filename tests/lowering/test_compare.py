"""The comparison with torch, op by op, names what is wrong."""

import numpy as np
import pytest
import samples
import torch

from bcnn.base.errors import UserError
from bcnn.lowering.compare import _difference
from bcnn.lowering.lower import Lowering
from bcnn.lowering.op_builder import as_map
from bcnn.program.program import Program
from lowering import compared, lowered

torch.set_num_threads(1)
TINY = samples.TINY


@pytest.mark.parametrize("row", [0, 1])  # batch norm of channel 0 has a scale of zero: its bits change no value
def test_comparison_names_the_layer_with_one_flipped_bit(row):
    network = samples.network()
    program = lowered(network)
    name = "level1.0.identity.branches.0"
    program.ops[program.names.index(name)].branches[0].weight[row, 0, 0] ^= 1
    found = compared(network, program).first
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("layer", "op"),
    [
        ("stem.0.conv1", "stem.0.conv1.branches.0"),
        ("level1.0.depthwise", "level1.0.depthwise.conv"),
        ("level2.0.conv3", "level2.0.conv3.branches.0"),
        ("decoder.linear", "decoder.linear"),
    ],
)
def test_comparison_names_the_layer_whose_weights_differ(layer, op):
    network = samples.network()
    program = lowered(network)
    with torch.no_grad():
        for name, parameter in network.get_submodule(layer).named_parameters():
            if "prelu" not in name:
                parameter += 0.01
    found = compared(network, program).first
    assert found is not None
    assert found.name == op


def test_comparison_with_another_network_names_the_op_that_is_not_there():
    with pytest.raises(UserError, match=r"op [0-9]+ of the program"):
        compared(samples.network(TINY.replace(prelu="module", levels=())), lowered(samples.network()))
    program = lowered(samples.network())
    shorter = Program(program.ops[:-1], program.names[:-1])
    with pytest.raises(UserError, match="ops, but the network lowers to"):
        compared(samples.network(), shorter)


def test_nan_is_a_difference():
    network = samples.network()
    lowering = Lowering(network, samples.image(8, 8), samples.MEAN, samples.STD)
    maps = [as_map(value.tensor) for value in lowering.values]
    wanted = maps[2].copy()
    shapes = lowering.program((), 1.0, {}).shapes[:2]
    assert _difference(lowering.ops[2], maps, wanted, lowering.sizes[2], shapes).equal
    wanted[0, 0, 0] = np.nan
    assert not _difference(lowering.ops[2], maps, wanted, lowering.sizes[2], shapes).equal
