"""Every configuration lowers, and each op is its torch module; what cannot be lowered is an error that names the layer."""

import numpy as np
import pytest
import torch
from torch import nn

import samples
from bcnn.errors import UserError
from bcnn.nets import layers
from bcnn.nets.bcnn import Network
from bcnn.nets.config import Level, NetworkConfig, preset
from bcnn.program import program as p
from bcnn.program.bits import unpack_bits
from bcnn.program.compare import compare, first_difference, normalised, torch_maps
from bcnn.program.interpret import interpret
from bcnn.program.lower import MODULES, NETWORKS, Lowering, emit_binary_conv, emit_input, lower, lowers

torch.set_num_threads(1)
TINY = samples.TINY


def lowered(network):
    return lower(network, samples.MEAN, samples.STD)


def differences(network, program, seed=0):
    return compare(network, program, samples.image(*program.shapes[0][:2], seed), samples.MEAN, samples.STD)


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
def test_every_op_is_its_torch_module(config):
    network = samples.network(config)
    program = lowered(network)
    found = differences(network, program)
    assert first_difference(found) is None
    assert [difference.name for difference in found] == list(program.names)


def test_channel_counts_of_the_sample_are_those_it_claims():
    assert [block.channels for block in CONFIGS["channels 31, 33, 65"].plan()] == [31, 33, 65]


def test_a_freshly_made_network_lowers():
    torch.manual_seed(0)
    network = Network(TINY)
    assert first_difference(differences(network, lowered(network))) is None


def test_logits_are_those_of_torch_when_no_sign_is_near_a_tie():
    network = samples.network()
    image = samples.image(8, 8)
    with torch.no_grad():
        want = network(normalised(image[None], samples.MEAN, samples.STD))[0].numpy()
    assert np.allclose(interpret(lowered(network), image), want, rtol=1e-3, atol=1e-3)


def test_ops_of_a_block_read_what_the_block_says():
    program = lowered(samples.network())
    kinds = [type(op).__name__ for op in program.ops]
    assert kinds[:6] == ["Input", "BinaryConv", "DepthwiseConv", "AvgPool", "BinaryConv", "BinaryConv"]
    stem_pool, stem_identity, stem_conv3 = program.ops[3:6]
    assert (stem_pool.source, stem_identity.source, stem_conv3.source, stem_conv3.add) == (0, 3, 2, 4)
    normal = program.names.index("level1.1.conv3")
    assert program.ops[normal].add == program.ops[program.names.index("level1.1.conv1")].source
    assert program.names[-2:] == ("decoder", "decoder.linear")


def test_pool_reads_the_map_before_replication():
    program = lowered(samples.network())
    assert program.shapes[program.names.index("level1.0.pool")][2] == 8
    assert program.shapes[program.names.index("level1.0.identity")][2] == 16


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
    bits = unpack_bits(folded.weight, k)
    assert bits[0, 1]  # sign(-0.0) = +1
    assert bits.sum() == 1


def test_normalisation_is_folded_into_the_input_op():
    first = lowered(samples.network()).ops[0]
    assert first.scale.tolist() == [np.float32(1 / (255 * std)) for std in samples.STD]
    assert first.offset.tolist() == [
        np.float32(-mean / std) for mean, std in zip(samples.MEAN, samples.STD, strict=True)
    ]


def test_labels_crop_and_provenance_are_kept():
    program = lower(samples.network(), samples.MEAN, samples.STD, ["a", "b", "c"], 0.875, {"recipe": "none"})
    assert (program.labels, program.crop, program.provenance) == (("a", "b", "c"), 0.875, {"recipe": "none"})


def test_one_slope_for_all_channels_and_batch_norm_without_parameters():
    network = samples.network()
    block = network.get_submodule("level1.1")
    block.prelu = nn.PReLU(1)
    block.conv1.prelu = None
    for part in (block.depthwise, block.conv1.branches[0]):
        norm = nn.BatchNorm2d(part.norm.num_features, affine=False)
        norm.running_mean.normal_()
        part.norm = norm.eval()
    assert first_difference(differences(network, lowered(network))) is None


