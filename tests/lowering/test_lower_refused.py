"""What cannot be lowered is a sentence with module, operation and reason."""

import pytest
import samples
import torch
from torch import nn
from torch.nn import functional as F

from bcnn.base.errors import UserError
from bcnn.lowering.lower import lower
from lowering import lowered, refused

torch.set_num_threads(1)


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
        (lambda x: x.mean(2), ("mean", "only as N,C,H,W")),
        (lambda x: x.sum(1), ("sum", "only as N,C,H,W")),
        (lambda x: x.amax(1), ("amax", "only as N,C,H,W")),
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


def test_a_module_of_torch_jit_is_refused_by_a_sentence():
    with pytest.raises(UserError, match=r"made by torch\.jit cannot be recorded"):
        lowered(torch.jit.script(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten())), (6, 7))
