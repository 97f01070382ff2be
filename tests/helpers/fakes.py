"""Stand-ins for the engine and for checkpoints, so that what uses them is tested on its own, failures included."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field

import numpy as np
import samples

from bcnn.base import images
from bcnn.program.interpret import interpret_maps


@dataclass(frozen=True)
class Isa:
    name: str
    supported: bool
    active: bool


class Engine:
    """The interpreter, with a fault where a test wants one: op `wrong` of instruction set `wrong_isa` is off by a rounding."""

    wrong: int | None = None
    wrong_isa = "slow"
    wrong_batch = False

    def __init__(self, program, isa=None, threads=None):
        self.program, self.isa = program, isa

    def maps(self, image):
        maps = interpret_maps(self.program, image)
        if self.wrong is not None and self.isa == self.wrong_isa:
            maps[self.wrong] = np.nextafter(maps[self.wrong], np.float32(np.inf))
        return maps

    def run(self, batch):
        logits = np.stack([interpret_maps(self.program, image)[-1].reshape(-1) for image in batch])
        return -logits if self.wrong_batch else logits

    def fit(self, photo):
        return images.read(photo, self.program.shapes[0][:2], self.program.crop)[None]

    def predict(self, batch, top=5):
        logits = self.run(batch)[0].astype(np.float64)
        odds = np.exp(logits - logits.max())
        labels = self.program.labels or tuple(map(str, range(len(odds))))
        return [[(labels[c], float(odds[c] / odds.sum())) for c in np.argsort(-odds)[:top]]]


def use_engine(monkeypatch, **faults):
    """Make `bcnn.engine` the stand-in."""
    module = types.ModuleType("bcnn.engine")
    module.Engine = type("Engine", (Engine,), faults)
    module.isas = lambda: (Isa("fast", True, True), Isa("slow", True, False), Isa("elsewhere", False, False))
    monkeypatch.setitem(sys.modules, "bcnn.engine", module)


@dataclass(frozen=True)
class Meta:
    mean: tuple = samples.MEAN
    std: tuple = samples.STD
    labels: tuple = ("a", "b", "c")
    crop: float = 0.875
    provenance: dict = field(default_factory=lambda: {"recipe": "none"})


def use_checkpoint(monkeypatch, network):
    """Make every checkpoint hold this network."""
    module = types.ModuleType("bcnn.training.checkpoint")
    module.load = lambda path: (network, Meta())
    module.described = str
    monkeypatch.setitem(sys.modules, "bcnn.training.checkpoint", module)
