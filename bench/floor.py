"""What AVX2 leaves possible: the cycles that a network's arithmetic takes if the busiest pipes of a Zen 3 core never wait.

    python -m bench.floor --ghz 3.24      beside what the engine takes on this machine

A Zen 3 core starts four 256-bit instructions a cycle: two pipes multiply and select, two add and convert, all four do
integer arithmetic. Only the arithmetic of `native/simd/avx2.h` and `native/kernels.inl` is counted, for the busiest pipes alone;
loads, stores, loops, input, pooling and the decoder count as free. So no order of these instructions is faster than this. The
clock is an argument since a guest of a shared machine cannot read it; a chain of dependent additions shows it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from bcnn.deploy.engine import Engine
from bcnn.nets.config import preset
from bcnn.program import program as p
from programs import of_config

LANES = 8  # floats of a register


def floor(program: p.Program) -> Counter[str]:
    """Part of the work -> cycles, for one branch a convolution (P = 1)."""
    cycles: Counter[str] = Counter()
    for op, (height, width, channels) in zip(program.ops, program.shapes, strict=True):
        registers = height * width * channels / LANES  # that the op makes
        if isinstance(op, p.BinaryConv):
            k = op.branches[0].threshold.size
            cycles["dots"] += height * width * k * channels / 768 * 9 / 4  # 9 instructions for 768 MACs, on any pipe
            # Conversion, offset, the map read, the other path: additions, on two pipes.
            cycles["after the dots"] += registers * (4 if op.add is not None else 3) / 2
            cycles["signs to bits"] += (
                height * width * k / LANES * (11 / 4) / 4
            )  # 11 for 2 pixels x 16 channels, on any pipe
        elif isinstance(op, p.DepthwiseConv):
            cycles["depth wise"] += (
                registers * (9 + 2) / 2
            )  # nine products and a PReLU's product and selection, on two pipes
    return cycles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ghz", type=float, required=True, help="clock of the core while it computes")
    args = parser.parse_args()
    program = of_config(preset("imagenet"))
    cycles = floor(program)
    print("floor               Mcycles      ms")
    for part, count in (*cycles.items(), ("all", cycles.total())):
        print(f"{part:18}{count / 1e6:9.2f}{count / args.ghz / 1e6:8.2f}")
    image = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    measured: Counter[str] = Counter()
    for cost in Engine(program, "avx2", 1).profile(image, 150):
        measured[cost.kind] += cost.seconds * 1e3
    print("\nmeasured                         ms")
    for kind, milliseconds in (*measured.items(), ("all", measured.total())):
        print(f"{kind:27}{milliseconds:8.2f}")


if __name__ == "__main__":
    main()
