"""A `Program` <-> a file that is as small as the paper promises and trusts nothing when it is opened. No torch.

A safetensors file: 8 bytes header length, JSON header, data. The header's metadata holds `format`, `program` (JSON: ops in the
words of `program`, names, labels, crop, provenance, a hash per tensor, test vectors) and `hash`, that of the `program` text.
Binary weights are stored as one bit each (`bits`), real parameters as float32; tensor "3.branches.0.scale" is that field of
op 3. Test vectors are images that a formula makes from a seed (`vector_image`) and the logits the interpreter has for them.

Size on disk = binary weights + real parameters + test logits + header: `Sizes`, to the byte.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.deploy.container import Container, read_container, strict_json, write_container
from bcnn.errors import UserError, nearest
from bcnn.program import program as p
from bcnn.program.bits import from_stream, to_stream
from bcnn.program.interpret import interpret

FORMAT = "1"
TEST_LOGITS = "test.logits"
OPS: dict[str, type] = {op.__name__: op for op in p.Op.__args__}


@dataclass(frozen=True)
class Sizes:
    """Where the bytes of a packed file are."""

    binary_weights: int  # one bit each, every branch rounded up to whole bytes
    real_parameters: int  # float32: thresholds, scales, offsets, slopes, depth wise and decoder weights
    test_logits: int
    header: int

    @property
    def total(self) -> int:
        return self.binary_weights + self.real_parameters + self.test_logits + self.header


@dataclass(frozen=True, eq=False)
class Packed:
    """What a packed file holds. That it could be opened means that every hash was right."""

    program: p.Program
    test_seeds: tuple[int, ...]
    test_logits: p.Floats  # [seeds, classes]
    hashes: dict[str, str]  # by tensor
    sizes: Sizes


def save(program: p.Program, path: str | Path, test_seeds: tuple[int, ...] = (0, 1)) -> Sizes:
    """Write a program; the file appears complete or not at all."""
    tensors: dict[str, NDArray[Any]] = {}
    ops = [[type(op).__name__, _plain(op, f"{index}", tensors)] for index, op in enumerate(program.ops)]
    if test_seeds:
        logits = [interpret(program, vector_image(seed, *program.shapes[0][:2])) for seed in test_seeds]
        tensors[TEST_LOGITS] = np.stack(logits)
    text = {
        "ops": ops,
        "names": _words(list(program.names), "names"),
        "labels": _words(list(program.labels), "labels"),
        "crop": program.crop,
        "provenance": program.provenance,
        "hashes": {name: digest(tensor.tobytes()) for name, tensor in tensors.items()},
        "test_seeds": list(test_seeds),
    }
    try:
        program_json = json.dumps(text, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"cannot pack: provenance must be plain JSON data ({error})") from None
    metadata = {"format": FORMAT, "hash": digest(program_json.encode()), "program": program_json}
    header = write_container(path, Container(metadata, tensors))
    return _sizes(tensors, header)


def read(path: str | Path) -> p.Program:
    """The program in a packed file; anything wrong with the file is a `UserError` of one sentence."""
    return open_packed(path).program


def open_packed(path: str | Path) -> Packed:
    """Everything in a packed file, checked."""
    try:
        container, header = read_container(path)
        return _packed(container, header)
    except UserError as error:
        raise UserError(f"{os.fspath(path)}: {error}") from None


def parameters(op: p.Op) -> tuple[int, int]:
    """How many binary weights and real parameters an op has."""
    tensors: dict[str, NDArray[Any]] = {}
    _plain(op, "", tensors)
    branches = op.branches if isinstance(op, p.BinaryConv) else ()
    binary = sum(branch.scale.size * branch.threshold.size for branch in branches)
    return binary, sum(tensor.size for tensor in tensors.values() if tensor.dtype == np.float32)


def digest(data: bytes | memoryview) -> str:
    """128 bits of SHA-256: processors have instructions for it, and half of it is enough against accidents."""
    return hashlib.sha256(data).hexdigest()[:32]


def vector_image(seed: int, height: int, width: int) -> NDArray[np.uint8]:
    """The image of a test vector, H,W,3: byte i is the top byte of a hash of seed * 2^32 + i, so it costs the file nothing."""
    h = np.arange(height * width * 3, dtype=np.uint64) + np.uint64(seed << 32)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):  # mixing steps and factors of SplitMix64
        h = (h ^ (h >> np.uint64(31))) * np.uint64(factor)
    return (h >> np.uint64(56)).astype(np.uint8).reshape(height, width, 3)


# --- program -> plain data and tensors, and back ----------------------------------------------------------------------
# The fields of an op say how it is stored: arrays become tensors, branches are nested, the rest is JSON.


def _plain(part: Any, prefix: str, tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        name = f"{prefix}.{field.name}"
        if field.type == "Words":
            tensors[name] = to_stream(value, part.threshold.size)
        elif isinstance(value, np.ndarray):
            tensors[name] = np.ascontiguousarray(value, dtype="<f4")
        elif field.type == "tuple[Branch, ...]":
            plain[field.name] = [_plain(branch, f"{name}.{i}", tensors) for i, branch in enumerate(value)]
        elif value is not None:
            plain[field.name] = list(value) if isinstance(value, tuple) else value
    return plain


def _part(kind: type, plain: Any, prefix: str, tensors: dict[str, NDArray[Any]]) -> Any:
    """The inverse of `_plain`. Takes its tensors out of `tensors`; `Program` checks shapes and ranges."""
    if not isinstance(plain, dict):
        raise UserError(f"{prefix} is not a table of fields")
    plain, values = dict(plain), {}
    for field in dataclasses.fields(kind):
        name = f"{prefix}.{field.name}"
        if field.type in _ARRAYS:
            values[field.name] = _array(tensors.pop(name, None), name, str(field.type))
        else:
            values[field.name] = _value(plain.pop(field.name, None), name, str(field.type), tensors)
    if plain:
        raise UserError(f"{prefix} has unknown fields: {_short(sorted(plain))}")
    if kind is p.Branch:
        values["weight"] = _weight(values, prefix)
    return kind(**values)


def _array(tensor: NDArray[Any] | None, name: str, kind: str) -> NDArray[Any] | None:
    if tensor is None and kind != "Floats | None":
        raise UserError(f"tensor {name!r} is missing")
    if tensor is not None and tensor.dtype != _ARRAYS[kind]:
        raise UserError(f"tensor {name!r} has the wrong type {tensor.dtype}")
    return tensor


def _value(value: Any, name: str, kind: str, tensors: dict[str, NDArray[Any]]) -> Any:
    if not _VALUES[kind](value):
        raise UserError(f"{name} is {_short(value)}, not {kind}")
    if kind == "tuple[Branch, ...]":
        return tuple(_part(p.Branch, branch, f"{name}.{i}", tensors) for i, branch in enumerate(value))
    return tuple(value) if isinstance(value, list) else value


def _weight(branch: dict[str, Any], prefix: str) -> p.Words:
    """The stream of a branch's bits as words, once it is sure that there are O K of them and that the tail is zero."""
    stream, k, o = branch["weight"], branch["threshold"].size, branch["scale"].size
    if stream.shape != (-(-o * k // 8),) or not k or not o:
        raise UserError(f"tensor '{prefix}.weight' has {stream.size} bytes, which do not hold {o} x {k} bits")
    if o * k % 8 and stream[-1] >> (o * k % 8):
        raise UserError(f"tensor '{prefix}.weight' has bits set past its end")
    return from_stream(stream, o, k)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# How the file has each type of field. One without an entry here is noticed by the first test that packs it.
_ARRAYS = {"Words": np.dtype(np.uint8), "Floats": np.dtype(np.float32), "Floats | None": np.dtype(np.float32)}
_VALUES: dict[str, Callable[[Any], bool]] = {
    "int": _is_int,
    "int | None": lambda value: value is None or _is_int(value),
    "bool": lambda value: isinstance(value, bool),
    "tuple[int, int]": lambda value: isinstance(value, list) and len(value) == 2 and all(map(_is_int, value)),
    "tuple[Branch, ...]": lambda value: isinstance(value, list),
}


# --- opening ----------------------------------------------------------------------------------------------------------


def _packed(container: Container, header: int) -> Packed:
    metadata, tensors = container
    version = metadata.get("format")
    if version is None:
        raise UserError("it is a safetensors file but not a packed program; make one with `bcnn pack`")
    if version != FORMAT:
        raise UserError(
            f"it has format {_short(version)}, this build reads {FORMAT}; pack the checkpoint again with `bcnn pack`"
        )
    if set(metadata) != {"format", "hash", "program"}:
        raise UserError(f"its metadata has the keys {_short(sorted(metadata))}, not format, hash and program")
    text = metadata["program"].encode("utf-8", "surrogatepass")
    if digest(text) != metadata["hash"]:
        raise UserError("its list of ops does not match its hash: the file is damaged; copy or pack it again")
    data = strict_json(metadata["program"], "its program")
    keys = {"ops", "names", "labels", "crop", "provenance", "hashes", "test_seeds"}
    if not isinstance(data, dict) or set(data) != keys:
        raise UserError(f"its program must have the keys {', '.join(sorted(keys))}")
    _check_hashes(tensors, data["hashes"])
    sizes = _sizes(tensors, header)
    logits = tensors.pop(TEST_LOGITS, np.zeros((0, 0), np.float32))
    program = _program(data, tensors)
    seeds = data["test_seeds"]
    if not isinstance(seeds, list) or not all(_is_int(seed) and 0 <= seed < 1 << 31 for seed in seeds):
        raise UserError("its test_seeds are not a list of whole numbers from 0 up to 2^31")
    classes = int(np.prod(program.shapes[-1]))
    if logits.dtype != np.float32 or (logits.shape != (len(seeds), classes) if seeds else logits.size):
        raise UserError(f"its test logits are {logits.dtype} {logits.shape}, not one row of {classes} for each seed")
    return Packed(program, tuple(seeds), logits, data["hashes"], sizes)


def _check_hashes(tensors: dict[str, NDArray[Any]], hashes: Any) -> None:
    if not isinstance(hashes, dict) or set(hashes) != set(tensors):
        raise UserError("its hashes are not one for each tensor")
    for name, tensor in tensors.items():
        if digest(tensor.reshape(-1).view(np.uint8).data) != hashes[name]:
            raise UserError(f"tensor {name!r} does not match its hash: the file is damaged; copy or pack it again")


def _program(data: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> p.Program:
    if not isinstance(data["ops"], list) or not isinstance(data["provenance"], dict):
        raise UserError("its ops must be a list and its provenance a table")
    ops = []
    for index, entry in enumerate(data["ops"]):
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
            raise UserError(f"op {index} is not a pair of a name and its fields")
        if entry[0] not in OPS:
            raise UserError(
                f"op {index} is {_short(entry[0])}, which this build does not know; {nearest(entry[0][:80], OPS)}"
            )
        ops.append(_part(OPS[entry[0]], entry[1], f"{index}", tensors))
    if tensors:
        raise UserError(f"no op uses the tensors {_short(sorted(tensors))}")
    names, labels = _words(data["names"], "names"), _words(data["labels"], "labels")
    return p.Program(tuple(ops), tuple(names), tuple(labels), data["crop"], data["provenance"])


def _words(texts: Any, what: str) -> list[str]:
    """Names end up on terminals: no control characters, no halves of surrogate pairs."""
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.isprintable() for text in texts):
        raise UserError(f"{what} must be a list of printable texts")
    return texts


def _sizes(tensors: dict[str, NDArray[Any]], header: int) -> Sizes:
    weights = sum(tensor.nbytes for tensor in tensors.values() if tensor.dtype == np.uint8)
    tests = tensors[TEST_LOGITS].nbytes if TEST_LOGITS in tensors else 0
    return Sizes(weights, sum(tensor.nbytes for tensor in tensors.values()) - weights - tests, tests, header)


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."
