"""Splits -> batches: N,3,H,W float32, normalised, with class indices. Images stay RGB; the network makes the intensity channel.

A small data set is decoded once to a uint8 array and augmented a batch at a time; a large one streams through worker
processes. Both take the same boxes in the same order. With several processes (`world`), process `rank` gets its share of
each batch; a batch is the same set of images however many processes share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bcnn.base.affine import Floats3, scale_offset
from bcnn.data import sources
from bcnn.data.config import DataConfig
from bcnn.data.decode import Unreadable, decode
from bcnn.training import augment
from bcnn.training.stream import CutFiles, FitFiles, stream

STATISTICS_IMAGES = 2000  # of a data set that streams, for mean and deviation: enough for three digits


@dataclass(frozen=True, eq=False)
class Batch:
    x: Tensor  # N,3,H,W float32, normalised
    y: Tensor  # N int64
    index: NDArray[np.int64]  # of each image in its split


@dataclass(frozen=True, eq=False)
class Split:
    """Images that can be asked for by index: pixels in memory, or files that are read when needed."""

    pixels: NDArray[np.uint8] | None  # N,H,W,3
    files: Sequence[Path]  # where pixels is None
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def fingerprint(self) -> str:
        """A hash that changes with the images: of their pixels if those are in memory, else of names and sizes of files."""
        found = hashlib.sha256(np.ascontiguousarray(self.labels).tobytes())
        if self.pixels is not None:
            found.update(repr(self.pixels.shape).encode())
            for image in self.pixels:  # one by one: an array that is not contiguous would be copied as a whole
                found.update(np.ascontiguousarray(image).data)
        for file in self.files:
            size = file.stat().st_size if file.exists() else -1
            found.update(f"{file.parent.name}/{file.name}\0{size}\0".encode("utf-8", "surrogateescape"))
        return found.hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class Data:
    """A data set ready to train on."""

    config: DataConfig
    size: tuple[int, int]  # height, width that the network reads
    classes: tuple[str, ...]
    train: Split
    val: Split
    mean: Floats3  # of the training images, in units of 0 ... 1
    std: Floats3
    notes: tuple[str, ...]
    unreadable: Unreadable = field(default_factory=Unreadable)

    def normalise(self, pixels: Tensor) -> Tensor:
        """uint8 N,H,W,3 -> float32 N,3,H,W, with the multiplication and addition that the packed program does too."""
        scale, offset = scale_offset(self.mean, self.std)
        x = pixels.permute(0, 3, 1, 2).to(torch.float32)
        return x * _channels(scale, x) + _channels(offset, x)

    def train_batches(
        self,
        epoch: int,
        batch: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        skip: int = 0,
        device: str = "cpu",
        size: tuple[int, int] | None = None,
        images: int = 0,
    ) -> Iterator[Batch]:
        """The batches of an epoch from number `skip` on, at `size` if given. The incomplete last one is left out.

        With `images`, an epoch is no more than so many of them: others in every epoch."""
        count = len(self.train)
        draws = augment.draw(self.config.augment, count, seed, epoch)
        order = augment.generator(seed, 2, epoch).permutation(count)
        share = batch // world
        chosen = [
            order[first + rank * share : first + (rank + 1) * share]
            for first in range(skip * batch, min(count, images or count) - batch + 1, batch)
        ]
        yield from self._cut(chosen, draws, device, size or self.size)

    def fixed_batches(self, variant: int, batch: int, seed: int, device: str = "cpu") -> Iterator[Batch]:
        """All training images in order, in one of their fixed variants: for a teacher whose outputs are stored."""
        count = len(self.train)
        draws = augment.draw(self.config.augment, count, seed, variant)
        yield from self._cut(
            [np.arange(count)[i : i + batch] for i in range(0, count, batch)], draws, device, self.size
        )

    def _cut(
        self, chosen: list[NDArray[np.int64]], draws: augment.Draws, device: str, size: tuple[int, int]
    ) -> Iterator[Batch]:
        if self.train.pixels is not None:
            boxes = augment.boxes(draws, self.train.pixels.shape[2] / self.train.pixels.shape[1])
            for index in chosen:
                x = self.normalise(torch.from_numpy(self.train.pixels[index]).to(device))
                x = augment.cut(x, torch.from_numpy(boxes[index]).to(device), size)
                yield Batch(x, torch.from_numpy(self.train.labels[index]).to(device), index)
            return
        red, green, blue = (round(255 * channel) for channel in self.mean)
        dataset = CutFiles(self.train.files, size, draws, (red, green, blue))
        for pixels, index, skipped in stream(dataset, chosen, self.config.workers):
            for file, sentence in skipped:
                self.unreadable.add(file, sentence)
            yield Batch(self.normalise(pixels.to(device)), torch.from_numpy(self.train.labels[index]).to(device), index)

    def val_batches(self, batch: int, rank: int = 0, world: int = 1, device: str = "cpu") -> Iterator[Batch]:
        """Every evaluation image once, over all processes together: process `rank` takes images rank, rank + world, ..."""
        for pixels, index in self.val_pixels(batch, rank, world):
            x = self.normalise(torch.from_numpy(pixels).to(device))
            yield Batch(x, torch.from_numpy(self.val.labels[index]).to(device), index)

    def val_pixels(
        self, batch: int, rank: int = 0, world: int = 1
    ) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        """The same as uint8 N,H,W,3 and the index of each: what is measured."""
        mine = np.arange(rank, len(self.val), world)
        chosen = [mine[i : i + batch] for i in range(0, len(mine), batch)]
        if self.val.pixels is not None:
            for index in chosen:
                yield self.val.pixels[index], index
            return
        for pixels, index, skipped in stream(
            FitFiles(self.val.files, self.size, self.config.crop), chosen, self.config.workers
        ):
            for file, sentence in skipped:
                self.unreadable.add(file, sentence)
            if len(index):
                yield pixels.numpy(), index


def _three(values: tuple[float, ...]) -> Floats3:
    return values[0], values[1], values[2]


def _channels(values: NDArray[np.float32], like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like.device).reshape(1, 3, 1, 1)


# --- opening --------------------------------------------------------------------------------------------------------


def open_data(config: DataConfig, size: tuple[int, int], source: sources.Source | None = None) -> Data:
    """Find the data set (or take the `source` that was found) and decode it, or prepare to stream it if it is larger than
    `config.memory_mb`."""
    source = source or sources.find_source(config)
    unreadable = Unreadable(config.strict)
    stored = round(size[0] * config.stored), round(size[1] * config.stored)
    # Arrays are in memory already, whatever their size.
    train = _split(source.train, stored, 1.0, config, unreadable, "training images")
    val = train if source.val is source.train and config.stored == 1 and train.pixels is not None else None
    val = val or _split(source.val, size, config.crop, config, unreadable, "evaluation images")
    if config.mean:
        mean, std = _three(config.mean), _three(config.std)
    else:
        mean, std = _statistics(train, size, config, unreadable)
    return Data(config, size, source.classes, train, val, mean, std, source.notes, unreadable)


def open_evaluation(config: DataConfig, size: tuple[int, int], mean: Floats3, std: Floats3, split: str = "") -> Data:
    """The evaluation images alone, normalised as the network to be measured was trained; training images are not read."""
    source = sources.find(config.source, strict=config.strict, split=split, training=False)
    unreadable = Unreadable(config.strict)
    val = _split(source.val, size, config.crop, config, unreadable, "evaluation images")
    none = Split(None, (), np.empty(0, np.int64))
    return Data(config, size, source.classes, none, val, mean, std, source.notes, unreadable)


def _split(
    found: sources.Images, size: tuple[int, int], crop: float, config: DataConfig, unreadable: Unreadable, what: str
) -> Split:
    megabytes = len(found) * size[0] * size[1] * 3 / 2**20
    if isinstance(found.items, list) and megabytes > config.memory_mb:  # of files
        return Split(None, found.items, found.labels)
    pixels, labels = decode(found, size, crop, unreadable, what)
    return Split(pixels, (), labels)


def _statistics(
    train: Split, size: tuple[int, int], config: DataConfig, unreadable: Unreadable
) -> tuple[Floats3, Floats3]:
    """Mean and deviation of each channel (sec. 5.1: zero mean, unit variance). A constant channel gets deviation 1 / 255."""
    pixels = train.pixels
    if pixels is None:
        every = -(-len(train) // STATISTICS_IMAGES)
        some = sources.Images(train.files[::every], train.labels[::every])
        pixels, _ = decode(some, size, 1.0, unreadable, "images for mean and deviation")
    # A histogram is exact, and cheaper than a float copy of the array.
    counts = np.zeros((3, 256), dtype=np.int64)
    for first in range(0, len(pixels), 256):  # in slices: bincount makes int64 of what it counts
        for channel in range(3):
            counts[channel] += np.bincount(pixels[first : first + 256, ..., channel].ravel(), minlength=256)
    levels = np.arange(256) / 255
    mean, std = [], []
    for channel in range(3):
        share = counts[channel] / (pixels.size // 3)
        centre = float(share @ levels)
        mean.append(centre)
        std.append(max(float(np.sqrt(share @ (levels - centre) ** 2)), 1 / 255))
    return (mean[0], mean[1], mean[2]), (std[0], std[1], std[2])
