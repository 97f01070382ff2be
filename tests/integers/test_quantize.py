"""A float program in integers: formats, parameters, what is refused, and how near it stays."""

import dataclasses
import re

import numpy as np
import photos
import plain_torch_networks
import programs
import pytest
import samples
import torch
from small_networks import FORMS
from torch import nn

from bcnn.base.errors import UserError
from bcnn.data import sources
from bcnn.engine import Engine, isas
from bcnn.integers.calibration import calibrate, choose
from bcnn.integers.dequantize import reals
from bcnn.integers.quantize import fixed, saturations
from bcnn.integers.synthetic_images import pictures
from bcnn.learning import learn
from bcnn.lowering.lower import lower
from bcnn.nets import registry
from bcnn.nets.config import preset
from bcnn.packed import packfile
from bcnn.program import ops
from bcnn.program.interpret import interpret, interpret_maps, run_op
from bcnn.program.ops.curves import bend_up, gentle
from bcnn.program.program import Program

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def digits() -> Program:
    return samples.in_floats("digits")


def near(program: Program, made: Program, count: int = 6) -> float:
    """The correlation of the logits of both over pictures that were not calibrated on."""
    images = pictures(*program.shapes[0][:2], count + 2, seed=7)[2:]
    both = [np.concatenate([interpret(one, image) for image in images]) for one in (program, made)]
    return float(np.corrcoef(*both)[0, 1])


def assert_every_op_stays_near(program: Program, made: Program) -> None:
    """Each op and its integer form on the same numbers: what the float program's maps are, rounded. So no sign differs, and an error
    is that of one op's arithmetic: some units of the last bit, and what rounding its parameters does."""
    image = pictures(*program.shapes[0][:2], 3, seed=7)[2]
    formats = made.fractions
    rounded, exact = [], []
    for v, f in zip(interpret_maps(program, image), formats, strict=True):
        rounded.append(np.clip(np.rint(v * 2.0**f), -32768, 32767).astype(np.int16))
        exact.append((rounded[-1] / 2.0**f).astype(np.float32))
    for index, (op, own, f) in enumerate(zip(program.ops, made.ops, formats, strict=True)):
        wanted = run_op(op, exact[:index] or [image])
        got = run_op(own, rounded[:index] or [image]) / 2.0**f
        worst = float((np.abs(got - wanted) - 0.01 * np.abs(wanted)).max())
        assert worst <= 0.03 * np.abs(wanted).mean() + 2.0 ** (4 - f), (index, type(own).__name__, made.names[index])


@pytest.mark.parametrize("parameters", ["int16", "int8"])
def test_a_network_in_integers_stays_near_the_float_one(digits, parameters):
    made = fixed(digits, pictures(8, 8), parameters)
    assert made.program.numbers == "int16"
    assert near(digits, made.program, 40) > (0.97 if parameters == "int16" else 0.95)
    assert made.program.labels == digits.labels
    assert [type(op).__name__.removeprefix("Fixed") for op in made.program.ops][:2] == ["Input", "BinaryConv"]


def test_no_map_and_no_parameter_of_an_integer_program_is_a_float(digits):
    made = fixed(digits, pictures(8, 8)).program
    assert {array.dtype for op in made.ops for array in op.arrays()} <= {np.dtype(t) for t in ("i2", "i4", "u4")}
    assert {v.dtype for v in interpret_maps(made, pictures(8, 8)[5])} == {np.dtype(np.int16)}


def test_int8_parameters_take_one_byte_each_in_a_file(tmp_path):
    sizes = {}
    program = lower(samples.network(preset("digits")), samples.MEAN, samples.STD)
    for parameters in ("int16", "int8"):
        made = fixed(program, pictures(8, 8), parameters).program
        sizes[parameters] = packfile.save(made, tmp_path / parameters)
        read = packfile.read(tmp_path / parameters)
        for one, other in zip(read.ops, made.ops, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one.arrays(), other.arrays(), strict=True))
    reals = sum(array.size for op in made.ops for array in op.arrays() if array.dtype == np.int16)
    steps = sum(op.offset.size for op in made.ops if isinstance(op, ops.FixedDepthwise))
    assert sizes["int8"].real_parameters <= reals + 2 * steps + 64
    assert sizes["int8"].real_parameters < 0.65 * sizes["int16"].real_parameters
    assert sizes["int8"].total <= 30_000


