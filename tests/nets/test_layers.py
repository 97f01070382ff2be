"""Replicate, Branch, BinaryConv, DepthwiseConv, Block against what the paper says of them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.nets import config
from bcnn.nets.binarize import sign
from bcnn.nets.layers import BinaryConv, Block, Branch, DepthwiseConv, Replicate, shifted, shifts

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def randomised(module: nn.Module) -> nn.Module:
    """In evaluation mode, with batch norms that do something: any scale, also negative, and offset."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            for tensor in (part.weight, part.bias, part.running_mean):
                nn.init.normal_(tensor)  # type: ignore[arg-type]
            nn.init.uniform_(part.running_var, 0.5, 2)  # type: ignore[arg-type]
    return module.eval()


def without_norm(module: nn.Module) -> nn.Module:
    """Every batch norm is exactly the identity: statistics 0 and 1, scale 1, offset 0, eps 0."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eps = 0.0
    return module.eval()


def channels(*values: float) -> Tensor:
    return torch.tensor(values).reshape(1, -1, 1, 1)


# --- replicate ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (3, (1, 2, 6)),
        (6, (1, 2, 6, 1, 2, 6)),  # R = 2: tiles
        (5, (1, 2, 6, 1, 2)),  # R = 5/3: the first channels once more
        (8, (1, 2, 6, 1, 2, 6, 1, 2)),
        (1, (3,)),  # R = 1/3: the mean of all
        (2, (3.5, 2)),  # R = 2/3: channels 0 and 2, channel 1
    ],
)
def test_replicate_by_any_factor(made: int, expected: tuple[float, ...]) -> None:
    assert torch.equal(Replicate(3, made)(channels(1, 2, 6)), channels(*expected))


def test_replicate_below_one_averages_the_channels_that_replication_would_copy() -> None:
    x = torch.randn(2, 7, 3, 4)
    out = Replicate(7, 3)(x)
    for j in range(3):
        assert torch.allclose(out[:, j], x[:, j::3].mean(1), atol=1e-6)


@pytest.mark.parametrize(("channels_in", "made"), [(6, 3), (7, 3), (4, 6), (4, 8)])
def test_replicate_exports(channels_in: int, made: int) -> None:
    replicate, x = Replicate(channels_in, made), torch.randn(1, channels_in, 2, 2)
    assert torch.equal(torch.export.export(replicate, (x,)).module()(x), replicate(x))


# --- convolution module ---------------------------------------------------------------------------------------------


def test_branch_is_batch_norm_of_the_convolution_of_signs() -> None:
    branch = randomised(Branch(33, torch.randn(33)))
    assert isinstance(branch, Branch)
    x = torch.randn(2, 33, 4, 5)
    for weights, used in (("binary", sign(branch.weight)), ("real", branch.weight)):
        branch.weights = weights
        assert torch.equal(branch(x), branch.norm(F.conv2d(sign(x + branch.bias), used)))


def test_float_twin_has_eq_4_in_the_place_of_sign_and_real_weights() -> None:
    branch = without_norm(Branch(4, torch.randn(4)))
    branch.weights = "float"
    x = 2 * torch.randn(2, 4, 3, 3)
    expected = F.conv2d((x + branch.bias).clamp(-1, 1), branch.weight)
    assert torch.equal(branch(x), expected)


@pytest.mark.parametrize("size", [1, 31, 33, 65])
def test_binary_dot_has_the_parity_and_range_of_its_channel_count(size: int) -> None:
    branch = without_norm(Branch(size, torch.zeros(size)))
    dot = branch(torch.randn(2, size, 3, 3))
    assert torch.equal(dot, dot.round())
    assert int(dot.abs().max()) <= size
    assert bool(((dot - size) % 2 == 0).all())


@pytest.mark.parametrize("filter", [1, 3])
def test_p_branches_are_the_sum_of_p_single_modules(filter: int) -> None:
    module = randomised(BinaryConv(5, branches=3, filter=filter, prelu=False)).double()
    assert isinstance(module, BinaryConv)
    x = torch.randn(2, 5, 6, 7, dtype=torch.float64)
    residuals = []
    for branch in module.branches:
        single = BinaryConv(5, prelu=False).double().eval()
        single.branches[0] = copy.deepcopy(branch)
        residuals.append(single(x) - x)
    assert len(residuals) == 3 * filter**2
    assert torch.allclose(module(x), x + sum(residuals), atol=1e-12, rtol=0)


def test_module_ends_in_its_prelu() -> None:
    module, plain = BinaryConv(4), BinaryConv(4, prelu=False)
    plain.load_state_dict(module.state_dict(), strict=False)
    assert module.prelu is not None
    nn.init.uniform_(module.prelu.weight)
    x = torch.randn(2, 4, 3, 3)
    assert torch.equal(module.eval()(x), module.prelu(plain.eval()(x)))
    assert plain.prelu is None


@pytest.mark.parametrize(("dy", "dx"), [(0, 0), (1, 0), (-1, 2), (2, -1)])
def test_shifted_reads_the_pixel_at_the_shift_and_zero_outside(dy: int, dx: int) -> None:
    x = torch.randn(1, 2, 4, 5)
    out = shifted(x, dy, dx)
    for row in range(4):
        for column in range(5):
            inside = 0 <= row + dy < 4 and 0 <= column + dx < 5
            expected = x[..., row + dy, column + dx] if inside else torch.zeros(1, 2)
            assert torch.equal(out[..., row, column], expected)


@pytest.mark.parametrize("filter", [1, 3, 5])
@pytest.mark.parametrize("bias", [-0.5, 0.0, 0.5])
@pytest.mark.parametrize("weights", ["binary", "real"])
def test_shifted_branches_are_an_fxf_convolution_when_all_batch_norms_are_one(
    filter: int, bias: float, weights: str
) -> None:
    """F*F branches that share a bias: pad with zero, add the bias, take signs, convolve with the FxF filter (sec. 4.2.1)."""
    module = without_norm(BinaryConv(6, filter=filter, prelu=False)).double()
    assert isinstance(module, BinaryConv)
    taps = []
    for branch in module.branches:
        assert isinstance(branch, Branch)
        branch.weights = weights
        nn.init.constant_(branch.bias, bias)
        taps.append(sign(branch.weight) if weights == "binary" else branch.weight)
    kernel = torch.cat([tap.reshape(6, 6, 1) for tap in taps], dim=2).reshape(6, 6, filter, filter)
    x = torch.randn(2, 6, 7, 8, dtype=torch.float64)
    half = filter // 2
    expected = x + F.conv2d(sign(F.pad(x, [half] * 4) + bias), kernel)
    assert torch.allclose(module(x), expected, atol=1e-12, rtol=0)


def test_taps_are_in_raster_order_round_the_centre() -> None:
    assert shifts(1) == [(0, 0)]
    assert shifts(3)[0] == (-1, -1)
    assert shifts(3)[4] == (0, 0)
    assert len(set(shifts(5))) == 25


@pytest.mark.parametrize(("made", "replicas", "branches"), [(8, 4, 1), (8, 2, 2), (5, 2, 1), (3, 1, 3)])
def test_initial_biases_of_the_copies_of_a_channel_differ(made: int, replicas: int, branches: int) -> None:
    module = BinaryConv(made, branches, replicas=replicas)
    channels_in = -(-made // replicas)
    biases = torch.stack([branch.bias.detach().flatten() for branch in module.branches])  # type: ignore[union-attr,operator]
    for c in range(channels_in):
        copies = biases[:, c::channels_in].flatten()
        assert copies.unique().numel() == copies.numel()


def test_one_branch_without_replicas_starts_with_zero_bias() -> None:
    assert BinaryConv(4).branches[0].bias.abs().max() == 0  # type: ignore[union-attr,operator]


# --- depth wise module and building block ---------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_depthwise_is_convolution_norm_prelu_at_one_in_s_pixels(stride: int) -> None:
    module = randomised(DepthwiseConv(5, stride))
    assert isinstance(module, DepthwiseConv)
    x = torch.randn(2, 5, 6, 12)
    dense = F.conv2d(x, module.conv.weight, padding=1, groups=5)[..., ::stride, ::stride]
    assert torch.allclose(module(x), module.prelu(module.norm(dense)), atol=1e-5)
    assert module(x).shape == (2, 5, 6 // stride, 12 // stride)


def block(channels_in: int, made: int, stride: int = 1, prelu: config.PReLU = "block", name: str = "level1.0") -> Block:
    shape = config.BlockShape(name, channels_in, made, stride, 2, 1, prelu, 12, 12)
    out = randomised(Block(shape))
    assert isinstance(out, Block)
    return out


@pytest.mark.parametrize("prelu", ["module", "block"])
@pytest.mark.parametrize(("channels_in", "made", "stride"), [(4, 8, 2), (4, 6, 1), (8, 3, 3), (4, 4, 2)])
def test_block_is_the_sum_of_its_two_paths(channels_in: int, made: int, stride: int, prelu: config.PReLU) -> None:
    module = block(channels_in, made, stride, prelu)
    x = torch.randn(2, channels_in, 12, 12)
    replicated = module.replicate(x)
    residual = module.conv3(module.depthwise(module.conv1(replicated)))
    assert module.identity is not None
    both = module.identity(F.avg_pool2d(replicated, stride)) + residual
    assert torch.equal(module(x), both if module.prelu is None else module.prelu(both))
    assert module(x).shape == (2, made, 12 // stride, 12 // stride)


def test_identity_path_of_a_normal_block_is_its_input() -> None:
    module = block(4, 4)
    assert module.identity is None
    assert module.pool is None
    x = torch.randn(1, 4, 12, 12)
    assert module.prelu is not None
    assert torch.equal(module(x), module.prelu(x + module.conv3(module.depthwise(module.conv1(x)))))


def test_the_stem_has_an_identity_module_whatever_its_r() -> None:
    assert block(4, 4, name="stem.0").identity is not None


@pytest.mark.parametrize("prelu", ["module", "block"])
@pytest.mark.parametrize("made", [4, 8])
def test_both_readings_have_three_prelus_a_block(prelu: config.PReLU, made: int) -> None:
    module = block(4, made, prelu=prelu)
    names = [name for name, part in module.named_modules() if isinstance(part, nn.PReLU)]
    expected = {
        "module": ["conv1.prelu", "depthwise.prelu", "conv3.prelu"],
        "block": ["conv1.prelu", "depthwise.prelu", "prelu"],
    }
    assert names == expected[prelu]


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_pooling_before_replication_gives_the_same_map(stride: int) -> None:
    """Replication is bookkeeping (sec. 4.2.2): it commutes with the pool, so a program may pool the few channels."""
    x = torch.randn(1, 3, 6, 6)
    replicate = Replicate(3, 8)
    assert torch.equal(F.avg_pool2d(replicate(x), stride), replicate(F.avg_pool2d(x, stride)))
