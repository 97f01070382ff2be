"""The engine equals the interpreter, bit for bit, for every program, instruction set, number of threads and batch size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import bcnn
from bcnn.deploy.engine import Engine, isas
from bcnn.errors import UserError
from bcnn.program import program as p
from bcnn.program.interpret import interpret_maps
from programs import Draw, of_config, random_program

ISAS = [isa.name for isa in isas() if isa.supported]


def picture(program: p.Program, seed: int = 0, count: int = 1) -> np.ndarray:
    height, width, _ = program.shapes[0]
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def assert_equal_maps(program: p.Program, engine: Engine, image: np.ndarray) -> None:
    for i, (made, meant) in enumerate(zip(engine.maps(image), interpret_maps(program, image), strict=True)):
        assert np.array_equal(made, meant), (
            f"{engine.isa}, {engine.threads} threads: map {i} of {type(program.ops[i]).__name__}"
        )


def check(program: p.Program, seed: int = 0) -> None:
    images = picture(program, seed, 3)
    logits = np.stack([interpret_maps(program, image)[-1].reshape(-1) for image in images])
    for isa in ISAS:
        for threads in (1, 2, 3):
            engine = Engine(program, isa, threads)
            assert_equal_maps(program, engine, images[0])
            assert np.array_equal(engine.run(images), logits)
            assert np.array_equal(engine.run(images[1:2]), logits[1:2])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    ops=st.integers(1, 10),
)
def test_any_program_gives_the_interpreters_bits(seed: int, height: int, width: int, ops: int) -> None:
    check(random_program(seed, height, width, ops), seed)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32), k=st.integers(1, 130), o=st.integers(1, 130), width=st.integers(1, 65))
def test_binary_conv_of_any_channel_counts_gives_the_interpreters_bits(seed: int, k: int, o: int, width: int) -> None:
    draw = Draw(seed)
    ops = (
        draw.input(2, width),
        p.BinaryConv(0, (draw.branch(max(k, 4), o),), identity=False, slope=draw.slope(o)),
        draw.depthwise(1, o, 1),
    )
    check(p.Program(ops, ("input", "conv", "depthwise")), seed)


@pytest.mark.parametrize("k", [252, 253, 256, 511, 512, 1024, 1100])
def test_counts_that_outgrow_a_byte_stay_exact(k: int) -> None:
    """All bits differ, so every count is K itself, where bytes and 16-bit halves would overflow first."""
    ones = p.Branch(
        np.full(k, -1e30, np.float32),
        np.zeros((70, p.words(k)), np.uint32),
        np.ones(70, np.float32),
        np.zeros(70, np.float32),
    )
    random = Draw(k).branch(k, 70)
    ops = (Draw(0).input(1, 61), p.BinaryConv(0, (ones, random), identity=False))
    program = p.Program(ops, ("input", "conv"))
    check(program)
    counts = p.Program((ops[0], p.BinaryConv(0, (ones,), identity=False)), ("input", "conv"))
    assert (Engine(counts).maps(picture(counts)[0])[1] == k).all()


@pytest.mark.parametrize("prelu", ["module", "block"])
@pytest.mark.parametrize("branches", [1, 2, 5])
def test_a_network_gives_the_interpreters_bits(prelu: str, branches: int) -> None:
    config = bcnn.preset("digits").replace(prelu=prelu, branches=branches, image_size=32)
    check(of_config(config, seed=branches))


def test_levels_whose_weights_outgrow_the_cache_give_the_interpreters_bits() -> None:
    """Wide levels run op by op over whole maps and are split by channels; narrow ones by rows."""
    check(of_config(bcnn.preset("imagenet").replace(image_size=64, classes=70)))


def test_a_map_wide_enough_for_several_strips_gives_the_interpreters_bits() -> None:
    config = bcnn.preset("digits").replace(image_size=[8, 232])
    check(of_config(config))


def test_replicas_of_odd_channel_counts_are_read_by_the_index_rule() -> None:
    draw = Draw(3)
    ops = (
        draw.input(5, 6, intensity=False),
        p.BinaryConv(0, (draw.branch(7, 7),), slope=draw.slope(7)),
        p.BinaryConv(1, (draw.branch(33, 33),), add=1, slope=draw.slope(33), prelu_after_add=True),
        draw.depthwise(1, 20, 1),
    )
    check(p.Program(ops, tuple("abcd")))


def test_the_end_of_a_program_may_be_a_map() -> None:
    program = p.Program((Draw(0).input(4, 5),), ("input",))
    assert Engine(program).run(picture(program)).shape == (1, 4 * 5 * 4)
    check(program)


def test_tiny_numbers_are_not_flushed_to_zero() -> None:
    draw = Draw(0)
    tiny = np.full(8, 1e-41, np.float32)
    ops = (draw.input(3, 3), p.DepthwiseConv(0, np.zeros((3, 3, 8), np.float32), tiny, np.full(8, 0.5, np.float32)))
    program = p.Program(ops, ("input", "tiny"))
    assert (Engine(program).maps(picture(program)[0])[1] == tiny).all()
    check(program)


# --- what people call -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine() -> Engine:
    program = of_config(bcnn.preset("digits"))
    labels = tuple(f"digit {i}" for i in range(10))
    return Engine(p.Program(program.ops, program.names, labels), threads=1)


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
    assert {"binary conv", "depth wise", "pool", "decoder", "input"} == {cost.kind for cost in costs}
    assert sum(cost.macs for cost in costs) > 0
    assert all(cost.seconds > 0 for cost in costs)


def test_peak_memory_is_rows_not_maps() -> None:
    program = of_config(bcnn.preset("imagenette"))
    maps = sum(h * w * c * 4 for h, w, c in program.shapes)
    assert 0 < Engine(program, threads=1).peak_memory < maps / 4


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
