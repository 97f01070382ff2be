"""Image files -> one uint8 array N,H,W,3, with the unreadable ones named and counted. No torch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.progress import track

from bcnn.base import images as pixels
from bcnn.base.console import Console
from bcnn.base.errors import UserError
from bcnn.base.progress_log import watched
from bcnn.data.sources import Images


@dataclass
class Unreadable:
    """The images that could not be read: each is named once, when it is met; `strict` stops at the first."""

    strict: bool = False
    silent: bool = False  # for images that are read again later
    sentences: dict[str, str] = field(default_factory=dict)  # by file

    def add(self, file: str, sentence: str) -> None:
        if self.strict:
            raise UserError(f"{sentence} (--strict-data stops here; without it such images are skipped)")
        if file not in self.sentences:
            self.sentences[file] = sentence
            if self.silent:
                return
            console = Console(stderr=True, highlight=False, markup=False)  # a file's name may hold brackets
            console.print(f"skipped: {sentence}", style="yellow", soft_wrap=True)

    def __len__(self) -> int:
        return len(self.sentences)

    def summary(self) -> str:
        return f"{len(self)} unreadable image{'s' if len(self) != 1 else ''} skipped" if self.sentences else ""


def decode(
    images: Images, size: tuple[int, int], crop: float, unreadable: Unreadable, what: str = "images"
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(pixels N,H,W,3, labels) of the readable images, in order, through the code that the runtime uses (`images.read`)."""
    height, width = size
    out = np.empty((len(images), height, width, 3), dtype=np.uint8)
    readable = np.ones(len(images), dtype=np.bool_)

    def one(index: int) -> str:
        read = _read(images.items[index], size, crop)
        if isinstance(read, str):
            return read
        out[index] = read
        return ""

    if isinstance(images.items, np.ndarray) and images.items.shape[1:3] == size:
        return images.items, images.labels  # as `fit` would leave them
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # Pillow lets go of the GIL while it decodes
        for index, sentence in enumerate(_progress(pool.map(one, range(len(images))), len(images), f"decode {what}")):
            if sentence:
                readable[index] = False
                unreadable.add(str(images.items[index]), sentence)
    if not readable.any():
        raise UserError(f"none of the {len(images)} {what} can be read")
    if readable.all():
        return out, images.labels
    return out[readable], images.labels[readable]


def batches(
    images: Images, size: tuple[int, int], crop: float, unreadable: Unreadable, batch: int
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """The same a batch at a time, for a data set of any size; a batch of which nothing can be read is left out."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for first in range(0, len(images), batch):
            items, labels = images.items[first : first + batch], images.labels[first : first + batch]
            read = list(pool.map(lambda item: _read(item, size, crop), items))
            for item, result in zip(items, read, strict=True):
                if isinstance(result, str):
                    unreadable.add(str(item), result)
            good = [index for index, result in enumerate(read) if not isinstance(result, str)]
            if good:
                yield np.stack([result for result in read if not isinstance(result, str)]), labels[good]


def numbered(
    images: Images, size: tuple[int, int], crop: float, unreadable: Unreadable, batch: int
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """The same with the index of each image in place of its class, so that it is known which ones could be read."""
    return batches(Images(images.items, np.arange(len(images))), size, crop, unreadable, batch)


def _read(item: Path | NDArray[np.uint8] | Image.Image, size: tuple[int, int], crop: float) -> NDArray[np.uint8] | str:
    """The pixels, or a sentence that says why there are none."""
    try:
        return pixels.read(item, size, crop)
    except UserError as error:
        return str(error)


def _progress(results: Iterable[str], total: int, what: str) -> Iterable[str]:
    console = Console(stderr=True)
    if not console.is_terminal:
        return watched(results, what, total)
    return track(results, what, total, console=console, transient=True, disable=total < 500)
