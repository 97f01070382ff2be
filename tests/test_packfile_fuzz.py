"""Whatever is done to a packed file, opening it gives the same program or one sentence: no other exception, no hang, no gigabytes.

Damage is tried two ways: bytes changed at random, which the hashes must find, and files forged with hashes made right again, so
that every check behind the hashes is reached.
"""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import samples
from bcnn.deploy import packfile
from bcnn.deploy.container import MAX_FILE, MAX_HEADER
from bcnn.errors import UserError
from bcnn.program import program as p
from bcnn.program.lower import lower

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "m.bcnn"
    packfile.save(lower(samples.network(), samples.MEAN, samples.STD, ("a", "b", "c")), path)
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


def parts(raw):
    """Header (its metadata's program as data, too) and the bytes of every tensor."""
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    program = json.loads(header["__metadata__"]["program"])
    data = {name: raw[8 + length :][slice(*header[name]["data_offsets"])] for name in header if name != "__metadata__"}
    return header, program, data


def forged(header, program, data, text=None, header_text=None):
    """A file with offsets and hashes made right. `text` replaces the JSON of the program, `header_text` edits that of the header."""
    if isinstance(program.get("hashes"), dict):
        program["hashes"] = {name: packfile.digest(content) for name, content in data.items()}
    text = json.dumps(program) if text is None else text
    meta = header["__metadata__"]
    header["__metadata__"] = {**meta, "program": text, "hash": packfile.digest(text.encode())}
    start = 0
    for name, content in data.items():
        header[name]["data_offsets"] = [start, start + len(content)]
        start += len(content)
    encoded = json.dumps(header)
    return joined((header_text(encoded) if header_text else encoded).encode(), b"".join(data.values()))


def joined(header, data):
    return len(header).to_bytes(8, "little") + header + data


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
    for where in range(start, len(raw), 97):
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


@settings(FUZZ, max_examples=200)
@given(data=st.data())
def test_any_value_in_the_program_replaced_by_any_other(raw, tmp_path, data):
    header, program, tensors = parts(raw)
    places = [path for path in paths(program) if path and path[0] not in ("hashes", "provenance")]
    changed = replaced(program, data.draw(st.sampled_from(places)), data.draw(JSON))
    (tmp_path / "m.bcnn").write_bytes(forged(header, changed, tensors))
    try:
        packed = packfile.open_packed(tmp_path / "m.bcnn")
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert isinstance(packed.program, p.Program)  # it was a value that is as good


@settings(FUZZ, max_examples=120)
@given(data=st.data())
def test_any_value_in_the_header_replaced_by_any_other(raw, refused, data):
    header, _, tensors = parts(raw)
    places = [path for path in paths(header) if path and path != ("__metadata__", "program")]
    place = data.draw(st.sampled_from(places))
    value = data.draw(JSON)
    changed = replaced(header, place, value)
    if changed != header:
        refused(joined(json.dumps(changed).encode(), b"".join(tensors.values())))


@pytest.mark.parametrize("depth", [1000, 100_000, 1_000_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting(raw, refused, depth, opening):
    refused(joined((opening * depth).encode(), b""), "JSON" if len(opening) * depth <= MAX_HEADER else "header claims")
    text = json.dumps(parts(raw)[1])
    if depth < 1_000_000:
        closing = "]" if opening == "[" else "}"
        deep = text.replace('"provenance": {}', '"provenance": {"x": ' + opening * depth + "0" + closing * depth + "}")
        assert deep != text
        if depth >= 100_000:
            refused(forged(*parts(raw), text=deep), "nested too deeply")


def test_duplicate_keys_in_header_and_program(raw, refused):
    refused(
        forged(*parts(raw), header_text=lambda text: text.replace("{", '{"__metadata__":{},', 1)), "key occurs twice"
    )
    refused(forged(*parts(raw), header_text=lambda text: text.replace('"dtype"', '"shape": [1], "dtype"', 1)), "twice")
    text = json.dumps(parts(raw)[1])
    refused(forged(*parts(raw), text=text.replace('"crop"', '"crop": 0.5, "crop"')), "key occurs twice")


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "true", "null", '"1"', "0", "-1", "1.5"]
)
def test_numbers_that_are_none(raw, refused, value):
    text = json.dumps(parts(raw)[1])
    refused(forged(*parts(raw), text=text.replace('"crop": 1.0', f'"crop": {value}')))
    refused(forged(*parts(raw), text=text.replace('"height": 8', f'"height": {value}')))


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "{", '"x"', "{}{}", "\ufeff{}"])
def test_program_that_is_no_program(raw, refused, text):
    refused(forged(*parts(raw), text=text), "program")


