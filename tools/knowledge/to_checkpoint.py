"""Turn the weights of a run, or kept weights, into a checkpoint of the package: for bcnn pack, learn, eval and the rest.

    python tools/knowledge/to_checkpoint.py KEPT.safetensors backbone.safetensors --arrays ARRAYS --size 80

The teacher's head is left out. Names of classes that occur twice get their WNID.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import kept
import loop
import torch
from networks import NETWORKS

from bcnn.training import checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", type=Path, help="a .safetensors of kept.py, or a run folder")
    parser.add_argument("output", type=Path)
    parser.add_argument("--arrays", type=Path, default=Path("ARRAYS"))
    parser.add_argument("--size", type=int, default=80, help="of the images that the network reads")
    arguments = parser.parse_args()
    if arguments.weights.is_dir():
        state = torch.load(arguments.weights / "last.pt", weights_only=True)["model"]
    else:
        state, _ = kept.load(arguments.weights)
    state = {name.removeprefix("network."): value for name, value in state.items() if name.startswith("network.")}
    entries = json.loads((arguments.arrays / "classes.json").read_text())
    count = Counter(name for _, name, _ in entries)
    labels = tuple(name if count[name] == 1 else f"{name} ({wnid})" for wnid, name, _ in entries)
    config = NETWORKS["backbone"].replace(image_size=arguments.size)
    meta = checkpoint.Meta(loop.MEAN, loop.STD, labels, 1.0, {"recipe": "backbone"})
    checkpoint.save(arguments.output, checkpoint.Checkpoint(config, "binary", state, meta))
    checkpoint.load(arguments.output)  # it fits
    print(f"{arguments.output}: {len(labels)} classes, {arguments.size} x {arguments.size}")


if __name__ == "__main__":
    main()
