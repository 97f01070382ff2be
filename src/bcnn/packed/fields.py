"""Ops <-> lists of plain data and streams of numbers, by the types of their fields; no op is known here by name. No torch.

An op becomes ["Kind", field, field, ...] in the order of its class, fields at the end that have their default left out. An array is
given by its shape (a vector by its length); its values go to the end of a stream, one for each type of number:

    f32   Floats, little endian              i32   Indices, little endian              i16   Shorts, little endian
    i8    Shorts that are multiples of a step, divided by it
    bits  Words: rows of n bits without gaps between them, each array filled up to a whole byte (`to_stream`)

Shorts are stored in one byte each wherever that loses nothing. Their shape is then the last item of ["i8", step, shape]; a step of 0
stands for one step for each channel, the last axis, and those come first, in i16.

A row of bits is stored up to the last bit that any row has set: its tail is zero by the rule of programs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.base.dataclass_io import shown
from bcnn.base.errors import UserError, nearest
from bcnn.packed.container import MAX_FILE
from bcnn.program import ops
from bcnn.program.bits import unpack_bits
from bcnn.program.ops.base import Kind

STREAMS = {"Floats": "f32", "Indices": "i32", "Shorts": "i16", "Words": "bits"}
DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype("<f4"),
    "i32": np.dtype("<i4"),
    "i16": np.dtype("<i2"),
    "i8": np.dtype("i1"),
    "bits": np.dtype("u1"),
}
BYTE = 127  # the largest magnitude in i8
MAX_DIMENSIONS = 4
DIGEST = 8  # bytes of SHA-256, for each op: against accidents, 64 bits are plenty
LISTS = {"tuple[int, int]": 2, "tuple[int, int, int, int]": 4, "tuple[Map, ...]": None}  # of whole numbers, how many
A_TUPLE = re.compile(r"tuple\[(\w+), \.\.\.\]")


def digest(*parts: bytes | memoryview) -> bytes:
    """Processors have instructions for SHA-256; the first bytes of it are as good as any."""
    made = hashlib.sha256()
    for part in parts:
        made.update(part)
    return made.digest()[:DIGEST]


def part_of(kind: str) -> type[ops.Part] | None:
    """The class that a field's type names, if it is a part: Window, Branch, Ending."""
    found = getattr(ops, kind, None)
    return found if isinstance(found, type) and issubclass(found, ops.Part) else None


def to_stream(words: ops.Words, n: int) -> NDArray[np.uint8]:
    """Rows of ceil(n / 32) words -> bytes: bit i = row * n + k is bit i % 8 of byte i // 8. Where 32 divides n nothing moves."""
    if n % 32 == 0:
        return np.ascontiguousarray(words.astype("<u4", copy=False)).view(np.uint8).reshape(-1)
    return np.packbits(unpack_bits(words, n).reshape(-1), bitorder="little")


