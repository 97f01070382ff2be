"""An approximator -> a `Program`: the theorem runs in the engine like any other network.

A program reads uint8 RGB, so x enters as one pixel of a 1 x 1 image: channel c holds coordinate c mod K, byte u stands for
x_min + (x_max - x_min) u / 255. **The deployed input has 8 bits a coordinate**: the program is the network at 256 values of each
coordinate, and a d below (x_max - x_min) / 255 buys nothing there. The output is float32, one logit for each of the M outputs.

The network must be made with `channels=3`, so that its replication starts from RGB.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError
from bcnn.lowering import lower as lowering_of
from bcnn.program.ops import Input
from bcnn.program.program import Program
from bcnn.theory.construction import Approximator
from bcnn.theory.plan import Plan


def lower(network: Approximator, title: str = "") -> Program:
    """The program of a network over its domain; `title` goes into the provenance."""
    plan = network.plan
    if plan.channels != 3:
        raise UserError(
            f"cannot lower an approximator that reads {plan.channels} channels: a program reads RGB; "
            "make it with approximate(..., channels=3)"
        )
    provenance: dict[str, Any] = {
        "approximates": title,
        "domain": [[tiling.low, tiling.high] for tiling in plan.tilings],
        "cells": [tiling.cells for tiling in plan.tilings],
        "Q": plan.Q,
        "input": "one pixel; byte u of channel c is x_min + (x_max - x_min) u / 255 of coordinate c mod K",
    }
    return lowering_of.lower(network, *normalisation(plan), provenance=provenance, size=(1, 1))


def normalisation(plan: Plan) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """mean and std with (u / 255 - mean) / std = x_min ... x_max for u = 0 ... 255.

    In float32 the largest byte might land a rounding above x_max, where no cell is: then the scale is a little smaller.
    """
    mean, std = [], []
    for channel in range(3):
        tiling = plan.tilings[channel % len(plan.tilings)]
        low, high = float(np.float32(tiling.low)), float(np.float32(tiling.high))
        width = high - low
        while np.float32(255) * np.float32(width / 255) + np.float32(low) > np.float32(high):
            width *= 1 - 2.0**-24
        mean.append(-low / width)
        std.append(1 / width)
    return tuple(mean), tuple(std)


def levels(program: Program) -> NDArray[np.float32]:
    """[3, 256]: the x that each byte of each channel stands for."""
    op = program.ops[0]
    assert isinstance(op, Input)  # a Program that exists begins with one
    return np.arange(256, dtype=np.float32) * op.scale[:, None] + op.offset[:, None]


def pixels(program: Program, *coordinates: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
    """Points -> images N,1,1,3: the byte nearest to each coordinate, repeated over the channels as the network reads them."""
    known = levels(program).astype(np.float64)
    channels = []
    for channel in range(3):
        axis = np.asarray(coordinates[channel % len(coordinates)], np.float64).ravel()
        channels.append(np.abs(axis[:, None] - known[channel]).argmin(axis=1))
    return np.stack(channels, axis=-1).astype(np.uint8)[:, None, None, :]
