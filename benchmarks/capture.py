"""What recording a pass costs: capture of the paper's network against an eager forward pass of it, in turns in one process.

python -m benchmarks.capture --out benchmarks/results/capture.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from bcnn.base.machine import facts
from bcnn.capture.capture import capture
from bcnn.nets.bcnn import Network
from bcnn.nets.config import resolve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="imagenet")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = resolve(args.network)
    network = Network(config).eval()
    image = torch.randn(1, 3, *config.image_size)
    seconds: dict[str, list[float]] = {"eager": [], "capture": []}
    for turn in range(args.rounds + 1):  # the first warms up
        for name in seconds:
            begin = time.process_time()
            if name == "eager":
                with torch.no_grad():
                    network(image)
            else:
                capture(network, image)
            if turn:
                seconds[name].append(time.process_time() - begin)
    rows = {name: {"min_ms": 1e3 * min(s), "median_ms": 1e3 * statistics.median(s)} for name, s in seconds.items()}
    ratio = {key: rows["capture"][key] / rows["eager"][key] for key in rows["eager"]}
    for name, row in rows.items():
        print(f"{name:8} {row['min_ms']:8.1f} ms min {row['median_ms']:8.1f} ms median")
    print(f"capture takes {ratio['min_ms']:.2f} times an eager pass (min), {ratio['median_ms']:.2f} times (median)")
    if args.out:
        result = {"conditions": facts(1), "network": args.network, "times": rows, "ratio": ratio}
        args.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