def from_stream(stream: NDArray[np.uint8], rows: int, n: int) -> ops.Words:
    """The inverse of `to_stream`; the stream must have exactly its size."""
    if n % 32:
        bits = np.zeros((rows, -(-n // 32) * 32), np.uint8)
        bits[:, :n] = np.unpackbits(stream, count=rows * n, bitorder="little").reshape(rows, n)
        stream = np.packbits(bits, bitorder="little")
    words = stream.view("<u4").reshape(rows, -1)
    return np.require(words, np.uint32, ["C", "ALIGNED"])  # a stream may begin at any byte


class Writer:
    """The streams so far, and a digest for each op."""

    def __init__(self, numbers: str) -> None:
        self.numbers = numbers  # of the program
        self.streams: dict[str, list[bytes]] = {name: [] for name in DTYPES}
        self.digests: list[bytes] = []
        self._own: list[bytes] = []  # of the op at work

    def op(self, op: ops.Op) -> list[Any]:
        self._own = []
        plain = self._part(op)
        self.digests.append(digest(*self._own))
        return plain

    def _part(self, part: ops.Part) -> list[Any]:
        values = [self._value(kind, value) for _, kind, value in part.fields()]
        for field in reversed(dataclasses.fields(part)):  # type: ignore[arg-type]
            value = getattr(part, field.name)
            if isinstance(value, np.ndarray) or value != field.default:
                break
            values.pop()
        return [part.kind(self.numbers), *values] if isinstance(part, Kind) else values

    def _value(self, kind: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._array(STREAMS[kind.removesuffix(" | None")], value)
        if isinstance(value, ops.Part):
            return self._part(value)
        if isinstance(value, tuple):
            return [self._part(item) if isinstance(item, ops.Part) else item for item in value]
        return value

    def _array(self, stream: str, array: NDArray[Any]) -> Any:
        shape = array.shape
        if stream == "bits":
            used = int(np.bitwise_or.reduce(array[..., -1], axis=None)).bit_length()
            n = 32 * (shape[-1] - 1) + max(used, 1)  # as many words again when it is read
            shape, content = (*shape[:-1], n), to_stream(array.reshape(-1, array.shape[-1]), n).tobytes()
        else:
            if stream == "i16" and (step := steps(array)) is not None:
                one = step.ndim == 0
                if not one:
                    self._append("i16", step)
                self._append("i8", array // step)
                return ["i8", int(step) if one else 0, _plain_shape(shape)]
            content = np.ascontiguousarray(array, DTYPES[stream]).tobytes()
        self.streams[stream].append(content)
        self._own.append(content)
        return _plain_shape(shape)

    def _append(self, stream: str, values: NDArray[Any]) -> None:
        self.streams[stream].append(np.ascontiguousarray(values, DTYPES[stream]).tobytes())
        self._own.append(self.streams[stream][-1])


def _plain_shape(shape: tuple[int, ...]) -> Any:
    return shape[0] if len(shape) == 1 else list(shape)


def steps(array: NDArray[np.int16]) -> NDArray[np.int16] | None:
    """The step of which all values are multiples that fit a byte, or one for each channel; none if there is none."""
    values = np.abs(array.astype(np.int64))
    for axes in (None, tuple(range(array.ndim - 1))):
        step = np.gcd.reduce(values, axis=axes)
        step = np.where(step > 0, step, 1)
        small = (values.max(axis=axes) // step).max() <= BYTE and step.max() < 1 << 15
        if small and (axes is None or step.size < array.size // 2):
            return np.asarray(step).astype(np.int16)
    return None


class Reader:
    """Takes the arrays of ops out of the streams. Trusts nothing but that the streams have the dtypes of `DTYPES`."""

    def __init__(self, streams: dict[str, NDArray[Any]]) -> None:
        self.streams = {name: streams.get(name, np.empty(0, dtype)) for name, dtype in DTYPES.items()}
        self.taken = dict.fromkeys(DTYPES, 0)
        self.numbers = ""  # of the program, which its first op says
        self.words = 0  # bytes of bits as words: a row of one bit takes 32 times as much
        self._own: list[memoryview] = []
        self._tail = ""

    def op(self, plain: Any, where: str, hashed: bytes) -> ops.Op:
        self._own, self._tail = [], ""
        made: ops.Op = self._part(ops.Op, plain, where)
        self.numbers = self.numbers or made.NUMBERS
        if digest(*self._own) != hashed:
            raise UserError(f"{where} does not match its hash: the file is damaged; copy or pack it again")
        if self._tail:
            raise UserError(f"{self._tail} has bits set past its end")
        return made

    def finish(self) -> None:
        """To be called after the last op: every number belongs to one."""
        for name, stream in self.streams.items():
            if self.taken[name] != stream.size:
                raise UserError(f"no op uses the last {stream.size - self.taken[name]} of the numbers in {name!r}")

    def _part(self, cls: Any, plain: Any, where: str) -> Any:
        if not isinstance(plain, list):
            raise UserError(f"{where} is {shown(plain, 80)}, not a list of fields")
        if hasattr(cls, "KINDS"):
            kind, *plain = plain or [None]
            if not isinstance(kind, str) or kind not in cls.KINDS:
                hint = nearest(str(kind)[:80], cls.KINDS)
                raise UserError(f"{where} is {shown(kind, 80)}, which this build does not know; {hint}")
            cls = cls.KINDS[kind]
            if self.numbers and kind != cls.kind(self.numbers):
                raise UserError(
                    f"{where} is a {kind}; in a program of {self.numbers} maps that is a {cls.kind(self.numbers)}"
                )
        fields = dataclasses.fields(cls)
        if len(plain) > len(fields):
            raise UserError(f"{where}: {cls.__name__} has {len(fields)} fields, not {len(plain)}")
        values = {}
        for field, value in zip(fields, plain, strict=False):
            values[field.name] = self._value(str(field.type), value, f"{where}: {field.name}")
        for field in fields[len(plain) :]:
            if field.default is dataclasses.MISSING:
                raise UserError(f"{where}: {cls.__name__} lacks {field.name}")
        return cls(**values)

    def _value(self, kind: str, value: Any, where: str) -> Any:
        if kind.endswith(" | None"):
            if value is None:
                return None
            kind = kind.removesuffix(" | None")
        if kind in STREAMS:
            return self._array(STREAMS[kind], value, where)
        if kind in ("int", "Map"):
            return self._whole(value, where)
        if kind == "bool":
            if not isinstance(value, bool):
                raise UserError(f"{where} is {shown(value, 80)}, not true or false")
            return value
        if kind in LISTS:
            if not isinstance(value, list) or LISTS[kind] not in (None, len(value)):
                raise UserError(f"{where} is {shown(value, 80)}, not {kind}")
            return tuple(self._whole(item, where) for item in value)
        if many := A_TUPLE.fullmatch(kind):
            if not isinstance(value, list):
                raise UserError(f"{where} is {shown(value, 80)}, not a list of {many[1]}")
            return tuple(self._part(part_of(many[1]), item, f"{where}.{i}") for i, item in enumerate(value))
        return self._part(part_of(kind), value, where)

    def _whole(self, value: Any, where: str) -> int:
        if type(value) is not int or abs(value) >= 1 << 63:
            raise UserError(f"{where} is {shown(value, 80)}, not a whole number of 64 bits")
        return value

    def _array(self, stream: str, plain: Any, where: str) -> NDArray[Any]:
        if stream == "i16" and isinstance(plain, list) and plain and plain[0] == "i8":
            return self._bytes(plain, where)
        shape = [plain] if type(plain) is int else plain
        if not isinstance(shape, list) or not 1 <= len(shape) <= MAX_DIMENSIONS:
            raise UserError(f"{where} is {shown(plain, 80)}, not the shape of an array")
        if any(type(size) is not int or not 1 <= size <= 8 * MAX_FILE for size in shape):
            raise UserError(f"{where} is {shown(plain, 80)}, not the shape of an array that a file holds")
        size = math.prod(shape)
        content = self._take(stream, -(-size // 8) if stream == "bits" else size, where)
        if stream != "bits":
            return content.reshape(shape)
        *outer, n = shape
        self.words += math.prod(outer) * -(-n // 32) * 4
        if self.words > MAX_FILE:
            raise UserError(f"{where}: its bits take more than {MAX_FILE} bytes as words")
        if size % 8 and content[-1] >> (size % 8):
            self._tail = self._tail or where
        return from_stream(content, math.prod(outer), n).reshape(*outer, -1)

    def _bytes(self, plain: list[Any], where: str) -> NDArray[np.int16]:
        if len(plain) != 3 or type(plain[1]) is not int or not 0 <= plain[1] < 1 << 15:
            raise UserError(f'{where} is {shown(plain, 80)}, not ["i8", step, shape]')
        step: Any = plain[1]
        if not step:
            last = plain[2][-1] if isinstance(plain[2], list) and plain[2] else plain[2]
            step = self._array("i16", last, f"{where}, its steps").astype(np.int32)
        values = self._array("i8", plain[2], where) * np.asarray(step, np.int32)
        if np.abs(values).max() >= 1 << 15:
            raise UserError(f"{where} has values that do not fit 16 bits")
        return values.astype(np.int16)

    def _take(self, stream: str, count: int, where: str) -> NDArray[Any]:
        start = self.taken[stream]
        content = self.streams[stream][start : start + count]
        if content.size != count:
            raise UserError(f"{where} has {count} numbers in {stream!r}, which has {content.size} left")
        self.taken[stream] += count
        self._own.append(content.view(np.uint8).data)
        return content
