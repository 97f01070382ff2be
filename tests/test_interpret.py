"""Every op on numbers that float32 holds exactly, against torch with ==; order and rounding on numbers made for it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import samples
from bcnn.errors import UserError
from bcnn.program import program as p
from bcnn.program.bits import pack_bits, unpack_bits
from bcnn.program.interpret import interpret, interpret_maps, mismatches, run_op

F32 = np.float32


def nchw(x):
    return torch.from_numpy(np.ascontiguousarray(x)).permute(2, 0, 1)[None].double()


def hwc(x):
    return x[0].permute(1, 2, 0).float().numpy()


def torch_branch(x, branch):
    """Fig. 4 in torch's words: shift, bias, sign, convolution, batch norm."""
    k, o = branch.threshold.size, branch.scale.size
    (dy, dx), s = branch.shift, torch.from_numpy(branch.scale).double() / -2
    x = F.pad(x, (-dx, dx, -dy, dy)) - torch.from_numpy(branch.threshold).double().view(1, -1, 1, 1)
    signs = torch.where(x >= 0, 1.0, -1.0).double()
    weight = torch.from_numpy(unpack_bits(branch.weight, k) * 2.0 - 1).view(o, k, 1, 1)
    offset = torch.from_numpy(branch.offset).double() - s * k
    return F.conv2d(signs, weight) * s.view(1, -1, 1, 1) + offset.view(1, -1, 1, 1)


def torch_prelu(x, slope):
    return x if slope is None else torch.where(x >= 0, x, x * torch.from_numpy(slope).double().view(1, -1, 1, 1))


@pytest.mark.parametrize("channels", [1, 31, 32, 33, 65])
@pytest.mark.parametrize("branches", [1, 2])
@pytest.mark.parametrize("after", [False, True])
def test_binary_conv_is_the_convolution_module(channels, branches, after):
    rng = np.random.default_rng(channels)
    x, other = samples.floats(rng, 3, 5, channels), samples.floats(rng, 3, 5, channels)
    parts = tuple(samples.branch(rng, channels, channels) for _ in range(branches))
    op = p.BinaryConv(0, parts, slope=samples.floats(rng, channels), add=1, prelu_after_add=after)
    want = nchw(x)
    for part in parts:
        want = want + torch_branch(nchw(x), part)
    want = torch_prelu(nchw(other) + want, op.slope) if after else nchw(other) + torch_prelu(want, op.slope)
    assert np.array_equal(run_op(op, [x, other]), hwc(want))


def test_binary_conv_without_identity_may_make_other_channels():
    rng = np.random.default_rng(0)
    x = samples.floats(rng, 4, 4, 33)
    part = samples.branch(rng, 33, 7)
    made = run_op(p.BinaryConv(0, (part,), identity=False), [x])
    assert made.shape == (4, 4, 7)
    assert np.array_equal(made, hwc(torch_branch(nchw(x), part)))


@pytest.mark.parametrize("shift", [(0, 1), (-1, 0), (2, -2), (-3, 5), (3, 5)])
def test_shifted_branch_reads_zero_outside_the_map(shift):
    rng = np.random.default_rng(1)
    x = samples.floats(rng, 3, 5, 6)
    padded = np.zeros((3 + 10, 5 + 10, 6), F32)
    padded[5:8, 5:10] = x
    moved = padded[5 + shift[0] : 8 + shift[0], 5 + shift[1] : 10 + shift[1]]
    part = samples.branch(rng, 6, 6, shift)
    assert np.array_equal(mismatches(x, part), mismatches(moved, replace(part, shift=(0, 0))))


@pytest.mark.parametrize("channels", [8, 9, 11])
def test_reader_of_replicated_channels_takes_channel_k_mod_c(channels):
    rng = np.random.default_rng(channels)
    x, other = samples.floats(rng, 2, 2, 4), samples.floats(rng, 2, 2, 3)
    tiled, tiled_other = x[..., np.arange(channels) % 4], other[..., np.arange(channels) % 3]
    conv = p.BinaryConv(0, (samples.branch(rng, channels, channels),), add=1)
    depthwise = p.DepthwiseConv(0, samples.floats(rng, 3, 3, channels), samples.floats(rng, channels), None)
    assert np.array_equal(run_op(conv, [x, other]), run_op(conv, [tiled, tiled_other]))
    assert np.array_equal(run_op(depthwise, [x]), run_op(depthwise, [tiled]))


def test_bit_is_one_at_the_threshold_and_for_both_zeros():
    x = np.array([[[0.0, -0.0, 0.5, np.nextafter(F32(0.5), F32(0)), -1e-45]]], F32)
    part = p.Branch(
        np.array([0, 0, 0.5, 0.5, -0.0], F32), pack_bits(np.eye(5, dtype=bool)), np.ones(5, F32), np.zeros(5, F32)
    )
    bits = np.array([1, 1, 1, 0, 0])
    assert mismatches(x, part)[0, 0].tolist() == [int((bits != row).sum()) for row in np.eye(5)]


def test_zero_and_negative_scale_by_hand():
    x = np.array([[[1.0, -1.0]]], F32)  # bits 1, 0
    weight = pack_bits(np.array([[True, True], [False, True]]))  # n = 1, 2
    part = p.Branch(np.zeros(2, F32), weight, np.array([-0.0, -3], F32), np.array([0.25, 10], F32))
    assert run_op(p.BinaryConv(0, (part,)), [x])[0, 0].tolist() == [1 + 0.25, -1 + (2 * -3 + 10)]


