"""Packed files with a hostile value in an op or a tensor and hashes made right again: one sentence that names it, in little memory and
time. Values at random are in `test_packfile_fuzz`."""

import json
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import samples
from tampered_files import forged, joined, parts, replaced, right_hashes

from bcnn.packed import packfile
from bcnn.packed.container import MAX_FILE
from bcnn.program import ops
from bcnn.program.program import Program

# Where ops of `samples.every_op` stand.
STEM, DEPTH, CONV, POOL, SELECT, UPSAMPLE, POINTWISE = 1, 2, 3, 4, 8, 9, 15


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ((0, 1), 1 << 40, "height"),
        ((0, 1), 16383, "different sizes"),
        ((0, 2), -8, "width"),
        ((STEM, 1), 1, "source"),
        ((STEM, 1), -1, "source"),
        ((STEM, 1), True, "source"),
        ((STEM, 2), 3, "reads"),
        ((STEM, 2), 41, "threshold"),
        ((STEM, 2), 1 << 20, "a count holds at most 65535"),
        ((STEM, 3), [], "branches"),
        ((STEM, 3), {}, "branches"),
        ((STEM, 3), [[]] * 100_000, "lacks threshold"),
        ((STEM, 3, 1, 5), [0, 0, 0], "shift"),
        ((STEM, 3, 1, 5), [0, 1 << 60], "shift"),
        ((STEM, 3, 0, 1), [40, 1, 1 << 30], "numbers in 'bits'|not the shape"),
        ((STEM, 3, 0, 1), [40, 1, 0], "not the shape"),
        ((STEM, 3, 0, 1), [1] * 5, "not the shape"),
        ((STEM, 3, 0, 1), [40, 40], "weight"),
        ((STEM, 3, 0, 0), 0, "not the shape"),
        ((STEM, 3, 0, 0), None, "not the shape"),
        ((STEM, 3, 0, 0), [[40]], "not the shape"),
        ((STEM, 3, 0, 0), [40, 1], "threshold"),
        ((STEM, 3, 0, 0), 40.0, "not the shape"),
        ((STEM, 5), "yes", "groups"),
        ((STEM, 6, 0, 0), "Exec", "does not know"),
        ((STEM, 6, 0, 0), "Conv", "does not know"),
        ((STEM, 6, 0), [], "does not know"),
        ((STEM, 6, 0, 1), 1, "the map added"),
        ((STEM, 6, 0, 2), 41, "reads"),
        ((DEPTH, 5, 1), [0, 1], "stride"),
        ((DEPTH, 5, 1), [1 << 70, 1], "not a whole number of 64 bits"),
        ((DEPTH, 5, 0), [1 << 14, 1 << 14], "less than"),
        ((DEPTH, 6), 3, "groups"),
        ((CONV, 4, 3), [1 << 14, 1], "less than"),
        ((SELECT, 2), 5, "has 5 numbers in 'i32', which has 4 left"),
        ((UPSAMPLE, 2), [1 << 14, 1 << 14], "too large"),
        ((UPSAMPLE, 2), [0, 1], "factor"),
        ((POOL, 0), "Exec", "does not know"),
        ((POOL, 0), "Branch", "does not know"),
        ((POOL, 0), "__init__", "does not know"),
        ((POOL, 0), ["MaxPool"], "does not know"),
        ((POOL, 0), "Input", "width"),
        ((POOL,), ["MaxPool"], "lacks source"),
        ((POOL,), ["MaxPool", 3, [], 1, 2], "has 2 fields, not 4"),
        ((POOL,), [], "does not know"),
        ((POOL,), "MaxPool", "not a list"),
        ((POOL, 2), [[2, 2], [2, 2], [-8, 0, 0, 0]], "less than"),
        ((POOL, 2), [[1, 1], [1, 1], [9, 0, 0, 0]], "outside the map"),
        ((POINTWISE, 3), [["ReLU"]] * 65, "at most 64 endings"),
        ((POINTWISE, 3), [], "does nothing"),
        ((), [], "names|Input"),
        ((), [["Input", 8, 8]] * 50_000, "hashes|names|lacks"),
    ],
)
def test_hostile_values_in_ops_are_named(raw, refused, place, value, words):
    header, program, data = parts(raw)
    message = refused(forged(header, replaced(program, ("ops", *place), value), data))
    assert any(word in message for word in words.split("|")), message


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("names", ["x"], "names"),
        ("names", [1] * 17, "names must be a list of printable texts"),
        ("labels", ["x"] * 2, "labels"),
        ("labels", {}, "labels must be a list"),
        ("test_seeds", list(range(100_000)), "logits"),
        ("test_seeds", [1 << 64, 0], "test_seeds"),
        ("test_seeds", [True, False], "test_seeds are not whole numbers"),
        ("test_seeds", [], "logits"),
        ("ops", {}, "ops must be a list"),
    ],
)
def test_hostile_values_beside_the_ops_are_named(raw, refused, key, value, words):
    header, program, data = parts(raw)
    refused(forged(header, {**program, key: value}, data), words)


