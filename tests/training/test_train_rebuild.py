import dataclasses

import numpy as np
import pytest
import samples
import tiny_runs
import torch

from bcnn.base.errors import UserError
from bcnn.engine import Engine
from bcnn.integers.quantize import fixed
from bcnn.integers.synthetic_images import pictures
from bcnn.lowering.lower import lower
from bcnn.nets.bcnn import Network
from bcnn.nets.config import Level
from bcnn.program.ops import BinaryConv
from bcnn.training.rebuild import LATENT_MAGNITUDE, calibrate, rebuild, stated

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def trained(config, seed=0):
    """A network with batch norms, slopes and biases as training may leave them, some scales negative."""
    torch.manual_seed(seed)
    network = Network(config).eval()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 3)
            module.running_var.uniform_(0.5, 20)
            module.weight.data.normal_(0, 1)
            module.bias.data.normal_(0, 1)
        if isinstance(module, torch.nn.PReLU):
            module.weight.data.uniform_(-0.2, 0.5)
    return network


def packed(network):
    provenance = {"config": {"network": dataclasses.asdict(network.config)}}
    return lower(network, MEAN, STD, (), 1.0, provenance, network.config.image_size)


def images(program, count=200):
    height, width, _ = program.shapes[0]
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


CONFIGS = {
    "block": tiny_runs.NETWORK,
    "module": tiny_runs.NETWORK.replace(prelu="module"),
    "two branches": tiny_runs.NETWORK.replace(branches=2),
    "three by three": dataclasses.replace(tiny_runs.NETWORK, levels=(Level(1, 2, 2, filter=3),)),
    "no intensity": tiny_runs.NETWORK.replace(intensity=False),
    "normal blocks": dataclasses.replace(tiny_runs.NETWORK, levels=(Level(3, 2, 2),)),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_rebuilt_network_packs_to_the_same_signs_and_thresholds_and_to_scales_within_two_roundings(name):
    program = packed(trained(CONFIGS[name]))
    made = rebuild(program, "file")
    again = lower(made.network, made.mean, made.std, (), 1.0, {}, program.shapes[0][:2])
    assert again.shapes == program.shapes
    for before, after in zip(program.ops, again.ops, strict=True):
        if isinstance(before, BinaryConv):
            for one, other in zip(before.branches, after.branches, strict=True):
                assert np.array_equal(one.weight, other.weight)
                assert np.array_equal(one.threshold, other.threshold)
                assert np.array_equal(one.scale, other.scale)
                # o = offset - s N is rounded once to become batch norm's bias, and once more on the way back.
                size = np.abs(one.offset) + np.abs(one.scale) * before.bits
                assert (np.abs(one.offset - other.offset) <= 2**-23 * size).all()
    x = images(program)
    assert (Engine(program).run(x).argmax(1) == Engine(again).run(x).argmax(1)).mean() >= 0.99


def test_a_shipped_model_rebuilt_and_packed_again_gives_the_same_class_for_every_image():
    program = samples.in_floats("digits")
    made = rebuild(program, "digits")
    again = lower(made.network, made.mean, made.std, program.labels, program.crop, {}, program.shapes[0][:2])
    x = images(program)
    assert np.array_equal(Engine(program).run(x).argmax(1), Engine(again).run(x).argmax(1))
    assert np.array_equal(program.ops[0].scale, again.ops[0].scale)
    assert np.array_equal(program.ops[0].offset, again.ops[0].offset)


@pytest.mark.parametrize("parameters", ["int16", "int8"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_network_rebuilt_from_integers_and_converted_again_has_the_same_parameters(name, parameters):
    program = fixed(packed(trained(CONFIGS[name])), pictures(8, 8), parameters).program
    made = rebuild(program, "file")
    floats = lower(made.network, made.mean, made.std, (), 1.0, {}, program.shapes[0][:2])
    again = fixed(floats, pictures(8, 8), "int16").program  # those of int8 are numbers of 16 bits, too
    assert again.fractions == program.fractions
    for before, after in zip(program.ops, again.ops, strict=True):
        for one, other in zip(before.arrays(), after.arrays(), strict=True):
            # Batch norm of mean 0 and variance 1 - eps + eps, float32: a product rounds to another number now and then.
            assert one.dtype == other.dtype
            assert np.abs(one.astype(np.int64) - other).max(initial=0) <= (0 if one.dtype == np.uint32 else 1)


def test_calibration_measures_batch_norms_anew_and_leaves_what_the_network_computes():
    program = packed(trained(tiny_runs.NETWORK))
    network = rebuild(program, "file").network
    x = torch.randn(32, 3, 8, 8)
    before = network(x).detach()
    assert calibrate(network, x) == sum(isinstance(m, torch.nn.BatchNorm2d) for m in network.modules())
    after = network(x).detach()
    assert (before.argmax(1) == after.argmax(1)).float().mean() >= 0.95  # a rounding may flip a sign
    norm = network.stem[0].conv1.branches[0].norm
    assert float(norm.running_var.std()) > 0
    training = network.train()(x).detach()  # with the statistics of this batch, which are those measured
    assert (training.argmax(1) == before.argmax(1)).float().mean() >= 0.9


def test_latents_are_their_signs_times_one_magnitude():
    network = rebuild(packed(trained(tiny_runs.NETWORK)), "file").network
    for name, weight in network.named_parameters():
        if "branches" in name and name.endswith("0.weight") and weight.dim() == 4:
            assert set(weight.abs().unique().tolist()) == {np.float32(LATENT_MAGNITUDE)}


def test_the_classes_and_the_size_are_those_of_the_ops_whatever_the_provenance_says():
    program = packed(trained(tiny_runs.NETWORK))
    table = dataclasses.asdict(tiny_runs.NETWORK.replace(classes=7, image_size=(16, 16)))
    other = dataclasses.replace(program, provenance={"config": {"network": table}})
    assert stated(other, "file") == tiny_runs.NETWORK


@pytest.mark.parametrize(
    ("provenance", "says"),
    [
        ({}, "does not say which network it holds"),
        ({"config": 3}, "does not say which network it holds"),
        ({"learned": {}}, "start from the network that it was learned from"),
        ({"config": {"network": {"network": "birealnet-20-cifar"}}}, "only the paper's networks can be rebuilt"),
        (
            {"config": {"network": dataclasses.asdict(tiny_runs.NETWORK.replace(branches=2))}},
            "is not the tiny .* see its op",
        ),
        ({"config": {"network": dataclasses.asdict(tiny_runs.NETWORK.replace(intensity=False))}}, "is not the tiny"),
        ({"config": {"network": {"name": "x", "levels": 3}}}, "levels"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_one_sentence(provenance, says):
    program = dataclasses.replace(packed(trained(tiny_runs.NETWORK)), provenance=provenance)
    with pytest.raises(UserError, match=says):
        rebuild(program, "file")