def test_maps_that_are_added_share_their_format_and_a_depthwise_reader_gets_more_bits(digits):
    made = fixed(digits, pictures(8, 8)).program
    formats = choose(digits, calibrate(digits, pictures(8, 8)))
    for op, own in zip(made.ops, made.fractions, strict=True):
        shift = sum(e.up for e in getattr(op, "after", ()) if isinstance(e, ops.Shift))
        for ending in getattr(op, "after", ()):
            if isinstance(ending, ops.FixedAdd):
                assert ending.up == own - shift - made.fractions[ending.source]
        if isinstance(op, ops.FixedDepthwise):
            assert made.fractions[op.source] >= own
    assert made.fractions == formats.made


def test_a_bound_proves_that_no_sum_of_the_depthwise_reader_leaves_16_bits(digits):
    made = fixed(digits, pictures(8, 8)).program
    proven = 0
    for op in made.ops:
        if not isinstance(op, ops.FixedDepthwise):
            continue
        *_, bound, shift = [
            *[e for e in made.ops[op.source].after if isinstance(e, (ops.Bound, ops.Shift))],
            ops.Shift(0),
        ][:2]
        if not isinstance(bound, ops.Bound):
            continue
        limit = bound.limit.astype(np.int64) << shift.up
        taps = np.abs(op.weight.astype(np.int64)).reshape(-1, op.reads)
        worst = ((taps * limit >> 15) + 1).sum(axis=0) + np.abs(op.offset.astype(np.int64))
        assert worst.max() <= 32767
        proven += 1
    assert proven


def test_what_saturates_is_reported_by_op(digits):
    loud = dataclasses.replace(
        digits.ops[1], after=(*digits.ops[1].after, ops.Affine(np.full(32, 3000, np.float32), None))
    )
    program = dataclasses.replace(digits, ops=(digits.ops[0], loud, *digits.ops[2:]))
    quiet = [np.full((8, 8, 3), 120, np.uint8)]
    made = fixed(program, quiet)
    assert all(0 < row.share <= 1 for row in made.saturated)
    assert list(made.saturated) == sorted(made.saturated, key=lambda row: -row.share)


@pytest.mark.parametrize("name", FORMS)
def test_networks_of_the_field_in_integers(name):
    found = registry.architecture(name)
    choices = {key: value for key, value in FORMS[name].items() if key in found.choices()}
    torch.manual_seed(0)
    network = found.build(**choices).eval()
    norms = [module for module in network.modules() if isinstance(module, (nn.BatchNorm2d, nn.BatchNorm1d))]
    for norm in norms:  # as training leaves them: what comes out has a deviation of one
        norm.momentum = None
    network.train()
    batch = torch.stack(
        [torch.from_numpy(image).permute(2, 0, 1) / 255 for image in pictures(*found.size, 10, seed=3)[2:]]
    )
    with torch.no_grad():
        network((batch - 0.45) / 0.225)
    program = lower(network.eval(), samples.MEAN, samples.STD, size=found.size)
    made = fixed(program, pictures(*found.size, 6))
    assert_every_op_stays_near(program, made.program)


@pytest.mark.parametrize("name", plain_torch_networks.STRANGERS)
def test_strangers_networks_in_integers(name):
    network, size = plain_torch_networks.stranger(name)
    program = lower(network, samples.MEAN, samples.STD, size=size)
    made = fixed(program, pictures(*size, 6))
    assert_every_op_stays_near(program, made.program)


def test_bad_requests_get_one_sentence(digits):
    with pytest.raises(UserError, match="parameters is 'int4', not int16 or int8"):
        fixed(digits, pictures(8, 8), "int4")
    with pytest.raises(UserError, match="at least one image"):
        fixed(digits, [])
    with pytest.raises(UserError, match="in integers already"):
        fixed(fixed(digits, pictures(8, 8, 3)).program, pictures(8, 8, 3))
    with pytest.raises(UserError, match=r"image is uint8 \(4, 4, 3\)"):
        fixed(digits, pictures(4, 4))
    steep = ops.Pointwise(len(digits.ops) - 1, 10, (ops.PReLU(np.full(10, 1000, np.float32)),))
    program = dataclasses.replace(digits, ops=(*digits.ops, steep), names=(*digits.names, "steep"))
    with pytest.raises(UserError, match=r"op 23 \(Pointwise 'steep'\): a slope of 1000 is too steep"):
        fixed(program, pictures(8, 8, 3))