@pytest.mark.parametrize("key", ["ops", "names", "labels", "crop", "provenance", "hashes", "test_seeds"])
def test_missing_key(raw, refused, key):
    header, program, data = parts(raw)
    del program[key]
    refused(forged(header, program, data), "must have the keys")


@pytest.mark.parametrize("label", ["\x1b[2J", "a\nb", "\ud800", "\x00", "\u202e"])
def test_labels_that_would_disturb_a_terminal(raw, refused, label):
    header, program, data = parts(raw)
    program["labels"][0] = label
    refused(forged(header, program, data), "printable")


# --- forged files: ops and tensors ------------------------------------------------------------------------------------


def test_swapped_tensors_of_equal_shape_are_found_by_their_hashes(raw, refused):
    _, _, data = parts(raw)
    a, b = "1.branches.0.scale", "1.branches.0.offset"
    data[a], data[b] = data[b], data[a]
    start = b"".join(data.values())
    refused(joined(raw[8 : 8 + int.from_bytes(raw[:8], "little")], start), a, "hash")


def test_swapped_names_of_tensors_are_found(raw, refused):
    header, _, data = parts(raw)
    a, b = "1.branches.0.scale", "1.branches.0.offset"
    header[a], header[b] = header[b], header[a]
    refused(joined(json.dumps(header).encode(), b"".join(data.values())))


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("ops", 0, 1, "height"), 1 << 40, "height"),
        (("ops", 0, 1, "height"), 16383, "does not divide"),
        (("ops", 0, 1, "width"), -8, "width"),
        (("ops", 1, 1, "source"), 1, "source"),
        (("ops", 1, 1, "source"), -1, "source"),
        (("ops", 2, 1, "stride"), 0, "stride"),
        (("ops", 2, 1, "stride"), 1 << 70, "stride"),
        (("ops", 1, 0), "Exec", "does not know"),
        (("ops", 1, 0), "Branch", "does not know"),
        (("ops", 1, 0), "Input", "1.height"),
        (("ops", 1, 1, "identity"), "yes", "bool"),
        (("ops", 1, 1, "branches"), [], "branches"),
        (("ops", 1, 1, "branches"), [{"shift": [0, 0]}] * 100_000, "missing"),
        (("ops", 1, 1, "branches", 0, "shift"), [0, 0, 0], "shift"),
        (("ops", 1, 1, "branches", 0, "shift"), [0, 1 << 60], "shift"),
        (("ops",), [], "no op|Input"),
        (("ops",), [["Input", {"height": 8, "width": 8}]] * 50_000, "missing|Input"),
        (("names",), ["x"], "names"),
        (("labels",), ["x"] * 2, "labels"),
        (("test_seeds",), list(range(100_000)), "logits"),
        (("test_seeds",), [1 << 64, 0], "test_seeds"),
    ],
)
def test_hostile_values_are_named(raw, refused, place, value, words):
    header, program, data = parts(raw)
    message = refused(forged(header, replaced(program, place, value), data))
    assert any(word in message for word in words.split("|")), message


def set_tensor(parts, name, array, dtype=None):
    header, program, data = parts
    array = np.asarray(array)
    data[name] = array.tobytes()
    header[name] = {
        "dtype": dtype or ("U8" if array.dtype == np.uint8 else "F32"),
        "shape": list(array.shape),
        "data_offsets": [],
    }
    return forged(header, program, data)