def test_prelu_with_slopes_above_one_and_below_zero():
    part = p.Branch(np.zeros(4, F32), pack_bits(np.ones((4, 4), bool)), np.zeros(4, F32), np.zeros(4, F32))
    x = np.array([[[-2.0, -2.0, 2.0, -0.0]]], F32)
    op = p.BinaryConv(0, (part,), slope=np.array([3, -0.5, 3, 3], F32))
    assert run_op(op, [x])[0, 0].tolist() == [-6, 1, 2, 0]


@pytest.mark.parametrize(
    ("height", "width", "stride"), [(5, 7, 1), (6, 4, 2), (5, 7, 2), (7, 5, 3), (1, 1, 1), (1, 2, 2)]
)
@pytest.mark.parametrize("slope", [False, True])
def test_depthwise_conv(height, width, stride, slope):
    rng = np.random.default_rng(height)
    x, k = samples.floats(rng, height, width, 5), 5
    op = p.DepthwiseConv(
        0, samples.floats(rng, 3, 3, k), samples.floats(rng, k), samples.floats(rng, k) if slope else None, stride
    )
    weight = torch.from_numpy(op.weight).double().permute(2, 0, 1)[:, None]
    want = F.conv2d(nchw(x), weight, torch.from_numpy(op.offset).double(), stride, 1, groups=k)
    assert np.array_equal(run_op(op, [x]), hwc(torch_prelu(want, op.slope)))


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_average_pool(stride):
    x = samples.floats(np.random.default_rng(0), 4, 8, 3)
    assert np.array_equal(run_op(p.AvgPool(0, stride), [x]), hwc(F.avg_pool2d(nchw(x), stride)))


def test_channel_average_is_the_mean_of_the_channels_that_are_there():
    x = np.array([[[1, 2, 4, 8, 16]]], F32)
    assert run_op(p.ChannelAvg(0, 2), [x])[0, 0].tolist() == [F32(21) / F32(3), 5]
    assert run_op(p.ChannelAvg(0, 5), [x])[0, 0].tolist() == [1, 2, 4, 8, 16]


def test_global_average_pool_and_linear_give_logits():
    rng = np.random.default_rng(0)
    linear = p.Linear(1, samples.floats(rng, 3, 4), samples.floats(rng, 4))
    program = samples.program(p.GlobalAvgPool(0), linear)
    image = samples.image(4, 4)
    pooled = ((image.astype(np.float64) - 128) / 8).mean((0, 1))
    made = interpret(program, image)
    assert made.dtype == F32
    assert made.tolist() == (pooled @ linear.weight.astype(np.float64) + linear.bias).tolist()


def test_input_scales_offsets_and_appends_intensity():
    image = np.array([[[0, 128, 255]]], np.uint8)
    maps = interpret_maps(samples.program(height=1, width=1, intensity=True), image)
    rgb = [-16, 0, (255 - 128) / 8]
    assert maps[0][0, 0].tolist() == [*rgb, sum(rgb) / 4]


def test_sums_round_to_float32_after_every_addition_in_raster_order():
    one_is_lost = 2.0**24  # 2^24 + 1 rounds to 2^24 in float32, 1 + 1 + 2^24 does not
    pool = np.array([one_is_lost, 1, 1, 0], F32).reshape(2, 2, 1)
    for op in (p.AvgPool(0, 2), p.GlobalAvgPool(0)):
        assert run_op(op, [pool]).item() * 4 == one_is_lost
        assert run_op(op, [pool[::-1, ::-1]]).item() * 4 == one_is_lost + 2
    channels = pool.reshape(1, 1, 4)
    assert run_op(p.ChannelAvg(0, 1), [channels]).item() * 4 == one_is_lost
    linear = p.Linear(0, np.ones((4, 1), F32), np.array([1], F32))
    assert run_op(linear, [channels]).item() == one_is_lost
    assert run_op(linear, [channels[..., ::-1]]).item() == one_is_lost + 4  # 1 + 0 + 1 + 1 = 3; 2^24 + 3 rounds to even
    depthwise = p.DepthwiseConv(0, np.ones((3, 3, 1), F32), np.array([one_is_lost], F32), None)
    assert run_op(depthwise, [np.ones((3, 3, 1), F32)])[1, 1, 0] == one_is_lost


def test_branch_rounds_product_and_sum_before_it_is_added():
    # n = 3: 3 * s rounds, the sum with the offset rounds again; one fused multiply-add would give another float32.
    s, o = F32(1 / 3), F32(1e-3)
    part = p.Branch(np.zeros(3, F32), pack_bits(np.zeros((1, 3), bool)), np.array([s], F32), np.array([o], F32))
    made = run_op(p.BinaryConv(0, (part,), identity=False), [np.ones((1, 1, 3), F32)])
    assert made.item() == F32(F32(F32(3) * s) + o)


def test_every_map_of_a_network_is_float32_and_has_the_shape_the_program_says():
    from bcnn.program.lower import lower

    program = lower(samples.network(), samples.MEAN, samples.STD)
    maps = interpret_maps(program, samples.image(8, 8))
    assert {made.dtype for made in maps} == {np.dtype(F32)}
    assert tuple(made.shape for made in maps) == program.shapes


def test_a_large_map_is_counted_in_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    x, part = samples.floats(rng, 5, 5, 40), samples.branch(rng, 40, 9)
    whole = mismatches(x, part)
    monkeypatch.setattr("bcnn.program.interpret.CHUNK", 20)
    assert np.array_equal(mismatches(x, part), whole)


@pytest.mark.parametrize("image", [np.zeros((4, 5, 3), np.uint8), np.zeros((4, 4, 3), np.float32), [[0]]])
def test_another_image_than_the_program_reads_is_an_error(image):
    with pytest.raises(UserError, match=r"not the uint8 \(4, 4, 3\)"):
        interpret(samples.program(), image)