def test_the_largest_parameters_stay_so_in_one_byte(digits):
    """127 steps of a number near 2^15 are more than 16 bits hold: they must not come out with another sign."""
    steep = ops.PReLU(np.array([0, 2, 1, 0.5, 0, 2, 1, 1, 1.9, 0.1], np.float32))
    after = ops.Pointwise(len(digits.ops) - 1, 10, (steep,))
    program = dataclasses.replace(digits, ops=(*digits.ops, after), names=(*digits.names, "steep"))
    made = fixed(program, pictures(8, 8, 4), "int8").program.ops[-1].after
    (bend,) = [ending.bend for ending in made if isinstance(ending, ops.FixedPReLU)]
    assert np.abs(bend / 2.0**15 - (steep.slope - 1)).max() < 0.01


def engine_equals_definition(program: Program) -> None:
    height, width, _ = program.shapes[0]
    images = np.stack([*pictures(height, width, 4, seed=9), samples.image(height, width)])
    wanted = np.stack([interpret(program, image) for image in images])
    for isa in isas():
        if isa.supported:
            assert np.array_equal(Engine(program, isa=isa.name).run(images).reshape(wanted.shape), wanted)


@pytest.mark.parametrize("seed", range(30))
def test_any_float_program_becomes_integers_and_real_numbers_again(seed):
    """Calibrated on a few pictures, on one, on black alone: odd sizes, groups, pools, gates, concatenations, upsampling."""
    rng = np.random.default_rng(seed)
    program = programs.random_program(seed, int(rng.integers(1, 12)), int(rng.integers(1, 12)), int(rng.integers(1, 9)))
    height, width, _ = program.shapes[0]
    images = [pictures(height, width, 4), pictures(height, width, 3)[2:], pictures(height, width, 1)][seed % 3]
    made = fixed(program, images, ("int16", "int8")[seed % 2]).program
    engine_equals_definition(made)
    again = reals(made)
    assert again.shapes == program.shapes
    assert again.numbers == "float32"
    assert reals(again) is again


@pytest.mark.parametrize("seed", range(30))
def test_parameters_of_any_size_become_integers_or_are_refused_by_name(seed):
    rng = np.random.default_rng(seed)

    def wild(part):
        changed = {}
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if isinstance(value, ops.Part):
                changed[field.name] = wild(value)
            elif isinstance(value, tuple) and value and isinstance(value[0], ops.Part):
                changed[field.name] = tuple(map(wild, value))
            elif isinstance(value, np.ndarray) and value.dtype == np.float32 and field.name != "limits":
                factor = rng.choice([0.0, 1.0, 1.0, 10.0 ** rng.uniform(-6, 6)])
                changed[field.name] = (value * factor).astype(np.float32)
        return dataclasses.replace(part, **changed)

    program = programs.random_program(seed, 7, 6, 5)
    program = dataclasses.replace(program, ops=tuple(map(wild, program.ops)))
    said = ""
    try:
        made = fixed(program, pictures(7, 6, 4)).program
    except UserError as error:
        said = str(error)
    if said:
        assert re.match(r"op \d+ \(\w+ '\w+'\): \w.{20}", said), said
        return
    engine_equals_definition(made)
    assert reals(made).shapes == program.shapes


def test_what_does_not_fit_is_refused_with_its_reason():
    def refused(*made: ops.Op) -> str:
        with pytest.raises(UserError) as caught:
            fixed(samples.program(*made), pictures(4, 4, 4))
        return str(caught.value)

    large, small = (np.full(3, value, np.float32) for value in (1e6, 1e-6))
    loud = ops.Pointwise(0, 3, (ops.Affine(large / 100, None),))
    quiet = ops.Pointwise(0, 3, (ops.Affine(small, None),))
    assert "does not fit 16 bits" in refused(ops.Pointwise(0, 3, (ops.Affine(large, None),)))
    assert "whose values are too large for a gate" in refused(
        loud, ops.Pointwise(0, 3, (ops.Affine(large / 100, None),)), ops.Pointwise(0, 3, (ops.Gate(1),))
    )
    assert "too large to hold 1 beside them" in refused(
        ops.Pointwise(0, 3, (ops.Affine(large / 100, None), ops.Affine(large / 100, None), ops.Sign(large)))
    )
    made = fixed(samples.program(quiet, ops.Pointwise(1, 3, (ops.Affine(large / 100, None),))), pictures(4, 4, 4))
    engine_equals_definition(made.program)


