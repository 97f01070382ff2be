"""Whatever is done to a packed file, opening it gives the same program or one sentence: no other exception, no hang, no gigabytes.

Damage is tried two ways: bytes changed at random, which the hashes must find, and files forged with hashes made right again, so
that every check behind the hashes is reached.
"""

import json
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tampered_files import forged, joined, parts, replaced

from bcnn.base.errors import UserError
from bcnn.packed import packfile
from bcnn.packed.container import MAX_HEADER
from bcnn.packed.fields import digest
from bcnn.program.program import Program

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


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
