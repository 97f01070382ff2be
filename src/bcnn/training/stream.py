"""Image files -> uint8 batches through worker processes, for a data set that does not fit in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.training import augment

Skipped = list[tuple[str, str]]
Item = tuple[NDArray[np.uint8] | None, int, Skipped]


@dataclass(frozen=True, eq=False)
class CutFiles(Dataset[Item]):
    """Training images from files, cut in the worker. In place of an unreadable one stands the next that can be read, so
    that batches keep their size in every process."""

    files: Sequence[Path]
    size: tuple[int, int]
    draws: augment.Draws
    outside: tuple[int, int, int]  # the colour around an image that a crop leaves

    def __getitem__(self, index: int) -> Item:
        skipped: Skipped = []
        for candidate in (*range(index, len(self.files)), *range(index)):
            file = self.files[candidate]
            try:
                image = images.open_rgb(file)
            except UserError as error:
                skipped.append((str(file), str(error)))
                continue
            (box,) = augment.boxes(self.draws[candidate : candidate + 1], image.width / image.height)
            return augment.cut_image(image, box, self.size, self.outside), candidate, skipped
        raise UserError(f"none of the {len(self.files)} training images can be read")


@dataclass(frozen=True, eq=False)
class FitFiles(Dataset[Item]):
    """Evaluation images from files; an unreadable one is left out."""

    files: Sequence[Path]
    size: tuple[int, int]
    crop: float

    def __getitem__(self, index: int) -> Item:
        file = self.files[index]
        try:
            return images.fit(images.open_rgb(file), self.size, self.crop), index, []
        except UserError as error:
            return None, index, [(str(file), str(error))]


def _collate(items: list[Item]) -> tuple[Tensor, NDArray[np.int64], Skipped]:
    good = [(pixels, index) for pixels, index, _ in items if pixels is not None]
    stacked = np.stack([pixels for pixels, _ in good]) if good else np.empty((0, 1, 1, 3), np.uint8)
    index = np.asarray([index for _, index in good], dtype=np.int64)
    return torch.from_numpy(stacked), index, [s for _, _, skipped in items for s in skipped]


def stream(
    dataset: CutFiles | FitFiles, chosen: list[NDArray[np.int64]], workers: int
) -> Iterator[tuple[Tensor, NDArray[np.int64], Skipped]]:
    """(pixels, index of each, unreadable files) for every list of indices in `chosen`."""
    yield from DataLoader(dataset, batch_sampler=[c.tolist() for c in chosen], num_workers=workers, collate_fn=_collate)
