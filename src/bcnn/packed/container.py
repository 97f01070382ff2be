"""The safetensors container, read strictly: a few kinds of tensors with text metadata. No torch.

    8 bytes: header length, little endian | header: JSON, padded with spaces to a multiple of 8 | data of all tensors, no gaps

Every tool reads what `write_container` writes. `read_container` accepts no more than that: the header is checked against the
size of the file before any data is read, so a hostile file cannot make us allocate more than it is long itself.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError
from bcnn.base.files import check_plain, write_atomic

MAX_HEADER = 1 << 18  # 256 KiB of JSON: a packed file has a few hundred bytes of it, whatever its network
MAX_CHECKPOINT_HEADER = 1 << 24  # 16 MiB: it has a hash for each of thousands of tensors
MAX_FILE = 1 << 27  # 128 MiB: twenty times the paper's largest network; unpacking bits needs up to eight times that
DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}  # wide ones first: so all of them lie on multiples of their size


class Container(NamedTuple):
    metadata: dict[str, str]
    tensors: dict[str, NDArray[Any]]


def write_container(path: str | Path, container: Container) -> int:
    """Write atomically; returns the size of the header with its length field."""
    metadata, tensors = container
    header: dict[str, Any] = {"__metadata__": metadata}
    ordered = sorted(tensors.items(), key=lambda item: -item[1].itemsize)  # stable
    start = 0
    for name, tensor in ordered:
        dtype = next(key for key, dtype in DTYPES.items() if dtype == tensor.dtype)
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [start, start + tensor.nbytes]}
        start += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER or 8 + len(text) + start > MAX_FILE:
        raise UserError(
            f"cannot pack: a header of {len(text)} bytes and data of {start} are more than the format's {MAX_HEADER} and {MAX_FILE}"
        )
    parts = [len(text).to_bytes(8, "little"), text, *(tensor.tobytes() for _, tensor in ordered)]
    try:
        write_atomic(Path(path), b"".join(parts))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; what was there is unchanged") from None
    return 8 + len(text)


def read_container(path: str | Path) -> tuple[Container, int]:
    """Metadata and tensors, and the size of the header. The tensors share one buffer of our own."""
    try:
        check_plain(path)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not 8 < size <= MAX_FILE:
                raise UserError(f"it has {size} bytes; a packed file has more than 8 and at most {MAX_FILE}")
            length = int.from_bytes(file.read(8), "little")
            if length > min(MAX_HEADER, size - 8):
                raise UserError(
                    f"its header claims {length} bytes, more than the file or the format allows: damaged or not a packed file"
                )
            table, metadata = _header(file.read(length), size - 8 - length)
            data = bytearray(size - 8 - length)
            if file.readinto(data) != len(data):
                raise UserError("it ended while it was read")
    except IsADirectoryError:
        raise UserError("it is a folder, not a packed file") from None
    except OSError as error:
        raise UserError(f"cannot read it: {error.strerror}") from None
    tensors = {
        name: np.frombuffer(data, dtype, math.prod(shape), start).reshape(shape)
        for name, (dtype, shape, start) in table.items()
    }
    return Container(metadata, tensors), 8 + length


def format_of(path: str | Path) -> str:
    """What the header of a safetensors file says under `format`: "2" for a packed file, bcnn-checkpoint-2 for a checkpoint; "" else."""
    try:
        check_plain(path)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length <= MAX_CHECKPOINT_HEADER else {}
            return str(header["__metadata__"]["format"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


Table = dict[str, tuple[np.dtype[Any], tuple[int, ...], int]]  # dtype, shape, start of each tensor


def _header(raw: bytes, data_size: int) -> tuple[Table, dict[str, str]]:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise UserError("its header is not text: damaged or not a packed file") from None
    header = strict_json(text, "its header")
    metadata = header.pop("__metadata__", None) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise UserError("its header has no table of metadata")
    table: Table = {}
    end = 0  # of the tensors so far: offsets must cover the data in order, without gaps
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise UserError(f"tensor {name!a:.80}: its entry must have dtype, shape and data_offsets")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise UserError(f"tensor {name!a:.80}: its dtype is {dtype!a:.80}, not {' or '.join(DTYPES)}")
        if not _counts(shape) or len(shape) > 4:
            raise UserError(f"tensor {name!a:.80}: its shape is {shape!a:.80}")
        size = math.prod(shape) * DTYPES[dtype].itemsize
        if not _counts(offsets) or offsets != [end, end + size]:
            raise UserError(f"tensor {name!a:.80}: its data_offsets are {offsets!a:.80}, not [{end}, {end + size}]")
        if end + size > data_size:
            raise UserError(f"tensor {name!a:.80}: the file ends before it does: truncated or damaged")
        table[name] = DTYPES[dtype], tuple(shape), end
        end += size
    if end != data_size:
        raise UserError(f"it has {data_size} bytes of data but its header describes {end}: truncated or damaged")
    return table, metadata


def _counts(values: Any) -> bool:
    """A list of whole numbers that no file of ours exceeds."""
    return isinstance(values, list) and all(type(value) is int and 0 <= value <= MAX_FILE for value in values)


def strict_json(text: str, what: str) -> Any:
    """JSON without duplicate keys, without NaN and infinities, and no deeper than the parser goes."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UserError(f"{what} is not valid JSON ({reason:.100}): damaged or not a packed file") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key occurs twice")
    return table


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"{text:.20} is too large")
    return value
