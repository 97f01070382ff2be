"""Turn folders of photos into uint8 arrays on disk, one file a set, and write the order of their files beside it.

    python tools/knowledge/arrays.py --data DATA --arrays ARRAYS

DATA holds coco/train2017, mini/{train,val}/WNID, tiny/tiny-imagenet-200, imagenette/{train,val}/WNID (see README.md). A set is
ARRAYS/NAME.npy, N,S,S,3, and ARRAYS/NAME.txt, one relative file name a line. A set whose .npy exists is skipped; an
interrupted one begins again (the largest takes a few minutes).
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from PIL import Image

# Set: (pattern below DATA, side of the stored square). COCO's photos have 256 x 256: half of it is above what training reads.
SETS = {
    "tiny": ("tiny/tiny-imagenet-200/train/*/images/*.JPEG", 64),
    "tinyval": ("tiny/tiny-imagenet-200/val/images/*.JPEG", 64),
    "mini": ("mini/*/*/*.jpg", 84),
    "coco": ("coco/train2017/*.jpg", 128),
    "imagenetval": ("imval/ILSVRC2012_img_val_subset/*/*", 64),  # for near-duplicates only
    "imagenette": ("imagenette/*/*/*.JPEG", 160),
}


def read(path: Path, side: int) -> Image.Image:
    """An RGB photo squashed to side x side. A JPEG decoder may halve a larger photo on the way."""
    with Image.open(path) as image:
        image.draft("RGB", (side, side))
        image = image.convert("RGB")
    return (
        image if image.size == (side, side) else image.resize((side, side), Image.Resampling.BILINEAR, reducing_gap=3)
    )


def pack(data: Path, out: Path, name: str) -> None:
    pattern, side = SETS[name]
    done = out / f"{name}.npy"
    if done.exists():
        return
    files = sorted(data.glob(pattern))
    if not files:
        print(f"{name}: no files match {data / pattern}; skipped", flush=True)
        return
    part = out / f"{name}.part.npy"
    array = np.lib.format.open_memmap(part, "w+", np.uint8, (len(files), side, side, 3))
    began = time.monotonic()
    for i, file in enumerate(files):
        array[i] = np.asarray(read(file, side))
        if i % 10_000 == 9_999:
            print(f"{name}: {i + 1:,} of {len(files):,}, {time.monotonic() - began:.0f} s", flush=True)
    array.flush()
    (out / f"{name}.txt").write_text("".join(f"{file.relative_to(data)}\n" for file in files))
    os.replace(part, done)
    print(f"{name}: {len(files):,} photos of {side} x {side} in {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("DATA"))
    parser.add_argument("--arrays", type=Path, default=Path("ARRAYS"))
    parser.add_argument("sets", nargs="*", default=list(SETS))
    arguments = parser.parse_args()
    arguments.arrays.mkdir(parents=True, exist_ok=True)
    for name in arguments.sets:
        pack(arguments.data, arguments.arrays, name)


if __name__ == "__main__":
    main()
