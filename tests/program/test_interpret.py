"""Every op on numbers that float32 holds exactly, against torch with ==; order and rounding on numbers made for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bcnn.base.errors import UserError
from bcnn.program import ops as o
from bcnn.program.bits import pack_bits, unpack_bits
from bcnn.program.interpret import interpret, interpret_maps, run_op
from bcnn.program.program import Program

F32 = np.float32
PADDED = o.Window((3, 3), (1, 1), (1, 1, 1, 1))


def eighths(rng: np.random.Generator, *shape: int) -> o.Floats:
    """Small multiples of 1/8: sums and products of a few of them are exact in float32."""
    return rng.integers(-16, 17, shape).astype(F32) / F32(8)


def branch(
    rng: np.random.Generator,
    k: int,
    made: int,
    taps: int = 1,
    groups: int = 1,
    pad: bool = False,
    shift: tuple[int, int] = (0, 0),
) -> o.Branch:
    weight = pack_bits(rng.integers(0, 2, (made, taps, k // groups)).astype(bool))
    bits = pack_bits(rng.integers(0, 2, k).astype(bool)) if pad else None
    return o.Branch(eighths(rng, k), weight, eighths(rng, made), eighths(rng, made), bits, shift)


def program(*ops: o.Op, height: int = 4, width: int = 4, intensity: bool = False) -> Program:
    """`ops` after an Input that maps byte u to (u - 128) / 8, exactly."""
    third = np.full(3, 0.25, F32) if intensity else None
    first = o.Input(height, width, np.full(3, 1 / 8, F32), np.full(3, -16, F32), third)
    return Program((first, *ops), ("",) * (len(ops) + 1))


def nchw(x: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x)).permute(2, 0, 1)[None].double()


def hwc(x: Tensor) -> np.ndarray:
    return x[0].permute(1, 2, 0).float().numpy()


def row(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).double().view(1, -1, 1, 1)


def torch_pad(x: Tensor, window: o.Window, outside: Tensor | float = 0.0) -> Tensor:
    top, left, bottom, right = window.padding
    ones = F.pad(torch.ones_like(x), (left, right, top, bottom))
    return torch.where(ones > 0, F.pad(x, (left, right, top, bottom)), torch.as_tensor(outside, dtype=x.dtype))


def torch_branch(x: np.ndarray, part: o.Branch, window: o.Window, groups: int) -> Tensor:
    """Fig. 4 in torch's words: bias, sign, shift, padding, convolution, batch norm. dot = N - 2 n."""
    k, made, taps = part.threshold.size, part.scale.size, window.taps
    signs = torch.where(nchw(x) - row(part.threshold) >= 0, 1.0, -1.0).double()
    outside: Tensor | float = 0.0 if part.pad is None else row(unpack_bits(part.pad, k) * 2.0 - 1)
    top, left, bottom, right = window.padding
    dy, dx = part.shift
    moved = replace(window, padding=(top - dy, left - dx, bottom + dy, right + dx))
    signs = torch_pad(signs, moved, outside)
    weight = torch.from_numpy(unpack_bits(part.weight, k // groups) * 2.0 - 1)  # O,T,K/G
    weight = weight.view(made, *window.kernel, k // groups).permute(0, 3, 1, 2)
    dot = F.conv2d(signs, weight, stride=window.stride, dilation=window.dilation, groups=groups)
    return (taps * k // groups - dot) / 2 * row(part.scale) + row(part.offset)


WINDOWS = [
    o.Window(),
    PADDED,
    o.Window((3, 3), (2, 2), (1, 1, 1, 1)),
    o.Window((5, 3), (1, 2), (4, 0, 1, 2)),
    o.Window((2, 2), (3, 3)),
    o.Window((3, 2), (1, 1), (2, 1, 2, 1), (2, 3)),
    o.Window((1, 1), (1, 1), (-1, 0, 0, -2)),
]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("k", "made", "groups"), [(1, 3, 1), (31, 5, 1), (33, 33, 3), (64, 64, 1), (65, 65, 65)])
@pytest.mark.parametrize("pad", [False, True])
def test_binary_conv_is_torchs_convolution_of_signs(
    window: o.Window, k: int, made: int, groups: int, pad: bool
) -> None:
    rng = np.random.default_rng(k)
    x = eighths(rng, 6, 7, k)
    part = branch(rng, k, made, window.taps, groups, pad)
    made_map = run_op(o.BinaryConv(0, k, (part,), window, groups), [x])
    assert np.array_equal(made_map, hwc(torch_branch(x, part, window, groups)))


@pytest.mark.parametrize("channels", [1, 31, 32, 33, 65])
@pytest.mark.parametrize("branches", [1, 2])
@pytest.mark.parametrize("prelu_last", [False, True])
def test_binary_conv_is_the_convolution_module(channels: int, branches: int, prelu_last: bool) -> None:
    """Identity, sum of the branches, PReLU, the other path: as endings in either order."""
    rng = np.random.default_rng(channels)
    x, other = eighths(rng, 3, 5, channels), eighths(rng, 3, 5, channels)
    parts = tuple(branch(rng, channels, channels) for _ in range(branches))
    slope = eighths(rng, channels)
    prelu, add = o.PReLU(slope), o.Add(1, channels)
    after = (o.Add(0, channels), *((add, prelu) if prelu_last else (prelu, add)))
    want = nchw(x) + sum(torch_branch(x, part, o.Window(), 1) for part in parts)
    activate = lambda v: torch.where(v >= 0, v, v * row(slope))  # noqa: E731
    want = activate(nchw(other) + want) if prelu_last else nchw(other) + activate(want)
    assert np.array_equal(run_op(o.BinaryConv(0, channels, parts, after=after), [x, other]), hwc(want))


@pytest.mark.parametrize("shift", [(0, 1), (-1, 0), (2, -2), (-3, 5), (3, 5)])
@pytest.mark.parametrize("pad", [False, True])
def test_a_shifted_branch_reads_moved_pixels(shift: tuple[int, int], pad: bool) -> None:
    rng = np.random.default_rng(1)
    x = eighths(rng, 3, 5, 6)
    part = branch(rng, 6, 6, pad=pad, shift=shift)
    assert np.array_equal(run_op(o.BinaryConv(0, 6, (part,)), [x]), hwc(torch_branch(x, part, o.Window(), 1)))


def test_a_tap_outside_counts_half_a_mismatch_a_channel() -> None:
    part = o.Branch(np.zeros(3, F32), np.zeros((1, 9, 1), np.uint32), np.ones(1, F32), np.zeros(1, F32))
    made = run_op(o.BinaryConv(0, 3, (part,), PADDED), [np.ones((1, 1, 3), F32)])
    assert made.item() == 3 + 8 * 1.5  # all three bits differ on the map


@pytest.mark.parametrize("channels", [8, 9, 11])
def test_reader_of_replicated_channels_takes_channel_k_mod_c(channels: int) -> None:
    rng = np.random.default_rng(channels)
    x, other = eighths(rng, 2, 2, 4), eighths(rng, 2, 2, 3)
    tiled, tiled_other = x[..., np.arange(channels) % 4], other[..., np.arange(channels) % 3]
    conv = o.BinaryConv(0, channels, (branch(rng, channels, channels),), after=(o.Add(1, channels),))
    weight = eighths(rng, 3, 3, 1, channels)
    depthwise = o.Conv(0, channels, weight, eighths(rng, channels), PADDED, channels)
    dense = o.Conv(0, channels, eighths(rng, 1, 1, channels, 5), eighths(rng, 5))
    pointwise = o.Pointwise(0, channels, (o.ReLU(),))
    for op in (conv, depthwise, dense, pointwise):
        assert np.array_equal(run_op(op, [x, other]), run_op(op, [tiled, tiled_other]))


def test_bit_is_one_at_the_threshold_and_for_both_zeros() -> None:
    x = np.array([[[0.0, -0.0, 0.5, np.nextafter(F32(0.5), F32(0)), -1e-45]]], F32)
    weight = pack_bits(np.eye(5, dtype=bool))[:, None]
    part = o.Branch(np.array([0, 0, 0.5, 0.5, -0.0], F32), weight, np.ones(5, F32), np.zeros(5, F32))
    bits = np.array([1, 1, 1, 0, 0])
    made = run_op(o.BinaryConv(0, 5, (part,)), [x])
    assert made[0, 0].tolist() == [int((bits != line).sum()) for line in np.eye(5)]


def test_zero_and_negative_scale_by_hand() -> None:
    x = np.array([[[1.0, -1.0]]], F32)  # bits 1, 0
    weight = pack_bits(np.array([[True, True], [False, True]]))[:, None]  # n = 1, 2
    part = o.Branch(np.zeros(2, F32), weight, np.array([-0.0, -3], F32), np.array([0.25, 10], F32))
    assert run_op(o.BinaryConv(0, 2, (part,)), [x])[0, 0].tolist() == [0.25, 2 * -3 + 10]


# --- endings ----------------------------------------------------------------------------------------------------------------


def ended(v: list[float], *after: o.Ending, maps: tuple[np.ndarray, ...] = ()) -> list[float]:
    x = np.array(v, F32).reshape(1, 1, -1)
    return run_op(o.Pointwise(0, len(v), after), [x, *maps])[0, 0].tolist()  # type: ignore[no-any-return]


def test_prelu_with_slopes_above_one_and_below_zero() -> None:
    assert ended([-2, -2, 2, -0.0], o.PReLU(np.array([3, -0.5, 3, 3], F32))) == [-6, 1, 2, 0]
    zero = run_op(o.Pointwise(0, 1, (o.PReLU(np.array([-1], F32)),)), [np.full((1, 1, 1), -0.0, F32)])
    assert np.signbit(zero).all()  # -0.0 is not below zero


def test_endings_by_hand() -> None:
    assert ended([-2, 0.5, 3], o.ReLU()) == [0, 0.5, 3]
    assert ended([-2, 0.5, 3], o.Clip(np.array([-1, 1], F32))) == [-1, 0.5, 1]
    assert ended([-2, 0.5, 3], o.Sign(np.array([0, 0.5, 4], F32))) == [-1, 1, -1]
    assert ended([1, 2], o.Affine(np.array([3, 4], F32), np.array([0.5, -1], F32))) == [3.5, 7]
    assert ended([1, 2], o.Affine(np.array([3, 4], F32), None), o.Affine(None, np.array([1, 1], F32))) == [4, 9]
    pair = np.array([[[10, 20]]], F32)
    assert ended([1, 2, 3, 4, 5], o.Add(1, 5), maps=(pair,)) == [11, 22, 13, 24, 15]
    assert ended([1, 2, 3, 4, 5], o.Add(1, 2, 3), maps=(pair,)) == [1, 2, 3, 14, 25]
    assert ended([1, 2], o.Gate(1), maps=(pair,)) == [10, 40]
    assert ended([1, 2, 3], o.Gate(1), maps=(pair[..., :1],)) == [10, 20, 30]


def test_endings_follow_each_other_in_order() -> None:
    shift = o.Affine(None, np.array([-1], F32))
    assert ended([0.5], shift, o.ReLU()) == [0]
    assert ended([0.5], o.ReLU(), shift) == [-0.5]


def test_a_gate_spreads_over_height_and_width() -> None:
    x = np.arange(1, 13, dtype=F32).reshape(2, 3, 2)
    for shape in [(1, 1, 2), (2, 1, 1), (1, 3, 2), (2, 3, 1), (2, 3, 2)]:
        gate = np.arange(1, 1 + np.prod(shape), dtype=F32).reshape(shape)
        assert np.array_equal(run_op(o.Pointwise(0, 2, (o.Gate(1),)), [x, gate]), x * gate)


def test_sigmoid_is_near_the_true_one_and_never_leaves_0_to_1() -> None:
    x = np.concatenate([np.linspace(-20, 20, 4001), [-1e30, 1e30, -88, 88, 0, -0.0, np.inf, -np.inf]]).astype(F32)
    made = run_op(o.Pointwise(0, 1, (o.Sigmoid(),)), [x.reshape(-1, 1, 1)]).reshape(-1)
    with np.errstate(over="ignore"):
        true = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert (np.abs(made - true) <= 4e-7 * true + 1e-37).all()
    assert ((made >= 0) & (made <= 1)).all()
    assert np.isnan(run_op(o.Pointwise(0, 1, (o.Sigmoid(),)), [np.full((1, 1, 1), np.nan, F32)])).all()


# --- real ops ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("k", "made", "groups"), [(3, 4, 1), (4, 6, 2), (5, 5, 5)])
def test_conv_is_torchs(window: o.Window, k: int, made: int, groups: int) -> None:
    rng = np.random.default_rng(k)
    x, weight, offset = eighths(rng, 6, 7, k), eighths(rng, *window.kernel, k // groups, made), eighths(rng, made)
    kernel = torch.from_numpy(weight).double().permute(3, 2, 0, 1)
    padded = torch_pad(nchw(x), window)
    want = F.conv2d(padded, kernel, torch.from_numpy(offset).double(), window.stride, 0, window.dilation, groups)
    assert np.array_equal(run_op(o.Conv(0, k, weight, offset, window, groups), [x]), hwc(want))


@pytest.mark.parametrize("side", [1, 2, 4])
def test_average_pool(side: int) -> None:
    x = eighths(np.random.default_rng(0), 4, 8, 3)
    window = o.Window((side, side), (side, side))
    assert np.array_equal(run_op(o.AvgPool(0, window), [x]), hwc(F.avg_pool2d(nchw(x), side)))


@pytest.mark.parametrize("inside", [False, True])
def test_average_pool_with_padding_counts_all_taps_or_those_on_the_map(inside: bool) -> None:
    x = eighths(np.random.default_rng(0), 4, 6, 3) * F32(64)  # sums of 4 or 2 of these are exact, and so is the rest
    window = o.Window((2, 2), (2, 2), (1, 1, 1, 1))
    want = F.avg_pool2d(nchw(x), 2, 2, 1, count_include_pad=not inside)
    assert np.array_equal(run_op(o.AvgPool(0, window, inside), [x]), hwc(want))


@pytest.mark.parametrize("window", [PADDED, o.Window((3, 3), (2, 2), (1, 1, 1, 1)), o.Window((2, 3), (2, 1))])
def test_max_pool(window: o.Window) -> None:
    x = eighths(np.random.default_rng(0), 5, 7, 3) - F32(3)  # all below the zeros that padding must not be
    want = F.max_pool2d(nchw(x), window.kernel, window.stride, window.padding[:2])
    assert np.array_equal(run_op(o.MaxPool(0, window), [x]), hwc(want))


def test_channel_average_is_the_mean_of_the_channels_that_are_there() -> None:
    x = np.array([[[1, 2, 4, 8, 16]]], F32)
    assert run_op(o.ChannelAvg(0, 2), [x])[0, 0].tolist() == [F32(21) / F32(3), 5]
    assert run_op(o.ChannelAvg(0, 5), [x])[0, 0].tolist() == [1, 2, 4, 8, 16]


def test_ops_that_move_values() -> None:
    x, y = np.arange(12, dtype=F32).reshape(2, 2, 3), -np.arange(8, dtype=F32).reshape(2, 2, 2)
    assert np.array_equal(run_op(o.Concat((0, 1, 0)), [x, y]), np.concatenate([x, y, x], axis=-1))
    assert np.array_equal(run_op(o.Select(0, np.array([2, 0, 2], np.int32)), [x]), x[..., [2, 0, 2]])
    want = F.interpolate(nchw(x), scale_factor=(2, 3), mode="nearest")
    assert np.array_equal(run_op(o.Upsample(0, (2, 3)), [x]), hwc(want))
    assert np.array_equal(run_op(o.Constant(x), []), x)


def test_global_average_pool_and_linear_give_logits() -> None:
    rng = np.random.default_rng(0)
    linear = o.Linear(1, eighths(rng, 3, 4), eighths(rng, 4))
    image = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    pooled = ((image.astype(np.float64) - 128) / 8).mean((0, 1))
    made = interpret(program(o.GlobalAvgPool(0), linear), image)
    assert made.dtype == F32
    assert made.tolist() == (pooled @ linear.weight.astype(np.float64) + linear.bias).tolist()


def test_input_scales_offsets_and_appends_intensity() -> None:
    image = np.array([[[0, 128, 255]]], np.uint8)
    maps = interpret_maps(program(height=1, width=1, intensity=True), image)
    rgb = [-16, 0, (255 - 128) / 8]
    assert maps[0][0, 0].tolist() == [*rgb, sum(rgb) / 4]


# --- order and rounding -------------------------------------------------------------------------------------------------------


def test_sums_round_to_float32_after_every_addition_in_raster_order() -> None:
    one_is_lost = 2.0**24  # 2^24 + 1 rounds to 2^24 in float32, 1 + 1 + 2^24 does not
    pool = np.array([one_is_lost, 1, 1, 0], F32).reshape(2, 2, 1)
    for op in (o.AvgPool(0, o.Window((2, 2), (2, 2))), o.GlobalAvgPool(0)):
        assert run_op(op, [pool]).item() * 4 == one_is_lost
        assert run_op(op, [pool[::-1, ::-1]]).item() * 4 == one_is_lost + 2
    channels = pool.reshape(1, 1, 4)
    assert run_op(o.ChannelAvg(0, 1), [channels]).item() * 4 == one_is_lost
    linear = o.Linear(0, np.ones((4, 1), F32), np.array([1], F32))
    assert run_op(linear, [channels]).item() == one_is_lost
    assert run_op(linear, [channels[..., ::-1]]).item() == one_is_lost + 4  # 1 + 0 + 1 + 1 = 3; 2^24 + 3 rounds to even
    depthwise = o.Conv(0, 1, np.ones((3, 3, 1, 1), F32), np.array([one_is_lost], F32), PADDED)
    assert run_op(depthwise, [np.ones((3, 3, 1), F32)])[1, 1, 0] == one_is_lost


def test_conv_sums_tap_by_tap_and_in_a_tap_by_channel() -> None:
    x = np.array([[[2.0**24, 1.0], [1.0, 1.0]]], F32)  # taps: (2^24, 1), (1, 1)
    conv = o.Conv(0, 2, np.ones((1, 2, 2, 1), F32), np.zeros(1, F32), o.Window((1, 2)))
    assert run_op(conv, [x]).item() == 2.0**24
    assert run_op(conv, [x[:, ::-1]]).item() == 2.0**24 + 4  # 2 + 2^24 is exact, + 1 more rounds to even


def test_branch_rounds_product_and_sum_before_it_is_added() -> None:
    # n = 3: 3 * s rounds, the sum with the offset rounds again; one fused multiply-add would give another float32.
    s, offset = F32(1 / 3), F32(1e-3)
    weight = pack_bits(np.zeros((1, 1, 3), bool))
    part = o.Branch(np.zeros(3, F32), weight, np.array([s], F32), np.array([offset], F32))
    made = run_op(o.BinaryConv(0, 3, (part,)), [np.ones((1, 1, 3), F32)])
    assert made.item() == F32(F32(F32(3) * s) + offset)


def test_an_offset_of_minus_zero_is_zero() -> None:
    conv = o.Conv(0, 1, np.zeros((1, 1, 1, 1), F32), np.full(1, -0.0, F32))
    assert not np.signbit(run_op(conv, [np.full((1, 1, 1), -1, F32)])).any()


@pytest.mark.parametrize("image", [np.zeros((4, 5, 3), np.uint8), np.zeros((4, 4, 3), F32), [[0]]])
def test_another_image_than_the_program_reads_is_an_error(image: object) -> None:
    with pytest.raises(UserError, match=r"not the uint8 \(4, 4, 3\)"):
        interpret(program(), image)  # type: ignore[arg-type]
