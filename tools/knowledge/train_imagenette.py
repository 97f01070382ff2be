"""Train `imagenette` from the backbone's weights with the stored outputs of EfficientNet-Lite2, restricted to the ten classes.

    for v in 0 1 2 3 4 5 6 7; do python tools/knowledge/teacher.py --data DATA --arrays ARRAYS --view $v imagenette; done
    nice -n 10 python tools/knowledge/train_imagenette.py --arrays ARRAYS --backbone KEPT.safetensors --run RUN

One training photo in 20 is held out for choices. Files named ILSVRC2012_val_* do not train.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import crops
import kept
import loop
import numpy as np
import splits
import teacher
import torch
from networks import NETWORKS
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.nets.bcnn import Network

EPOCHS = 80
TEACHER_WEIGHT = 0.5


class Imagenette:
    def __init__(self, data: Path, arrays: Path, backbone: Path | None, seed: int, views: int) -> None:
        self.arrays, self.backbone, self.seed, self.views = arrays, backbone, seed, views
        files = (arrays / "imagenette.txt").read_text().split("\n")[:-1]
        wnids = sorted({file.split("/")[2] for file in files})
        index = json.loads((data / "imval/imagenet_class_index.json").read_text())
        number = {wnid: int(i) for i, (wnid, _) in index.items()}
        self.columns = torch.tensor([number[wnid] for wnid in wnids])
        self.labels = np.array([wnids.index(file.split("/")[2]) for file in files])
        roles = np.load(arrays / "splits.npz")["imagenette_roles"]
        self.train, self.held = np.flatnonzero(roles == splits.TRAIN), np.flatnonzero(roles == splits.HELD)
        self.pixels = crops.Pixels(arrays / "imagenette.npy")
        count = len(files)
        self.stored = [teacher.opened(arrays, "imagenette", view, count, "r") for view in range(views)]
        for view, (_, _, done) in enumerate(self.stored):
            if not done[self.train].all():
                raise SystemExit(f"the teacher has not finished view {view}: run teacher.py --view {view} imagenette")
        self.boxes = [crops.boxes("imagenette", view, count) for view in range(views)]
        self.plan = loop.Plan(updates=EPOCHS * (len(self.train) // 64), lr=0.005, sizes=((0.7, 96), (1.0, 128)))
        self.epoch = -1

    def model(self) -> nn.Module:
        network = Network(NETWORKS["imagenette"])
        if self.backbone:
            state, _ = kept.load(self.backbone)
            prefix = "network."
            state = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix) and "decoder" not in k}
            missing = network.load_state_dict(state, strict=False)
            assert all("decoder" in key for key in missing.missing_keys), missing
        return network

    def batch(self, update: int, side: int):
        size = self.plan.batch
        epoch, first = divmod(update, len(self.train) // size)
        if epoch != self.epoch:
            random = np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, epoch))))
            self.order, self.epoch = random.permutation(self.train), epoch
            self.flips = random.integers(0, 2, len(self.order))
        rows, flips = (values[first * size : (first + 1) * size] for values in (self.order, self.flips))
        view = epoch % self.views
        x = np.empty((size, side, side, 3), np.uint8)
        for row, (i, flip) in enumerate(zip(rows, flips, strict=True)):
            cut = crops.cut(Image.fromarray(self.pixels[i]), self.boxes[view][i], side)
            x[row] = cut[:, ::-1] if flip else cut
        classes, mass, _ = (torch.from_numpy(array[rows].astype(kind)) for array, kind in
                            zip(self.stored[view], (np.int64, np.float32, np.int64), strict=True))  # fmt: skip
        target = torch.full((size, 1000), 1e-5).scatter(1, classes, mass)[:, self.columns]
        return loop.normalised(x), torch.from_numpy(self.labels[rows]), target / target.sum(1, keepdim=True)

    def loss(self, model: nn.Module, batch) -> tuple[Tensor, dict[str, tuple[float, float]]]:
        x, labels, target = batch
        logits = model(x)
        soft = (1 - TEACHER_WEIGHT) * F.one_hot(labels, target.shape[1]) + TEACHER_WEIGHT * target
        loss = -(soft * F.log_softmax(logits, 1)).sum(1).mean()
        return loss, {"right": (float((logits.detach().argmax(1) == labels).sum()), len(labels))}

    def evaluate(self, model: nn.Module, side: int) -> dict[str, float]:
        whole, hits = np.array([0, 0, 1, 1], np.float32), 0
        for first in range(0, len(self.held), 50):
            rows = self.held[first : first + 50]
            x = np.stack([crops.cut(Image.fromarray(self.pixels[i]), whole, 128) for i in rows])
            hits += int((model(loop.normalised(x)).argmax(1).numpy() == self.labels[rows]).sum())
        return {"top1_128": hits / len(self.held)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("DATA"))
    parser.add_argument("--arrays", type=Path, default=Path("ARRAYS"))
    parser.add_argument("--backbone", type=Path, help="kept weights of the backbone; none: random weights")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--views", type=int, default=8)
    loop.main(parser, lambda a: Imagenette(a.data, a.arrays, a.backbone, a.seed, a.views))


if __name__ == "__main__":
    main()