F32 = np.float32


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("1.branches.0.scale", np.zeros(8, np.uint8), "wrong type"),
        ("1.branches.0.weight", np.zeros(2, F32), "wrong type"),
        ("1.branches.0.weight", np.zeros(9, np.uint8), "do not hold"),
        ("1.branches.0.weight", np.zeros((2, 4), np.uint8), "do not hold"),
        ("1.branches.0.threshold", np.zeros(0, F32), "do not hold"),
        ("1.branches.0.threshold", np.zeros((8, 1), F32), "threshold"),
        ("1.branches.0.offset", np.full(8, np.nan, F32), "not finite"),
        ("1.slope", np.full(8, np.inf, F32), "not finite"),
        ("1.slope", np.zeros(7, F32), "slope"),
        ("0.scale", np.zeros(4, F32), "scale"),
        ("2.weight", np.zeros((8, 3, 3), F32), "weight"),
        ("test.logits", np.zeros((2, 4), F32), "test logits"),
        ("test.logits", np.zeros((2, 3), np.uint8), "test logits"),
        ("unused", np.zeros(1, F32), "no op uses"),
        ("3.slope", np.zeros(1, F32), "no op uses"),
    ],
)
def test_tensors_that_do_not_fit_are_named(raw, refused, name, array, words):
    refused(set_tensor(parts(raw), name, array), words)


def test_missing_tensor(raw, refused):
    header, program, data = parts(raw)
    del header["1.branches.0.scale"], data["1.branches.0.scale"]
    refused(forged(header, program, data), "'1.branches.0.scale' is missing")


def test_bits_past_the_end_of_a_stream(tmp_path, refused):
    rng = np.random.default_rng(0)
    packfile.save(samples.program(p.BinaryConv(0, (samples.branch(rng, 3, 3),))), tmp_path / "m.bcnn")
    made = parts((tmp_path / "m.bcnn").read_bytes())
    refused(set_tensor(made, "1.branches.0.weight", np.array([0, 0x80], np.uint8)), "bits set past its end")


@pytest.mark.parametrize("dtype", ["F64", "BF16", "I64", "", "f32", 7, None, ["F32"]])
def test_wrong_dtypes(raw, refused, dtype):
    header, program, data = parts(raw)
    header["1.slope"]["dtype"] = dtype
    refused(forged(header, program, data), "dtype")


@pytest.mark.parametrize(
    "shape",
    [[1 << 62, 1 << 62], [-8], [8.0], [True] * 8, "8", None, [1] * 100_000, [[8]], [0, 1 << 27], [MAX_FILE + 1]],
)
def test_huge_and_senseless_shapes(raw, refused, shape):
    header, program, data = parts(raw)
    header["1.slope"]["shape"] = shape
    refused(forged(header, program, data), "1.slope")


@pytest.mark.parametrize("offsets", [[0, 1 << 62], [-32, 0], [32, 0], [0], [0, 32, 64], None, [0.0, 32.0], [1, 33]])
def test_offsets_that_do_not_follow_each_other(raw, refused, offsets):
    header, _, data = parts(raw)
    first = next(name for name in header if name != "__metadata__")
    header[first]["data_offsets"] = offsets
    refused(joined(json.dumps(header).encode(), b"".join(data.values())), first)


# --- memory and time --------------------------------------------------------------------------------------------------


def test_hostile_files_are_refused_in_little_memory(raw, tmp_path):
    """A process that may map 700 MB more than it starts with reads the worst of them: sparse giants, JSON bombs."""
    (tmp_path / "lists.bcnn").write_bytes(joined(b"[" + b"[]," * ((MAX_HEADER - 4) // 3) + b"0]", b""))
    (tmp_path / "tables.bcnn").write_bytes(joined(b"[" + b"{}," * ((MAX_HEADER - 4) // 3) + b"0]", b""))
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
    assert len(done.stdout.splitlines()) == len(files) == 4


def set_shape(raw, shape):
    header, program, data = parts(raw)
    header["1.slope"]["shape"] = shape
    return forged(header, program, data)


def test_the_limits_leave_room_for_the_largest_preset():
    assert MAX_FILE > 10 * (18_085_888 // 8 + 4 * 1_189_352)
