"""Is what was trained what runs? Checks of a packed file, from its bytes to its predictions. No torch: a `Reference` brings it.

file          every hash is right
test vectors  the interpreter computes the stored logits, with ==
engine        every instruction set of this machine makes the interpreter's map at every op, with ==
torch         every op makes what the checkpoint's module makes of the same input, see `compare`
data          the engine's first choice is torch's (or the interpreter's) over a folder of images
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.base.progress import Progress, silent
from bcnn.base.scores import Logits
from bcnn.packed import card, packfile
from bcnn.program.interpret import as_real, interpret, interpret_maps
from bcnn.program.ops import Floats, Values
from bcnn.program.program import Program

if TYPE_CHECKING:
    from bcnn.engine import Engine

# Torch and program run free over a data set: rounding flips signs near zero, and an image near a tie changes its class. A wrong
# layer agrees on far fewer images than this.
AGREEMENT = 0.95
AGREEMENT_OF_INTEGERS = 0.8  # another arithmetic flips more signs, see program.fixed
# The interpreter keeps every map of an image. A small file can declare large maps: past this it is refused, not tried.
MAX_MAP_BYTES = 1 << 29


@dataclass(frozen=True)
class Check:
    name: str
    passed: bool
    detail: str  # what was compared, or the first difference


class Reference(Protocol):
    """The network that a program was made from."""

    def check(self, program: Program, vectors: list[NDArray[np.uint8]]) -> Check:
        """Of the program's parameters or ops, on images of its size."""

    def logits(self, images: NDArray[np.uint8]) -> Floats:
        """uint8 N,H,W,3 -> N,classes."""


def verify(
    path: str | Path,
    reference: Callable[[Program], Reference] | None = None,
    data: str | Path | None = None,
    limit: int = 1000,
    progress: Progress = silent,
) -> Iterator[Check]:
    """Yield every check as it is done. `data` is a folder of images, at most `limit` of which are used.

    `reference` finds the network that the program was made from, when it is needed.
    """
    if not Path(path).is_file():
        raise UserError(f"no packed file at {path}; make one with `bcnn pack CHECKPOINT -o {path}`")
    try:
        packed = packfile.open_packed(path)
    except UserError as error:
        yield Check("file", False, str(error))
        return
    yield Check("file", True, f"{len(packed.hashes)} hashes are right, {packed.sizes.total:,} bytes")
    program = packed.program
    height, width, _ = program.shapes[0]
    map_bytes = 4 * sum(math.prod(shape) for shape in program.shapes)
    if map_bytes > MAX_MAP_BYTES:
        yield Check(
            "size", False, f"its maps take {map_bytes:,} bytes an image; verify interprets up to {MAX_MAP_BYTES:,}"
        )
        return
    progress("Interpreting the test vectors", 0, 0)
    vectors = [packfile.vector_image(seed, height, width) for seed in packed.test_seeds or (0,)]
    maps = [interpret_maps(program, image) for image in vectors]
    yield _test_vectors(packed, maps)
    progress("Comparing the engine with the interpreter", 0, 0)
    yield from _engines(program, vectors, maps)
    network_logits: Logits | None = None
    if reference is not None:
        progress("Comparing torch with the program", 0, 0)
        network = reference(program)
        yield network.check(program, vectors)
        network_logits = network.logits
    if data is not None:
        yield _data(program, Path(data), limit, network_logits, progress)


def _test_vectors(packed: packfile.Packed, maps: list[list[Values]]) -> Check:
    if not packed.test_seeds:
        return Check("test vectors", True, "none are stored")
    for seed, stored, made in zip(packed.test_seeds, packed.test_logits, maps, strict=True):
        logits = as_real(packed.program, made[-1].reshape(-1))
        if not equal(logits, stored):
            return Check("test vectors", False, f"seed {seed}: {_count(logits, stored)} logits differ")
    return Check("test vectors", True, f"{len(maps)} images give the stored logits")


def _engines(program: Program, vectors: list[NDArray[np.uint8]], maps: list[list[Values]]) -> Iterator[Check]:
    from bcnn.engine import Engine, isas

    for isa in isas():
        if isa.supported:
            yield Check(f"engine {isa.name}", *compare_engine(Engine(program, isa=isa.name), program, vectors, maps))


def compare_engine(
    engine: Engine, program: Program, vectors: list[NDArray[np.uint8]], maps: list[list[Values]]
) -> tuple[bool, str]:
    """Every map of every image, and the logits of all images as one batch."""
    for image, wanted in zip(vectors, maps, strict=True):
        for index, (one, other) in enumerate(zip(engine.maps(image), wanted, strict=True)):
            if not equal(one, other):
                return False, f"op {index} ({program.names[index]}): {_count(one, other)} values differ"
    batch = engine.run(np.stack(vectors)).reshape(len(vectors), -1)  # a label for every pixel makes a map
    logits = np.stack([as_real(program, wanted[-1].reshape(-1)) for wanted in maps])
    if not equal(batch, logits):
        return False, f"a batch of {len(vectors)}: {_count(batch, logits)} logits differ"
    return True, f"{len(program.ops)} ops on {len(vectors)} images equal the interpreter's"


def equal(one: Values, other: Values) -> bool:
    """The same shape and values; what overflowed to NaN on both sides is the same."""
    return one.shape == other.shape and np.array_equal(one, other, equal_nan=True)


def _count(one: Values, other: Values) -> str:
    if one.shape != other.shape:
        return f"shapes {one.shape} and {other.shape}: all"
    return f"{int((one != other).sum()):,} of {one.size:,}"


# --- a data set -------------------------------------------------------------------------------------------------------


def _data(program: Program, folder: Path, limit: int, network_logits: Logits | None, progress: Progress) -> Check:
    from bcnn.engine import Engine

    if not folder.is_dir():
        raise UserError(
            f"no folder at {folder}; --data takes a folder of images, in one folder per class if you have classes"
        )
    if program.shapes[-1][:2] != (1, 1):
        raise UserError(
            f"--data compares the class of each image, but this program makes a map of {program.shapes[-1]}"
        )
    files = images.spread(images.files(folder), limit)
    engine = Engine(program)
    reference: Logits = network_logits or (lambda batch: np.stack([interpret(program, image) for image in batch]))
    size = program.shapes[0][:2]
    agree, right = 0, 0
    truth = classes_of(files, folder, program)
    for start in range(0, len(files), 16):
        batch = np.stack([images.read(file, size, program.crop) for file in files[start : start + 16]])
        first = engine.run(batch).argmax(axis=1)
        agree += int((first == reference(batch).argmax(axis=1)).sum())
        right += int((first == truth[start : start + 16]).sum()) if truth is not None else 0
        progress("Comparing first choices", len(batch), len(files))
    share = AGREEMENT if program.numbers == "float32" else AGREEMENT_OF_INTEGERS
    needed = len(files) if network_logits is None else int(np.floor(share * len(files)))
    other = "interpreter" if network_logits is None else "torch"
    accuracy = "" if truth is None else f"; {right / len(files):.2%} right"
    return Check(
        "data", agree >= needed, f"first choice equals that of {other} on {agree} of {len(files)} images{accuracy}"
    )


def classes_of(files: list[Path], folder: Path, program: Program) -> NDArray[np.int64] | None:
    """The class of every image by the name of its folder, if those names are the classes that the program was trained on."""
    names, known = [file.relative_to(folder).parts[0] for file in files], card.folders(program)
    if not set(names) <= set(known):
        return None
    return np.array([known.index(name) for name in names])
