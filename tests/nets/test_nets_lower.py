"""Networks of the field through lower, interpreter and engine: small forms of each, whose every op is what torch made."""

import numpy as np
import pytest
import samples
import torch
from torch import nn

from bcnn.engine import Engine
from bcnn.lowering.compare import compare
from bcnn.lowering.lower import lower
from bcnn.nets import registry
from bcnn.program import ops
from bcnn.program.interpret import interpret_maps

torch.set_num_threads(1)
# Narrow: what is tested is which ops they are made of.
FORMS = {
    "bnn-r18-cifar": {"width": 0.25},
    "xnornet-nin": {"width": 0.25},
    "xnornet-r18-cifar": {"width": 0.25, "input_scale": True},
    "xnornetpp-r18-cifar": {"width": 0.25},
    "abcnet-r18-cifar": {"width": 0.125, "bases": 2},
    "birealnet-20-cifar": {},
    "birealnet-50-cifar": {"width": 0.25},
    "groupnet-r18-cifar": {"width": 0.125, "bases": 2},
    "meliusnet-22-cifar": {"width": 0.5},
    "meliusnet-a-cifar": {"width": 0.5},
    "reactnet-a-cifar": {"width": 0.25},
    "reactnet-c-cifar": {"width": 0.25},
    "real2bin-r18-cifar": {"width": 0.25},
    "mobilenet-v1-cifar": {"width": 0.25},
    "regnetx-400mf-cifar": {"width": 0.5},
}


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
