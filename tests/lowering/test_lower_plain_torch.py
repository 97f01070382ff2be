"""Any network lowers by what its tensors are: signs, weights, paddings and norms however they are written."""

import numpy as np
import plain_torch_networks
import pytest
import samples
import torch
from torch import nn
from torch.nn import functional as F

from bcnn.lowering.compare import compare
from bcnn.lowering.lower import Lowering, normalised
from lowering import binary_convs, compared, lowered, refused

torch.set_num_threads(1)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", plain_torch_networks.STRANGERS)
def test_a_stranger_s_network_lowers_and_every_op_is_what_torch_made(name, seed):
    network, size = plain_torch_networks.stranger(name, seed)
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
    return OneConv(plain_torch_networks.BinConv(channels, 6, **settings), channels, before).eval()


def check_one_conv(network, size=(7, 9)):
    program = lowered(network, size)
    assert len(binary_convs(program)) == 1
    assert compared(network, program).first is None
    return binary_convs(program)[0]


@pytest.mark.parametrize("sign", plain_torch_networks.SIGNS)
def test_sign_is_recognised_however_it_is_written(sign):
    op = check_one_conv(one_conv(sign=sign))
    # At zero, or just above it where the form says x > 0; round(sigmoid(x)) is up from where the sigmoid is above a half.
    assert np.abs(op.branches[0].threshold).max() < (1e-6 if sign == "rounded" else 1e-30)


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


@pytest.mark.parametrize("gamma", [1.0, 0.0])
def test_batch_norm_of_equal_parameters_is_the_same_threshold_every_time(gamma):
    """One number for all channels would let torch read behind it."""
    norm = nn.BatchNorm2d(8)
    norm.weight.data.fill_(gamma)
    norm.bias.data.copy_(torch.linspace(-1, 1.1, 8))
    found = [lowered(one_conv(before=norm, pad_value=-1.0), (7, 9)) for _ in range(20)]
    thresholds = np.stack([binary_convs(program)[0].branches[0].threshold for program in found])
    assert (thresholds == thresholds[0]).all()
    assert len(np.unique(thresholds[0])) == (8 if gamma else 2)
    assert all(np.abs(program.ops[1].weight).max() > 0 for program in found)  # it is read before batch norm


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
    plain_torch_networks.SIGNS["bits"] = lambda x: (x > 0).float()
    try:
        check_one_conv(OneConv(plain_torch_networks.BinConv(8, 6, 3, 1, 0, sign="bits")).eval())
        assert (
            check_one_conv(OneConv(plain_torch_networks.BinConv(8, 6, 3, 1, 1, sign="bits")).eval()).branches[0].pad
            is not None
        )
    finally:
        del plain_torch_networks.SIGNS["bits"]


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
    network, size = plain_torch_networks.stranger("residual")
    lowering = Lowering(network, samples.image(*size), samples.MEAN, samples.STD)
    assert any("softmax" in note for note in lowering.notes)


class Ending(nn.Module):
    """A real convolution, a binary one, and a way to come from its map to logits."""

    def __init__(self, ending):
        super().__init__()
        self.first, self.conv, self.ending = nn.Conv2d(3, 8, 3, padding=1), plain_torch_networks.BinConv(8, 6), ending

    def forward(self, x):
        return self.ending(self.conv(self.first(x)))


@pytest.mark.parametrize(
    "ending",
    [
        lambda x: x.mean((2, 3)),
        lambda x: x.flatten(2).mean(-1),
        lambda x: x.sum((2, 3)) / 50,
        lambda x: x.flatten(2).sum(2),
        lambda x: x.amax((2, 3)),
        lambda x: x.flatten(2).max(-1)[0],
        lambda x: F.adaptive_max_pool2d(x, 1).squeeze(-1).squeeze(-1),
        lambda x: F.adaptive_max_pool2d(x, (3, 4)).flatten(1),
        lambda x: x.mean(1, keepdim=True).flatten(1),
    ],
)
def test_pixels_are_reduced_however_it_is_written(ending):
    torch.manual_seed(0)
    network = Ending(ending).eval()
    program = lowered(network, (6, 8))
    assert len(binary_convs(program)) == 1
    assert compared(network, program).first is None


@pytest.mark.parametrize(
    "total", [lambda maps: torch.stack(maps).sum(0), lambda maps: torch.stack(maps, 2).mean(2), sum]
)
def test_bases_are_branches_of_one_op_however_they_are_added(total):
    class Bases(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3, padding=1)
            self.weights = nn.ParameterList([nn.Parameter(torch.randn(6, 8, 3, 3)) for _ in range(3)])

        def forward(self, x):
            x = self.first(x)
            return total([F.conv2d((x + i / 4).sign(), w.sign() * (i + 1)) for i, w in enumerate(self.weights)])

    torch.manual_seed(0)
    network = Bases().eval()
    program = lowered(network, (6, 7))
    (op,) = binary_convs(program)
    assert len(op.branches) == 3
    assert compared(network, program).first is None


def test_a_network_of_grey_images_reads_the_mean_of_the_colours():
    torch.manual_seed(0)
    network = nn.Sequential(GreyFirst(), nn.Conv2d(1, 8, 3), plain_torch_networks.BinConv(8, 5)).eval()
    program = lowered(network, (6, 7))
    assert len(binary_convs(program)) == 1
    assert compared(network, program).first is None


class GreyFirst(nn.Module):
    def forward(self, x):
        return x.mean(1, keepdim=True)