def test_means_that_are_joined_share_their_format():
    """As `bcnn learn` makes them: means and maxima of maps of different ranges, behind each other."""
    loud = ops.Pointwise(0, 3, (ops.Affine(np.full(3, 30, np.float32), None),))
    whole = ops.Window((4, 4))
    program = samples.program(
        loud, ops.GlobalAvgPool(0), ops.MaxPool(0, whole), ops.GlobalAvgPool(1), ops.MaxPool(1, whole),
        ops.Concat((2, 3, 4, 5)), ops.GlobalAvgPool(6),
    )  # fmt: skip
    made = fixed(program, pictures(4, 4, 6)).program
    assert len(set(made.fractions[2:7])) == 1
    assert_every_op_stays_near(program, made)


def test_a_sigmoid_keeps_its_bits_behind_large_values():
    big = ops.Pointwise(0, 3, (ops.Affine(np.full(3, 5000, np.float32), None),))
    gate = ops.Pointwise(0, 3, (ops.Add(1, 3), ops.Sigmoid()))
    program = samples.program(big, gate, ops.MaxPool(2, ops.Window((2, 2))))
    made = fixed(program, pictures(4, 4, 6)).program
    assert made.fractions[2:] == (12, 12)
    engine_equals_definition(made)


@pytest.mark.parametrize("behind", [100.0, 3.0, 0.25])
def test_what_follows_a_sigmoid_has_room(behind):
    """Logits of a hundred times a sigmoid, or a map times one plus a gate of it."""
    scaled = ops.Pointwise(0, 3, (ops.Sigmoid(), ops.Affine(np.full(3, behind, np.float32), None)))
    gated = ops.Pointwise(0, 3, (ops.Sigmoid(), ops.Affine(None, np.ones(3, np.float32)), ops.Gate(1)))
    program = samples.program(scaled, gated)
    made = fixed(program, pictures(4, 4, 6))
    assert not made.saturated
    assert_every_op_stays_near(program, made.program)
    engine_equals_definition(made.program)


def test_one_steep_slope_does_not_cut_off_the_other_channels():
    """What a shift up of negative values leaves room for is one limit for all channels."""
    draw = np.random.default_rng(0)
    slope = np.array([100, 0.25, 0.25], np.float32)
    spread = ops.Affine(np.array([0.02, 8, 8], np.float32), np.array([0, -9, -9], np.float32))
    program = samples.program(ops.Pointwise(0, 3, (spread, ops.PReLU(slope))))
    images = [draw.integers(0, 256, (4, 4, 3), dtype=np.uint8) for _ in range(8)]
    made = fixed(program, images)
    assert_every_op_stays_near(program, made.program)
    assert not made.saturated
    engine_equals_definition(made.program)
    before = made.program.ops[1]
    after = tuple(dataclasses.replace(e, up=8) if isinstance(e, ops.FixedPReLU) else e for e in before.after)
    cut = dataclasses.replace(made.program, ops=(made.program.ops[0], dataclasses.replace(before, after=after)))
    assert saturations(cut, images)[0].share > 0.2  # on the way: the map itself is small again


def test_what_overflows_before_a_prelu_is_refused_or_made_without_a_traceback():
    for scale in (1e30, 3e38):
        loud = ops.Affine(np.full(3, scale, np.float32), None)
        program = samples.program(ops.Pointwise(0, 3, (loud, loud, ops.PReLU(np.full(3, 7, np.float32)))))
        with pytest.raises(UserError, match=r"op 1 \(Pointwise 'op1'\)"):
            fixed(program, pictures(4, 4, 4))


