"""Train the backbone: the teacher's outputs on all photos, labels of 275 classes where there are any.

    nice -n 10 python tools/knowledge/train_backbone.py --arrays ARRAYS --run RUN [--minutes M] [--from KEPT.safetensors]

Two linear heads read the same pooled features: 1,000 outputs for the teacher's classes, 275 for the labels. Only the second ships.
The loss is KL divergence from the teacher's distribution (`TEACHER_WEIGHT` of each set) plus cross entropy of the labels.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import crops
import loop
import numpy as np
import splits
import teacher
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.nets.bcnn import Network
from bcnn.nets.config import NetworkConfig, preset

TEACHER_WEIGHT = {"coco": 1.0, "mini": 0.5, "tiny": 0.5}  # where there are labels, the teacher counts half
# 8 million crops. Rates were chosen by short experiments, see README.md.
PLAN = loop.Plan(updates=125_000, head_lr=0.1, sizes=((0.85, 64), (1.0, 96)))
CLASSES = 275


def network(width: float) -> NetworkConfig:
    """`tinyimagenet`, `width` times as wide: strides 2 in the stem and the first three levels."""
    return preset("tinyimagenet").scaled(width).replace(classes=CLASSES)


class TwoHeads(nn.Module):
    """The network, and the teacher's classes from the same pooled features."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.network = Network(config)
        self.teacher = nn.Linear(config.channels_out, 1000)
        for head in (self.teacher, self.network.decoder.linear):
            nn.init.zeros_(head.weight)  # pooled features are large: random weights begin with a loss of 30

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.network.intensity(x)
        for level in self.network.levels():
            x = level(x)
        pooled = x.mean((2, 3))
        return self.network.decoder.linear(pooled), self.teacher(pooled)


class Backbone:
    seed = 0

    def __init__(self, arrays: Path, views: int, width: float) -> None:
        self.arrays, self.views, self.width, self.plan = arrays, views, width, PLAN
        chosen = np.load(arrays / "splits.npz")
        self.sets = list(splits.TRAINED)
        self.pixels = [crops.Pixels(arrays / f"{name}.npy") for name in self.sets]
        self.labels = [chosen[f"{name}_labels"] for name in self.sets]
        self.roles = [chosen[f"{name}_roles"] for name in self.sets]
        self.photos = self.merged(0)
        self.held = [np.flatnonzero(chosen[f"{name}_roles"] == splits.HELD) for name in self.sets]
        self.epoch, self.opened = -1, {}

    def model(self) -> nn.Module:
        return TwoHeads(network(self.width))

    def outputs(self, s: int, view: int):
        """Boxes and the teacher's stored outputs of a set and view."""
        if (s, view) not in self.opened:
            name, count = self.sets[s], len(self.labels[s])
            stored = teacher.opened(self.arrays, name, view, count, "r")
            self.opened[s, view] = crops.boxes(name, view, count), *stored
        return self.opened[s, view]

    def merged(self, view: int) -> np.ndarray:
        """N,2: (set, index) of the photos that train, the sets mixed evenly, each in the teacher's order of a view."""
        orders = [teacher.sequence(roles, name, view) for roles, name in zip(self.roles, self.sets, strict=True)]
        position = np.concatenate([np.arange(len(order)) / len(order) for order in orders])
        which = np.concatenate([np.full(len(order), s) for s, order in enumerate(orders)])
        return np.stack([which, np.concatenate(orders)], 1)[np.argsort(position, kind="stable")]

    def begin(self, epoch: int) -> None:
        """Order and flips of an epoch."""
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, epoch))))
        shuffled = random.permutation(len(self.photos)) if epoch else None
        # While a view is new the teacher may still be at work on it: its order is followed.
        self.order = self.merged(epoch) if epoch < self.views else self.photos[shuffled]
        self.flips, self.epoch = random.integers(0, 2, len(self.photos)), epoch

    def batch(self, update: int, side: int):
        size = self.plan.batch
        epoch, first = divmod(update, len(self.photos) // size)
        if epoch != self.epoch:
            self.begin(epoch)
        here = slice(first * size, (first + 1) * size)
        x = np.empty((size, side, side, 3), np.uint8)
        labels, weights = np.empty(size, np.int64), np.empty(size, np.float32)
        classes = np.empty((size, teacher.KEPT), np.int64)
        probabilities = np.empty((size, teacher.KEPT), np.float32)
        for row, ((s, i), flip) in enumerate(zip(self.order[here], self.flips[here], strict=True)):
            box, top, mass, done = self.outputs(s, epoch % self.views)
            while not done[i]:  # the teacher is behind
                time.sleep(1)
            cut = crops.cut(Image.fromarray(self.pixels[s][i]), box[i], side)
            x[row] = cut[:, ::-1] if flip else cut
            labels[row], weights[row] = self.labels[s][i], TEACHER_WEIGHT[self.sets[s]]
            classes[row], probabilities[row] = top[i], mass[i]
        numbers = (labels, weights, classes, probabilities)
        return loop.normalised(x), *map(torch.from_numpy, numbers)

    def loss(self, model: nn.Module, batch) -> tuple[Tensor, dict[str, tuple[float, float]]]:
        x, labels, weights, classes, probabilities = batch
        named, known = model(x)
        labelled = labels >= 0
        cross = F.cross_entropy(named[labelled], labels[labelled], reduction="sum") / len(x)
        # What the teacher gives to the classes that are not kept is spread over them evenly.
        rest = (1 - probabilities.sum(1, keepdim=True)).clamp_min(0) / (1000 - teacher.KEPT)
        target = rest.repeat(1, 1000).scatter(1, classes, probabilities)
        entropy = torch.xlogy(target, target).sum(1)
        divergence = entropy - (target * F.log_softmax(known, 1)).sum(1)
        with torch.no_grad():
            agree = (known.argmax(1) == classes[:, 0]).float()
            right = (named[labelled].argmax(1) == labels[labelled]).float()
            sums = {
                "kl": (divergence[~labelled].sum(), (~labelled).sum()),
                "kl_labelled": (divergence[labelled].sum(), labelled.sum()),
                "agree": (agree[~labelled].sum(), (~labelled).sum()),
                "cross": (cross * len(x), labelled.sum()),
                "right": (right.sum(), labelled.sum()),
            }
        return cross + (weights * divergence).mean(), {k: (float(a), float(b)) for k, (a, b) in sums.items()}

    def evaluate(self, model: nn.Module, side: int) -> dict[str, float]:
        """Top-1 in 275 classes on whole held-out photos, at the training's size and one larger; every second photo."""
        scores = {}
        whole = np.array([0, 0, 1, 1], np.float32)
        for size in (side, side + 16):
            for s, name in enumerate(self.sets):
                hits, some = 0, self.held[s][::2]
                for first in range(0, len(some), 32):
                    rows = some[first : first + 32]
                    x = np.stack([crops.cut(Image.fromarray(self.pixels[s][i]), whole, size) for i in rows])
                    hits += int((model(loop.normalised(x))[0].argmax(1).numpy() == self.labels[s][rows]).sum())
                if len(some):
                    scores[f"{name}_{size}"] = hits / len(some)
        return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arrays", type=Path, default=Path("ARRAYS"))
    parser.add_argument(
        "--views", type=int, default=4, help="stored crops of each photo; epoch e reads crop e mod VIEWS"
    )
    parser.add_argument("--width", type=float, default=1.25)
    loop.main(parser, lambda a: Backbone(a.arrays, a.views, a.width))


if __name__ == "__main__":
    main()
