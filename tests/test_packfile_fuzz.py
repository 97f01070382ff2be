"""Whatever is done to a packed file, opening it gives the same program or one sentence: no other exception, no hang, no gigabytes.

Damage is tried two ways: bytes changed at random, which the hashes must find, and files forged with hashes made right again, so
that every check behind the hashes is reached.
"""

import json
import subprocess
import sys
import textwrap
import time
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import samples
from bcnn.deploy import packfile
from bcnn.deploy.container import MAX_FILE, MAX_HEADER
from bcnn.deploy.fields import digest
from bcnn.errors import UserError
from bcnn.program import ops
from bcnn.program.program import Program
from forgery import forged, joined, parts, right_hashes

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
# Where ops of `samples.every_op` stand.
STEM, DEPTH, CONV, POOL, SELECT, UPSAMPLE, POINTWISE = 1, 2, 3, 4, 8, 9, 15


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "m.bcnn"
    packfile.save(samples.every_op(("a", "b", "c")), path)
    return path.read_bytes()


@pytest.fixture
def refused(tmp_path):
    """Writes bytes to a file and expects one sentence about it, with these words."""

    def check(content, *words):
        path = tmp_path / "bad.bcnn"
        path.write_bytes(content)
        with pytest.raises(UserError) as raised:
            packfile.open_packed(path)
        message = str(raised.value)
        assert "\n" not in message
        assert len(message) < 500 + len(str(path))
        assert message.isprintable()
        assert all(word in message for word in words), message
        return message

    return check


def test_a_forgery_without_a_change_opens(raw, tmp_path):
    (tmp_path / "m.bcnn").write_bytes(forged(*parts(raw)))
    assert packfile.read(tmp_path / "m.bcnn").labels == ("a", "b", "c")


# --- random damage ----------------------------------------------------------------------------------------------------


@FUZZ
@given(fraction=st.floats(0, 1, exclude_max=True))
def test_truncated_anywhere(raw, refused, fraction):
    refused(raw[: int(fraction * len(raw))])


