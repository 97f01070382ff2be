"""A Program that exists may be trusted: each kind of bad op gets its sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bcnn import UserError
from bcnn.program.program import (
    AvgPool,
    BinaryConv,
    Branch,
    ChannelAvg,
    DepthwiseConv,
    Floats,
    GlobalAvgPool,
    Input,
    Linear,
    Op,
    Program,
    binary_weights,
    words,
)


def f(*shape: int) -> Floats:
    return np.zeros(shape, np.float32)


INPUT = Input(4, 6, f(3), f(3), f(3))


def branch(k: int, o: int) -> Branch:
    return Branch(f(k), np.zeros((o, words(k)), np.uint32), f(o), f(o))


CONV = BinaryConv(0, (branch(8, 8),), slope=f(8))
DEPTHWISE = DepthwiseConv(1, f(3, 3, 8), f(8), f(8), 2)
GOOD: tuple[Op, ...] = (
    INPUT,  # 0: 4x6x4
    CONV,  # 1: 4x6x8
    DEPTHWISE,  # 2: 2x3x8
    AvgPool(0, 2),  # 3: 2x3x4
    BinaryConv(3, (branch(8, 8), branch(8, 8)), add=2),  # 4: 2x3x8
    ChannelAvg(4, 3),  # 5: 2x3x3
    GlobalAvgPool(5),  # 6: 1x1x3
    Linear(6, f(3, 10), f(10)),  # 7
)


def build(ops: tuple[Op, ...], **more: Any) -> Program:
    return Program(ops, tuple(f"op{i}" for i in range(len(ops))), **more)


def swap(index: int, **changes: Any) -> tuple[Op, ...]:
    return (*GOOD[:index], replace(GOOD[index], **changes), *GOOD[index + 1 :])


def test_a_good_program_knows_the_shape_of_every_map() -> None:
    program = build(GOOD, labels=tuple("abcdefghij"))
    assert program.shapes == ((4, 6, 4), (4, 6, 8), (2, 3, 8), (2, 3, 4), (2, 3, 8), (2, 3, 3), (1, 1, 3), (1, 1, 10))
    assert binary_weights(program) == 3 * 64


def test_an_input_without_intensity_has_three_channels() -> None:
    assert build((replace(INPUT, intensity=None),)).shapes == ((4, 6, 3),)


def test_words_hold_a_bit_a_channel() -> None:
    assert [words(c) for c in (1, 31, 32, 33, 64, 65)] == [1, 1, 1, 2, 2, 3]


NAN = np.full(8, np.nan, np.float32)
PAST_THE_END = Branch(f(8), np.full((8, 1), 256, np.uint32), f(8), f(8))
BAD: list[tuple[str, tuple[Op, ...], str]] = [
    ("empty", (), "a program must begin with an Input op"),
    ("no input", (CONV,), "a program must begin with an Input op"),
    ("second input", (INPUT, INPUT), "op 1 (Input 'op1'): only the first op may be an Input"),
    ("height", swap(0, height=0), "op 0 (Input 'op0'): height is 0, not a whole number from 1 to 16384"),
    ("width", swap(0, width=True), "op 0 (Input 'op0'): width is True, not a whole number from 1 to 16384"),
    ("huge", (replace(INPUT, height=16384, width=16384),), "its map of 16384 x 16384 x 4 is empty or too large"),
    ("scale", swap(0, scale=f(4)), "op 0 (Input 'op0'): scale is float32 (4,), not float32 (3,)"),
    ("offset", swap(0, offset=None), "offset is None, not float32 (3,)"),
    ("intensity", swap(0, intensity=f(2)), "intensity is float32 (2,), not float32 (3,)"),
    ("own source", swap(1, source=1), "op 1 (BinaryConv 'op1'): source is 1, not a whole number from 0 to 0"),
    ("negative source", swap(3, source=-1), "source is -1, not a whole number from 0 to 2"),
    ("no branches", swap(1, branches=()), "has 0 branches; between 1 and 1024 are allowed"),
    ("few channels", swap(1, branches=(branch(3, 3),)), "threshold must be a vector of 4 to 1048576 channels"),
    (
        "unequal branches",
        swap(1, branches=(branch(8, 8), branch(9, 8))),
        "branch 1: threshold is float32 (9,), not float32 (8,)",
    ),
    (
        "weight",
        swap(1, branches=(replace(branch(8, 8), weight=f(8, 1)),)),
        "branch 0: weight is float32 (8, 1), not uint32 (8, 1)",
    ),
    ("tail bits", swap(1, branches=(PAST_THE_END,)), "branch 0: weight has bits set past its 8 channels"),
    ("nan", swap(1, branches=(replace(branch(8, 8), offset=NAN),)), "branch 0: offset has values that are not finite"),
    (
        "shift",
        swap(1, branches=(replace(branch(8, 8), shift=(5, 0)),)),
        "branch 0: shift is 5, not a whole number from -4 to 4",
    ),
    ("identity", swap(1, branches=(branch(8, 9),), slope=None), "has an identity path but makes 9 channels from 8"),
    ("slope", swap(1, slope=f(7)), "op 1 (BinaryConv 'op1'): slope is float32 (7,), not float32 (8,)"),
    ("add later", swap(4, add=4), "add is 4, not a whole number from 0 to 3"),
    ("add shape", swap(4, add=1), "adds map 1 of (4, 6, 8) to one of (2, 3, 8)"),
    (
        "depthwise stride",
        swap(2, stride=0),
        "op 2 (DepthwiseConv 'op2'): stride is 0, not a whole number from 1 to 16384",
    ),
    ("depthwise weight", swap(2, weight=f(3, 3, 7)), "weight is float32 (3, 3, 7), not float32 (3, 3, 8)"),
    ("depthwise channels", swap(2, offset=f(7)), "offset must be a vector of 8 to 1048576 channels"),
    ("depthwise slope", swap(2, slope=f(9)), "slope is float32 (9,), not float32 (8,)"),
    ("pool stride", swap(3, stride=4), "op 3 (AvgPool 'op3'): stride 4 does not divide the 4 x 6 map it reads"),
    ("more channels", swap(5, channels=9), "op 5 (ChannelAvg 'op5'): channels is 9, not a whole number from 1 to 8"),
    ("linear map", swap(7, source=5), "op 7 (Linear 'op7'): reads a 2 x 3 map; a Linear op needs 1 x 1"),
    ("linear weight", swap(7, weight=f(4, 10)), "weight is float32 (4, 10), not float32 (3, 10)"),
    ("linear bias", swap(7, bias=f(0)), "bias must be a vector of 1 to 1048576 channels"),
]


@pytest.mark.parametrize(("ops", "sentence"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_op_gets_its_sentence(ops: tuple[Op, ...], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        build(ops)
    assert sentence in str(error.value)


def test_an_unequal_number_of_names_is_refused() -> None:
    with pytest.raises(UserError, match="program has 8 ops but 1 names"):
        Program(GOOD, ("input",))


@pytest.mark.parametrize("crop", [0.0, -1.0, 1.5, float("nan"), 1])
def test_a_crop_outside_0_to_1_is_refused(crop: float) -> None:
    with pytest.raises(UserError, match=r"crop is .*, not a number above 0 and up to 1"):
        build(GOOD, crop=crop)


def test_labels_must_fit_the_logits() -> None:
    with pytest.raises(UserError, match="program has 2 labels but its last map is"):
        build(GOOD, labels=("cat", "dog"))
