"""Outputs of the float ResNet-56 (93.4 %) for fixed variants of CIFAR-10's training images.

    python tools/knowledge/cifar_teacher.py --data DATA --arrays ARRAYS --views 24

Reads DATA/resnet56/resnet.py and its weights, writes ARRAYS/cifar.VIEW.npy (float16 50000,10) for each view; one that exists is skipped.
Variant `view` of image i is shifted by up to 4 pixels and perhaps flipped, see `variant`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training images: the student's
TEACHER_MEAN, TEACHER_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what the teacher was trained with
SHIFT = 4
BATCH = 250


def variant(images: NDArray[np.uint8], view: int, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Images `rows` of the training set, shifted and flipped as their variant `view` is; black beyond the edge."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence((10, view))))
    y, x = random.integers(0, 2 * SHIFT + 1, (2, len(images)))
    flip = random.integers(0, 2, len(images))
    out = np.zeros((len(rows), 32 + 2 * SHIFT, 32 + 2 * SHIFT, 3), np.uint8)
    out[:, SHIFT:-SHIFT, SHIFT:-SHIFT] = images[rows]
    cut = np.stack([image[y[i] : y[i] + 32, x[i] : x[i] + 32] for image, i in zip(out, rows, strict=True)])
    return np.where(flip[rows, None, None, None], cut[:, :, ::-1], cut)


def compiled(folder: Path, threads: int):
    import openvino
    import torch

    spec = importlib.util.spec_from_file_location("resnet", folder / "resnet.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network = module.resnet56().eval()
    state = torch.load(folder / "pretrained_models/resnet56-4bfd9763.th", map_location="cpu", weights_only=True)
    network.load_state_dict({name.removeprefix("module."): value for name, value in state["state_dict"].items()})
    shape = [BATCH, 3, 32, 32]
    graph = openvino.convert_model(network, example_input=torch.zeros(shape), input=shape)
    return openvino.Core().compile_model(graph, "CPU", {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1})


def logits(run, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    x = (pixels / np.float32(255) - np.array(TEACHER_MEAN, np.float32)) / np.array(TEACHER_STD, np.float32)
    return next(iter(run(np.ascontiguousarray(x.transpose(0, 3, 1, 2))).values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("DATA"))
    parser.add_argument("--arrays", type=Path, default=Path("ARRAYS"))
    parser.add_argument("--views", type=int, default=24)
    arguments = parser.parse_args()
    run = compiled(arguments.data / "resnet56", 1)
    images = np.load(arguments.arrays / "cifar.npz")["train_x"]
    for view in range(arguments.views):
        path = arguments.arrays / f"cifar.{view}.npy"
        if path.exists():
            continue
        began = time.thread_time()
        rows = np.arange(len(images)).reshape(-1, BATCH)
        found = np.concatenate([logits(run, variant(images, view, some)) for some in rows])
        part = path.with_suffix(".part.npy")
        np.save(part, found.astype(np.float16))
        os.replace(part, path)
        print(f"view {view}: {time.thread_time() - began:.0f} CPU seconds", flush=True)


if __name__ == "__main__":
    main()
