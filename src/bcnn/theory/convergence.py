"""The error as d -> 0 and Q -> infinity, on networks that are built and run for the purpose (sec. 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bcnn.theory.bound import error_bound, errors, estimate_lipschitz
from bcnn.theory.construction import Approximator
from bcnn.theory.plan import Function, Interval, Plan, make_plan


@dataclass(frozen=True)
class Setting:
    """What `approximate` is called with, apart from d and Q: the arguments that stay the same while those two vary."""

    f: Function
    domain: tuple[Interval, ...]
    ends: bool = True
    jumps: tuple[tuple[float, ...], ...] = ()
    adaptive: bool = False
    lipschitz: float | None = None  # known, or estimated cell by cell

    def plan(self, d: float | tuple[float, ...], q: float, **options: Any) -> Plan:
        rest = {"ends": self.ends, "jumps": self.jumps, "adaptive": self.adaptive, **options}
        return make_plan(self.f, self.domain, d, q, **rest)

    def bound(self, plan: Plan) -> float:
        known = estimate_lipschitz(self.f, plan) if self.lipschitz is None else self.lipschitz
        return error_bound(plan, lipschitz=known)


@dataclass(frozen=True)
class Point:
    """One network: its d (of the first coordinate) and Q, and its error."""

    d: float
    Q: float
    largest: float
    mean: float
    bound: float


@dataclass(frozen=True)
class Sweep:
    """Which networks to build: cells an interval and Q, coarse to fine."""

    cells: tuple[int, ...]
    Q: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.cells) * len(self.Q)


def halvings(setting: Setting, d: float, q: float) -> Sweep:
    """From a coarse start to the d and Q asked for: halved d in each step, Q doubled twice."""
    low, high = setting.domain[0]
    n, steps = round((high - low) / d), 5 if len(setting.domain) == 1 else 3
    cells = sorted({max(2, round(n / 2**i)) for i in range(steps)})
    return Sweep(tuple(cells), tuple(q / 4**i for i in range(2, -1, -1)))


def converge(setting: Setting, sweep: Sweep) -> Iterator[Point]:
    """Every combination of the sweep, one network at a time."""
    # A few hundred probes a coordinate show a curve; the final figure beside it is measured with more.
    points = {1: 1500, 2: 60}.get(len(setting.domain), 12)
    for cells in sweep.cells:
        widths = tuple((high - low) / cells for low, high in setting.domain)
        for q in sweep.Q:
            plan = setting.plan(widths, q)
            largest, mean = errors(Approximator(plan), setting.f, points)
            yield Point(widths[0], q, largest, mean, setting.bound(plan))
