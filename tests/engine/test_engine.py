"""The engine equals the interpreter, bit for bit, for every program, instruction set, number of threads and batch size."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import HELPERS
from PIL import Image
from programs import Draw, named, of_config, random_program, stem

import bcnn
from bcnn.base.errors import UserError
from bcnn.engine import Engine, isas
from bcnn.program import ops as o
from bcnn.program.interpret import interpret_maps
from bcnn.program.program import Limits, Program

ISAS = [isa.name for isa in isas() if isa.supported]
F32 = np.float32


def picture(program: Program, seed: int = 0, count: int = 1) -> np.ndarray:
    height, width, _ = program.shapes[0]
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def same_bits(made: np.ndarray, meant: np.ndarray) -> bool:
    """Every bit, the sign of zeros too; of NaNs only that they are."""
    nan = np.isnan(meant)
    if made.shape != meant.shape or made.dtype != F32 or not np.array_equal(np.isnan(made), nan):
        return False
    bits = [np.where(nan, F32(0), values).astype(F32).view(np.uint32) for values in (made, meant)]
    return np.array_equal(*bits)


def assert_equal_maps(program: Program, engine: Engine, image: np.ndarray) -> None:
    for i, (made, meant) in enumerate(zip(engine.maps(image), interpret_maps(program, image), strict=True)):
        assert same_bits(made, meant), (
            f"{engine.isa}, {engine.threads} threads: map {i} of {type(program.ops[i]).__name__}"
        )


def check(program: Program, seed: int = 0, threads: tuple[int, ...] = (1, 2, 3), least_memory: bool = False) -> None:
    images = picture(program, seed, 3)
    logits = np.stack([interpret_maps(program, image)[-1] for image in images])
    if logits.shape[1:3] == (1, 1):
        logits = logits[:, 0, 0]
    for isa in ISAS:
        for count in threads:
            engine = Engine(program, isa, count, least_memory)
            assert_equal_maps(program, engine, images[0])
            assert same_bits(engine.run(images), logits)
            assert same_bits(engine.run(images[1:2]), logits[1:2])


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    ops=st.integers(1, 10),
    least_memory=st.booleans(),
)
def test_any_program_gives_the_interpreters_bits(
    seed: int, height: int, width: int, ops: int, least_memory: bool
) -> None:
    check(random_program(seed, height, width, ops), seed, least_memory=least_memory)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), height=st.integers(1, 5), width=st.integers(1, 130), ops=st.integers(1, 3))
def test_real_convolutions_and_pools_of_any_width_give_the_interpreters_bits(
    seed: int, height: int, width: int, ops: int
) -> None:
    check(random_program(seed, height, width, ops, 70, only=("conv", "pool")), seed)


@pytest.mark.parametrize("reads", [3, 7])
@pytest.mark.parametrize("width", [4, 13, 57, 114, 127])
def test_a_7x7_convolution_of_an_image_gives_the_interpreters_bits(width: int, reads: int) -> None:
    draw, window = Draw(width), o.Window((7, 7), (2, 2), (3, 3, 3, 3))
    conv = o.Conv(0, reads, draw.floats(7, 7, reads, 33), draw.floats(33), window)
    check(named([draw.input(9, width, False), conv, o.MaxPool(1, o.Window((3, 3), (2, 2), (1, 1, 1, 1)))]))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), height=st.integers(1, 12), width=st.integers(1, 12))
def test_binary_convolutions_of_any_window_give_the_interpreters_bits(seed: int, height: int, width: int) -> None:
    check(random_program(seed, height, width, 4, only=("binary_conv", "module", "concat")), seed)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32), k=st.integers(1, 130), made=st.integers(1, 130), width=st.integers(1, 65))
def test_binary_conv_of_any_channel_counts_gives_the_interpreters_bits(
    seed: int, k: int, made: int, width: int
) -> None:
    draw = Draw(seed)
    k = max(k, 4)
    ops = (
        draw.input(2, width),
        o.BinaryConv(0, k, (draw.branch(k, made),), after=(o.PReLU(draw.slope(made)),)),
        draw.depthwise(1, made, 1),
    )
    check(named(ops), seed)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    channels=st.integers(1, 5),
    replicas=st.integers(1, 17),
    odd=st.integers(0, 4),
    made=st.sampled_from([1, 8, 31, 32, 33, 64, 65, 96, 130]),
    width=st.integers(1, 65),
    branches=st.integers(1, 3),
)
def test_a_stem_of_any_replicas_gives_the_interpreters_bits(
    seed: int, channels: int, replicas: int, odd: int, made: int, width: int, branches: int
) -> None:
    """Few channels, many thresholds: counts by table. Values that are thresholds, zeros of both signs, infinities and NaN."""
    check(stem(seed, channels, max(channels, channels * replicas - odd), made, width, branches), seed)


def counting(k: int, taps: int = 1) -> o.Branch:
    """Every bit of the input is 1, every weight 0: all bits differ, so every count is the number of bits itself."""
    weight = np.zeros((70, taps, o.words(k)), np.uint32)
    return o.Branch(np.full(k, -1e30, F32), weight, np.ones(70, F32), np.zeros(70, F32))


@pytest.mark.parametrize("k", [252, 253, 256, 511, 512, 1024, 1100, 6304])
def test_counts_that_outgrow_a_byte_stay_exact(k: int) -> None:
    """Where bytes and 16-bit halves would overflow first."""
    check(named((Draw(0).input(1, 61), o.BinaryConv(0, k, (counting(k), Draw(k).branch(k, 70))))))


@pytest.mark.parametrize(("k", "side"), [(252, 1), (65535, 1), (28, 3), (29, 3), (7281, 3), (4, 127)])
def test_counts_are_exact_up_to_the_largest(k: int, side: int) -> None:
    window = o.Window((side, side))
    counts = named((Draw(0).input(side + 1, side + 4), o.BinaryConv(0, k, (counting(k, side * side),), window)))
    for isa in ISAS:
        for threads in (1, 2):
            assert (Engine(counts, isa, threads).maps(picture(counts)[0])[1] == k * side * side).all()


@pytest.mark.skipif("avx512" not in ISAS, reason="this processor has no AVX-512")
@pytest.mark.parametrize("way", ["words", "pairs"])
def test_both_ways_of_avx512_to_count_give_the_interpreters_bits(way: str) -> None:
    """The engine takes the one that is faster on this core, once a process: so each gets a process of its own."""
    code = """