def test_a_network_in_double_precision_lowers_to_the_same_program():
    network = samples.network()
    one, other = lowered(network), lowered(samples.network().double())
    assert all(
        np.array_equal(a.branches[0].offset, b.branches[0].offset)
        for a, b in zip(one.ops, other.ops, strict=True)
        if isinstance(a, p.BinaryConv)
    )


# --- the comparison finds what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [0, 1])  # batch norm of channel 0 has a scale of zero: its bits change no value
def test_comparison_names_the_layer_with_one_flipped_bit(row):
    network = samples.network()
    program = lowered(network)
    op = program.ops[program.names.index("level1.0.identity")]
    op.branches[0].weight[row, 0] ^= 1
    found = first_difference(differences(network, program))
    assert found is not None
    assert found.name == "level1.0.identity"


@pytest.mark.parametrize("layer", ["stem.0.conv1", "level1.0.depthwise", "level2.0.conv3", "decoder.linear"])
def test_comparison_names_the_layer_whose_weights_differ(layer):
    network = samples.network()
    program = lowered(network)
    with torch.no_grad():
        for name, parameter in network.get_submodule(layer).named_parameters():
            if "prelu" not in name:
                parameter += 0.01
    found = first_difference(differences(network, program))
    assert found is not None
    assert found.name == layer


def test_comparison_with_another_network_names_the_op_that_is_not_there():
    with pytest.raises(UserError, match="op 1 of the program"):
        differences(samples.network(TINY.replace(stem={"stride": 1, "replicate": 3})), lowered(samples.network()))
    program = lowered(samples.network())
    shorter = p.Program(program.ops[:-1], program.names[:-1])
    with pytest.raises(UserError, match="ops, but the checkpoint's network lowers to"):
        differences(samples.network(), shorter)


def test_nan_is_a_difference():
    network = samples.network()
    program = lowered(network)
    with torch.no_grad():
        lowering = Lowering(network, samples.MEAN, samples.STD)
        maps = torch_maps(network, lowering, samples.image(8, 8), samples.MEAN, samples.STD)
    assert len(maps) == len(program.ops)
    from bcnn.program.compare import _difference

    maps[2][0, 0, 0] = np.nan
    assert not _difference(program, 2, maps, samples.image(8, 8), [np.ones(8, np.float32)]).equal


# --- what cannot be lowered -------------------------------------------------------------------------------------------


def refused(network, *words):
    with pytest.raises(UserError) as raised:
        lowered(network)
    assert all(word in str(raised.value) for word in words), str(raised.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "parameter",
    [
        "stem.0.conv1.branches.0.weight",
        "level1.0.depthwise.norm.running_var",
        "level1.1.prelu.weight",
        "decoder.linear.bias",
    ],
)
def test_values_that_are_not_finite_name_their_layer(parameter, value):
    network = samples.network()
    network.state_dict()[parameter].view(-1)[0] = value
    layer, _, name = parameter.rpartition(".")
    refused(network, layer, name, "not finite")


def test_values_beyond_float32_name_their_layer():
    network = samples.network().double()
    network.get_submodule("level1.0.depthwise.norm").weight.data.fill_(1e300)
    refused(network, "level1.0.depthwise", "not finite")


@pytest.mark.parametrize("mode", ["real"])
def test_weights_that_are_not_binary_yet_are_refused(mode):
    network = samples.network()
    network.weights = mode
    refused(network, "stem.0.conv1.branches.0", "step 2")


def test_negative_variance_is_refused():
    network = samples.network()
    network.get_submodule("stem.0.depthwise.norm").running_var.fill_(-1)
    refused(network, "stem.0.depthwise.norm", "running_var")