@pytest.mark.parametrize("up", [1, 2, 8])
@pytest.mark.parametrize("steepest", [[100.0], [-200.0], [5.0, -3.0], [3.001], [-1.5, 7.0, 0.0]])
def test_steep_slopes_are_several_gentle_ones(steepest, up):
    slope = np.array([*steepest, 0.25, 1.0, -0.5], np.float32)
    parts = gentle(slope, up)
    assert all(bend_up(part) <= up for part in parts)
    assert all(part.min() > 0 for part in parts[:-1])
    np.testing.assert_allclose(np.prod(parts, axis=0), slope, rtol=1e-6)


def test_a_depthwise_reader_gets_no_bits_that_its_map_has_no_room_for():
    image = pictures(6, 6, 6)
    loud = ops.Pointwise(0, 3, (ops.Affine(np.full(3, 6, np.float32), None),))
    filters = np.random.default_rng(1).uniform(-7.9, 7.9, (7, 7, 1, 3)).astype(np.float32)
    window = ops.Window((7, 7), (1, 1), (3, 3, 3, 3))
    program = Program(
        (dataclasses.replace(samples.program().ops[0], height=6, width=6), dataclasses.replace(loud, source=0),
         ops.Conv(1, 3, filters, np.zeros(3, np.float32), window, 3)), ("in", "loud", "filters"),
    )  # fmt: skip
    made = fixed(program, image)
    assert sum(row.share for row in made.saturated) < 0.01
    assert_every_op_stays_near(program, made.program)


def test_one_large_parameter_does_not_coarsen_the_others():
    scale = np.array([400, 1, 1.5], np.float32)
    program = samples.program(ops.Pointwise(0, 3, (ops.Affine(scale / 100, None),)))
    affine = next(
        e for e in fixed(program, pictures(4, 4, 4), "int8").program.ops[1].after if isinstance(e, ops.FixedAffine)
    )
    np.testing.assert_allclose(affine.scale / affine.scale[0], scale / 400, rtol=1e-2)


def test_a_feature_that_is_scaled_and_moved_does_not_saturate_on_the_way():
    """Scaled to deviation 1: a mean of many deviations is taken away after the product."""
    image = pictures(4, 4, 3, seed=7)[2]
    mean = (image.mean(axis=(0, 1)) / 8 - 16).astype(np.float32)
    affine = ops.Affine(np.full(3, 3000, np.float32) / mean, np.full(3, -2999, np.float32))
    program = samples.program(ops.GlobalAvgPool(0), ops.Pointwise(1, 3, (affine,)))
    made = fixed(program, [image]).program
    assert isinstance(made.ops[2], ops.FixedConv)
    assert_every_op_stays_near(program, made)
    assert isinstance(reals(made).ops[2], ops.Pointwise)


@pytest.mark.parametrize("name", plain_torch_networks.STRANGERS)
def test_the_way_back_has_the_parameters_that_the_integers_stand_for(name):
    network, size = plain_torch_networks.stranger(name)
    program = lower(network, samples.MEAN, samples.STD, size=size)
    made = fixed(program, pictures(*size, 4)).program
    assert_every_op_stays_near(reals(made), made)
    assert [type(op) for op in reals(made).ops] == [type(op) for op in program.ops]


def test_a_learned_file_in_floats_becomes_integers(tmp_path):
    found = sources.find(str(photos.folder(tmp_path / "data")))
    packfile.save(samples.in_floats("digits"), tmp_path / "start.bcnn")
    wishes = learn.Wishes(str(tmp_path / "start.bcnn"), (16, 16), none=True)
    program = learn.learn(found, wishes, "photos").program
    made = fixed(program, pictures(16, 16, 6)).program
    assert made.rejects
    engine_equals_definition(made)


def test_ops_of_two_numbers_do_not_mix(digits):
    made = fixed(digits, pictures(8, 8, 3)).program
    with pytest.raises(UserError, match=r"BinaryConv works on float32, the program on int16"):
        dataclasses.replace(made, ops=(made.ops[0], digits.ops[1], *made.ops[2:]))


@pytest.mark.parametrize("fraction", [1 << 31, -(1 << 40), 65, 1.5])
def test_fractional_bits_that_no_format_has_are_refused_before_the_engine_sees_them(fraction):
    program = fixed(programs.random_program(1, ops=2), [samples.image(9, 7)]).program
    first = dataclasses.replace(program.ops[0], fraction=fraction)
    with pytest.raises(UserError, match=r"op 0 \(FixedInput .*fraction is"):
        dataclasses.replace(program, ops=(first, *program.ops[1:]))