@FUZZ
@given(data=st.data())
def test_any_flipped_bit_is_refused_or_harmless(raw, tmp_path, data):
    where = data.draw(st.integers(0, 8 * len(raw) - 1))
    changed = bytearray(raw)
    changed[where // 8] ^= 1 << where % 8
    (tmp_path / "m.bcnn").write_bytes(changed)
    try:
        packed = packfile.open_packed(tmp_path / "m.bcnn")
    except UserError:
        return
    # What JSON lets pass changes nothing: white space, or the other letter of an escape.
    packfile.save(packed.program, tmp_path / "m.bcnn")
    assert (tmp_path / "m.bcnn").read_bytes() == raw


def test_every_byte_of_data_is_under_a_hash(raw, refused):
    start = 8 + int.from_bytes(raw[:8], "little")
    for where in range(start, len(raw), 17):
        changed = bytearray(raw)
        changed[where] ^= 0x10
        refused(bytes(changed), "does not match its hash")


@FUZZ
@given(content=st.binary(max_size=200))
def test_random_bytes(refused, content):
    refused(content)


@FUZZ
@given(content=st.binary(max_size=60), extra=st.binary(max_size=60))
def test_random_header_of_the_right_length(refused, content, extra):
    refused(joined(content, extra))


def test_bytes_after_the_end(raw, refused):
    refused(raw + b"\0", "describes")


@settings(FUZZ, max_examples=150)
@given(data=st.data())
def test_two_parts_of_a_file_exchanged(raw, tmp_path, data):
    """As a disk or a network does it that mixes up blocks."""
    size = data.draw(st.sampled_from([1, 8, 64, 512]))
    first, second = (size * data.draw(st.integers(0, len(raw) // size - 1)) for _ in range(2))
    changed = bytearray(raw)
    changed[first : first + size], changed[second : second + size] = (
        raw[second : second + size],
        raw[first : first + size],
    )
    (tmp_path / "m.bcnn").write_bytes(changed)
    if changed != raw:
        with pytest.raises(UserError):
            packfile.open_packed(tmp_path / "m.bcnn")


@pytest.mark.parametrize("length", [0, 1, MAX_HEADER + 1, 1 << 31, (1 << 63) - 1, (1 << 64) - 1])
def test_header_that_claims_another_length(raw, refused, length):
    refused(length.to_bytes(8, "little") + raw[8:])


# --- forged files: JSON -----------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


def paths(node, here=()):
    """Every place in JSON data."""
    yield here
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        yield from paths(child, (*here, key))


def replaced(node, path, value):
    if not path:
        return value
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


@settings(FUZZ, max_examples=400)
@given(data=st.data())
def test_any_value_in_the_program_replaced_by_any_other(raw, tmp_path, data):
    header, program, tensors = parts(raw)
    places = [path for path in paths(program) if path]
    changed = replaced(program, data.draw(st.sampled_from(places)), data.draw(JSON))
    (tmp_path / "m.bcnn").write_bytes(forged(header, changed, tensors))
    opens_or_is_refused(tmp_path / "m.bcnn")


@settings(FUZZ, max_examples=400)
@given(data=st.data())
def test_any_number_in_the_program_replaced_by_one_near_a_limit(raw, tmp_path, data):
    """What random values seldom are: numbers of the right type that are a little off, or the largest that are allowed."""
    header, program, tensors = parts(raw)
    places = [path for path in paths(program) if isinstance(lookup(program, path), int)]
    place = data.draw(st.sampled_from(places))
    near = st.integers(-2, 2).map(lambda step: lookup(program, place) + step)
    value = data.draw(near | st.sampled_from([0, -1, 1 << 14, 1 << 20, (1 << 16) - 1, 1 << 31, 1 << 62]))
    (tmp_path / "m.bcnn").write_bytes(forged(header, replaced(program, place, value), tensors))
    opens_or_is_refused(tmp_path / "m.bcnn")


@settings(FUZZ, max_examples=150)
@given(data=st.data())
def test_ops_left_out_doubled_or_exchanged(raw, tmp_path, data):
    header, program, tensors = parts(raw)
    order = data.draw(st.lists(st.integers(0, len(program["ops"]) - 1), min_size=1, max_size=30))
    changed = {**program, "ops": [program["ops"][i] for i in order], "names": [program["names"][i] for i in order]}
    (tmp_path / "m.bcnn").write_bytes(forged(header, changed, tensors))
    opens_or_is_refused(tmp_path / "m.bcnn")


def opens_or_is_refused(path):
    try:
        packed = packfile.open_packed(path)
    except UserError as error:
        assert str(error).isprintable()  # noqa: PT017
        assert len(str(error)) < 500 + len(str(path))  # noqa: PT017
    else:
        assert isinstance(packed.program, Program)  # it was a value that is as good


def lookup(node, path):
    for key in path:
        node = node[key]
    return None if isinstance(node, bool) else node


@settings(FUZZ, max_examples=120)
@given(data=st.data())
def test_any_value_in_the_header_replaced_by_any_other(raw, refused, data):
    header, _, tensors = parts(raw)
    places = [path for path in paths(header) if path]
    place = data.draw(st.sampled_from(places))
    value = data.draw(JSON)
    changed = replaced(header, place, value)
    if json.dumps(changed) != json.dumps(header):
        refused(joined(json.dumps(changed).encode(), b"".join(tensors.values())))


@pytest.mark.parametrize("depth", [1000, 100_000, 1_000_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting(raw, refused, depth, opening):
    refused(joined((opening * depth).encode(), b""), "JSON" if len(opening) * depth <= MAX_HEADER else "header claims")
    if depth < 1_000_000:
        header, program, data = parts(raw)
        closing = "]" if opening == "[" else "}"
        deep = opening * depth + "0" + closing * depth
        data["provenance"] = zlib.compress(('{"x": ' + deep + "}").encode())
        if depth >= 100_000:
            refused(forged(header, program, data), "nested too deeply")
        refused(forged(*parts(raw), text=deep), "its program")


def test_duplicate_keys_in_header_and_program(raw, refused):
    refused(
        forged(*parts(raw), header_text=lambda text: text.replace("{", '{"__metadata__":{},', 1)), "key occurs twice"
    )
    refused(forged(*parts(raw), header_text=lambda text: text.replace('"dtype"', '"shape": [1], "dtype"', 1)), "twice")
    text = json.dumps(parts(raw)[1])
    refused(forged(*parts(raw), text=text.replace('"crop"', '"crop": 0.5, "crop"')), "key occurs twice")


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "9" * 4000, "true", "null", '"1"', "0", "-1", "1.5"]
)
def test_numbers_that_are_none(raw, refused, value):
    text = json.dumps(parts(raw)[1])
    refused(forged(*parts(raw), text=text.replace('"crop": 0.875', f'"crop": {value}')))
    refused(forged(*parts(raw), text=text.replace('"Input", 8', f'"Input", {value}')))


@pytest.mark.parametrize("crop", [1e-300, 5e-4, 0.049, 1.0000001])
def test_a_crop_that_would_make_images_huge_is_refused(raw, refused, crop):
    header, program, data = parts(raw)
    refused(forged(header, {**program, "crop": crop}, data), "crop is", "not a number from 0.05 to 1")


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "{", '"x"', "{}{}", "\ufeff{}", "\ud800"])
def test_program_that_is_no_program(raw, refused, text):
    refused(forged(*parts(raw), text=text), "program")


@pytest.mark.parametrize("provenance", [b"[]", b"null", b"{", b"\xff", b"1", b'{"a":1,"a":2}', b"NaN"])
def test_provenance_that_is_no_table(raw, refused, provenance):
    header, program, data = parts(raw)
    refused(forged(header, program, {**data, "provenance": zlib.compress(provenance)}), "its provenance")


@pytest.mark.parametrize("name", ["program", "provenance"])
@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"",
        lambda text: text[:-5],
        lambda text: text + b"x",
        lambda text: zlib.compress(bytes(5 << 20)),
        lambda text: b"{}",
    ],
    ids=["empty", "cut", "longer", "a bomb", "not compressed"],
)
def test_a_text_that_does_not_unpack_is_refused(raw, refused, name, change):
    header, _, data = parts(raw)
    data = {**data, name: change(data[name])}
    rows = data["hashes"][:-24]
    ends = b"".join(digest(data[name]) for name in ("test", "program", "provenance"))
    start = 0
    for key, content in {**data, "hashes": rows + ends}.items():
        header[key]["data_offsets"] = [start, start + len(content)]
        header[key]["shape"] = [len(content)] if key == name else header[key]["shape"]
        start += len(content)
    refused(joined(json.dumps(header).encode(), b"".join({**data, "hashes": rows + ends}.values())), name)


