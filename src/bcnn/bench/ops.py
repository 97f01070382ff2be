"""Where the engine's time goes: per class of ops the time, its share, and the binary GMAC/s against the core's own peak. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bcnn.base.images import Pixels
from bcnn.bench.timing import interleave

if TYPE_CHECKING:  # the native core may not be built; then only these annotations need it
    from bcnn.engine import Cost, Engine

MIN_LATE_CHANNELS = 256  # channels of the levels where the popcount decides, and no longer the work around it


@dataclass(frozen=True)
class OpClass:
    name: str
    ms: float  # sum over its steps of the fastest run of each
    share: float  # of the sum over all classes
    gmacs: float  # binary GMAC/s, 0 for real ops


@dataclass(frozen=True)
class Profile:
    classes: list[OpClass]
    late_gmacs: float  # of the binary convolutions with `MIN_LATE_CHANNELS` channels or more, what surrounds their dots included
    popcount_peak: float  # binary GMAC/s of xor, popcount and add on registers alone, the same core and instruction set
    peak: float  # binary GMAC/s of the dot product's inner loop on data in the first cache, the same core

    def text(self) -> str:
        lines = [f"{'op class':12}  {'ms':>7}  {'share':>6}  {'binary GMAC/s':>13}"]
        for row in self.classes:
            lines.append(
                f"{row.name:12}  {row.ms:7.3f}  {row.share:6.1%}  {f'{row.gmacs:.0f}' if row.gmacs else '':>13}"
            )
        if self.late_gmacs:
            lines.append(
                f"levels of {MIN_LATE_CHANNELS} channels and up: {self.late_gmacs:.0f} binary GMAC/s, what surrounds their dots included; "
                f"{self.late_gmacs / self.popcount_peak:.0%} of the first peak, {self.late_gmacs / self.peak:.0%} of the second"
            )
        lines.append(f"peak of xor, popcount and add in registers on this core: {self.popcount_peak:.0f} binary GMAC/s")
        lines.append(f"peak of this engine's inner loop on this core: {self.peak:.0f} binary GMAC/s")
        return "\n".join(lines) + "\n"


def profile(engine: Engine, image: Pixels, repeats: int = 20) -> Profile:
    """Peaks and ops are measured in turns, so that a neighbour on the machine slows both or neither."""
    import bcnn._core as _core

    popcount_peaks, peaks, rounds = [], [], []
    for _ in range(repeats):
        popcount_peaks.append(_core.popcount_peak(engine.isa))
        peaks.append(_core.dot_peak(engine.isa))
        rounds.append(engine.profile(image, repeats=3))
    costs = [min(same, key=lambda cost: cost.seconds) for same in zip(*rounds, strict=True)]
    late = [
        cost
        for cost, shape in zip(costs, engine.program.shapes, strict=True)
        if cost.macs and shape[2] >= MIN_LATE_CHANNELS
    ]
    return Profile(op_classes(costs), gmacs(late), max(popcount_peaks), max(peaks))


def gmacs(costs: Sequence[Cost]) -> float:
    seconds = sum(cost.seconds for cost in costs)
    return sum(cost.macs for cost in costs) / seconds / 1e9 if seconds else 0.0


def throughput(engine: Engine, image: Pixels, batch: int = 8, rounds: int = 10) -> str:
    """Images a second in batches: with several threads, more than one over the latency."""
    images = np.repeat(image[None], batch, axis=0)
    times = interleave({"batch": lambda: engine.run(images)}, rounds)["batch"]
    best, usual = batch / times.min * 1e3, batch / times.median * 1e3
    return f"throughput in batches of {batch}: {best:.1f} images/s at best, {usual:.1f} in the median\n"


def op_classes(costs: Sequence[Cost]) -> list[OpClass]:
    total = sum(cost.seconds for cost in costs)
    rows = []
    for kind in dict.fromkeys(cost.kind for cost in costs):
        same = [cost for cost in costs if cost.kind == kind]
        seconds = sum(cost.seconds for cost in same)
        rows.append(OpClass(kind, seconds * 1e3, seconds / total, gmacs(same)))
    return rows