F32 = np.float32


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("f32", lambda numbers: numbers + bytes(4), "no op uses the last 1 of the numbers in 'f32'"),
        ("bits", lambda numbers: numbers + bytes(1), "no op uses the last 1 of the numbers in 'bits'"),
        ("f32", lambda numbers: numbers[:-4], "which has"),
        ("bits", lambda numbers: numbers[:-1], "which has"),
        ("f32", lambda numbers: F32(np.nan).tobytes() + numbers[4:], "scale has values that are not finite"),
        ("f32", lambda numbers: numbers[:-4] + F32(np.inf).tobytes(), "bias has values that are not finite"),
        ("i32", lambda numbers: np.int32(-1).tobytes() + numbers[4:], "outside the 20"),
        ("i32", lambda numbers: np.int32(20).tobytes() + numbers[4:], "outside the 20"),
    ],
)
def test_numbers_that_do_not_fit_their_ops_are_named(raw, refused, name, change, words):
    header, program, data = parts(raw)
    refused(forged(header, program, {**data, name: change(data[name])}), words)


@pytest.mark.parametrize("name", ["f32", "i32", "bits", "program", "provenance", "hashes", "test"])
def test_missing_tensor(raw, refused, name):
    header, _, data = parts(raw)
    rest = {key: content for key, content in data.items() if key != name}
    del header[name]
    start = 0
    for key, content in rest.items():
        header[key]["data_offsets"] = [start, start + len(content)]
        start += len(content)
    message = refused(joined(json.dumps(header).encode(), b"".join(rest.values())))
    assert any(word in message for word in ("missing", "which has 0 left", "does not match its hash")), message


def test_unknown_tensor(raw, refused):
    header, program, data = parts(raw)
    refused(forged(header, program, {**data, "more": b"1234"}), "a tensor 'more', which no packed file has")


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        ("f32", "I32", None),
        ("i32", "F32", None),
        ("test", "F32", [6]),
        ("hashes", "U8", [1, 160]),
        ("bits", "U8", [5, 121]),
    ],
)
def test_tensors_of_another_type_or_shape(raw, refused, name, dtype, shape):
    header, _, data = parts(raw)
    header[name]["dtype"] = dtype
    header[name]["shape"] = shape or header[name]["shape"]
    refused(joined(json.dumps(header).encode(), b"".join(data.values())))


def test_swapped_numbers_of_two_ops_are_found_by_their_hashes(raw, refused):
    header, _, data = parts(raw)
    numbers = np.frombuffer(data["f32"], F32).copy()
    numbers[[0, -1]] = numbers[[-1, 0]]
    data["f32"] = numbers.tobytes()
    refused(joined(json.dumps(header).encode(), b"".join(data.values())), "op 0 (layer1.input)", "hash")


