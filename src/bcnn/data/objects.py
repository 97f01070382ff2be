"""Images that a Python program holds -> `Source`: arrays, a torch dataset, a Hugging Face dataset. By what they can do, no import of either.

(images, labels)     uint8 N,H,W,3 or N,H,W, or a list of arrays, PIL images or paths; labels are whole numbers or names
torch-like           len(d), d[i] -> (image, label); d.classes are the names where it has some; an image may be a tensor C,H,W
Hugging Face-like    d.features, d[i] -> {"image": ..., "label": ...}; a dict of splits is train, validation, test
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.data.sources import SPLIT_SHARE, SPLITS, Images, Source, split_off


@dataclass(frozen=True, eq=False)
class Lazy(Sequence[Any]):
    """Images that are asked for one by one, so that they need not all be in memory at their full size."""

    dataset: Any
    which: NDArray[np.int64]
    column: str = ""  # of a Hugging Face item; none: the first of a pair, or the item itself

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return Lazy(self.dataset, self.which[i], self.column)
        item = self.dataset[int(self.which[i])]
        if self.column:
            item = item[self.column]
        elif isinstance(item, tuple | list):
            item = item[0]
        return picture(item)

    def take(self, chosen: NDArray[np.bool_]) -> Lazy:
        return Lazy(self.dataset, self.which[chosen], self.column)


def picture(item: Any) -> Image.Image:
    """A PIL image of whatever stands for one."""
    if isinstance(item, Image.Image):
        return images.rgb(item)
    if isinstance(item, str | Path):
        return images.open_rgb(item)
    if isinstance(item, Mapping) and isinstance(item.get("bytes"), bytes):  # a Hugging Face image that was not decoded
        return images.open_rgb(item["bytes"])
    array = np.asarray(item)
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = array.transpose(1, 2, 0)  # torch's C,H,W
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.dtype.kind == "f":
        if array.size and (array.min() < 0 or array.max() > 1):
            raise UserError(
                "an image of floats must have values from 0 to 1: hand images over before they are normalised"
            )
        array = np.round(array * 255).astype(np.uint8)
    if array.dtype != np.uint8 or array.ndim not in (2, 3):
        raise UserError(
            f"cannot read an image from {array.dtype} {array.shape}; give uint8 H,W,3, a PIL image or a path"
        )
    return images.rgb(Image.fromarray(array))


def source_of(dataset: Any, validation: Any = None, classes: Sequence[str] | None = None) -> Source:
    """Training images and evaluation images: `validation`, the dataset's own split, or a fifth split off."""
    if isinstance(dataset, Mapping):
        dataset, validation = _splits(dataset, validation)
    items, labels, names = _read(dataset, classes)
    if validation is None:
        train, val = split_off(Images(items, labels), SPLIT_SHARE)
        note = f"no evaluation images were given: {len(val)} of {len(labels)} images split off"
        found = Source(names, train, val, (note,), "split off from the training images")
    else:
        val_items, val_labels, val_names = _read(validation, classes or names)
        if val_names != names:
            raise UserError(
                f"training images have classes {names[:5]}, evaluation images {val_names[:5]}: they must be the same"
            )
        found = Source(names, Images(items, labels), Images(val_items, val_labels), (), "the evaluation images given")
    if len(names) < 2:
        raise UserError(f"the data has {len(names)} class; a classifier needs two or more")
    if not len(found.val):
        note = "too few images to split any off: accuracy is measured on the training images themselves"
        found = Source(names, found.train, found.train, (*found.notes, note), "the training images themselves")
    return found


def _splits(dataset: Mapping[str, Any], validation: Any) -> tuple[Any, Any]:
    by = {split: dataset[key] for key in dataset for split, known in SPLITS.items() if str(key).lower() in known}
    if "train" not in by:
        raise UserError(f"a dict of splits needs 'train', this one has {', '.join(map(str, dataset))}")
    return by["train"], by.get("val") if validation is None else validation


def _read(dataset: Any, classes: Sequence[str] | None) -> tuple[Any, NDArray[np.int64], tuple[str, ...]]:
    """Images, a class index for each, names of the classes."""
    if isinstance(dataset, tuple) and len(dataset) == 2:
        pictures, given = dataset
        if len(pictures) != len(given):
            raise UserError(f"{len(pictures)} images and {len(given)} labels: there must be one for each")
        labels, names = _labels(list(given), classes)
        if (
            isinstance(pictures, np.ndarray)
            and pictures.dtype == np.uint8
            and pictures.ndim == 4
            and pictures.shape[3] == 3
        ):
            return pictures, labels, names
        return Lazy(pictures, np.arange(len(given))), labels, names
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise UserError(
            f"cannot train on a {type(dataset).__name__}: give a folder, (images, labels), or a dataset with len() and [i]"
        )
    if not len(dataset):
        raise UserError("the dataset is empty")
    features = getattr(dataset, "features", None)
    if isinstance(features, Mapping):
        column, target = _columns(dataset, features)
        labels, found = _labels(list(dataset[target]), classes or getattr(features[target], "names", None))
        return Lazy(dataset, np.arange(len(dataset)), column), labels, found
    first = dataset[0]
    if not isinstance(first, tuple | list) or len(first) < 2:
        raise UserError(f"items of the dataset must be (image, label), the first is a {type(first).__name__}")
    targets = getattr(dataset, "targets", None)  # as torchvision's have them: no image need be read for its label
    if targets is None or len(targets) != len(dataset):
        targets = [dataset[i][1] for i in range(len(dataset))]
    labels, found = _labels(list(targets), classes or getattr(dataset, "classes", None))
    return Lazy(dataset, np.arange(len(dataset))), labels, found


def _columns(dataset: Any, features: Mapping[str, Any]) -> tuple[str, str]:
    """Of the images and of the classes: by their kind, else by their usual names."""
    kinds = {name: type(feature).__name__ for name, feature in features.items()}
    image = [n for n, kind in kinds.items() if kind == "Image"] or [n for n in ("image", "img", "pixels") if n in kinds]
    label = [n for n, kind in kinds.items() if kind == "ClassLabel"] or [
        n for n in ("label", "labels", "class") if n in kinds
    ]
    if not image or not label:
        raise UserError(
            f"which columns are image and label? The dataset has {', '.join(kinds)}; rename them to those words"
        )
    return image[0], label[0]


def _labels(values: list[Any], classes: Sequence[str] | None) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if all(isinstance(value, str) for value in values):
        names = tuple(classes or sorted(set(values)))
        unknown = set(values) - set(names)
        if unknown:
            raise UserError(f"label {min(unknown)!r} is none of the classes {', '.join(names[:5])}, ...")
        return np.asarray([names.index(value) for value in values], dtype=np.int64), names
    numbers = np.asarray([int(value) for value in values], dtype=np.int64)
    names = tuple(classes or (str(i) for i in range(int(numbers.max()) + 1)))
    if numbers.min() < 0 or numbers.max() >= len(names):
        raise UserError(f"labels must be from 0 to {len(names) - 1}, they are from {numbers.min()} to {numbers.max()}")
    return numbers, names