def test_modules_without_a_rule_are_refused_by_name():
    for place, module in [
        ("level1.0.conv1", nn.Conv2d(16, 16, 1)),
        ("level1.0.depthwise", nn.Identity()),
        ("level1.0.pool", nn.MaxPool2d(2)),
        ("level1", nn.ModuleList()),
        ("decoder", nn.Flatten()),
    ]:
        network = samples.network()
        network.set_submodule(place, module)
        refused(network, place, type(module).__name__)


def test_parts_that_cannot_be_folded_are_refused_by_name():
    for place, part, module in [
        ("level1.0.conv1.branches.0", "norm", nn.GroupNorm(1, 16)),
        ("level1.0.depthwise", "prelu", nn.GELU()),
        ("level1.0", "conv3", nn.Identity()),
        ("decoder", "linear", nn.Identity()),
    ]:
        network = samples.network()
        setattr(network.get_submodule(place), part, module)
        refused(network, place, part, type(module).__name__)


def test_a_subclass_is_refused_because_it_may_compute_something_else():
    class Twice(layers.BinaryConv):
        def forward(self, x):
            return 2 * super().forward(x)

    network = samples.network()
    network.set_submodule("level1.0.conv1", Twice(16))
    refused(network, "level1.0.conv1", "Twice")


def test_other_convolutions_and_pools_are_refused():
    network = samples.network()
    network.set_submodule("level1.0.depthwise.conv", nn.Conv2d(16, 16, 3, 2, padding=1))
    refused(network, "level1.0.depthwise.conv", "depth wise")
    network = samples.network()
    network.set_submodule("level1.0.pool", nn.AvgPool2d(2, ceil_mode=True))
    refused(network, "level1.0.pool", "average")


def test_two_prelus_around_the_addition_are_refused():
    network = samples.network()
    network.get_submodule("level1.0.conv3").prelu = nn.PReLU(16)
    refused(network, "level1.0", "PReLU")


def test_module_without_branches_is_refused():
    network = samples.network()
    network.get_submodule("level1.0.conv1").branches = nn.ModuleList()
    refused(network, "level1.0.conv1", "no branches")


@pytest.mark.parametrize(
    ("mean", "std"), [((0, 0), (1, 1)), ((0, 0, 0), (1, 0, 1)), ((0, 0, float("nan")), (1, 1, 1)), ("abc", (1, 1, 1))]
)
def test_normalisation_must_be_three_numbers(mean, std):
    with pytest.raises(UserError, match="three finite numbers"):
        lower(samples.network(), mean, std)


def test_an_unknown_network_says_which_are_known():
    with pytest.raises(UserError, match=r"cannot lower a Linear; known networks: .*Network"):
        lower(nn.Linear(1, 1), samples.MEAN, samples.STD)


# --- another network: one function a module ---------------------------------------------------------------------------


def test_another_network_needs_one_rule_per_module():
    class Wide(nn.Module):
        """A convolution module without identity path, three channels to seven."""

        def __init__(self):
            super().__init__()
            branch = layers.Branch(7, torch.zeros(7))
            branch.weight = nn.Parameter(torch.randn(7, 3, 1, 1))
            branch.bias = nn.Parameter(torch.randn(1, 3, 1, 1))
            self.branches = nn.ModuleList([branch])
            self.prelu = None

        def forward(self, x):
            return self.branches[0](x)

    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide = Wide()

        def forward(self, x):
            return self.wide(x)

    try:

        @lowers(Wide)
        def _wide(lowering, module, source):
            return emit_binary_conv(lowering, module, source, prelu_of=module, identity=False)

        @lowers(Other, NETWORKS)
        def _other(lowering, network):
            source = emit_input(lowering, network, 4, 4, intensity=False, where=(network.wide, "input"))
            lowering.module(network.wide, source)

        network = Other().eval()
        program = lowered(network)
        assert program.shapes[-1] == (4, 4, 7)
        assert first_difference(differences(network, program)) is None
    finally:
        MODULES.pop(Wide, None)
        NETWORKS.pop(Other, None)
