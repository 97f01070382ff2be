"""Photos -> features, through the engine, a batch at a time. No torch.

What was read can be read again at another size: only features are kept, 12 KB a photo. Unreadable files are named once and left out.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.base.progress import Progress
from bcnn.data.decode import Unreadable, batches
from bcnn.data.sources import Images, Source, by_hash
from bcnn.engine import Engine
from bcnn.learning.features import limits
from bcnn.learning.fit import Floats, Labels
from bcnn.program.program import Program

BATCH = 32  # photos decoded at a time: they are the most memory that this takes
MIN_PHOTOS_OF_CLASS = 10  # photos of a class below which its accuracy is a matter of luck
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Read:
    """The readable photos of a split as features."""

    x: Floats  # [N, D]
    y: Labels
    fold: NDArray[np.int64]  # 0 to 4: which fifth of its class each belongs to, by its name
    seconds: float  # for one photo, decoding it included
    limits: tuple[float, float] = (0.0, math.inf)  # of its scaled features, see `features.limits`


def read(program: Program, photos: Images, unreadable: Unreadable, doing: str, progress: Progress) -> Read:
    """Features of every photo; `program` is one of `features.features`."""
    engine, started = Engine(program), time.perf_counter()
    numbered = Images(photos.items, np.arange(len(photos)))  # so that it is known which ones could be read
    found, rows = [], []
    for pixels, index in batches(numbered, program.shapes[0][:2], program.crop, unreadable, BATCH):
        rows.append(engine.run(pixels))
        found.append(index)
        progress(doing, len(index), len(photos))
    if not rows:
        raise UserError(f"none of the {len(photos)} photos can be read")
    seconds = (time.perf_counter() - started) / len(photos)
    index = np.concatenate(found)
    return Read(np.concatenate(rows), photos.labels[index], folds(photos)[index], seconds, limits(program))


def folds(photos: Images) -> NDArray[np.int64]:
    """A fifth for each photo, by its name: an added photo moves few others, and every class is in all of them."""
    fold = np.zeros(len(photos), np.int64)
    for members in by_hash(photos):
        fold[members] = np.arange(len(members)) % FOLDS
    return fold


def folder(path: str | Path, label: int) -> Images:
    """Every photo in a folder, whatever is below it, as one class."""
    if not Path(path).is_dir():
        raise UserError(f"no folder at {path}; give one that holds photos")
    files = images.files(path)
    return Images(files, np.full(len(files), label, np.int64))


def counts(source: Source) -> list[tuple[str, int, int]]:
    """Class, photos to learn from, photos held out."""
    number = [np.bincount(split.labels, minlength=len(source.classes)) for split in (source.train, source.val)]
    return [(name, int(number[0][i]), int(number[1][i])) for i, name in enumerate(source.classes)]


def warnings(source: Source) -> list[str]:
    """A sentence for each class that has too few photos to be learned or judged."""
    said = []
    for name, train, held_out in counts(source):
        if train < MIN_PHOTOS_OF_CLASS:
            said.append(
                f"class {name!r} has {_photos(train)} to learn from: take {MIN_PHOTOS_OF_CLASS} or more, better 50"
            )
        if not held_out:
            said.append(f"class {name!r} has no photo held out: nothing is known of how well it is recognised")
    return said


def _photos(number: int) -> str:
    return f"{number} photo{'s' if number != 1 else ''}"