import test_engine, test_integer_engine
for k in (253, 512, 1100):
    test_engine.test_counts_that_outgrow_a_byte_stay_exact(k)
    test_integer_engine.test_integer_counts_that_outgrow_a_byte_stay_exact(k)
for arguments in ((128, 128, 2, 1, False), (64, 64, 1, 2, True)):
    test_engine.test_a_binary_3x3_gives_the_interpreters_bits(*arguments)
    test_integer_engine.test_an_integer_3x3_gives_the_definitions_numbers(*arguments)
test_integer_engine.test_the_wide_levels_in_integers_give_the_definitions_numbers()
"""
    path = os.pathsep.join([str(HELPERS), str(Path(__file__).parent), *sys.path])
    env = {**os.environ, "PYTHONPATH": path, "BCNN_AVX512_COUNTS": way}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr


def test_a_count_that_would_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="sums 65536 signs; a count holds at most 65535"):
        named((Draw(0).input(1, 1), o.BinaryConv(0, 65536, (counting(65536),))))


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("branches", [1, 2, 3])
@pytest.mark.parametrize(
    ("k", "made", "groups"), [(64, 64, 1), (33, 70, 1), (5, 1, 1), (128, 128, 2), (66, 66, 2), (40, 40, 40)]
)
def test_a_binary_3x3_gives_the_interpreters_bits(k: int, made: int, groups: int, branches: int, pad: bool) -> None:
    """Counts in bytes and in 16 bits, whole words or not, one group or several; borders of zeros, half a mismatch a channel, or of bits."""
    draw = Draw(k)
    window = o.Window((3, 3), (1, 1), (1, 1, 1, 1))
    ops = [
        draw.input(6, 7),
        o.Pointwise(0, k, (o.Affine(draw.floats(k), draw.floats(k)),)),
        o.BinaryConv(1, k, tuple(draw.branch(k, made, 9, groups, pad) for _ in range(branches)), window, groups),
        o.BinaryConv(
            1,
            k,
            tuple(draw.branch(k, made, 9, groups, pad) for _ in range(branches)),
            window,
            groups,
            (o.Add(2, made), o.PReLU(draw.slope(made)), o.Add(2, made), o.PReLU(draw.slope(made)), o.ReLU()),
        ),
    ]
    check(named(ops))


def test_branches_with_the_same_thresholds_share_their_bits() -> None:
    draw = Draw(0)
    window = o.Window((3, 3), (1, 1), (1, 1, 1, 1))
    one, other = (draw.branch(64, 64, 9) for _ in range(2))
    twin = o.Branch(one.threshold, other.weight, other.scale, other.offset)
    apart = named((draw.input(40, 40), o.BinaryConv(0, 64, (one, other), window)))
    shared = named((apart.ops[0], o.BinaryConv(0, 64, (one, twin), window)))
    # Planned for least memory: for least time, rows of shared bits may be made more at a time.
    assert (
        Engine(shared, threads=1, least_memory=True).peak_memory
        < Engine(apart, threads=1, least_memory=True).peak_memory
    )
    check(shared)


@pytest.mark.parametrize("prelu", ["module", "block"])
@pytest.mark.parametrize("branches", [1, 2, 5])
def test_a_network_gives_the_interpreters_bits(prelu: str, branches: int) -> None:
    config = bcnn.preset("digits").replace(prelu=prelu, branches=branches, image_size=32)
    check(of_config(config, seed=branches))


def test_levels_whose_weights_outgrow_the_cache_give_the_interpreters_bits() -> None:
    """Wide levels run op by op over whole maps and are split by channels; narrow ones by rows."""
    check(of_config(bcnn.preset("imagenet").replace(image_size=32, classes=70)))


def test_a_map_wide_enough_for_several_strips_gives_the_interpreters_bits() -> None:
    config = bcnn.preset("digits").replace(image_size=[8, 232])
    check(of_config(config))


def test_replicas_of_odd_channel_counts_are_read_by_the_index_rule() -> None:
    draw = Draw(3)
    ops = (
        draw.input(5, 6, intensity=False),
        o.BinaryConv(0, 7, (draw.branch(7, 7),), after=(o.Add(0, 7), o.PReLU(draw.slope(7)))),
        o.BinaryConv(1, 33, (draw.branch(33, 33),), after=(o.Add(1, 33), o.Add(1, 33), o.PReLU(draw.slope(33)))),
        draw.depthwise(1, 20, 1),
        o.Pointwise(1, 40, (o.ReLU(), o.Add(1, 9, 30))),
    )
    check(named(ops))


def test_the_end_of_a_program_may_be_a_map() -> None:
    program = named((Draw(0).input(4, 5),))
    assert Engine(program).run(picture(program, count=2)).shape == (2, 4, 5, 4)
    check(program)


def test_tiny_numbers_are_not_flushed_to_zero() -> None:
    draw = Draw(0)
    tiny = np.full(8, 1e-41, F32)
    window = o.Window((3, 3), (1, 1), (1, 1, 1, 1))
    after = (o.PReLU(np.full(8, 0.5, F32)),)
    program = named((draw.input(3, 3), o.Conv(0, 8, np.zeros((3, 3, 1, 8), F32), tiny, window, 8, after)))
    assert (Engine(program).maps(picture(program)[0])[1] == tiny).all()
    check(program)


# --- what broke before ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [3, 4, 5, 7])
def test_rows_between_shares_that_nobody_reads_are_made(stride: int) -> None:
    """A stride of 4 steps over rows; where two threads share the map, neither needs those at the border."""
    draw = Draw(stride)
    ops = [draw.input(64, 9)]
    for k in (8, 16):
        x = len(ops) - 1
        ops.append(o.BinaryConv(x, k, (draw.branch(k, k),), after=(o.Add(x, k), o.PReLU(draw.slope(k)))))
        ops.append(draw.depthwise(x + 1, k, stride))
    check(named(ops), threads=(2, 3, 5))


def test_the_sign_of_a_zero_is_the_interpreters() -> None:
    """-0.0 comes from offsets of -0.0, from negative numbers times 0, and stays through negative slopes."""
    zero, minus = np.zeros(8, F32), np.full(8, -0.0, F32)
    negative = np.full(8, -0.5, F32)
    branch = o.Branch(zero, np.zeros((8, 1, 1), np.uint32), minus, minus)  # n * -0.0 + -0.0
    ops = [
        Draw(0).input(5, 4),
        o.Pointwise(0, 8, (o.Affine(minus, None),)),
        o.BinaryConv(1, 8, (branch,), after=(o.PReLU(negative),)),
        o.BinaryConv(1, 8, (branch,), after=(o.Add(1, 8), o.PReLU(negative), o.Add(1, 8))),
        o.BinaryConv(
            1, 8, (branch, branch, branch), after=(o.Add(2, 8), o.PReLU(zero), o.Add(2, 8), o.PReLU(negative))
        ),
        o.AvgPool(1, o.Window((2, 2), (2, 2))),
        o.AvgPool(1, o.Window((3, 3), (1, 1), (1, 1, 1, 1)), inside=True),
        o.MaxPool(1, o.Window((3, 3), (1, 1), (1, 1, 1, 1))),
        o.Conv(
            1, 8, np.zeros((3, 3, 1, 8), F32), minus, o.Window((3, 3), (1, 1), (1, 1, 1, 1)), 8, (o.PReLU(negative),)
        ),
        o.Conv(1, 8, np.zeros((1, 1, 8, 8), F32), minus),
        o.Pointwise(1, 8, (o.PReLU(negative), o.ReLU(), o.Clip(np.array([-0.0, 1], F32)))),
        o.ChannelAvg(1, 3),
        o.GlobalAvgPool(1),
        o.Linear(12, np.full((8, 5), -1, F32), np.full(5, -0.0, F32)),
    ]
    check(named(ops))


def chain(count: int, height: int, width: int) -> Program:
    """A program of many ops that do next to nothing."""
    pool = o.Window((1, 1))
    ops = [Draw(0).input(height, width), *(o.AvgPool(i, pool) for i in range(count))]
    return Program(tuple(ops), ("",) * len(ops), limits=Limits(ops=100_000, map_bytes=1 << 40))


@pytest.mark.parametrize("least_memory", [False, True])
def test_a_program_of_very_many_ops_is_planned_on_a_small_stack(least_memory: bool) -> None:
    """46,000 ops overflowed a stack of 8 MB in the planner's recursion; these 9,000 have 256 kB."""
    program = chain(9_000, 1, 1)
    image = picture(program)
    logits = []

    def work() -> None:
        for threads in (1, 2):
            logits.append(Engine(program, threads=threads, least_memory=least_memory).run(image))

    before = threading.stack_size(256 << 10)
    try:
        thread = threading.Thread(target=work)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert len(logits) == 2
    assert all((made == Engine(chain(1, 1, 1)).run(image)).all() for made in logits)