def test_too_few_and_too_many_hashes(raw, refused):
    header, program, data = parts(raw)
    rows = data["hashes"]
    refused(forged(header, program, data, hashes=rows[8:]), "hash")
    refused(forged(header, program, data, hashes=right_hashes(program, data) + bytes(8)), "hash")
    (*_, right) = [forged(*parts(raw))]
    good = right_hashes(program, {**data, "program": parts(right)[2]["program"]})
    refused(forged(header, program, data, hashes=good[8:]), "hashes for 18 ops")
    refused(forged(header, program, data, hashes=bytes(8) + good), "hashes for 18 ops")


def test_bits_past_the_end_of_a_stream(tmp_path, refused):
    rng = np.random.default_rng(0)
    packfile.save(samples.program(ops.BinaryConv(0, 3, (samples.branch(rng, 3, 3),))), tmp_path / "m.bcnn")
    header, program, data = parts((tmp_path / "m.bcnn").read_bytes())
    data["bits"] = bytes([0, 0x80])
    refused(forged(header, program, data), "weight has bits set past its end")


def test_bits_past_the_channels_of_a_row(tmp_path, refused):
    rng = np.random.default_rng(0)
    packfile.save(samples.program(ops.BinaryConv(0, 3, (samples.branch(rng, 3, 8),))), tmp_path / "m.bcnn")
    header, program, data = parts((tmp_path / "m.bcnn").read_bytes())
    program["ops"][1][3][0][1] = [8, 1, 4]
    refused(forged(header, program, {**data, "bits": b"\xff" * 4}), "bits set past its 3 channels")


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (["i8", 32767, 3], "do not fit 16 bits"),
        (["i8", 32768, 3], "step, shape"),
        (["i8", -1, 3], "step, shape"),
        (["i8", 1], "step, shape"),
        (["i8", 1, 0], "not the shape"),
        (["i8", 0, []], "not the shape"),
        (["i8", 1, ["i8", 1, 3]], "not the shape"),
        (["i8", 1, 1 << 25], "numbers in 'i8', which has"),
    ],
)
def test_numbers_of_one_byte_that_are_none(tmp_path, refused, plain, words):
    last = ops.FixedAffine(None, np.array([100, -100, 50], np.int16))
    first = ops.FixedInput(4, 4, np.full(3, 1 << 16, np.int32), np.zeros(3, np.int32), 8)
    made = Program((first, ops.Pointwise(0, 3, (last,))), ("a", "b"))
    packfile.save(made, tmp_path / "m.bcnn")
    header, program, data = parts((tmp_path / "m.bcnn").read_bytes())
    assert program["ops"][1][3][0][2][0] == "i8"
    program["ops"][1][3][0][2] = plain
    refused(forged(header, program, data), words)


@pytest.mark.parametrize("dtype", ["F64", "BF16", "I64", "", "f32", 7, None, ["F32"]])
def test_wrong_dtypes(raw, refused, dtype):
    header, program, data = parts(raw)
    header["f32"]["dtype"] = dtype
    refused(forged(header, program, data), "dtype")


@pytest.mark.parametrize(
    "shape",
    [[1 << 62, 1 << 62], [-8], [8.0], [True] * 8, "8", None, [1] * 10_000, [[8]], [0, 1 << 27], [MAX_FILE + 1]],
)
def test_huge_and_senseless_shapes(raw, refused, shape):
    refused(set_shape(raw, shape), "f32")


@pytest.mark.parametrize("offsets", [[0, 1 << 62], [-32, 0], [32, 0], [0], [0, 32, 64], None, [0.0, 32.0], [1, 33]])
def test_offsets_that_do_not_follow_each_other(raw, refused, offsets):
    header, _, data = parts(raw)
    header["f32"]["data_offsets"] = offsets
    refused(joined(json.dumps(header).encode(), b"".join(data.values())), "f32")


