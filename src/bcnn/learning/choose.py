"""Settings by held-out photos: how strong the penalty is, and at which size photos are read. No torch.

Both are chosen among the photos to learn from, fifth by fifth, so that the photos which the accuracy is measured on decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bcnn.base.errors import UserError
from bcnn.base.progress import Progress
from bcnn.data.decode import Unreadable
from bcnn.data.sources import Images
from bcnn.learning.features import features
from bcnn.learning.fit import PENALTIES, Decoder, Scale, fit
from bcnn.learning.photos import FOLDS, Read, read
from bcnn.program.program import Program

MIN_SCORED_PHOTOS = 500  # photos scored: a share of them is known to 2 points; fewer photos take turns, fifth by fifth
SIZE_PHOTOS = 1200  # photos that decide on the size
SIZE_PENALTIES = PENALTIES[1:4]  # for the size: sizes differ by more than penalties do, and each fit takes a second
MIN_GAIN_FOR_LARGER_SIZE = 0.01  # what a larger size must bring, since it makes every later answer slower, too
MIN_SIZE = 48  # half the network's own size is tried down to here


@dataclass(frozen=True)
class Size:
    """A size that was tried."""

    height: int
    width: int
    accuracy: float  # of photos left out of the fit
    seconds: float  # for one photo, decoding it included


def penalty(photos: Read, classes: int, among: tuple[float, ...] = PENALTIES) -> tuple[float, float]:
    """(the penalty with the most photos right, their share). Of equals the strongest."""
    hits, scored = np.zeros(len(among), np.int64), 0
    for turn in range(FOLDS):
        out = photos.fold == turn
        if not out.any() or out.all():
            continue
        scale = Scale.of(photos.x[~out], *photos.limits)
        x, y, held = scale(photos.x[~out]), photos.y[~out], scale(photos.x[out])
        decoder = Decoder.zero(x.shape[1], classes)
        for index, strength in enumerate(among):
            decoder = fit(x, y, strength, decoder)
            hits[index] += int((decoder(held).argmax(axis=1) == photos.y[out]).sum())
        scored += int(out.sum())
        if scored >= MIN_SCORED_PHOTOS:
            break
    best = int(hits.argmax())
    return among[best], float(hits[best]) / max(1, scored)


def candidates(program: Program) -> Iterator[tuple[int, int]]:
    """Half, once and twice the size that the network was made for."""
    height, width, _ = program.shapes[0]
    if min(height, width) // 2 >= MIN_SIZE:
        yield height // 2, width // 2
    yield height, width
    yield 2 * height, 2 * width


def size(
    program: Program, photos: Images, classes: int, unreadable: Unreadable, progress: Progress
) -> tuple[Size, tuple[Size, ...]]:
    """(the size to read photos at, all that were tried), measured on a sample of the photos."""
    count = min(SIZE_PHOTOS, len(photos))
    chosen = np.zeros(len(photos), np.bool_)
    chosen[np.arange(count) * len(photos) // count] = True  # evenly: classes lie behind each other
    sample = photos.take(chosen)
    tried: list[Size] = []
    for height, width in candidates(program):
        try:
            reader = features(program, height, width)
        except UserError:
            continue  # a network that is fixed to its own size
        got = read(reader, sample, unreadable, f"trying {height} x {width}", progress)
        tried.append(Size(height, width, penalty(got, classes, SIZE_PENALTIES)[1], got.seconds))
    best = tried[0]
    for other in tried[1:]:
        if other.accuracy >= best.accuracy + MIN_GAIN_FOR_LARGER_SIZE:
            best = other
    return best, tuple(tried)
