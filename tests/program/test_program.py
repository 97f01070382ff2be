"""A Program that exists may be trusted: each kind of bad op gets its sentence. Fields are walked over, and become records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bcnn import UserError
from bcnn.program import ops as o
from bcnn.program.program import Limits, Program
from bcnn.program.record import record


def f(*shape: int) -> o.Floats:
    return np.zeros(shape, np.float32)


INPUT = o.Input(4, 6, f(3), f(3), f(3))
HALF = o.Window((3, 3), (2, 2), (1, 1, 1, 1))


def branch(k: int, made: int, taps: int = 1, groups: int = 1) -> o.Branch:
    return o.Branch(f(k), np.zeros((made, taps, o.words(k // groups)), np.uint32), f(made), f(made))


CONV = o.BinaryConv(0, 8, (branch(8, 8),), after=(o.Add(0, 8), o.PReLU(f(8))))
GOOD: tuple[o.Op, ...] = (
    INPUT,  # 0: 4x6x4
    CONV,  # 1: 4x6x8
    o.Conv(1, 8, f(3, 3, 1, 8), f(8), HALF, 8, (o.PReLU(f(8)),)),  # 2: 2x3x8
    o.AvgPool(0, o.Window((2, 2), (2, 2))),  # 3: 2x3x4
    o.BinaryConv(3, 8, (branch(8, 8), branch(8, 8)), after=(o.Add(2, 8),)),  # 4: 2x3x8
    o.ChannelAvg(4, 3),  # 5: 2x3x3
    o.GlobalAvgPool(5),  # 6: 1x1x3
    o.Linear(6, f(3, 10), f(10)),  # 7
)
MORE: tuple[o.Op, ...] = (
    *GOOD[:3],
    o.BinaryConv(1, 8, (branch(8, 6, 9, 2),), HALF, 2, (o.Gate(2),)),  # 3: 2x3x6 and refused: a gate of 8 channels
)


def build(ops: tuple[o.Op, ...], **more: Any) -> Program:
    return Program(ops, tuple(f"op{i}" for i in range(len(ops))), **more)


def swap(index: int, **changes: Any) -> tuple[o.Op, ...]:
    return (*GOOD[:index], replace(GOOD[index], **changes), *GOOD[index + 1 :])  # type: ignore[type-var]


def ending(*after: o.Ending) -> tuple[o.Op, ...]:
    return swap(1, after=after)


def then(op: o.Op) -> tuple[o.Op, ...]:
    return (*GOOD[:3], op)


def test_a_good_program_knows_the_shape_of_every_map() -> None:
    program = build(GOOD, labels=tuple("abcdefghij"))
    assert program.shapes == ((4, 6, 4), (4, 6, 8), (2, 3, 8), (2, 3, 4), (2, 3, 8), (2, 3, 3), (1, 1, 3), (1, 1, 10))
    assert sum(counts.binary_params for counts in program.counts()) == 3 * 64
    assert [counts.binary_macs for counts in program.counts()] == [0, 4 * 6 * 64, 0, 0, 2 * 2 * 3 * 64, 0, 0, 0]


def test_an_input_without_intensity_has_three_channels() -> None:
    assert build((replace(INPUT, intensity=None),)).shapes == ((4, 6, 3),)


def test_words_hold_a_bit_a_channel() -> None:
    assert [o.words(c) for c in (1, 31, 32, 33, 64, 65)] == [1, 1, 1, 2, 2, 3]


NAN = np.full(8, np.nan, np.float32)
PAST_THE_END = o.Branch(f(8), np.full((8, 1, 1), 256, np.uint32), f(8), f(8))
BAD: list[tuple[str, tuple[o.Op, ...], str]] = [
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
    ("few channels", swap(1, reads=3), "reads is 3, not a whole number from 4 to 1048576"),
    (
        "unequal",
        swap(1, branches=(branch(8, 8), branch(9, 8))),
        "branch 1: threshold is float32 (9,), not float32 (8,)",
    ),
    (
        "weight",
        swap(1, branches=(replace(branch(8, 8), weight=f(8, 1, 1)),)),
        "branch 0: weight is float32 (8, 1, 1), not uint32 (8, 1, 1)",
    ),
    ("taps", swap(1, window=HALF), "branch 0: weight is uint32 (8, 1, 1), not uint32 (8, 9, 1)"),
    ("tail bits", swap(1, branches=(PAST_THE_END,)), "branch 0: weight has bits set past its 8 channels"),
    (
        "pad bits",
        swap(1, branches=(replace(branch(8, 8), pad=np.full(1, 256, np.uint32)),)),
        "branch 0: pad has bits set past its 8 channels",
    ),
    ("nan", swap(1, branches=(replace(branch(8, 8), offset=NAN),)), "branch 0: offset has values that are not finite"),
    (
        "shift",
        swap(1, branches=(replace(branch(8, 8), shift=(5, 0)),)),
        "branch 0: shift is 5, not a whole number from -4 to 4",
    ),
    ("groups", swap(1, groups=3), "its 3 groups divide neither or only one of 8 channels read and 8 made"),
    (
        "too many bits",
        swap(1, reads=65536, branches=(branch(65536, 8),)),
        "sums 65536 signs; a count holds at most 65535",
    ),
    ("kernel", swap(3, window=o.Window((0, 2))), "kernel is 0, not a whole number from 1 to 16384"),
    ("window", swap(3, window=o.Window((5, 2))), "a height of 4, 4 with padding, is less than the 5 of its kernel"),
    ("slope", ending(o.PReLU(f(7))), "op 1 (BinaryConv 'op1'): PReLU: slope is float32 (7,), not float32 (8,)"),
    ("affine", ending(o.Affine(None, None)), "Affine: has neither scale nor offset"),
    ("clip", ending(o.Clip(np.array([1, 0], np.float32))), "Clip: clips to limits [1.0, 0.0] that are not in order"),
    ("sign", ending(o.Sign(f(9))), "Sign: threshold is float32 (9,), not float32 (8,)"),
    ("add later", ending(o.Add(1, 8)), "Add: the map added is 1, not a whole number from 0 to 0"),
    ("add too many", ending(o.Add(0, 9)), "Add: reads is 9, not a whole number from 1 to 8"),
    ("add past the end", ending(o.Add(0, 8, 1)), "Add: reads is 8, not a whole number from 1 to 7"),
    ("add shape", swap(4, after=(o.Add(1, 8),)), "Add: adds 8 channels of map 1, (4, 6, 8), to one of (2, 3, 8)"),
    ("gate", MORE, "Gate: is gated by map 2, (2, 3, 8), which does not spread over (2, 3, 6)"),
    ("endings", swap(1, after=(o.ReLU(),) * 65), "after must be a tuple of at most 64 endings"),
    ("conv stride", swap(2, window=replace(HALF, stride=(0, 1))), "stride is 0, not a whole number from 1 to 16384"),
    ("conv weight", swap(2, weight=f(3, 3, 1, 7)), "weight is float32 (3, 3, 1, 7), not float32 (3, 3, 1, 8)"),
    ("conv groups", swap(2, groups=5), "its 5 groups divide neither or only one of 8 channels read and 8 made"),
    ("more channels", swap(5, channels=9), "op 5 (ChannelAvg 'op5'): channels is 9, not a whole number from 1 to 8"),
    ("linear map", swap(7, source=5), "op 7 (Linear 'op7'): reads a 2 x 3 map; a Linear op needs 1 x 1"),
    ("linear weight", swap(7, weight=f(4, 10)), "weight is float32 (4, 10), not float32 (3, 10)"),
    ("linear bias", swap(7, bias=f(0)), "bias must be a vector of 1 to 1048576 channels"),
    (
        "pool of nothing",
        then(o.MaxPool(0, o.Window((1, 1), (1, 1), (1, 0, 0, 0)))),
        "has windows that lie outside the map",
    ),
    ("pointwise", then(o.Pointwise(0, 4, ())), "does nothing: it has no endings"),
    ("constant", then(o.Constant(f(3))), "value must be a map H,W,C"),
    ("concat", then(o.Concat((0, 2))), "joins maps of different sizes: (4, 6, 4), (2, 3, 8)"),
    ("concat nothing", then(o.Concat(())), "must have 1 to 1024 sources"),
    ("select", then(o.Select(0, np.array([4], np.int32))), "index names channels outside the 4 of its source"),
    ("upsample", then(o.Upsample(0, (0, 2))), "factor is 0, not a whole number from 1 to 16384"),
    ("too tall", then(o.Upsample(0, (16384, 1))), "its map of 65536 x 6 x 4 is empty or too large"),
]


@pytest.mark.parametrize(("ops", "sentence"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_op_gets_its_sentence(ops: tuple[o.Op, ...], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        build(ops)
    assert sentence in str(error.value)


def test_an_unequal_number_of_names_is_refused() -> None:
    with pytest.raises(UserError, match="program has 8 ops but 1 names"):
        Program(GOOD, ("input",))


@pytest.mark.parametrize("crop", [0.0, -1.0, 1.5, float("nan"), 1, 1e-300, 5e-4])
def test_a_crop_that_would_blow_up_an_image_is_refused(crop: float) -> None:
    with pytest.raises(UserError, match=r"crop is .*, not a number from 0.05 to 1"):
        build(GOOD, crop=crop)


def test_labels_must_fit_the_logits() -> None:
    with pytest.raises(UserError, match="program has 2 labels but its last map is"):
        build(GOOD, labels=("cat", "dog"))


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (Limits(ops=7), "8 ops; the limit is 7"),
        (Limits(parts=6), "7 branches and endings; the limit is 6"),
        (Limits(map_bytes=100), "bytes of maps; the limit is 100"),
        (Limits(work=1000), "operations; the limit is 1,000"),
    ],
)
def test_a_program_that_costs_too_much_is_refused_and_the_limit_can_be_raised(limits: Limits, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        build(GOOD, limits=limits)
    build(GOOD)


def test_a_large_image_within_the_limit_of_sides_is_still_too_much_to_run() -> None:
    image = o.Input(9000, 9000, f(3), f(3))
    pools = tuple(o.AvgPool(i, o.Window((1, 1))) for i in range(5))
    with pytest.raises(UserError, match="bytes of maps; the limit is"):
        build((image, *pools))


# --- fields -----------------------------------------------------------------------------------------------------------------


def test_an_op_knows_the_maps_and_arrays_of_all_its_parts() -> None:
    assert list(GOOD[4].maps_read()) == [3, 2]
    assert list(o.Concat((5, 1, 5)).maps_read()) == [5, 1, 5]
    assert [array.shape for array in CONV.arrays()] == [(8,), (8, 1, 1), (8,), (8,), (8,)]


def test_a_record_has_kind_numbers_arrays_and_parts() -> None:
    made = record(CONV)
    assert made.kind == "BinaryConv"
    assert made.numbers == {"source": [0], "reads": [8], "groups": [1]}
    assert [part.kind for part in made.parts["after"]] == ["Add", "PReLU"]
    assert made.parts["after"][0].numbers == {"source": [0], "reads": [8], "first": [0]}
    assert made.parts["window"][0].numbers["padding"] == [0, 0, 0, 0]
    (part,) = made.parts["branches"]
    assert set(part.arrays) == {"threshold", "weight", "scale", "offset"}  # no pad: fields that are none are absent
    assert part.numbers == {"shift": [0, 0]}


def test_every_op_is_in_the_table_of_kinds() -> None:
    assert {"BinaryConv", "Conv", "MaxPool", "Upsample", "Constant"} <= set(o.Op.KINDS)
    assert {"Add", "Gate", "Sigmoid"} <= set(o.Ending.KINDS)
