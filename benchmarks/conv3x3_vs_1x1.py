"""Binary 3 x 3 convolutions against 1 x 1 convolutions of as many bits: how near does a dot over taps x channels come?

    python -m benchmarks.conv3x3_vs_1x1 [--rounds 20]

Both make C channels of C (3 x 3, zero padding) or of 9 C (1 x 1, replicated) on the same map, one thread. Checked against each other's
instruction sets first. Times are sums over an op's short steps of the fastest run of each, the bits of the map included; min and median
over rounds in turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))
from programs import Draw, named

from bcnn.base.machine import facts
from bcnn.engine import Engine, isas
from bcnn.program import ops as o
from bcnn.program.program import Program

SIDE = {64: 56, 128: 28, 256: 14, 512: 7}  # as in residual networks


def program(channels: int, taps: bool) -> Program:
    draw = Draw(channels, corners=False)
    side = SIDE[channels]
    spread = o.Pointwise(0, channels, (o.Affine(draw.floats(channels), draw.floats(channels)),))
    if taps:
        window = o.Window((3, 3), (1, 1), (1, 1, 1, 1))
        conv = o.BinaryConv(1, channels, (draw.branch(channels, channels, 9),), window)
    else:
        conv = o.BinaryConv(1, 9 * channels, (draw.branch(9 * channels, channels),))
    return named((draw.input(side, side), spread, conv))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    for key, value in facts(threads=1).items():
        print(f"{key:9} {value}")
    names = [isa.name for isa in isas() if isa.supported]
    for channels, side in SIDE.items():
        programs = {taps: program(channels, taps) for taps in (True, False)}
        image = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
        for one in programs.values():
            if not all(
                (Engine(one, name, 1).run(image[None]) == Engine(one, names[-1], 1).run(image[None])).all()
                for name in names
            ):
                raise SystemExit("instruction sets differ")
        engines = {taps: Engine(one, threads=1) for taps, one in programs.items()}
        rates: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(given.rounds):
            for taps, engine in engines.items():
                cost = engine.profile(image, repeats=20)[2]
                rates[taps].append(cost.macs / cost.seconds / 1e9)
        best = {taps: max(row) for taps, row in rates.items()}
        middle = {taps: statistics.median(row) for taps, row in rates.items()}
        print(
            f"{channels:4} channels at {side:2}: 3x3 {best[True]:6.0f} GMAC/s (median {middle[True]:6.0f}), 1x1 of {9 * channels} bits "
            f"{best[False]:6.0f} (median {middle[False]:6.0f}), ratio {best[True] / best[False]:.2f} ({middle[True] / middle[False]:.2f})"
        )


if __name__ == "__main__":
    main()
