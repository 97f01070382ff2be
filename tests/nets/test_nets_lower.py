"""Networks of the field through lower, interpreter and engine: small forms of each, whose every op is what torch made."""

import numpy as np
import pytest
import samples
import torch
from small_networks import FORMS
from torch import nn

from bcnn.engine import Engine
from bcnn.lowering.compare import compare
from bcnn.lowering.lower import lower
from bcnn.nets import registry
from bcnn.program import ops
from bcnn.program.interpret import interpret_maps

torch.set_num_threads(1)


@pytest.mark.parametrize("name", FORMS)
def test_a_network_of_the_field_goes_the_whole_way(name):
    found = registry.architecture(name)
    choices = {key: value for key, value in FORMS[name].items() if key in found.choices()}
    torch.manual_seed(0)
    network = found.build(**choices).eval()
    for norm in network.modules():
        if isinstance(norm, (nn.BatchNorm2d, nn.BatchNorm1d)) and norm.running_mean is not None:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    program = lower(network, samples.MEAN, samples.STD, size=found.size)
    image = samples.image(*found.size)
    assert compare(network, program, image, samples.MEAN, samples.STD).first is None
    for one, other in zip(Engine(program, threads=2).maps(image), interpret_maps(program, image), strict=True):
        assert np.array_equal(one, other)
    binary = any(isinstance(op, ops.BinaryConv) for op in program.ops)
    assert binary == (not name.startswith(("mobilenet", "regnetx")))