def test_planning_takes_time_and_memory_in_proportion_to_the_ops() -> None:
    """1,000 ops on 16384 x 1 took 52 s and 671 MB, 5,000 global pools 1.2 GB: in a process of its own, as memory once taken stays."""
    code = """
import resource, time
from test_engine import chain, Draw, named, o
from bcnn.engine import Engine
from bcnn.program.program import Limits, Program
tall = chain(1000, 16384, 1)
pools = Program((Draw(0).input(2, 2), *(o.GlobalAvgPool(i) for i in range(5000))), ("",) * 5001)
before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
for program in (tall, pools):
    Engine(program, threads=2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, time.process_time() - begin)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS), str(Path(__file__).parent), *sys.path])}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    kilobytes, seconds = map(float, out.stdout.split())
    assert kilobytes < 150_000
    assert seconds < 10


# --- what people call -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine() -> Engine:
    program = of_config(bcnn.preset("digits"))
    labels = tuple(f"digit {i}" for i in range(10))
    return Engine(Program(program.ops, program.names, labels), threads=1)


def test_arrays_images_paths_and_lists_are_the_same_picture(engine: Engine, tmp_path) -> None:
    array = picture(engine.program)[0]
    path = tmp_path / "a.png"
    Image.fromarray(array).save(path)
    logits = engine(array)
    assert logits.shape == (1, 10)
    for other in (array[None], Image.fromarray(array), path, str(path), [array], [path, array]):
        assert (engine(other) == logits).all()


def test_a_picture_of_another_size_is_resized(engine: Engine) -> None:
    wide = np.repeat(np.repeat(picture(engine.program)[0], 4, axis=0), 4, axis=1)
    assert engine.fit([wide, Image.fromarray(wide)]).shape == (2, 8, 8, 3)


def test_no_images_give_no_logits(engine: Engine) -> None:
    assert engine([]).shape == (0, 10)


def test_predictions_are_labels_by_falling_probability(engine: Engine) -> None:
    images = picture(engine.program, count=2)
    best = engine.predict(images, top=10)
    assert len(best) == 2
    for row, logits in zip(best, engine.run(images), strict=True):
        assert row[0][0] == f"digit {int(logits.argmax())}"
        assert abs(sum(probability for _, probability in row) - 1) < 1e-12
        assert [probability for _, probability in row] == sorted((probability for _, probability in row), reverse=True)


def test_a_batch_that_is_not_contiguous_is_read_right(engine: Engine) -> None:
    images = picture(engine.program, count=4)
    assert (engine.run(images[::2]) == engine.run(images)[::2]).all()


def test_profile_has_a_cost_for_every_op(engine: Engine) -> None:
    costs = engine.profile(picture(engine.program)[0], repeats=2)
    assert [cost.name for cost in costs] == list(engine.program.names)
    kinds = {"binary conv", "depth wise", "avg pool", "global avg pool", "linear", "input"}
    assert kinds == {cost.kind for cost in costs}
    assert sum(cost.macs for cost in costs) > 0
    assert all(cost.seconds > 0 for cost in costs)


def test_peak_memory_is_rows_not_maps() -> None:
    program = of_config(bcnn.preset("imagenette"))
    maps = sum(h * w * c * 4 for h, w, c in program.shapes)
    assert 0 < Engine(program, threads=1).peak_memory < maps / 4


def test_the_least_memory_is_less_than_that_of_the_least_time() -> None:
    program = of_config(bcnn.preset("imagenet").replace(image_size=64, classes=10))
    least = Engine(program, threads=1, least_memory=True)
    assert least.peak_memory < Engine(program, threads=1).peak_memory
    assert (least.run(picture(program)) == Engine(program, threads=1).run(picture(program))).all()


def test_a_program_that_ends_in_a_map_has_no_classes_to_predict() -> None:
    program = named((Draw(0).input(4, 5),))
    with pytest.raises(UserError, match=r"ends in a map of \(4, 5, 4\), not in classes"):
        Engine(program).predict(picture(program))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((1, 8, 8, 3), np.float32), "batch is float32 (1, 8, 8, 3), not the uint8 (N, 8, 8, 3)"),
        (np.zeros((1, 8, 9, 3), np.uint8), "not the uint8 (N, 8, 8, 3)"),
        (np.zeros((8, 8, 3), np.uint8), "not the uint8 (N, 8, 8, 3)"),
        (None, "batch is NoneType"),
    ],
)
def test_a_wrong_batch_is_said_in_a_sentence(engine: Engine, images: object, message: str) -> None:
    with pytest.raises(UserError) as error:
        engine.run(images)  # type: ignore[arg-type]
    assert message in str(error.value)


def test_what_is_no_image_is_said_in_a_sentence(engine: Engine) -> None:
    for wrong in (3, [3], np.zeros((8, 8), np.uint8), np.zeros((1, 8, 8, 3), np.float32)):
        with pytest.raises(UserError, match="cannot read"):
            engine(wrong)  # type: ignore[arg-type]
