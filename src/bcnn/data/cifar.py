"""CIFAR-10 and CIFAR-100 in the original python batches -> pixel arrays.

The batches are pickles, and a pickle can run any code when it is read. A batch needs only dicts, lists, bytes, numbers and
one numpy array, so this reader knows just the few constructors those need and refuses every other name.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError
from bcnn.base.files import check_plain

TRAIN = {"cifar-10": [f"data_batch_{i}" for i in range(1, 6)], "cifar-100": ["train"]}
TEST = {"cifar-10": "test_batch", "cifar-100": "test"}
FOLDERS = {"cifar-10-batches-py": "cifar-10", "cifar-100-python": "cifar-100"}
Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]


class _Unpickler(pickle.Unpickler):
    """Plain containers and numpy arrays only. NumPy 2 moved its constructors; both spellings occur in files."""

    ALLOWED = frozenset(
        (module, name)
        for package in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray", "_codecs")
        for module, name in ((package, "ndarray"), (package, "dtype"), (package, "_reconstruct"), (package, "encode"))
        if (package, name) != ("numpy", "encode")
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise UserError(f"it asks for {module}.{name}, which a CIFAR batch never needs; it was not read")
        return super().find_class(module, name)


def read_batch(path: Path) -> dict[bytes, Any]:
    """One batch file; anything but a dict of plain values and arrays is a `UserError`."""
    try:
        check_plain(path)
        with path.open("rb") as file:
            batch = _Unpickler(file, encoding="bytes").load()
    except UserError as error:
        raise UserError(f"{path} is not a CIFAR batch: {error}") from None
    except Exception as error:  # a damaged pickle raises almost anything
        raise UserError(f"{path} is not a CIFAR batch: {type(error).__name__} while reading it") from None
    if not isinstance(batch, dict):
        raise UserError(f"{path} is not a CIFAR batch: it holds a {type(batch).__name__}, not a dict")
    return batch


def _pixels(path: Path, kind: str) -> Arrays:
    batch = read_batch(path)
    data, labels = batch.get(b"data"), batch.get(b"labels" if kind == "cifar-10" else b"fine_labels")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise UserError(f"{path} is not a CIFAR batch: its 'data' is not an array of rows of 3,072 bytes")
    if not isinstance(labels, list) or len(labels) != len(data):
        raise UserError(f"{path} is not a CIFAR batch: it has no label for each of its {len(data)} images")
    pixels = np.ascontiguousarray(data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))  # rows are C,H,W
    return pixels, np.asarray(labels, dtype=np.int64)


def find(folder: Path) -> tuple[Path, str] | None:
    """The folder of the batches, this one or one inside it, and which CIFAR it is."""
    for candidate, kind in [(folder, k) for k in TRAIN] + [(folder / name, k) for name, k in FOLDERS.items()]:
        if all((candidate / name).is_file() for name in TRAIN[kind]):
            return candidate, kind
    return None


def load(folder: Path, kind: str) -> tuple[tuple[str, ...], Arrays, Arrays]:
    """Class names, training arrays, test arrays."""
    parts = [_pixels(folder / name, kind) for name in TRAIN[kind]]
    train = np.concatenate([p for p, _ in parts]), np.concatenate([y for _, y in parts])
    test = _pixels(folder / TEST[kind], kind)
    meta = folder / ("batches.meta" if kind == "cifar-10" else "meta")
    key = b"label_names" if kind == "cifar-10" else b"fine_label_names"
    count = 10 if kind == "cifar-10" else 100
    names = [str(i) for i in range(count)]
    if meta.is_file():
        names = [name.decode("utf-8") for name in read_batch(meta).get(key, [])] or names
    for _, labels in (train, test):
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
            raise UserError(f"{folder} has labels outside 0 to {len(names) - 1}")
    return tuple(names), train, test
