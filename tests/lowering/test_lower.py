"""The paper's network lowers, and each op is what torch made."""

import numpy as np
import pytest
import samples
import torch

from bcnn.lowering.lower import lower, normalised
from bcnn.nets.bcnn import Network
from bcnn.nets.config import Level, NetworkConfig, preset
from bcnn.program import ops
from bcnn.program.bits import unpack_bits
from bcnn.program.interpret import interpret
from lowering import binary_convs, compared, lowered

torch.set_num_threads(1)
TINY = samples.TINY


CONFIGS = {
    "P=1": TINY,
    "P=2": TINY.replace(branches=2),
    "P=3, PReLU in the module": TINY.replace(branches=3, prelu="module"),
    "PReLU in the module": TINY.replace(prelu="module"),
    "no intensity": TINY.replace(intensity=False),
    "shifted 3x3": NetworkConfig("f3", (8, 8), 3, stem=Level(1, 1, 2, 3), levels=(Level(2, 2, 2, 3),)),
    "shifted 5x5 on a map of one pixel": NetworkConfig(
        "f5", (2, 2), 3, stem=Level(1, 1, 2), levels=(Level(1, 2, 1, 5),)
    ),
    "R not whole": NetworkConfig("r", (8, 8), 3, stem=Level(1, 1, 2.6), levels=(Level(1, 2, 1.7), Level(1, 1, 1.3))),
    "R below one": NetworkConfig("r", (8, 8), 3, stem=Level(1, 1, 8), levels=(Level(1, 2, 0.4), Level(1, 1, 0.5))),
    "R=1 and S=1": NetworkConfig("r", (4, 4), 3, stem=Level(2, 1, 1), levels=(Level(2, 1, 1),)),
    "S=3, oblong": NetworkConfig("s", (9, 6), 3, stem=Level(1, 3, 2), levels=(Level(1, 1, 2),)),
    "channels 31, 33, 65": NetworkConfig(
        "c", (4, 4), 3, stem=Level(1, 1, 7.75), levels=(Level(1, 2, 1.065), Level(1, 2, 1.97))
    ),
    "stem alone": NetworkConfig("s", (4, 4), 3, levels=()),
    "digits": preset("digits"),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_op_is_what_torch_made(config):
    network = samples.network(config)
    program = lowered(network)
    found = compared(network, program)
    assert found.first is None
    assert [difference.name for difference in found.differences] == list(program.names)
    assert all(
        isinstance(op, (ops.BinaryConv, ops.Conv, ops.AvgPool, ops.GlobalAvgPool, ops.ChannelAvg, ops.Linear))
        for op in program.ops[1:]
    )


def test_channel_counts_of_the_sample_are_those_it_claims():
    assert [block.channels for block in CONFIGS["channels 31, 33, 65"].plan()] == [31, 33, 65]


def test_a_freshly_made_network_lowers():
    torch.manual_seed(0)
    network = Network(TINY)
    assert compared(network, lowered(network)).first is None


def test_logits_are_those_of_torch_when_no_sign_is_near_a_tie():
    network = samples.network()
    image = samples.image(8, 8)
    with torch.no_grad():
        want = network(normalised(image[None], samples.MEAN, samples.STD))[0].numpy()
    assert np.allclose(interpret(lowered(network), image), want, rtol=1e-3, atol=1e-3)


def test_a_block_is_one_op_a_module_with_the_additions_inside():
    program = lowered(samples.network())
    kinds = [type(op).__name__ for op in program.ops]
    assert kinds[:6] == [
        "Input",
        "BinaryConv",
        "Conv",
        "BinaryConv",
        "BinaryConv",
        "BinaryConv",
    ]  # no op for a 1x1 pool
    normal = program.ops[program.names.index("level1.1.conv3.branches.0")]
    endings = [type(ending).__name__ for ending in normal.after]
    assert endings == ["Add", "Add", "PReLU"]
    assert normal.after[0].source == normal.source  # the module's own identity first
    assert normal.after[1].source == program.ops[program.names.index("level1.1.conv1.branches.0")].source
    assert program.names[-2:] == ("decoder", "decoder.linear")


def test_pool_reads_the_map_before_replication():
    program = lowered(samples.network())
    assert program.shapes[program.names.index("level1.0.pool")][2] == 8
    identity = program.ops[program.names.index("level1.0.identity.branches.0")]
    assert (identity.reads, program.shapes[identity.source][2]) == (16, 8)


def test_folding_by_hand():
    network = samples.network()
    branch = network.get_submodule("stem.0.conv1.branches.0")
    norm = branch.norm
    with torch.no_grad():
        norm.weight.fill_(3), norm.bias.fill_(5), norm.running_mean.fill_(2), norm.running_var.fill_(9 - norm.eps)
        branch.bias.fill_(-0.75)
        branch.weight.fill_(-0.5)
        branch.weight[0, 1] = -0.0
    folded = lowered(network).ops[1].branches[0]
    k = folded.threshold.size
    assert folded.threshold.tolist() == [0.75] * k
    assert folded.scale.tolist() == pytest.approx([-2] * k, rel=1e-6)  # s = 3 / sqrt(9) = 1
    assert folded.offset.tolist() == pytest.approx([5 + k - 2] * k, rel=1e-6)
    bits = unpack_bits(folded.weight, k)[:, 0]
    assert bits[0, 1]  # sign(-0.0) = +1
    assert bits.sum() == 1


def test_normalisation_is_folded_into_the_input_op():
    first = lowered(samples.network()).ops[0]
    assert first.scale.tolist() == [np.float32(1 / (255 * std)) for std in samples.STD]
    assert first.intensity.tolist() == [np.float32(weight) for weight in (0.299, 0.587, 0.114)]


def test_labels_crop_and_provenance_are_kept():
    program = lower(samples.network(), samples.MEAN, samples.STD, ["a", "b", "c"], 0.875, {"recipe": "none"})
    assert (program.labels, program.crop, program.provenance) == (("a", "b", "c"), 0.875, {"recipe": "none"})


def test_a_network_in_double_precision_lowers_to_the_same_bits():
    one, other = lowered(samples.network()), lowered(samples.network().double())
    for a, b in zip(binary_convs(one), binary_convs(other), strict=True):
        assert np.array_equal(a.branches[0].weight, b.branches[0].weight)


def test_lowering_changes_nothing_of_the_network():
    network = samples.network().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    lowered(network)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
