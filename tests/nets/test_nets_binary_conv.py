"""The binary convolution: surrogate gradients against their formulas, scales, padding rules, the switch of weights."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bcnn import UserError
from bcnn.counting.audit import audit
from bcnn.nets.binarize import SLOPES, sign, sloped_sign
from bcnn.nets.binary_conv import CHOICES, BinaryConv2d, Rules
from bcnn.nets.latent import binary_weights, constrain, set_temperature, set_weights

torch.set_num_threads(1)
EDGES = [-1.5, -1.3, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.3, 1.5]


def layer(*args: int, seed: int = 0, offset: bool = False, **rules: object) -> BinaryConv2d:
    torch.manual_seed(seed)
    return BinaryConv2d(*args, rules=Rules().but(**rules), offset=offset)


def image(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


# --- activations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("triangle", [0, 0, 0, 0.5, 1, 1.5, 2, 1.5, 1, 0.5, 0, 0, 0]),
        ("clip", [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0]),
        ("wide", [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]),
        ("half", [0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0]),
        ("identity", [1] * 13),
    ],
)
def test_slopes_are_their_formulas_at_the_edges(name: str, expected: list[float]) -> None:
    x = torch.tensor(EDGES, requires_grad=True)
    signs = sloped_sign(x, SLOPES[name])
    assert torch.equal(signs, sign(x))
    (2 * signs).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2 * slope for slope in expected]


@pytest.mark.parametrize(("activation", "bias"), [*itertools.product(["triangle", "clip", "wide"], [False, True])])
def test_activation_gradient_is_the_slope_of_the_biased_input(activation: str, bias: bool) -> None:
    conv = layer(3, 4, 1, activation=activation, bias=bias)
    if conv.bias is not None:
        conv.bias.data.copy_(image(1, 3, 1, 1) / 2)
    x = image(2, 3, 5, 5).requires_grad_()
    conv(x).sum().backward()
    shifted = x.detach() + (0 if conv.bias is None else conv.bias.detach())
    expected = SLOPES[activation](shifted) * conv.signs().sum(0).reshape(1, 3, 1, 1)
    assert x.grad is not None
    assert torch.allclose(x.grad, expected, atol=1e-6)
    if conv.bias is not None:
        assert conv.bias.grad is not None
        assert torch.allclose(conv.bias.grad, expected.sum((0, 2, 3), keepdim=True), atol=1e-4)


@pytest.mark.parametrize("value", [0.0, -0.0])
@pytest.mark.parametrize("pad", CHOICES["pad"])
def test_zeros_are_plus_one_in_the_map_and_in_the_weights(pad: str, value: float) -> None:
    conv = layer(2, 3, 3, pad=pad)
    torch.nn.init.constant_(conv.weight, value)
    assert torch.equal(conv.activate(torch.full((1, 2, 4, 4), value))[:, :, 1:3, 1:3], torch.ones(1, 2, 2, 2))
    assert torch.equal(conv.signs(), torch.ones(3, 2, 3, 3))
    assert conv(torch.full((1, 2, 4, 4), value))[0, 0, 1, 1] == 18


# --- weights --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["none", "filter", "tensor"])
@pytest.mark.parametrize("weight", ["clip", "identity", "wide", "xnor"])
def test_weight_gradient_is_that_of_convolving_with_the_scaled_weight(weight: str, scale: str) -> None:
    """The official codes convolve with v = a sign(w) and define dv/dw; here a is applied to the result."""
    conv = layer(3, 4, 3, weight=weight, scale=scale)
    conv.weight.data.mul_(2.5)  # some of them outside of [-1, 1]
    x, upstream = image(2, 3, 6, 6), image(2, 4, 6, 6)
    (conv(x) * upstream).sum().backward()

    w = conv.weight.detach()
    a = {"none": torch.ones(1), "filter": w.abs().mean((1, 2, 3), keepdim=True), "tensor": w.abs().mean()}[scale]
    v = (a * sign(w)).requires_grad_()
    (F.conv2d(sign(x), v, padding=1) * upstream).sum().backward()
    assert v.grad is not None
    slope = (a * (w.abs() < 1) + 1 / 27) * (1 - 1 / 3) if weight == "xnor" else SLOPES[weight](w)
    assert conv.weight.grad is not None
    assert torch.allclose(conv.weight.grad, v.grad * slope, rtol=1e-4, atol=1e-5)


def test_a_scale_with_its_gradient_is_differentiated_as_it_stands() -> None:
    conv = layer(3, 4, 3, scale="filter-trained")
    x = image(2, 3, 6, 6)
    conv(x).square().sum().backward()
    w = conv.weight.detach().clone().requires_grad_()
    signs = sloped_sign(w, SLOPES["clip"]) * w.abs().mean((1, 2, 3), keepdim=True)
    F.conv2d(sign(x), signs, padding=1).square().sum().backward()
    assert conv.weight.grad is not None
    assert w.grad is not None
    assert torch.allclose(conv.weight.grad, w.grad, rtol=1e-3, atol=1e-3)


def test_a_filter_of_zeros_has_a_finite_gradient() -> None:
    conv = layer(3, 4, 3, scale="filter")
    torch.nn.init.zeros_(conv.weight)
    conv(image(1, 3, 4, 4)).sum().backward()
    assert conv.weight.grad is not None
    assert torch.equal(conv.weight.grad, torch.zeros_like(conv.weight))


@pytest.mark.parametrize("scale", ["filter", "filter-trained", "tensor"])
def test_the_scale_is_applied_after_a_product_of_bits(scale: str) -> None:
    conv = layer(4, 5, 3, scale=scale, pad="minus")
    report = audit(conv, image(1, 4, 6, 6))
    assert [op.bits for op in report.operations] == [(1, 1)]
    w = conv.weight.detach()
    a = w.abs().mean() if scale == "tensor" else w.abs().mean((1, 2, 3)).reshape(1, 5, 1, 1)
    dot = F.conv2d(F.pad(sign(image(1, 4, 6, 6)), (1, 1, 1, 1), value=-1.0), sign(w))
    assert torch.equal(conv(image(1, 4, 6, 6)), dot * a)


def test_centred_and_clamped_weights_give_signs_and_scale_by_value() -> None:
    conv = layer(3, 4, 3, scale="filter", centre=True, clamp=True)
    conv.weight.data.add_(2)
    w = conv.weight.detach()
    held = (w - w.mean(1, keepdim=True)).clamp(-1, 1)
    assert torch.equal(conv.signs(), sign(held))
    assert torch.equal(conv.scale(conv.latent()), held.abs().mean((1, 2, 3)).reshape(1, 4, 1, 1))
    conv(image(1, 3, 4, 4)).sum().backward()
    assert conv.weight.grad is not None
    assert conv.weight.grad.abs().sum() > 0


def test_constrain_centres_and_clamps_in_place_where_the_rules_say_so() -> None:
    plain, held = layer(3, 4, 3), layer(3, 4, 3, clamp=True, centre=True)
    before = plain.weight.detach().clone()
    held.weight.data.mul_(10)
    w = held.weight.detach().clone()
    for conv in (plain, held):
        constrain(conv)
    assert torch.equal(plain.weight, before)
    assert torch.equal(held.weight, (w - w.mean(1, keepdim=True)).clamp(-1, 1))


# --- padding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 2])
def test_padding_rules_are_what_stands_outside_the_map(stride: int) -> None:
    x = image(1, 3, 6, 6)
    for pad, value in (("zero", 0.0), ("minus", -1.0), ("plus", 1.0)):
        conv = layer(3, 4, 3, stride, pad=pad)
        outside = F.pad(sign(x), (1, 1, 1, 1), value=value)
        assert torch.equal(conv(x), F.conv2d(outside, conv.signs(), stride=stride))


def test_padding_before_the_sign_is_the_sign_of_the_bias() -> None:
    conv = layer(3, 4, 3, pad="before", bias=True)
    assert conv.bias is not None
    conv.bias.data.copy_(torch.tensor([-0.5, 0.0, 0.5]).reshape(1, 3, 1, 1))
    map = conv.activate(image(1, 3, 4, 4))
    assert map.shape == (1, 3, 6, 6)
    assert map[0, :, 0, 0].tolist() == [-1, 1, 1]


@pytest.mark.parametrize(("pad", "bits"), [("zero", 2), ("minus", 1), ("plus", 1), ("before", 1)])
def test_only_zeros_in_the_padded_map_need_a_second_bit(pad: str, bits: int) -> None:
    assert audit(layer(3, 4, 3, pad=pad), image(1, 3, 5, 5)).operations[0].bits == (bits, 1)


def test_the_dot_of_a_zero_padded_map_has_the_parity_of_its_taps_inside() -> None:
    """dot = C V - 2 n with V taps inside: 4 at a corner, 6 at an edge, 9 within."""
    dot = layer(5, 4, 3)(image(1, 5, 4, 4))[0, 0]
    for (y, x), taps in {(0, 0): 4, (0, 1): 6, (1, 1): 9}.items():
        assert (dot[y, x] - 5 * taps) % 2 == 0
        assert abs(dot[y, x]) <= 5 * taps


def test_input_scale_is_the_box_filtered_mean_of_the_magnitudes() -> None:
    plain, scaled = layer(3, 4, 3, 2), layer(3, 4, 3, 2, input_scale=True)
    x = image(2, 3, 6, 6)
    box = F.conv2d(x.abs().mean(1, keepdim=True), torch.full((1, 1, 3, 3), 1 / 9), stride=2, padding=1)
    assert torch.allclose(scaled(x), plain(x) * box, atol=1e-5)


def test_an_offset_is_added_last() -> None:
    conv = layer(3, 4, 3, offset=True, scale="filter")
    without = conv(image(1, 3, 4, 4)).detach().clone()
    assert conv.offset is not None
    conv.offset.data.fill_(7)
    assert torch.equal(conv(image(1, 3, 4, 4)), without + 7)


def test_activation_none_convolves_the_real_map_with_signs() -> None:
    conv = layer(3, 4, 3, activation="none")
    x = image(1, 3, 4, 4)
    assert torch.equal(conv(x), F.conv2d(x, conv.signs(), padding=1))


# --- weights of a whole network -------------------------------------------------------------------------------------


def test_weights_switch_between_step_1_step_2_and_the_float_twin() -> None:
    conv, x = layer(3, 4, 3, scale="filter"), image(1, 3, 4, 4)
    binary = conv(x)
    set_weights(conv, "real")
    assert torch.equal(conv(x), F.conv2d(sign(x), conv.weight, padding=1))
    set_weights(conv, "float")
    assert torch.equal(conv(x), F.conv2d(x.clamp(-1, 1), conv.weight, padding=1))
    set_weights(conv, "tanh")
    set_temperature(conv, 1e9)
    assert torch.allclose(conv(x), binary)
    set_weights(conv, "binary")
    assert torch.equal(conv(x), binary)
    ((name, signs),) = binary_weights(conv)
    assert name == "weight"
    assert torch.equal(signs, sign(conv.weight))


def test_weights_that_a_layer_does_not_have_get_a_sentence() -> None:
    conv = layer(3, 4, 3)
    with pytest.raises(UserError, match=r"unknown weights 'scaled'; known: binary, float, real, tanh"):
        set_weights(conv, "scaled")
    assert conv.weights == "binary"


def test_unknown_rules_get_a_sentence() -> None:
    with pytest.raises(UserError, match="pad of a binary convolution: unknown 'one'; choose from zero, minus, plus"):
        Rules(pad="one")
    with pytest.raises(UserError, match="a binary convolution has no rule 'pading'; did you mean 'pad'"):
        Rules().but(pading="zero")


def test_autocast_and_double_run() -> None:
    conv, x = layer(3, 4, 3, scale="filter", bias=True, activation="triangle"), image(1, 3, 4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        conv(x).float().sum().backward()
    assert conv.weight.grad is not None
    assert conv.double()(x.double()).dtype == torch.float64
