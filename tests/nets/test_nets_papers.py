"""What is each paper's own: its layers against the formulas they are named by."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn import UserError
from bcnn.counting.audit import audit
from bcnn.nets import abcnet, birealnet, fused, groupnet, meliusnet, reactnet, real_to_bin, xnornetpp
from bcnn.nets.binarize import sign
from bcnn.nets.blocks import Gate, RPReLU, pooled_shortcut, wide
from bcnn.nets.latent import latents
from bcnn.nets.registry import build

torch.set_num_threads(1)


def image(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def shaken(module: nn.Module) -> nn.Module:
    """In evaluation mode, with random parameters and statistics in the place of ones and zeros."""
    torch.manual_seed(2)
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0.1, 0.5)
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)
    return module.eval()


# --- shared parts ---------------------------------------------------------------------------------------------------


def test_rprelu_is_a_prelu_between_two_biases() -> None:
    part, x = shaken(RPReLU(3)), image(1, 3, 4, 4)
    shifted = x + part.before
    slope = part.prelu.weight.reshape(1, 3, 1, 1)
    assert torch.equal(part(x), torch.where(shifted >= 0, shifted, slope * shifted) + part.after)
    assert RPReLU(3).prelu.weight.tolist() == [0.25] * 3


def test_gate_is_a_factor_between_0_and_1_of_the_channels_means() -> None:
    gate, x = shaken(Gate(16, 5)), image(2, 16, 4, 4)
    hidden = (x.mean((2, 3)) @ gate.squeeze.weight.T).relu()
    assert gate(x).shape == (2, 5, 1, 1)
    assert torch.allclose(gate(x).flatten(1), (hidden @ gate.excite.weight.T).sigmoid(), atol=1e-6)


def test_a_pooled_shortcut_is_the_identity_where_shapes_allow_it() -> None:
    assert isinstance(pooled_shortcut(8, 8, 1), nn.Identity)
    assert [type(part) for part in pooled_shortcut(8, 16, 2)] == [nn.AvgPool2d, nn.Conv2d, nn.BatchNorm2d]
    assert [type(part) for part in pooled_shortcut(8, 16, 1)] == [nn.Conv2d, nn.BatchNorm2d]


def test_a_width_is_a_multiple_of_8_and_positive() -> None:
    assert [wide(64, width) for width in (1, 0.5, 0.3, 0.01, 1.5)] == [64, 32, 16, 8, 96]
    with pytest.raises(UserError, match="width must be a number > 0, got 0"):
        wide(64, 0)


# --- BNN, XNOR-Net, XNOR-Net++ --------------------------------------------------------------------------------------


def test_a_fully_connected_layer_of_bnn_reads_the_map_in_the_order_of_flatten() -> None:
    network = shaken(build("bnn-vgg", width=0.125))
    connected = [module for _, module in latents(network)][6]
    x = image(2, 64, 4, 4)
    assert torch.equal(
        connected(x).flatten(1), sign(x).flatten(1) @ connected.signs().flatten(1).T + connected.offset.flatten()
    )


def test_xnornet_with_its_input_scale_differs_from_the_one_without() -> None:
    torch.manual_seed(0)
    plain = build("xnornet-nin", width=0.25).eval()
    scaled = build("xnornet-nin", width=0.25, input_scale=True).eval()
    scaled.load_state_dict(plain.state_dict(), strict=True)
    x = image(1, 3, 32, 32)
    assert not torch.equal(scaled(x), plain(x))


@pytest.mark.parametrize(
    ("shape", "formula"), [("channel", "c"), ("dense", "chw"), ("plane", "c,hw"), ("axes", "c,h,w")]
)
def test_the_scale_of_xnornetpp_is_an_outer_product(shape: str, formula: str) -> None:
    scale, x = shaken(xnornetpp.LearnedScale(shape, 3, 4, 5)), image(2, 3, 4, 5)
    factors = [factor.squeeze() for factor in scale.factors]
    product = torch.einsum(f"{formula}->{formula.replace(',', '')}", *factors)
    assert torch.allclose(scale(x), x * product.reshape(*product.shape, *[1] * (3 - product.dim())), atol=1e-6)
    assert torch.equal(xnornetpp.LearnedScale(shape, 3, 4, 5)(x), x)  # ones at the start


def test_an_unknown_scale_of_xnornetpp_gets_a_sentence() -> None:
    with pytest.raises(UserError, match="shape of XNOR-Net\\+\\+'s scale: unknown 'axis'; did you mean 'axes'"):
        build("xnornetpp-r18-cifar", shape="axis", width=0.125)


# --- ABC-Net --------------------------------------------------------------------------------------------------------


def bases_conv(m: int, n: int) -> abcnet.BasesConv:
    torch.manual_seed(0)
    return abcnet.BasesConv(3, 4, 1, m, n, abcnet.RULES)


def test_weight_bases_of_abcnet_are_signs_of_shifted_weights() -> None:
    conv = bases_conv(5, 1)
    w = conv.weight.detach()
    expected = [sign(w - w.mean() + u * w.std(correction=0)) for u in (-1, -0.5, 0, 0.5, 1)]
    assert torch.equal(conv.signs(), torch.stack(expected))


def test_factors_of_abcnet_leave_a_residual_orthogonal_to_the_bases() -> None:
    conv = bases_conv(4, 1)
    bases = conv.signs()
    residual = conv.weight.detach() - (conv.factors(list(bases)).reshape(4, 1, 1, 1, 1) * bases).sum(0)
    assert (residual * bases).sum((1, 2, 3, 4)).abs().max() < 1e-3
    assert (
        residual.square().sum() < (conv.weight.detach() - conv.weight.detach().abs().mean() * bases[2]).square().sum()
    )


def test_equal_bases_of_abcnet_share_their_factor() -> None:
    conv = bases_conv(3, 1)
    nn.init.ones_(conv.weight)  # no deviation: all bases are the same
    assert torch.allclose(conv.factors(conv.bases()).sum(), torch.ones(()), atol=1e-4)


def test_abcnet_sums_over_pairs_of_bases() -> None:
    conv, x = bases_conv(2, 3), image(2, 3, 5, 5)
    out = torch.zeros(2, 4, 5, 5)
    a = conv.factors(conv.bases())
    for v, beta in zip(conv.shift.detach(), conv.beta.detach(), strict=True):
        plus = torch.where(x + v >= 0.5, 1.0, -1.0)
        for i, base in enumerate(conv.signs()):
            out += a[i] * beta * F.conv2d(plus, base, padding=1)
    assert torch.allclose(conv(x), out, atol=1e-4)


@pytest.mark.parametrize("native", [False, True])
def test_abcnet_trains_with_one_filter_a_sign_and_has_the_values_and_gradients_of_all_pairs(
    native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "enabled", native)
    torch.manual_seed(0)
    conv = abcnet.BasesConv(16, 8, 2, 3, 2, abcnet.RULES)
    found = []
    for training in (False, True):  # all pairs, as a program has them, are the definition
        conv.train(training)
        conv.zero_grad()
        x = image(8, 16, 9, 9).requires_grad_()
        assert conv.one_operator(x) == (training and native and fused.available())
        out = conv(x)
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        found.append([out.detach(), x.grad, *(p.grad for p in conv.parameters())])
    for pairs, one in zip(*found, strict=True):
        assert torch.allclose(pairs, one, atol=1e-5, rtol=1e-4)


def test_activation_bases_of_abcnet_pass_a_gradient_within_0_and_1() -> None:
    conv = bases_conv(1, 1)
    x = torch.tensor([-0.1, 0.0, 0.4, 1.0, 1.1]).reshape(1, 1, 1, 5).expand(1, 3, 1, 5).clone().requires_grad_()
    conv(x).square().sum().backward()
    assert x.grad is not None
    assert (x.grad.abs().sum((0, 1, 2)) > 0).tolist() == [False, True, True, True, False]
    assert conv.shift.grad is not None
    assert conv.beta.grad is not None
    assert conv.weight.grad is not None


# --- Bi-Real Net ----------------------------------------------------------------------------------------------------


def test_leaky_clip_has_slope_a_tenth_outside() -> None:
    x = torch.tensor([-3.0, -1.0, 0.5, 1.0, 2.0])
    assert torch.allclose(birealnet.LeakyClip()(x), torch.tensor([-1.2, -1.0, 0.5, 1.0, 1.1]))


def test_a_bottleneck_of_bireal_net_carries_two_streams() -> None:
    unit = shaken(birealnet.Bottleneck(8, 32, 64, 2, birealnet.RULES, first=False))
    x1, x2 = image(1, 8, 6, 6), image(1, 32, 6, 6)
    o1 = unit.reduce(x2) + unit.narrow(x1)
    o2 = unit.filter.body(o1) + F.avg_pool2d(o1, 2)
    o3 = unit.expand(o2) + unit.shortcut(x2)
    narrow, wide = unit((x1, x2))
    assert narrow.shape == (1, 16, 3, 3)
    assert torch.equal(narrow, o2)
    assert torch.equal(wide, o3)


def test_the_zero_shortcut_takes_every_second_pixel() -> None:
    x = image(1, 4, 6, 6)
    out = birealnet.ZeroShortcut(4, 8)(x)
    assert torch.equal(out[:, 2:6], x[:, :, ::2, ::2])
    assert out[:, :2].abs().sum() == out[:, 6:].abs().sum() == 0


# --- Group-Net ------------------------------------------------------------------------------------------------------


def test_a_block_of_group_net_blends_each_base_with_the_mean() -> None:
    block = shaken(groupnet.GroupBlock(8, 16, 2, 3, gated=True, rules=groupnet.RULES))
    maps = [image(1, 8, 4, 4) + i for i in range(3)]
    g = block.gate.sigmoid()
    shared = (maps[0] + maps[1] + maps[2]) / 3
    for x, first, second, out in zip(maps, block.first, block.second, block(maps), strict=True):
        x = g * x + (1 - g) * shared
        y = first(x) + block.shortcut(x)
        assert torch.allclose(out, second.body(y) + y, atol=1e-5)


def test_the_first_block_of_group_net_has_no_gate() -> None:
    network = build("groupnet-r18-cifar", width=0.125, bases=2)
    assert [block.gate is None for block in network.blocks] == [True, *[False] * 7]


def test_group_net_needs_a_base() -> None:
    with pytest.raises(UserError, match="Group-Net needs at least one base, got 0"):
        build("groupnet-r18", bases=0)


# --- MeliusNet ------------------------------------------------------------------------------------------------------


def test_dense_appends_channels_and_improvement_adds_to_the_last_of_them() -> None:
    dense = shaken(meliusnet.Dense(24, 8, meliusnet.RULES))
    improvement = shaken(meliusnet.Improvement(32, 8, meliusnet.RULES))
    x = image(1, 24, 4, 4)
    appended = dense(x)
    assert torch.equal(appended[:, :24], x)
    assert torch.equal(appended[:, 24:], dense.body(x))
    improved = improvement(appended)
    assert torch.equal(improved[:, :24], x)
    assert torch.equal(improved[:, 24:], appended[:, 24:] + improvement.body(appended))


def test_transitions_shuffle_channels_where_they_have_groups() -> None:
    assert [type(part) for part in meliusnet.transition(64, 32, 1)] == [
        nn.BatchNorm2d,
        nn.MaxPool2d,
        nn.ReLU,
        nn.Conv2d,
    ]
    grouped = meliusnet.transition(64, 32, 4)
    assert isinstance(grouped[3], nn.ChannelShuffle)
    assert grouped[4].groups == 4


# --- ReActNet -------------------------------------------------------------------------------------------------------


def test_doubling_in_reactnet_is_two_convolutions_of_the_same_bits() -> None:
    network = shaken(build("reactnet-a-cifar", width=0.25))
    double, x = network.stage1[1], image(1, 8, 4, 4)
    conv, norm = double.body
    bits = sign(x + conv.bias)
    halves = []
    for half in (slice(0, 8), slice(8, 16)):
        w = conv.weight[half]
        dot = F.conv2d(bits, sign(w)) * w.abs().mean((1, 2, 3)).reshape(1, -1, 1, 1)
        statistics = norm.running_mean[half], norm.running_var[half], norm.weight[half], norm.bias[half]
        halves.append(F.batch_norm(dot, *statistics, eps=norm.eps) + x)
    assert torch.allclose(double(x), double.after(torch.cat(halves, 1)), atol=1e-5)


def test_reactnet_b_and_c_double_channels_with_a_real_convolution() -> None:
    groups = {which: build(f"reactnet-{which}", width=0.25).stage1[1][0].groups for which in "bc"}
    assert groups == {"b": 4, "c": 1}
    with_shortcut = build("reactnet-c", width=0.25, shortcut=True).stage1[1]
    assert isinstance(with_shortcut.shortcut, reactnet.Twice)


# --- Real-to-Binary Net ---------------------------------------------------------------------------------------------


def test_a_unit_of_real_to_binary_net_gates_the_dot_of_the_normed_map() -> None:
    unit, x = shaken(real_to_bin.Unit(16, 16, 1, real_to_bin.RULES)), image(1, 16, 4, 4)
    h = unit.norm(x)
    dot = F.conv2d(sign(h), sign(unit.conv.weight), padding=1)
    assert torch.allclose(unit(x), unit.prelu(unit.gate(h) * dot) + x, atol=1e-5)


# --- what is one bit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "bnn-r18-cifar",
        "xnornet-nin",
        "xnornetpp-r18-cifar",
        "birealnet-50-cifar",
        "groupnet-r18-cifar",
        "meliusnet-a-cifar",
        "reactnet-a-cifar",
        "real2bin-r18-cifar",
        "abcnet-r18-cifar",
    ],
)
def test_padded_before_the_sign_every_binary_convolution_is_1_bit_times_1_bit(name: str) -> None:
    network = build(name, width=0.25, pad="before").eval()
    binary = {name for name, layer in latents(network) if layer.rules.activation != "none"}
    seen = [
        op for op in audit(network, image(1, 3, 32, 32)).operations if op.module in binary and op.op == "convolution"
    ]
    assert {operation.module for operation in seen} == binary
    assert {operation.bits for operation in seen} == {(1, 1)}


def test_as_published_no_network_passes_the_audit() -> None:
    for name in ("bnn-r18-cifar", "birealnet-18-cifar", "meliusnet-22-cifar", "reactnet-a-cifar"):
        assert not audit(build(name, width=0.25), image(1, 3, 32, 32)).passes