# --- memory and time --------------------------------------------------------------------------------------------------


def test_hostile_files_are_refused_in_little_memory(raw, tmp_path):
    """A process that may map 700 MB more than it starts with reads the worst of them: sparse giants, JSON bombs, rows of one bit."""
    header, program, data = parts(raw)
    bombs = {"lists": "[]", "tables": "{}", "zeros": "0", "texts": '""'}
    for name, item in bombs.items():
        many = "[" + f"{item}," * ((packfile.MAX_TEXT - 4) // (len(item) + 1)) + "0]"
        (tmp_path / f"{name}.bcnn").write_bytes(forged(*parts(raw), text=many))
        (tmp_path / f"{name}-ops.bcnn").write_bytes(forged(*parts(raw), text='{"ops":' + many[:-100] + "0]}"))
    rows = replaced(program, ("ops", STEM, 3, 0, 1), [1 << 20, 300, 1])
    thin = {**data, "bits": bytes((300 << 20) // 8)}  # 300 M rows of one bit: 1.2 GB as words
    (tmp_path / "rows.bcnn").write_bytes(forged(header, program, thin, text=json.dumps(rows)))
    (tmp_path / "shape.bcnn").write_bytes(set_shape(raw, [1 << 50]))
    with open(tmp_path / "sparse.bcnn", "wb") as file:
        file.write(raw)
        file.truncate(50 << 30)
    script = textwrap.dedent("""
        import resource, sys
        from bcnn.packed import packfile
        from bcnn.base.errors import UserError
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (700 << 20),) * 2)
        for path in sys.argv[1:]:
            try:
                packfile.read(path)
            except UserError as error:
                print(error)
            else:
                sys.exit(path)
    """)
    files = sorted(str(file) for file in tmp_path.glob("*.bcnn"))
    done = subprocess.run([sys.executable, "-c", script, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(files) == 11
    assert "as words" in done.stdout


# Files that are valid and small, and ask for too much: what they ask for is named, in the time of an ordinary file.
GREEDY = {
    "ops": (lambda: [["MaxPool", i, []] for i in range(46_000)], (8, 8), "46,001 ops; the limit is 10,000"),
    "maps": (lambda: [["MaxPool", i, []] for i in range(9000)], (1 << 14, 1 << 8), "bytes of maps; the limit is"),
    "a large image": (lambda: [["Upsample", 0, [1, 1]]] * 20, (9000, 9000), "bytes of maps; the limit is"),
    "work": (
        lambda: [["MaxPool", 0, [[4095, 4095], [1, 1], [2047, 2047, 2047, 2047]]]] * 20,
        (1 << 10, 1 << 10),
        "operations; the limit is",
    ),
    "parts": (
        lambda: [["Pointwise", 0, 3, [["ReLU"]] * 60]] * 2000,
        (8, 8),
        "branches and endings; the limit is 100,000",
    ),
}


@pytest.mark.parametrize("name", GREEDY)
def test_small_files_that_ask_for_too_much_are_refused_quickly_with_the_limit(raw, tmp_path, refused, name):
    made, size, words = GREEDY[name]
    packfile.save(samples.program(), tmp_path / "m.bcnn", test_seeds=())
    header, program, data = parts((tmp_path / "m.bcnn").read_bytes())
    program["ops"] = [["Input", *size, 3, 3], *made()]
    program["names"] = [""] * len(program["ops"])
    content = forged(header, program, data)
    start = time.perf_counter()
    refused(content, words, "BCNN_LIMITS=off")
    assert time.perf_counter() - start < 10


def set_shape(raw, shape):
    header, _, data = parts(raw)
    header["f32"]["shape"] = shape
    return joined(json.dumps(header).encode(), b"".join(data.values()))


def test_the_limits_leave_room_for_the_largest_preset():
    assert MAX_FILE > 10 * (18_085_888 // 8 + 4 * 1_189_352)
