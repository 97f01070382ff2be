"""Photos nobody tuned on: `bcnn learn` and `bcnn train --minutes` beside what an engineer would write instead. One thread, CPU time.

    python -m benchmarks.photos photos --minutes 20 --record photos.json              all four, one after another
    python -m benchmarks.photos photos --minutes 20 --record photos.json --only cnn   one of: histogram, cnn, learn, train

All see the same split (`data.sources`): the folder's val, or a fifth held out by the hash of the names. Minutes are those of one core,
counted as the processor's time of the process, so that a busy machine takes longer but gives neither side less. Decoding counts.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.base.files import write_atomic
from bcnn.base.machine import cpu, utc
from bcnn.data.config import Augment, DataConfig
from bcnn.data.sources import Source, find_source
from bcnn.training.batches import open_data

Result = dict[str, Any]
SIZE = 64  # of the float network's images
HISTOGRAM = 128  # of the histogram's
BATCH = 64
RATE = 2e-3  # Adam's, at its highest


def histogram(folder: str, source: Source, minutes: float) -> Result:
    """8 x 8 x 8 bins of colour and 500 extremely randomised trees."""
    from sklearn.ensemble import ExtraTreesClassifier

    data = open_data(DataConfig(source=folder, crop=1.0), (HISTOGRAM, HISTOGRAM), source)

    def bins(pixels: Any) -> Any:
        codes = (pixels.astype(np.int64) >> 5) @ np.array([64, 8, 1])
        return np.stack([np.bincount(image.ravel(), minlength=512) for image in codes])

    trees = ExtraTreesClassifier(500, random_state=0, n_jobs=1).fit(bins(data.train.pixels), data.train.labels)
    return {"accuracy": float(trees.score(bins(data.val.pixels), data.val.labels))}


class Residual(nn.Module):
    """Two 3x3 convolutions with batch norm beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        same = inputs == outputs and stride == 1
        self.short = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.short(x))


def plain_cnn(classes: int) -> nn.Module:
    """2.4 M parameters: a 3x3 layer of 32 channels, then residual layers of 64, 128, 256 and 256, mean, linear."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        Residual(32, 64, 2), Residual(64, 128, 2), Residual(128, 256, 2), Residual(256, 256, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, classes),
    )  # fmt: skip


def cnn(folder: str, source: Source, minutes: float) -> Result:
    """A plain float network for that time: Adam, the rate a wave over it, random resized crops and flips."""
    began = time.process_time()
    torch.manual_seed(0)
    config = DataConfig(source=folder, stored=1.25, augment=Augment(scale=(0.25, 1.0)))
    data = open_data(config, (SIZE, SIZE), source)
    network = plain_cnn(len(data.classes)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=1e-2)
    seen, epoch, share = 0, 0, 0.0
    while share < 1:
        for batch in data.train_batches(epoch, min(BATCH, len(data.train)), 0):
            share = (time.process_time() - began) / (60 * minutes)
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1, 20 * share + 0.01, (1 + math.cos(math.pi * min(1, share))) / 2)
            optimizer.zero_grad()
            F.cross_entropy(
                network(batch.x.to(memory_format=torch.channels_last)), batch.y, label_smoothing=0.1
            ).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            seen += len(batch.y)
            if share >= 1:
                break
        epoch += 1
        if epoch % 5 == 0:
            print(f"{share:.0%}: {seen / len(data.train):.1f} passes", flush=True)
    network.eval()
    with torch.no_grad():
        hits = sum(int((network(b.x).argmax(1) == b.y).sum()) for b in data.val_batches(BATCH))
    parameters = sum(p.numel() for p in network.parameters())
    return {"accuracy": hits / len(data.val), "passes": seen / len(data.train), "parameters": parameters}


def learned(folder: str, source: Source, minutes: float) -> Result:
    """Logistic regression on the frozen features of the shipped backbone."""
    from bcnn.learning.learn import Wishes, learn
    from bcnn.packed import shipped

    made = learn(source, Wishes(), folder)
    return {"accuracy": made.scores.top1, "start": shipped.start(), "size": made.program.shapes[0][0]}


def trained(folder: str, source: Source, minutes: float, init: str = "") -> Result:
    """`bcnn train --minutes`, with the processor's time for a clock."""
    from bcnn.training.choose import Wanted, choose
    from bcnn.training.run import TrainingRun
    from bcnn.training.run_folder import RunFolder
    from bcnn.training.run_training import train

    began = time.process_time()
    wanted = Wanted(data=folder, init=init, minutes=minutes, settings=("threads=1", "tensorboard=false"))
    choice = choose(wanted, began, time.process_time)
    print("\n".join(choice.lines), flush=True)
    with tempfile.TemporaryDirectory() as out:
        to = RunFolder(Path(out) / "run")
        info = train(TrainingRun(choice.config, to, choice.source, clock=time.process_time, began=began))
    accuracy = list(info["accuracy"].values())[-1]
    config = info["config"]
    return {"accuracy": accuracy, "start": config["init"], "size": config["network"]["image_size"][0]}


METHODS: dict[str, Callable[..., Result]] = {
    "histogram": histogram,
    "cnn": cnn,
    "learn": learned,
    "train": trained,
}


def measure(name: str, folder: str, minutes: float, **more: str) -> Result:
    source = find_source(DataConfig(source=folder))
    began = time.process_time()
    result = METHODS[name](folder, source, minutes, **more)
    result |= {"cpu_seconds": round(time.process_time() - began, 1), "train": len(source.train), "val": len(source.val)}
    result |= {"classes": len(source.classes), "machine": cpu(), "date": utc()}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--only", choices=METHODS, nargs="+", default=list(METHODS))
    parser.add_argument("--init", default="", help="start of train, instead of the shipped backbone")
    parser.add_argument("--record", type=Path, help="JSON that results are added to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.only:
        result = measure(name, args.folder, args.minutes, **({"init": args.init} if name == "train" else {}))
        print(f"{name}: {result['accuracy']:.1%} of {result['val']:,} photos, {result['cpu_seconds']:,.0f} CPU-s")
        if args.record:
            known = json.loads(args.record.read_text(encoding="utf-8")) if args.record.exists() else {}
            known.setdefault(Path(args.folder).resolve().name, {})[name] = result
            write_atomic(args.record, (json.dumps(known, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
