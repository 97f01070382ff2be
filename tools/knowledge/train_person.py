"""Train the person detectors at 96 x 96: is a person of at least 0.5 % of the picture in it?

    nice -n 10 python tools/knowledge/train_person.py --arrays ARRAYS --network person --seed 0 --run RUN

Half of each batch shows persons. A crop's label is made from the boxes that lie in it; where a photo's label is not sure the teacher's
probability (person_teacher.py) takes its place, if there is one. Choices are made on 1,000 held-out photos.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import crops
import loop
import numpy as np
import person_data
import splits
import torch
from networks import NETWORKS
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.nets.bcnn import Network

UPDATES = {"person": 31_000, "person-small": 31_000}  # 2 million crops


def shows_person(boxes: np.ndarray, box: np.ndarray) -> bool:
    """Whether a person's visible part takes 0.5 % of the crop `box`."""
    if not len(boxes):
        return False
    width = np.minimum(boxes[:, 2], box[2]) - np.maximum(boxes[:, 0], box[0])
    height = np.minimum(boxes[:, 3], box[3]) - np.maximum(boxes[:, 1], box[1])
    area = width.clip(0) * height.clip(0) / ((box[2] - box[0]) * (box[3] - box[1]))
    return bool((area >= person_data.SMALLEST).any())


class Person:
    def __init__(self, arrays: Path, name: str, seed: int) -> None:
        known = np.load(arrays / "person.npz")
        self.config, self.seed = NETWORKS[name], seed
        self.pixels = crops.Pixels(arrays / "coco.npy")
        self.label, self.sure, self.first, self.boxes = (known[key] for key in ("label", "sure", "first", "boxes"))
        self.target = self.label.astype(np.float32)
        if (arrays / "person_teacher.npy").exists():
            taught = np.load(arrays / "person_teacher.npy")
            use = (self.sure == 0) & ~np.isnan(taught)
            self.target[use] = taught[use]
        train = (known["role"] == splits.TRAIN) & (self.label >= 0)
        self.groups = [np.flatnonzero(train & (self.target > 0.5)), np.flatnonzero(train & (self.target <= 0.5))]
        self.held = np.flatnonzero(known["role"] == splits.HELD)
        self.plan = loop.Plan(updates=UPDATES[name], sizes=((0.6, 64), (1.0, 96)))
        print(f"{len(self.groups[0]):,} photos with a person, {len(self.groups[1]):,} without", flush=True)

    def model(self) -> nn.Module:
        return Network(self.config)

    def batch(self, update: int, side: int):
        size = self.plan.batch
        # Each group is gone through in an order of its own, shuffled again each time.
        rows, random = [], np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, update))))
        for group, photos in enumerate(self.groups):
            turn, at = divmod(update * (size // 2), len(photos) // (size // 2) * (size // 2))
            key = np.random.SeedSequence((self.seed, 1 + group, turn))
            if getattr(self, "orders", {}).get(group, (None,))[0] != turn:
                order = np.random.Generator(np.random.Philox(key)).permutation(photos)
                self.orders = getattr(self, "orders", {}) | {group: (turn, order)}
            rows += self.orders[group][1][at : at + size // 2].tolist()
        x, target = np.empty((size, side, side, 3), np.uint8), np.empty(size, np.float32)
        for row, i in enumerate(rows):
            area, ratio, left, top, flip = random.uniform(size=5)
            area, ratio = 0.4 + 0.6 * area, (3 / 4) ** (1 - 2 * ratio)
            width, height = min(1, (area * ratio) ** 0.5), min(1, (area / ratio) ** 0.5)
            left, top = left * (1 - width), top * (1 - height)
            box = np.array([left, top, left + width, top + height], np.float32)
            cut = crops.cut(Image.fromarray(self.pixels[i]), box, side)
            x[row] = cut[:, ::-1] if flip < 0.5 else cut
            boxes = self.boxes[self.first[i] : self.first[i + 1]]
            target[row] = shows_person(boxes, box) if self.sure[i] else self.target[i]
        return loop.normalised(x), torch.from_numpy(target)

    def loss(self, model: nn.Module, batch) -> tuple[Tensor, dict[str, tuple[float, float]]]:
        x, target = batch
        logits = model(x)
        loss = F.cross_entropy(logits, torch.stack([1 - target, target], 1))
        right = float((logits.detach().argmax(1) == (target > 0.5)).sum())
        return loss, {"right": (right, len(target))}

    def evaluate(self, model: nn.Module, side: int) -> dict[str, float]:
        whole, hits = np.array([0, 0, 1, 1], np.float32), 0
        for first in range(0, len(self.held), 50):
            rows = self.held[first : first + 50]
            x = np.stack([crops.cut(Image.fromarray(self.pixels[i]), whole, 96) for i in rows])
            hits += int((model(loop.normalised(x)).argmax(1).numpy() == self.label[rows]).sum())
        return {"top1_96": hits / len(self.held)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arrays", type=Path, default=Path("ARRAYS"))
    parser.add_argument("--network", choices=list(UPDATES), default="person")
    parser.add_argument("--seed", type=int, default=0)
    loop.main(parser, lambda a: Person(a.arrays, a.network, a.seed))


if __name__ == "__main__":
    main()
