"""docs/file_format.md is enough to read a packed file: here is a reader that was written from it and shares no code with ours.

Even the fields of ops come from the page: their lists are parsed out of it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
import zlib

import numpy as np
import pytest
import samples
from paths import ROOT

from bcnn.packed import packfile, shipped
from bcnn.program.bits import unpack_bits
from bcnn.program.ops import Part

PAGE = ROOT / "docs" / "file_format.md"


def fields_of_the_page() -> dict[str, list[tuple[str, str]]]:
    """Kind -> name and type of its fields."""
    found = {}
    for section in PAGE.read_text(encoding="utf-8").split("\n### ")[1:]:
        kind, _, body = section.split("\n## ")[0].partition("\n")
        found[kind] = re.findall(r"^    (\w+): ([\w\[\], .|]+?)(?: = .*?)?(?:  #.*)?$", body, re.MULTILINE)
    return found


class TinyReader:
    def __init__(self, raw: bytes) -> None:
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8 : 8 + length])
        assert header.pop("__metadata__") == {"format": "2"}
        data = raw[8 + length :]
        self.tensors = {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}
        assert sum(map(len, self.tensors.values())) == len(data)
        self.at = dict.fromkeys(("f32", "i32", "i16", "i8", "bits"), 0)
        self.fields = fields_of_the_page()
        self.program = json.loads(zlib.decompress(self.tensors["program"]))
        self.ops, hashes = [], []
        for entry in self.program["ops"]:
            self.own = b""
            self.ops.append(self.part(entry[0], entry[1:]))
            hashes.append(self.own)
        hashes += [self.tensors.get(name, b"") for name in ("test", "program", "provenance")]
        assert b"".join(hashlib.sha256(content).digest()[:8] for content in hashes) == self.tensors["hashes"]
        assert all(end == len(self.tensors.get(name, b"")) for name, end in self.at.items())

    def part(self, kind, values):
        """Kind, and its fields by name; what is left out is not there."""
        fields = self.fields[kind]
        return kind, {name: self.value(hint, value) for (name, hint), value in zip(fields, values, strict=False)}

    def value(self, hint, value):
        if value is None:
            return None
        hint = hint.removesuffix(" | None")
        if hint == "tuple[Ending, ...]":
            return [self.part(entry[0], entry[1:]) for entry in value]
        if hint in ("tuple[Branch, ...]", "tuple[FixedBranch, ...]"):
            return [self.part(hint[6:-6], entry) for entry in value]
        if hint == "Window":
            return self.part("Window", value)
        if hint == "Shorts" and isinstance(value, list) and value[0] == "i8":
            _, step, shape = value
            sides = shape if isinstance(shape, list) else [shape]
            steps = step or np.frombuffer(self.take("i16", 2 * sides[-1]), "<i2")
            numbers = np.frombuffer(self.take("i8", math.prod(sides)), "i1").reshape(sides)
            return (numbers * np.int32(steps)).astype(np.int16)
        shape = value if isinstance(value, list) else [value]
        if hint == "Words":
            content = np.frombuffer(self.take("bits", -(-math.prod(shape) // 8)), np.uint8)
            bits = [content[i // 8] >> (i % 8) & 1 for i in range(math.prod(shape))]
            return np.array(bits, bool).reshape(shape)
        if hint in ("Floats", "Indices", "Shorts"):
            stream, dtype = {"Floats": ("f32", "<f4"), "Indices": ("i32", "<i4"), "Shorts": ("i16", "<i2")}[hint]
            return np.frombuffer(self.take(stream, np.dtype(dtype).itemsize * math.prod(shape)), dtype).reshape(shape)
        return value

    def take(self, stream, size):
        content = self.tensors[stream][self.at[stream] :][:size]
        self.at[stream] += size
        self.own += content
        return content


def assert_same(read, part):
    """What the tiny reader has is what our op has, to the bit."""
    if isinstance(part, Part):
        kind, fields = read
        assert kind in (type(part).__name__, getattr(part, "INTEGER_NAME", ""))
        for name, value in fields.items():
            assert_same(value, getattr(part, name))
    elif isinstance(part, np.ndarray) and part.dtype == np.uint32:
        bits = unpack_bits(part, 32 * part.shape[-1])
        n = read.shape[-1]
        assert np.array_equal(bits[..., :n], read)
        assert not bits[..., n:].any()
    elif isinstance(part, np.ndarray):
        assert read.dtype == part.dtype
        assert read.shape == part.shape
        assert read.tobytes() == part.tobytes()
    elif isinstance(part, tuple):
        for one, other in zip(read, part, strict=True):
            assert_same(one, other)
    else:
        assert read == part


@pytest.mark.parametrize("name", shipped.names())
def test_the_shipped_models_can_be_read_by_what_the_page_says(name):
    read, packed = TinyReader(shipped.find(name).read_bytes()), packfile.open_packed(shipped.find(name))
    program = packed.program
    for one, other in zip(read.ops, program.ops, strict=True):
        assert_same(one, other)
    assert tuple(read.program["names"]) == program.names
    assert tuple(read.program["labels"]) == program.labels
    assert read.program["crop"] == program.crop
    assert json.loads(zlib.decompress(read.tensors["provenance"])) == program.provenance
    assert read.tensors["test"] == packed.test_logits.tobytes()


@pytest.mark.parametrize("program", [samples.every_op(), samples.every_fixed_op()], ids=["float32", "int16"])
def test_every_kind_of_op_and_field_can_be_read_by_what_the_page_says(tmp_path, program):
    packfile.save(program, tmp_path / "m.bcnn")
    for one, other in zip(TinyReader((tmp_path / "m.bcnn").read_bytes()).ops, program.ops, strict=True):
        assert_same(one, other)


def test_the_fields_on_the_page_are_those_of_the_classes():
    from tools.pages.file_format import put_into

    page = PAGE.read_text(encoding="utf-8")
    assert page == put_into(page), "run: python -m tools.pages.file_format"


def test_the_images_of_test_vectors_follow_the_formula_on_the_page():
    made = packfile.vector_image(3, 5, 7).reshape(-1)
    for i in (0, 1, 50, 104):
        h = (3 << 32) + i
        for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
            h = (h ^ (h >> 31)) * factor % 2**64
        assert made[i] == h >> 56
