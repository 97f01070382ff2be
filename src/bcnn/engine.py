"""Run a `Program` on the CPU: a thin, typed wrapper over the native core in native/. No torch.

uint8 images N,H,W,3 -> float32 logits N,classes (or N,H,W,C where the last map has more than one pixel). The core packs the program for one instruction set (`isa`) and plans it for a
number of threads when an `Engine` is made; the logits have the same bits for every choice of both, and equal `interpret`'s.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import bcnn._core as _core
from bcnn.base import images
from bcnn.base.errors import UserError, nearest
from bcnn.base.images import Photo
from bcnn.base.softmax import softmax
from bcnn.packed import card
from bcnn.program.interpret import as_real
from bcnn.program.ops import Floats, Op, Values
from bcnn.program.program import Program, at_most
from bcnn.program.record import record

MAX_THREADS = 256  # far above any machine this is for, far below what an operating system refuses


@dataclass(frozen=True)
class Isa:
    """An instruction set built into this package."""

    name: str
    supported: bool  # by this machine
    active: bool  # what an engine uses unless told otherwise


@dataclass(frozen=True)
class Cost:
    """What an op costs for one image, on one thread."""

    name: str
    kind: str  # a word or two for its class, see `kind_of`
    seconds: float
    macs: int  # binary multiply-accumulates; 0 for real ops


def isas() -> tuple[Isa, ...]:
    """The instruction sets built into this package, best first."""
    active = choose_isa(None)
    return tuple(Isa(name, supported, name == active) for name, supported in _core.isas())


def choose_isa(name: str | None) -> str:
    """`name`, or what BCNN_ISA says, or the best this machine has."""
    where = "isa"
    if name is None and "BCNN_ISA" in os.environ:
        name, where = os.environ["BCNN_ISA"], "BCNN_ISA"
    built = dict(_core.isas())
    supported = [isa for isa, works in built.items() if works]
    if name is None:
        return supported[0]
    if name not in built:
        raise UserError(f"{where}: unknown instruction set {name!r}; {nearest(name, built)}")
    if not built[name]:
        raise UserError(f"{where}: this machine has no {name}; it supports {', '.join(supported)}")
    return name


class Engine:
    """A program, ready to run. Safe to call from several threads and after fork; calls of one engine take turns.

    >>> import bcnn, numpy as np
    >>> engine = bcnn.load("digits")
    >>> len(engine.predict(np.zeros((8, 8, 3), np.uint8), top=2)[0])
    2
    """

    def __init__(
        self, program: Program, isa: str | None = None, threads: int | None = None, least_memory: bool = False
    ) -> None:
        """`least_memory`: plan for the least bytes of maps instead of the least time."""
        if threads is None:
            threads = min(
                len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MAX_THREADS
            )
        if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= MAX_THREADS:
            raise UserError(f"threads is {threads!r}, not a whole number from 1 to {MAX_THREADS}")
        self.program = program
        self.threads = threads
        with self._memory("pack and plan the network"):
            self.isa = choose_isa(isa)
            records = [record(op) for op in program.ops]
            self._core = _core.Engine(records, list(program.shapes), self.isa, threads, least_memory)
        at_most("bytes of an engine's memory", self.peak_memory, program.limits.arena_bytes)

    def __repr__(self) -> str:
        height, width, _ = self.program.shapes[0]
        known = self.classes
        last = (
            f"{len(known)} classes ({', '.join(known[:3])}{', ...' if len(known) > 3 else ''})"
            if known
            else f"a map of {self.program.shapes[-1]}"
        )
        return f"<Engine: {height} x {width} image -> {last}; {len(self.program.ops)} ops, {self.isa}, threads {self.threads}>"

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes that it tells apart, or their numbers; without the one for none of them."""
        if self.program.shapes[-1][:2] != (1, 1):
            return ()
        return card.classes(self.program) or tuple(str(number) for number in range(self.program.shapes[-1][2]))

    @property
    def peak_memory(self) -> int:
        """Bytes of feature maps and scratch while one image runs; weights and the image itself are not counted."""
        return self._core.peak_memory

    @property
    def weight_memory(self) -> int:
        """Bytes of weights and other parameters as packed for this instruction set."""
        return self._core.weight_memory

    def run(self, batch: NDArray[np.uint8]) -> Floats:
        """Logits N,classes of uint8 images N,H,W,3 that have exactly the program's size; a last map of many pixels as N,H,W,C."""
        height, width, _ = self.program.shapes[0]
        if not isinstance(batch, np.ndarray) or batch.dtype != np.uint8 or batch.shape[1:] != (height, width, 3):
            got = f"{batch.dtype} {batch.shape}" if isinstance(batch, np.ndarray) else type(batch).__name__
            raise UserError(f"batch is {got}, not the uint8 (N, {height}, {width}, 3) that the program reads")
        with self._memory(f"run a batch of {len(batch):,}"):
            logits = as_real(self.program, self._core.run(np.ascontiguousarray(batch)))
        last = self.program.shapes[-1]
        return logits if last[:2] == (1, 1) else logits.reshape(len(batch), *last)

    def __call__(self, pictures: Photo | Sequence[Photo]) -> Floats:
        """Logits N,classes of one image (N = 1) or several: uint8 arrays H,W,3 or N,H,W,3, PIL images, paths, the bytes of a file, or a list of those."""
        return self.run(self.fit(pictures))

    def fit(self, pictures: Photo | Sequence[Photo]) -> NDArray[np.uint8]:
        """One or several images as the batch that `run` takes, resized and cropped as in evaluation where they have another size."""
        if isinstance(pictures, np.ndarray) and pictures.ndim == 4:
            if pictures.dtype == np.uint8 and pictures.shape[1:] == (*self.program.shapes[0][:2], 3):
                return pictures
            pictures = list(pictures)
        if isinstance(pictures, (np.ndarray, Image.Image, str, Path, bytes)):
            pictures = [pictures]
        if not isinstance(pictures, Sequence):
            raise UserError(
                f"cannot read images from {type(pictures).__name__}; give an array, a PIL image, a path, bytes or a list of those"
            )
        size = self.program.shapes[0][:2]
        fitted = [images.read(picture, size, self.program.crop) for picture in cast(Sequence[Photo], pictures)]
        return np.stack(fitted) if fitted else np.empty((0, *size, 3), np.uint8)

    def predict(self, pictures: Photo | Sequence[Photo], top: int = 5) -> list[list[tuple[str, float]]]:
        """For every image the `top` likeliest classes with their probabilities; without class names, their numbers."""
        if self.program.shapes[-1][:2] != (1, 1):
            raise UserError(
                f"the program ends in a map of {self.program.shapes[-1]}, not in classes; call the engine for its values"
            )
        probabilities = softmax(self(pictures))
        names = self.program.labels or tuple(str(i) for i in range(probabilities.shape[1]))
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
        return [[(names[i], float(row[i])) for i in best] for row, best in zip(probabilities, order, strict=True)]

    def maps(self, image: NDArray[np.uint8]) -> list[Values]:
        """Map i, H,W,C, is what op i makes, float32 or int16: copied row by row out of the engine's real run of one image."""
        with self._memory("keep all maps of an image"):
            return self._core.maps(np.ascontiguousarray(self._one(image)))

    def profile(self, image: NDArray[np.uint8], repeats: int = 50) -> list[Cost]:
        """What each op costs, on one thread. Each op runs in many short steps; the fastest of `repeats` runs of each counts."""
        with self._memory("time the network"):
            seconds = self._core.profile(np.ascontiguousarray(self._one(image)), repeats)
        counts = self.program.counts()
        return [
            Cost(name, kind_of(op), seconds[i], counts[i].binary_macs)
            for i, (name, op) in enumerate(zip(self.program.names, self.program.ops, strict=True))
        ]

    @contextmanager
    def _memory(self, what: str) -> Iterator[None]:
        """A sentence where the native side has only the name of its exception. The engine stays usable."""
        try:
            yield
        except MemoryError as error:
            if str(error) not in ("", "std::bad_alloc"):  # NumPy's and that of a missing thread say it themselves
                raise
            raise MemoryError(
                f"not enough memory to {what} with {self.threads} threads; ask for fewer threads"
            ) from None

    def _one(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        height, width, _ = self.program.shapes[0]
        if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.shape != (height, width, 3):
            got = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
            raise UserError(f"image is {got}, not the uint8 {(height, width, 3)} that the program reads")
        return image


def binary_macs(program: Program, index: int) -> int:
    """Binary multiply-accumulates of one op for one image."""
    return program.ops[index].counts(program.shapes[:index]).binary_macs


def kind_of(op: Op) -> str:
    """The words of an op's class: "binary conv", "max pool"; a real convolution of one channel each is "depth wise"."""
    if op.depthwise:
        return "depth wise"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(op).__name__.removeprefix("Fixed")).lower()
