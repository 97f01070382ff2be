"""Decide, before any training, which photos train, which are held out and which are only ever tested on.

    python tools/knowledge/splits.py --data DATA --arrays ARRAYS

Writes ARRAYS/splits.npz: for every set of `TRAINED` the label of each photo among the 275 classes (-1: none) and its role
(`TRAIN`, `HELD`, `LEFT_OUT`); and ARRAYS/classes.json, the 275 (WNID, name, index among ImageNet's 1,000). Three rules:

1. Person: of the completely labelled COCO photos, the 5,000 with the smallest hash of their name are test photos. They are left out.
2. One labelled photo in 50, by the hash of its name, is held out. Choices are made on those.
3. A training photo is left out if its 64-bit perceptual hash is within `NEAR` bits of a test photo's or a held-out photo's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TRAINED = ("coco", "mini", "tiny")
TESTED = ("tinyval", "imagenetval", "imagenette")  # of imagenette only val/
TRAIN, HELD, LEFT_OUT = 0, 1, 2
PERSON_TEST = 5000
HELD_OUT = 50  # one labelled photo in so many
IMAGENETTE_HELD_OUT = 20
NEAR = 6  # of 64 bits, see README.md


def name_hash(name: str) -> int:
    """64 bits of the SHA-256 of a file's name without its folder."""
    return int.from_bytes(hashlib.sha256(Path(name).name.encode()).digest()[:8], "big")


def person_test(data: Path) -> list[str]:
    """Names (without ending) of the person test photos."""
    names = [path.stem for path in (data / "dyuan/labels/train").glob("*.txt")]
    return sorted(names, key=name_hash)[:PERSON_TEST]


def classes(data: Path) -> list[tuple[str, str, int]]:
    """WNID, name and ImageNet index of the classes of Tiny-ImageNet and mini-ImageNet, in the order of ImageNet's indices."""
    index = json.loads((data / "imval/imagenet_class_index.json").read_text())
    known = {wnid: (name.replace("_", " "), int(number)) for number, (wnid, name) in index.items()}
    folders = [*(data / "tiny/tiny-imagenet-200/train").iterdir(), *(data / "mini/train").iterdir()]
    wnids = {folder.name for folder in folders if folder.is_dir()}
    return sorted(((w, *known[w]) for w in wnids), key=lambda entry: entry[2])


def perceptual_hash(pixels: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """N,S,S,3 -> N: signs of the 63 lowest frequencies of a 32 x 32 grey copy, relative to their median."""
    n, side = len(pixels), 32
    rows = np.zeros((side, pixels.shape[1]), np.float32)  # area averaging as a matrix
    edges = np.linspace(0, pixels.shape[1], side + 1)
    for i in range(side):
        for j in range(int(edges[i]), int(np.ceil(edges[i + 1]))):
            rows[i, j] = min(edges[i + 1], j + 1) - max(edges[i], j)
    rows /= rows.sum(1, keepdims=True)
    k = np.arange(8)[:, None]
    cosine = np.cos(np.pi * k * (2 * np.arange(side) + 1) / (2 * side)).astype(np.float32) @ rows
    grey = pixels @ np.array([0.299, 0.587, 0.114], np.float32)
    low = (cosine @ grey @ cosine.T).reshape(n, 64)
    bits = low > np.median(low[:, 1:], axis=1, keepdims=True)
    bits[:, 0] = False  # the mean
    return np.packbits(bits, axis=1).view(np.uint64)[:, 0]


def hashes(arrays: Path, name: str) -> NDArray[np.uint64]:
    pixels = np.load(arrays / f"{name}.npy", mmap_mode="r")
    return np.concatenate([perceptual_hash(pixels[i : i + 500]) for i in range(0, len(pixels), 500)])


def distance_to(hashed: NDArray[np.uint64], others: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """For each hash the fewest bits that differ from any of the others."""
    nearest = np.full(len(hashed), 64, np.uint8)
    for i in range(0, len(hashed), 200):
        nearest[i : i + 200] = np.bitwise_count(hashed[i : i + 200, None] ^ others[None]).min(1)
    return nearest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("DATA"))
    parser.add_argument("--arrays", type=Path, default=Path("ARRAYS"))
    arguments = parser.parse_args()
    data, arrays = arguments.data, arguments.arrays
    names = {name: (arrays / f"{name}.txt").read_text().split("\n")[:-1] for name in (*TRAINED, *TESTED)}
    known = classes(data)
    number = {wnid: i for i, (wnid, _, _) in enumerate(known)}
    (arrays / "classes.json").write_text(json.dumps(known, indent=0))
    print(f"{len(known)} classes")

    hashed = {name: hashes(arrays, name) for name in names}
    print("hashed", flush=True)
    tested = set(person_test(data))
    labels, roles = {}, {}
    for name in TRAINED:
        part = {"tiny": -3, "mini": -2}.get(name)  # tiny-imagenet-200/train/WNID/images/FILE, mini/train/WNID/FILE
        labels[name] = np.array([number[f.split("/")[part]] if part else -1 for f in names[name]], np.int16)
        role = np.full(len(names[name]), TRAIN, np.uint8)
        if name == "coco":
            role[[Path(f).stem in tested for f in names[name]]] = LEFT_OUT
        else:
            role[[name_hash(f) % HELD_OUT == 0 for f in names[name]]] = HELD
        roles[name] = role
    never = [hashed["tinyval"], hashed["imagenetval"]]
    never += [hashed["imagenette"][[f.startswith("imagenette/val/") for f in names["imagenette"]]]]
    never += [hashed["coco"][roles["coco"] == LEFT_OUT]]
    never += [hashed[name][roles[name] == HELD] for name in ("mini", "tiny")]
    others = np.unique(np.concatenate(never))
    began = time.monotonic()
    result = {}
    for name in TRAINED:
        nearest = distance_to(hashed[name], others)
        train = roles[name] == TRAIN
        counts = np.bincount(nearest[train], minlength=13)[:13]
        roles[name][train & (nearest <= NEAR)] = LEFT_OUT
        print(name, "photos at 0, 1, ... 12 bits:", counts.tolist())
        print(name, "train, held, left out:", np.bincount(roles[name], minlength=3).tolist(), flush=True)
        result |= {f"{name}_labels": labels[name], f"{name}_roles": roles[name], f"{name}_nearest": nearest}
    print(f"compared in {time.monotonic() - began:.0f} s")
    # Imagenette has a network of its own. Its files that are ImageNet validation photos train nothing.
    role = np.full(len(names["imagenette"]), TRAIN, np.uint8)
    for i, file in enumerate(names["imagenette"]):
        if file.startswith("imagenette/val/") or "ILSVRC2012_val_" in file:
            role[i] = LEFT_OUT
        elif name_hash(file) % IMAGENETTE_HELD_OUT == 0:
            role[i] = HELD
    print("imagenette train, held, left out:", np.bincount(role, minlength=3).tolist())
    np.savez(arrays / "splits.npz", **result, imagenette_roles=role)


if __name__ == "__main__":
    main()
