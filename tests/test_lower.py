"""Any network lowers by what its tensors are, and each op is what torch made; what cannot be lowered is a sentence with a place."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import samples
import strangers
from bcnn.errors import UserError
from bcnn.nets.bcnn import Network
from bcnn.nets.config import Level, NetworkConfig, preset
from bcnn.program import ops
from bcnn.program.bits import unpack_bits
from bcnn.program.compare import _difference, compare
from bcnn.program.draft import as_map
from bcnn.program.interpret import interpret
from bcnn.program.lower import Lowering, lower, normalised
from bcnn.program.program import Program

torch.set_num_threads(1)
TINY = samples.TINY


def lowered(network, size=None):
    return lower(network, samples.MEAN, samples.STD, size=size)


def compared(network, program, seed=0):
    return compare(network, program, samples.image(*program.shapes[0][:2], seed), samples.MEAN, samples.STD)


def binary_convs(program):
    return [op for op in program.ops if isinstance(op, ops.BinaryConv)]


# --- the paper's network ----------------------------------------------------------------------------------------------

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


# --- strangers' networks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", strangers.STRANGERS)
def test_a_stranger_s_network_lowers_and_every_op_is_what_torch_made(name, seed):
    network, size = strangers.stranger(name, seed)
    program = lowered(network, size)
    for image in range(3):
        assert compared(network, program, image).first is None
    assert len(binary_convs(program)) >= 3


class OneConv(nn.Module):
    """A real convolution, then a binary one; both are needed, since an image is no map of signs."""

    def __init__(self, conv, channels=8, before=None):
        super().__init__()
        self.first, self.before, self.conv = nn.Conv2d(3, channels, 3, padding=1), before or nn.Identity(), conv

    def forward(self, x):
        return self.conv(self.before(self.first(x)))


def one_conv(seed=0, before=None, channels=8, **settings):
    torch.manual_seed(seed)
    return OneConv(strangers.BinConv(channels, 6, **settings), channels, before).eval()


def check_one_conv(network, size=(7, 9)):
    program = lowered(network, size)
    assert len(binary_convs(program)) == 1
    assert compared(network, program).first is None
    return binary_convs(program)[0]


@pytest.mark.parametrize("sign", strangers.SIGNS)
def test_sign_is_recognised_however_it_is_written(sign):
    op = check_one_conv(one_conv(sign=sign))
    assert np.abs(op.branches[0].threshold).max() < 1e-30  # at zero, or just above it where the form says x > 0


@pytest.mark.parametrize("weights", ["plain", "mean", "centred", "detached"])
def test_binary_weights_are_recognised_however_they_are_made(weights):
    check_one_conv(one_conv(weights=weights))


@pytest.mark.parametrize(
    "settings",
    [
        {"k": 1, "p": 0},
        {"k": 1, "p": 0, "s": 2},
        {"k": 5, "p": 2, "s": 2},
        {"k": 3, "p": 2, "dilation": 2},
        {"k": 3, "p": 1, "groups": 2},
        {"k": 3, "p": 1, "pad_value": 1.0},
        {"k": 3, "p": 1, "pad_value": -1.0, "groups": 2},
        {"k": 3, "p": 1, "pad_first": True},
    ],
    ids=str,
)
def test_kernels_strides_groups_dilation_and_paddings(settings):
    op = check_one_conv(one_conv(**settings))
    padded = settings["p"] > 0
    assert (op.branches[0].pad is not None) == (padded and ("pad_value" in settings or "pad_first" in settings))


@pytest.mark.parametrize("gamma", [1.0, -1.0, 0.0])
def test_batch_norm_before_sign_is_a_threshold_with_any_gamma(gamma):
    norm = nn.BatchNorm2d(8)
    norm.weight.data.fill_(gamma)
    norm.running_mean.normal_(), norm.bias.data.normal_(), norm.running_var.uniform_(0.1, 3)
    program = lowered(one_conv(before=norm, pad_value=-1.0), (7, 9))
    assert [type(op).__name__ for op in program.ops] == ["Input", "Conv", "BinaryConv"]  # no op for the batch norm
    check_one_conv(one_conv(before=norm, pad_value=-1.0))
    check_one_conv(one_conv(before=nn.Sequential(norm, nn.Hardtanh()), pad_first=True))


def test_activations_of_zero_and_one_lower_and_padded_zeros_are_one_of_them():
    torch.manual_seed(0)
    strangers.SIGNS["bits"] = lambda x: (x > 0).float()
    try:
        check_one_conv(OneConv(strangers.BinConv(8, 6, 3, 1, 0, sign="bits")).eval())
        assert check_one_conv(OneConv(strangers.BinConv(8, 6, 3, 1, 1, sign="bits")).eval()).branches[0].pad is not None
    finally:
        del strangers.SIGNS["bits"]


def test_real_weights_on_signs_are_a_real_convolution_of_signs():
    network = one_conv()
    network.conv.forward = lambda x: F.conv2d(torch.where(x >= 0, 1.0, -1.0), network.conv.weight, padding=1)
    program = lowered(network, (7, 9))
    assert not binary_convs(program)
    assert compared(network, program).first is None


def test_exact_zeros_into_torch_sign_are_reported():
    class Nearly(nn.Module):
        """Minus what one value of the map is for `image`: there it is exactly 0."""

        def __init__(self, image):
            super().__init__()
            x = network.first(normalised(image[None], samples.MEAN, samples.STD)).detach()
            self.register_buffer("value", x[0, 1, 2, 3].clone())

        def forward(self, x):
            return x - self.value

    network = one_conv(sign="sign")
    with torch.no_grad():
        network.first.weight[0] = 0
        network.first.bias[0] = 0  # channel 0 is zero everywhere
    refused(network, (7, 9), "conv", "torch.sign", "third value")
    network.first.bias.data[0] = 1
    image = samples.image(7, 9)
    network.before = Nearly(image)
    found = compare(network, lowered(network, (7, 9)), image, samples.MEAN, samples.STD)
    assert any("1 exact zero" in note for note in found.notes)


def test_a_softmax_at_the_end_is_left_out_and_said():
    network, size = strangers.stranger("residual")
    lowering = Lowering(network, samples.image(*size), samples.MEAN, samples.STD)
    assert any("softmax" in note for note in lowering.notes)


# --- the comparison finds what is wrong -------------------------------------------------------------------------------


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


# --- what cannot be lowered -------------------------------------------------------------------------------------------


def refused(network, size, *words):
    with pytest.raises(UserError) as raised:
        lowered(network, size)
    assert all(word in str(raised.value) for word in words), str(raised.value)


@pytest.mark.parametrize(
    ("parameter", "place"),
    [
        ("level1.0.depthwise.norm.running_var", "level1.0.depthwise"),
        ("level1.1.prelu.weight", "level1.1"),
        ("decoder.linear.bias", "decoder.linear"),
    ],
)
def test_values_that_are_not_finite_name_their_layer(parameter, place):
    network = samples.network()
    network.state_dict()[parameter].view(-1)[0] = float("nan")
    refused(network, None, place, "not finite")


def test_negative_variance_is_refused():
    network = samples.network()
    network.get_submodule("stem.0.depthwise.norm").running_var.fill_(-1)
    refused(network, None, "stem.0.depthwise.norm", "variance")


class Then(nn.Module):
    """A convolution and something that no op can do."""

    def __init__(self, function):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.function = function

    def forward(self, x):
        return self.function(self.conv(x))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (torch.erf, ("Then (erf)", "no rule")),
        (lambda x: F.group_norm(x, 2), ("no rule",)),
        (lambda x: F.conv_transpose2d(x, torch.ones(8, 4, 2, 2), stride=2), ("transposed", "upsample")),
        (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), ("no rule",)),
        (lambda x: 1 / x, ("reciprocal",)),
        (lambda x: x / (x.abs() + 1), ("division of maps",)),
        (lambda x: x.mean(1, keepdim=True), ("mean", "height and width")),
        (lambda x: x @ x.transpose(2, 3), ("Then",)),
        (lambda x: F.pad(x, (1, 1, 1, 1)), ("constant_pad_nd", "convolution reads it")),
        (lambda x: (x, x), ("one tensor",)),
        (lambda x: torch.ones(1, 4), ("does not depend on the image",)),
        (lambda x: x.flip(1).cumsum(1), ("Then",)),
    ],
)
def test_what_has_no_op_is_refused_with_module_operation_and_reason(function, words):
    refused(Then(function), (6, 6), "cannot lower", *words)


def test_a_size_is_asked_for_where_the_network_has_none():
    with pytest.raises(UserError, match="how large the images of a Then are"):
        lowered(Then(torch.relu))


@pytest.mark.parametrize(
    ("mean", "std"), [((0, 0), (1, 1)), ((0, 0, 0), (1, 0, 1)), ((0, 0, float("nan")), (1, 1, 1)), ("abc", (1, 1, 1))]
)
def test_normalisation_must_be_three_numbers(mean, std):
    with pytest.raises(UserError, match="three finite numbers"):
        lower(samples.network(), mean, std)


# --- random networks of such parts ------------------------------------------------------------------------------------


class Random(nn.Module):
    """A few units drawn by lot: binary convolutions of all kinds, norms, curves, pools, shortcuts, concatenations, gates."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        c = int(self.choose(5, 16, 33))
        self.stem = nn.Sequential(nn.Conv2d(3, c, 3, padding=1), nn.BatchNorm2d(c))
        self.units = nn.ModuleList()
        zeros = "no"
        for _ in range(int(self.choose(2, 3))):
            o = c if self.choose(True, False) else int(self.choose(4, 31, 40))
            k = int(self.choose(1, 3, 5))
            # Zeros that a ReLU leaves are +1 in the program; torch.sign has a third value for them.
            signs = strangers.SIGNS if zeros == "no" else ("where", "compared", "function", "masked", "in place")
            settings = {"k": k, "p": k // 2, "s": int(self.choose(1, 1, 2)), "sign": self.choose(*signs)}
            settings["weights"] = self.choose("plain", "mean", "centred", "detached")
            settings |= [{}, {"pad_value": float(self.choose(-1, 1))}, {"pad_first": True}][int(self.choose(0, 1, 2))]
            unit = nn.ModuleDict(
                {
                    "before": self.choose(
                        nn.Identity(), nn.BatchNorm2d(c), nn.Sequential(nn.BatchNorm2d(c), nn.Hardtanh())
                    ),
                    "conv": strangers.BinConv(c, o, **settings),
                    "norm": nn.BatchNorm2d(o),
                    "curve": self.choose(
                        nn.Identity(),
                        nn.ReLU(True),
                        nn.PReLU(o),
                        nn.PReLU(),
                        nn.Hardswish(),
                        nn.LeakyReLU(0.2),
                        nn.SiLU(),
                    ),
                    "pool": self.choose(
                        nn.Identity(),
                        nn.MaxPool2d(2, ceil_mode=True),
                        nn.AvgPool2d(3, 1, 1),
                        nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False),
                    ),
                }
            )
            self.units.append(unit)
            zeros = "yes" if isinstance(unit["curve"], (nn.ReLU, nn.Hardswish)) else zeros
            join = self.choose("none", "add", "cat", "gate") if settings["s"] == 1 else "none"
            unit.join = "none" if join == "add" and o != c else join
            c = c + o if unit.join == "cat" else o
        self.head = nn.Linear(c, 4)

    def choose(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def forward(self, x):
        x = self.stem(x)
        for unit in self.units:
            y = unit["norm"](unit["conv"](unit["before"](x)))
            if unit.join == "add":
                y = y + x
            if unit.join == "gate":
                y = y * torch.sigmoid(y.mean((2, 3), keepdim=True))
            y = unit["curve"](y)
            if unit.join == "cat":
                y = torch.cat([x, y], 1)
            x = unit["pool"](y)
        return self.head(x.mean((2, 3)))


def random_network(seed):
    network = Random(seed).eval()
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm2d):
            (
                norm.running_mean.normal_(),
                norm.running_var.uniform_(0.5, 2),
                norm.weight.data.normal_(),
                norm.bias.data.normal_(),
            )
    return network


@pytest.mark.parametrize("seed", range(40))
def test_random_networks_lower_and_the_engine_equals_the_interpreter(seed):
    from bcnn.deploy.engine import Engine
    from bcnn.program.interpret import interpret_maps

    network = random_network(seed)
    program = lowered(network, (29, 22))
    assert compared(network, program).first is None
    image = samples.image(29, 22, seed)
    for threads in (1, 2):
        for one, other in zip(
            Engine(program, threads=threads).maps(image), interpret_maps(program, image), strict=True
        ):
            assert np.array_equal(one, other)
