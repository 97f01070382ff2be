"""The engine equals the definition of integer programs, number for number, on every instruction set, with any threads and batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from integer_programs import FixedDraw, fixed_of_config, random_fixed_program
from programs import named

from bcnn.engine import Engine, isas
from bcnn.nets.config import preset
from bcnn.program import ops as o
from bcnn.program.interpret import as_real, interpret_maps
from bcnn.program.program import Program

ISAS = [isa.name for isa in isas() if isa.supported]


def picture(program: Program, seed: int = 0, count: int = 1) -> np.ndarray:
    height, width, _ = program.shapes[0]
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def check(program: Program, seed: int = 0, threads: tuple[int, ...] = (1, 2, 3), least_memory: bool = False) -> None:
    images = picture(program, seed, 3)
    meant = [interpret_maps(program, image) for image in images]
    logits = as_real(program, np.stack([maps[-1] for maps in meant]))
    if logits.shape[1:3] == (1, 1):
        logits = logits[:, 0, 0]
    for isa in ISAS:
        for count in threads:
            engine = Engine(program, isa, count, least_memory)
            for i, (made, map_) in enumerate(zip(engine.maps(images[0]), meant[0], strict=True)):
                assert made.dtype == np.int16
                assert np.array_equal(made, map_), f"{isa}, {count} threads: map {i}, {type(program.ops[i]).__name__}"
            for batch in (images, images[1:2]):
                real = engine.run(batch)
                assert real.dtype == np.float32
                assert np.array_equal(real, logits if len(batch) == 3 else logits[1:2])


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    ops=st.integers(1, 10),
    least_memory=st.booleans(),
)
def test_any_integer_program_gives_the_definitions_numbers(
    seed: int, height: int, width: int, ops: int, least_memory: bool
) -> None:
    check(random_fixed_program(seed, height, width, ops), seed, least_memory=least_memory)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), height=st.integers(1, 5), width=st.integers(1, 130), ops=st.integers(1, 3))
def test_integer_convolutions_and_pools_of_any_width_give_the_definitions_numbers(
    seed: int, height: int, width: int, ops: int
) -> None:
    check(random_fixed_program(seed, height, width, ops, 70, only=("conv", "pool")), seed)


@pytest.mark.parametrize("reads", [3, 7])
@pytest.mark.parametrize("width", [4, 13, 57, 114, 127])
def test_an_integer_7x7_convolution_of_an_image_gives_the_definitions_numbers(width: int, reads: int) -> None:
    draw, window = FixedDraw(width), o.Window((7, 7), (2, 2), (3, 3, 3, 3))
    down = draw.rng.integers(0, 12, 33).astype(np.int16)
    offset = draw.rng.integers(-1000, 1000, 33).astype(np.int32)
    conv = o.FixedConv(0, reads, draw.shorts(7, 7, reads, 33, most=150), offset, down, window)
    pool = o.MaxPool(1, o.Window((3, 3), (2, 2), (1, 1, 1, 1)))
    check(named([draw.fixed_input(9, width, False), conv, pool]))


@pytest.mark.parametrize(
    ("k", "made", "groups"),
    [(32, 32, 4), (32, 64, 8), (36, 12, 6), (40, 200, 10), (25, 400, 25), (6, 10, 2), (68, 68, 34)],
)
def test_integer_groups_that_are_made_together_give_the_definitions_numbers(k: int, made: int, groups: int) -> None:
    """A register of channels reads several groups, some of them odd in number or size."""
    draw, window = FixedDraw(k + made), o.Window((3, 3), (1, 1), (1, 1, 1, 1))
    down = draw.rng.integers(0, 12, made).astype(np.int16)
    offset = draw.rng.integers(-1000, 1000, made).astype(np.int32)
    weight = draw.shorts(3, 3, k // groups, made, most=150)
    check(named([draw.fixed_input(5, 9), o.FixedConv(0, k, weight, offset, down, window, groups)]))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), height=st.integers(1, 12), width=st.integers(1, 12))
def test_integer_binary_convolutions_of_any_window_give_the_definitions_numbers(
    seed: int, height: int, width: int
) -> None:
    check(random_fixed_program(seed, height, width, 4, only=("binary_conv", "module", "concat")), seed)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32), k=st.integers(4, 130), made=st.integers(1, 130), width=st.integers(1, 65))
def test_integer_modules_of_any_channel_counts_give_the_definitions_numbers(
    seed: int, k: int, made: int, width: int
) -> None:
    draw = FixedDraw(seed)
    ops = (
        draw.fixed_input(2, width),
        o.FixedBinaryConv(0, k, (draw.fixed_branch(k, made),), after=(draw.bend(made), draw.bound(made, 500))),
        draw.fixed_depthwise(1, made, 1),
    )
    check(named(ops), seed)


@pytest.mark.parametrize("channels", [1, 3, 4, 5, 16, 20, 33, 48, 80])
def test_integer_replicas_of_any_channel_count_give_the_definitions_numbers(channels: int) -> None:
    """Two and a half times the channels are read, by ops that keep their map in blocks of any width."""
    draw, reads = FixedDraw(channels), channels * 5 // 2
    ops = (
        draw.fixed_input(4, 13),
        o.FixedBinaryConv(0, 32, (draw.fixed_branch(32, channels),)),
        o.FixedBinaryConv(1, reads, (draw.fixed_branch(reads, reads),), after=(o.FixedAdd(1, reads),)),
    )
    check(named(ops), threads=(1, 2))


@pytest.mark.parametrize("k", [40, 300])  # counts of one byte and of two
@pytest.mark.parametrize("last", ["nothing", "shift", "bound and shift", "add"])
@pytest.mark.parametrize("prelu", [False, True])
@pytest.mark.parametrize("adds", [0, 1, 2])
def test_integer_shifts_around_what_is_added_saturate_as_defined(adds: int, prelu: bool, last: str, k: int) -> None:
    draw, made = FixedDraw(k + adds), 70
    rest: dict[str, tuple[o.Ending, ...]] = {
        "nothing": (),
        "shift": (o.Shift(3),),
        "bound and shift": (draw.bound(made, 4000), o.Shift(3)),
        "add": (o.FixedAdd(1, made),),
    }
    after = (o.FixedAdd(1, made),) * adds + ((draw.bend(made),) if prelu else ()) + rest[last]
    branch, other = draw.fixed_branch(k, made), draw.fixed_branch(k, made)
    ops = (
        draw.fixed_input(3, 9),
        o.FixedBinaryConv(0, k, (branch,), after=(o.Shift(8),)),
        o.FixedBinaryConv(0, k, (branch,), after=(o.Shift(4), *after)),
        o.FixedBinaryConv(0, k, (branch, other), after=(o.Shift(1), *after)),
    )
    program = named(ops)
    assert (np.abs(interpret_maps(program, picture(program)[0])[1]) >= 32767).any()
    check(program, threads=(1, 2))


@pytest.mark.parametrize("k", [252, 253, 256, 511, 512, 1024, 6304, 16383, 32767])
def test_integer_counts_that_outgrow_a_byte_stay_exact(k: int) -> None:
    """Every bit of the input is 1, every weight 0: all differ, and the dot is -k. Then by a random branch."""
    up = (32767 // k).bit_length() - 1
    weight = np.zeros((70, 1, o.words(k)), np.uint32)
    scale = np.full(70, min(32767, 1 << (15 - up)), np.int16)
    differ = o.FixedBranch(np.full(k, -32768, np.int16), weight, scale, np.zeros(70, np.int16), up)
    branches = (differ,) if k > 2000 else (differ, FixedDraw(k).fixed_branch(k, 70))
    program = named((FixedDraw(0).fixed_input(1, 61), o.FixedBinaryConv(0, k, branches)))
    check(program, threads=(1, 2))


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("branches", [1, 2, 3])
@pytest.mark.parametrize(
    ("k", "made", "groups"), [(64, 64, 1), (27, 70, 1), (5, 1, 1), (128, 128, 2), (66, 66, 2), (40, 40, 40)]
)
def test_an_integer_3x3_gives_the_definitions_numbers(k: int, made: int, groups: int, branches: int, pad: bool) -> None:
    draw = FixedDraw(k)
    window = o.Window((3, 3), (1, 1), (1, 1, 1, 1))
    terms = tuple(draw.fixed_branch(k, made, 9, groups, pad) for _ in range(branches))
    ops = [
        draw.fixed_input(6, 7),
        o.Pointwise(0, k, (o.FixedAffine(draw.shorts(k), draw.shorts(k, most=300), 14),)),
        o.FixedBinaryConv(1, k, terms, window, groups),
        o.FixedBinaryConv(
            1, k, terms, window, groups, (o.FixedAdd(2, made), draw.bend(made), o.FixedAdd(2, made), o.ReLU())
        ),
    ]
    check(named(ops))


@pytest.mark.parametrize("limit", [100, 2040, 32767])
def test_a_bounded_map_makes_a_depth_wise_op_add_plainly_with_the_same_numbers(limit: int) -> None:
    """32767 proves nothing: its sums saturate."""
    draw = FixedDraw(limit)
    for stride in (1, 2, 3):
        ops = (
            draw.fixed_input(9, 20),
            o.Pointwise(0, 40, (o.Shift(5), o.Bound(np.full(40, limit, np.int16)), o.Shift(1))),
            draw.fixed_depthwise(1, 40, stride),
        )
        check(named(ops), threads=(1, 2))


def test_a_depth_wise_op_saturates_tap_by_tap() -> None:
    """The sum leaves 16 bits on its way and comes back: it must not be what a wider sum gives."""
    weight = np.concatenate([np.full(5, 32767), np.full(4, -32767)]).astype(np.int16).reshape(3, 3, 1)
    window = o.Window((3, 3), (1, 1), (1, 1, 1, 1))
    ops = (
        FixedDraw(0).fixed_input(5, 5),
        o.Pointwise(0, 4, (o.FixedAffine(np.full(4, 1, np.int16), np.full(4, 20000, np.int16), 8),)),
        o.FixedDepthwise(1, 4, np.repeat(weight, 4, axis=2), np.zeros(4, np.int16), window),
    )
    program = named(ops)
    middle = interpret_maps(program, picture(program)[0])[2][2, 2]
    assert (middle == 32767 - 4 * 20000).all() or (np.abs(middle) < 32767).all()
    check(program)


@pytest.mark.parametrize("name", ["digits", "cifar10"])
def test_a_network_of_the_paper_in_integers_gives_the_definitions_numbers(name: str) -> None:
    check(fixed_of_config(preset(name)), threads=(1, 2))


def test_two_branches_in_integers_give_the_definitions_numbers() -> None:
    check(fixed_of_config(preset("digits").replace(branches=2)), threads=(1, 2))


def test_the_wide_levels_in_integers_give_the_definitions_numbers() -> None:
    check(fixed_of_config(preset("imagenet").replace(image_size=32, classes=70)), threads=(1, 2))
