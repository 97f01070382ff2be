"""A `Program` <-> a file that is as small as the paper promises and trusts nothing when it is opened. No torch.

A safetensors file of at most nine tensors, docs/file_format.md: the numbers of all ops in one stream for each type of number
(`fields`), the logits of the test vectors, a digest for each op, and two texts of JSON, compressed by zlib: `program` (ops, names,
labels, crop, seeds) and `provenance`. Few tensors, since an entry of 70 bytes and a hash of 32 for each array were 8 % of a small network's file.
Test vectors are images that a formula makes from a seed (`vector_image`) and the logits that the interpreter has for them.

Size on disk = binary weights + real parameters + indices + test logits + header: `Sizes`, to the byte.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.base.dataclass_io import WORDS, shown
from bcnn.base.errors import UserError, nearest
from bcnn.packed.container import Container, read_container, strict_json, write_container
from bcnn.packed.fields import DIGEST, DTYPES, Reader, Writer, digest
from bcnn.program.interpret import interpret
from bcnn.program.ops import Floats
from bcnn.program.program import Limits, Program, TooLargeError

FORMAT = "2"
LOGITS, HASHES, PROGRAM, PROVENANCE = "test", "hashes", "program", "provenance"
MAX_TEXT = 1 << 22  # 4 MiB of JSON, unpacked: a thousand times a small network's, and at most ~100 MB once parsed
# Of the table in the tensor `program`; `rejects` is written only where it is true.
TEXT = {"ops": list, "names": list, "labels": list, "crop": float, "test_seeds": list, "rejects": bool}
NO_LIMITS = Limits(**{field.name: sys.maxsize for field in dataclasses.fields(Limits)})


@dataclass(frozen=True)
class Sizes:
    """Where the bytes of a packed file are."""

    binary_weights: int  # one bit each, every array rounded up to whole bytes; also the bits of padding
    real_parameters: int  # thresholds, scales, offsets, slopes, real convolutions, decoder: float32, int16 or int8
    indices: int  # int32: channels that are selected, offsets of sums in 32 bits
    test_logits: int
    header: int  # all the rest: list of ops, names, labels, hashes, provenance and the container's own header
    provenance: int  # what of the header is provenance, the card among it

    @property
    def total(self) -> int:
        return self.binary_weights + self.real_parameters + self.indices + self.test_logits + self.header


@dataclass(frozen=True, eq=False)
class Packed:
    """What a packed file holds. That it could be opened means that every hash was right."""

    program: Program
    test_seeds: tuple[int, ...]
    test_logits: Floats  # [seeds, classes]
    hashes: dict[str, str]  # of every op, and of what else there is
    sizes: Sizes


def save(program: Program, path: str | Path, test_seeds: tuple[int, ...] = (0, 1)) -> Sizes:
    """Write a program; the file appears complete or not at all."""
    names, labels = (
        _words(list(words), what) for words, what in ((program.names, "names"), (program.labels, "labels"))
    )
    writer = Writer(program.numbers)
    text = {
        "ops": [writer.op(op) for op in program.ops],
        "names": names,
        "labels": labels,
        "crop": program.crop,
        "test_seeds": list(test_seeds),
    }
    tensors: dict[str, NDArray[Any]] = {
        name: np.frombuffer(b"".join(parts), DTYPES[name]) for name, parts in writer.streams.items()
    }
    if test_seeds:
        logits = [interpret(program, vector_image(seed, *program.shapes[0][:2])) for seed in test_seeds]
        tensors[LOGITS] = np.stack(logits).astype("<f4", copy=False)
    tensors[PROGRAM] = _json(text | ({"rejects": True} if program.rejects else {}), "ops, names or labels")
    tensors[PROVENANCE] = _json(program.provenance, "provenance")
    rows = [*writer.digests, *(digest(_bytes(tensors.get(name))) for name in (LOGITS, PROGRAM, PROVENANCE))]
    tensors[HASHES] = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, DIGEST)
    tensors = {name: tensor for name, tensor in tensors.items() if tensor.size}
    return _sizes(tensors, write_container(path, Container({"format": FORMAT}, tensors)))


def read(path: str | Path, limits: Limits | None = None) -> Program:
    """The program in a packed file; anything wrong with the file is a `UserError` of one sentence."""
    return open_packed(path, limits).program


def open_packed(path: str | Path, limits: Limits | None = None) -> Packed:
    """Everything in a packed file, checked. Without `limits` a program may cost what `Limits` allows, or anything: BCNN_LIMITS=off."""
    if limits is None:
        limits = _limits_of_the_environment()
    try:
        container, header = read_container(path)
        return _packed(container, header, limits)
    except TooLargeError as error:
        raise UserError(f"{os.fspath(path)}: {error}; if you trust the file, set BCNN_LIMITS=off") from None
    except UserError as error:
        raise UserError(f"{os.fspath(path)}: {error}") from None


def _limits_of_the_environment() -> Limits:
    setting = os.environ.get("BCNN_LIMITS", "on")
    if setting not in ("on", "off"):
        raise UserError(f"BCNN_LIMITS is {shown(setting, 80)}, not on or off")
    return Limits() if setting == "on" else NO_LIMITS


def vector_image(seed: int, height: int, width: int) -> NDArray[np.uint8]:
    """The image of a test vector, H,W,3: byte i is the top byte of a hash of seed * 2^32 + i, so it costs the file nothing."""
    h = np.arange(height * width * 3, dtype=np.uint64) + np.uint64(seed << 32)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):  # mixing steps and factors of SplitMix64
        h = (h ^ (h >> np.uint64(31))) * np.uint64(factor)
    return (h >> np.uint64(56)).astype(np.uint8).reshape(height, width, 3)


# --- opening ----------------------------------------------------------------------------------------------------------


def _packed(container: Container, header: int, limits: Limits) -> Packed:
    metadata, tensors = container
    version = metadata.get("format")
    if version is None:
        raise UserError("it is a safetensors file but not a packed program; make one with `bcnn pack`")
    if version != FORMAT or len(metadata) != 1:
        raise UserError(
            f"it has format {shown(version, 80)}, this build reads {FORMAT}; pack the checkpoint again with `bcnn pack`"
        )
    _check_tensors(tensors)
    rows = [row.tobytes() for row in tensors[HASHES]]
    for name, hashed in zip((PROVENANCE, PROGRAM, LOGITS), reversed(rows), strict=False):
        if digest(_bytes(tensors.get(name))) != hashed:
            raise UserError(f"tensor {name!r} does not match its hash: the file is damaged; copy or pack it again")
    text = _text(_parsed(tensors[PROGRAM], "its program"))
    provenance = _parsed(tensors[PROVENANCE], "its provenance")
    if not isinstance(provenance, dict):
        raise UserError("its provenance is not a table")
    if len(rows) != len(text["ops"]) + 3:
        raise UserError(f"it has {len(rows)} hashes for {len(text['ops'])} ops; three more than ops are needed")
    names, labels = tuple(_words(text["names"], "names")), tuple(_words(text["labels"], "labels"))
    if len(names) != len(text["ops"]):
        raise UserError(f"it has {len(names)} names for {len(text['ops'])} ops")
    reader = Reader(tensors)
    where = [f"op {index} ({name:.80})" for index, name in enumerate(names)]
    ops = tuple(reader.op(op, place, hashed) for op, place, hashed in zip(text["ops"], where, rows, strict=False))
    program = Program(ops, names, labels, text["crop"], provenance, limits, text["rejects"])
    reader.finish()
    hashes = dict(zip([*where, LOGITS, PROGRAM, PROVENANCE], (row.hex() for row in rows), strict=True))
    return Packed(program, *_tests(text["test_seeds"], tensors.get(LOGITS), program), hashes, _sizes(tensors, header))


def _check_tensors(tensors: dict[str, NDArray[Any]]) -> None:
    """Those that there must be and no others, each of its type."""
    texts = {HASHES: np.dtype(np.uint8), PROGRAM: np.dtype(np.uint8), PROVENANCE: np.dtype(np.uint8)}
    known = {**DTYPES, LOGITS: np.dtype("<f4"), **texts}
    for name in texts:
        if name not in tensors:
            raise UserError(f"tensor {name!r} is missing")
    for name, tensor in tensors.items():
        if name not in known:
            raise UserError(f"it has a tensor {shown(name, 80)}, which no packed file has")
        dimensions = 2 if name in (LOGITS, HASHES) else 1
        if tensor.dtype != known[name] or tensor.ndim != dimensions or not tensor.size:
            raise UserError(
                f"tensor {name!r} is {tensor.dtype} {tensor.shape}, not {known[name]} of {dimensions} sides"
            )
    if tensors[HASHES].shape[1] != DIGEST or len(tensors[HASHES]) < 3:
        raise UserError(f"its hashes are {tensors[HASHES].shape}, not rows of {DIGEST} bytes")


def _text(data: Any) -> dict[str, Any]:
    """The table with all its keys, each of its type; `Reader`, `_words`, `Program` and `_tests` look into them."""
    if not isinstance(data, dict):
        raise UserError(f"its program is {shown(data, 80)}, not a table")
    for name in data:
        if name not in TEXT:
            raise UserError(f"its program: unknown key {shown(name, 80)}; {nearest(name[:80], TEXT)}")
    text = {"rejects": False, **data}
    for name, kind in TEXT.items():
        if name not in text:
            raise UserError(f"its program lacks {name!r}")
        if kind is float and type(text[name]) is int and text[name] in (0, 1):  # as some write 1.0
            text[name] = float(text[name])
        if type(text[name]) is not kind:
            raise UserError(f"{name} must be {WORDS[kind]}, got {shown(text[name], 80)}")
    return text


def _tests(seeds: list[Any], logits: Floats | None, program: Program) -> tuple[tuple[int, ...], Floats]:
    classes = int(np.prod(program.shapes[-1]))
    if not all(type(seed) is int and 0 <= seed < 1 << 31 for seed in seeds):
        raise UserError("its test_seeds are not whole numbers from 0 up to 2^31")
    if logits is None:
        logits = np.zeros((0, classes), np.float32)
    if logits.shape != (len(seeds), classes):
        raise UserError(f"its test logits are {logits.shape}, not one row of {classes} for each of {len(seeds)} seeds")
    return tuple(seeds), logits


def _parsed(text: NDArray[np.uint8], what: str) -> Any:
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(text.tobytes(), MAX_TEXT)
    except zlib.error:
        raise UserError(f"{what} cannot be decompressed: damaged or not a packed file") from None
    if not unpacker.eof or unpacker.unused_data:
        raise UserError(f"{what} has more than the {MAX_TEXT} bytes of the format, or ends too early or too late")
    try:
        return strict_json(content.decode(), what)
    except UnicodeDecodeError:
        raise UserError(f"{what} is not text: damaged or not a packed file") from None


# --- what both directions share ---------------------------------------------------------------------------------------


def _json(data: Any, what: str) -> NDArray[np.uint8]:
    try:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"cannot pack: {what} must be plain JSON data ({error})") from None
    if len(text) > MAX_TEXT:
        raise UserError(f"cannot pack: {what} take {len(text)} bytes, more than the format's {MAX_TEXT}")
    return np.frombuffer(zlib.compress(text, 9), np.uint8)


def _bytes(tensor: NDArray[Any] | None) -> bytes:
    return b"" if tensor is None else tensor.tobytes()


def _words(texts: list[str], what: str) -> list[str]:
    """Names end up on terminals: no control characters, no halves of surrogate pairs."""
    if not all(isinstance(text, str) and text.isprintable() for text in texts):
        raise UserError(f"{what} must be a list of printable texts")
    return texts


def _sizes(tensors: dict[str, NDArray[Any]], header: int) -> Sizes:
    size = {name: tensors[name].nbytes if name in tensors else 0 for name in (*DTYPES, LOGITS, PROVENANCE)}
    texts = sum(tensors[name].nbytes for name in (HASHES, PROGRAM, PROVENANCE))
    real = size["f32"] + size["i16"] + size["i8"]
    return Sizes(size["bits"], real, size["i32"], size[LOGITS], header + texts, size[PROVENANCE])
