"""Train `cifar10` or `cifar10-small` on the original CIFAR-10 with the stored outputs of the float ResNet-56.

    nice -n 10 python tools/knowledge/train_cifar.py --arrays ARRAYS --network cifar10 --seed 0 --run RUN

The 5,000 training images with the last numbers are held out for choices; `--all` trains on them, too, and measures on the test images: for
the last run only.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cifar_teacher
import loop
import numpy as np
import torch
from networks import NETWORKS
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.nets.bcnn import Network

HELD_OUT = 5000
TEMPERATURE, TEACHER_WEIGHT = (
    4.0,
    0.5,
)  # the teacher is right on 99.9 % of its training images: only the rest of its outputs tells more
EPOCHS = {"cifar10": 50, "cifar10-small": 75}


class Cifar:
    def __init__(self, arrays: Path, name: str, seed: int, views: int, everything: bool) -> None:
        data = np.load(arrays / "cifar.npz")
        self.config, self.seed, self.views = NETWORKS[name], seed, views
        self.x, self.y = data["train_x"], data["train_y"]
        self.train = np.arange(len(self.x) - (0 if everything else HELD_OUT))
        self.test = (data["test_x"], data["test_y"]) if everything else (self.x[-HELD_OUT:], self.y[-HELD_OUT:])
        self.teacher = [np.load(arrays / f"cifar.{view}.npy") for view in range(views)]
        self.plan = loop.Plan(updates=EPOCHS[name] * (len(self.train) // 64), sizes=((1.0, 32),))
        self.epoch = -1

    def model(self) -> nn.Module:
        return Network(self.config)

    def batch(self, update: int, side: int):
        size = self.plan.batch
        epoch, first = divmod(update, len(self.train) // size)
        if epoch != self.epoch:
            random = np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, epoch))))
            self.order, self.epoch = random.permutation(self.train), epoch
        rows, view = self.order[first * size : (first + 1) * size], epoch % self.views
        x = loop.normalised(cifar_teacher.variant(self.x, view, rows), cifar_teacher.MEAN, cifar_teacher.STD)
        return x, torch.from_numpy(self.y[rows]), torch.from_numpy(self.teacher[view][rows]).float()

    def loss(self, model: nn.Module, batch) -> tuple[Tensor, dict[str, tuple[float, float]]]:
        x, labels, teacher = batch
        logits = model(x)
        cross = F.cross_entropy(logits, labels)
        soft = F.log_softmax(logits / TEMPERATURE, 1)
        divergence = F.kl_div(soft, F.log_softmax(teacher / TEMPERATURE, 1), log_target=True, reduction="batchmean")
        right = float((logits.detach().argmax(1) == labels).sum())
        loss = (1 - TEACHER_WEIGHT) * cross + TEACHER_WEIGHT * TEMPERATURE**2 * divergence
        count = len(labels)
        return loss, {"cross": (float(cross.detach()) * count, count), "right": (right, count)}

    def evaluate(self, model: nn.Module, side: int) -> dict[str, float]:
        hits = 0
        for first in range(0, len(self.test[1]), 200):
            x = loop.normalised(self.test[0][first : first + 200], cifar_teacher.MEAN, cifar_teacher.STD)
            hits += int((model(x).argmax(1).numpy() == self.test[1][first : first + 200]).sum())
        return {"top1": hits / len(self.test[1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arrays", type=Path, default=Path("ARRAYS"))
    parser.add_argument("--network", choices=list(EPOCHS), default="cifar10")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--views", type=int, default=24)
    parser.add_argument("--all", action="store_true", help="train on the held-out images, measure on the test images")
    loop.main(parser, lambda a: Cifar(a.arrays, a.network, a.seed, a.views, a.all))


if __name__ == "__main__":
    main()
