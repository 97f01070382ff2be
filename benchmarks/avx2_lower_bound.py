"""What AVX2 leaves possible: the cycles that a network's arithmetic takes if the busiest pipes of a Zen 3 core never wait.

    python -m benchmarks.avx2_lower_bound --ghz 3.24      beside what the engine takes on this machine

A Zen 3 core starts four 256-bit instructions a cycle: two pipes multiply and select, two add and convert, all four do
integer arithmetic. Only the arithmetic of `native/simd/avx2.h` and `native/kernels.inl` is counted, for the busiest pipes alone;
loads, stores, loops, input, pooling and the decoder count as free. So no order of these instructions is faster than this. The
clock is an argument since a guest of a shared machine cannot read it; a chain of dependent additions shows it.
"""

from __future__ import annotations

import argparse
from collections import Counter

from bcnn.bench.rivals import job_of
from bcnn.engine import Engine
from bcnn.nets.config import preset
from bcnn.program import ops
from bcnn.program.program import Program

LANES = 8  # floats of a register


def floor(program: Program) -> Counter[str]:
    """Part of the work -> cycles, for one branch a convolution (P = 1)."""
    cycles: Counter[str] = Counter()
    for op, (height, width, channels) in zip(program.ops, program.shapes, strict=True):
        registers = height * width * channels / LANES  # that the op makes
        if isinstance(op, ops.BinaryConv):
            k = op.reads
            cycles["dots"] += height * width * k * channels / 768 * 9 / 4  # 9 instructions for 768 MACs, on any pipe
            # Conversion, offset, the maps added (the map read, the other path): additions, on two pipes.
            added = sum(isinstance(ending, ops.Add) for ending in op.after)
            cycles["after the dots"] += registers * (2 + added) / 2
            cycles["signs to bits"] += (
                height * width * k / LANES * (11 / 4) / 4
            )  # 11 for 2 pixels x 16 channels, on any pipe
        elif isinstance(op, ops.Conv):  # depth wise, all of them
            cycles["depth wise"] += (
                registers * (9 + 2) / 2
            )  # nine products and a PReLU's product and selection, on two pipes
    return cycles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ghz", type=float, required=True, help="clock of the core while it computes")
    args = parser.parse_args()
    job = job_of(preset("imagenet"))
    cycles = floor(job.program)
    print("floor               Mcycles      ms")
    for part, count in (*cycles.items(), ("all", cycles.total())):
        print(f"{part:18}{count / 1e6:9.2f}{count / args.ghz / 1e6:8.2f}")
    measured: Counter[str] = Counter()
    for cost in Engine(job.program, "avx2", 1).profile(job.image, 150):
        measured[cost.kind] += cost.seconds * 1e3
    print("\nmeasured                         ms")
    for kind, milliseconds in (*measured.items(), ("all", measured.total())):
        print(f"{kind:27}{milliseconds:8.2f}")


if __name__ == "__main__":
    main()