@pytest.mark.parametrize("key", ["ops", "names", "labels", "crop", "test_seeds"])
def test_missing_key(raw, refused, key):
    header, program, data = parts(raw)
    del program[key]
    refused(forged(header, program, data), f"its program lacks '{key}'")


def test_unknown_key(raw, refused):
    header, program, data = parts(raw)
    refused(forged(header, {**program, "lables": []}, data), "unknown key 'lables'; did you mean 'labels'")


@pytest.mark.parametrize("label", ["\x1b[2J", "a\nb", "\ud800", "\x00", "\u202e"])
@pytest.mark.parametrize("what", ["labels", "names"])
def test_labels_and_names_that_would_disturb_a_terminal(raw, refused, label, what):
    header, program, data = parts(raw)
    program[what][0] = label
    refused(forged(header, program, data), "printable")


# --- forged files: ops and tensors ------------------------------------------------------------------------------------


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
        ("names", [1] * 17, "names.0 must be text"),
        ("labels", ["x"] * 2, "labels"),
        ("labels", {}, "labels must be a list"),
        ("test_seeds", list(range(100_000)), "logits"),
        ("test_seeds", [1 << 64, 0], "test_seeds"),
        ("test_seeds", [True, False], "test_seeds.0 must be a whole number"),
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
        from bcnn.deploy import packfile
        from bcnn.errors import UserError
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
