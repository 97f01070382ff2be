"""Fixed crops of photos: the same box for the teacher, which reads the original file, and for the student, which reads an array.

Crop `view` of photo i of a set is a function of (set, view, i) and of nothing else. Boxes are in fractions of the photo.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Smallest area of a crop. COCO's photos have many things and many pixels; those of the other sets one thing and few pixels.
SMALLEST = {"coco": 0.15, "mini": 0.3, "tiny": 0.35, "imagenette": 0.25}
SEED = {"coco": 1, "mini": 2, "tiny": 3, "imagenette": 4}


class Pixels:
    """Photos of a .npy file, read one at a time: a memory map of it would fill the memory of the process."""

    def __init__(self, path: Path) -> None:
        array = np.load(path, mmap_mode="r")
        self.count, self.shape, self.offset = len(array), array.shape[1:], array.offset
        self.file = os.open(path, os.O_RDONLY)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> NDArray[np.uint8]:
        size = math.prod(self.shape)
        data = os.pread(self.file, size, self.offset + int(i) * size)
        return np.frombuffer(data, np.uint8).reshape(self.shape)


def boxes(name: str, view: int, count: int) -> NDArray[np.float32]:
    """count,4: left, top, right, bottom of the crop `view` of every photo of a set."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence((SEED[name], view))))
    area = random.uniform(SMALLEST[name], 1, count)
    ratio = np.exp(random.uniform(math.log(3 / 4), math.log(4 / 3), count))
    width, height = np.minimum(1, np.sqrt(area * ratio)), np.minimum(1, np.sqrt(area / ratio))
    x, y = random.uniform(0, 1, (2, count))
    left, top = x * (1 - width), y * (1 - height)
    return np.stack([left, top, left + width, top + height], 1).astype(np.float32)


def cut(
    image: Image.Image, box: NDArray[np.float32], side: int, filter: Image.Resampling = Image.Resampling.BILINEAR
) -> NDArray[np.uint8]:
    """A box of an RGB image as side,side,3."""
    edges = np.clip(box, 0, 1) * (image.width, image.height, image.width, image.height)
    return np.asarray(image.resize((side, side), filter, box=tuple(edges.tolist())))
