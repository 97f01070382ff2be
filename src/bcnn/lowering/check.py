"""Nothing is written that was not compared: torch against program on images of unlike kinds, before a file is made.

1. The exported graph gives the network's own answer on all of them: what was recorded is what runs.
2. Op by op, each with torch's input, on two of them (`compare`).
3. As a whole, by the engine, on all of them. A rounding difference flips signs in the ops behind it, so an answer that is off
   proves nothing by itself: that image is then compared op by op, too, and the first op that differs is named.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bcnn.base.errors import UserError
from bcnn.capture.capture import Replay, Value
from bcnn.engine import Engine
from bcnn.lowering.compare import compare_on
from bcnn.lowering.lower import Lowering, normalised
from bcnn.program.program import Program

OFF = 2e-3  # of the largest logit: more than rounding without a flipped sign makes
RECORDED = 1e-4  # the same operators on the same numbers, but for those that export takes apart
OP_BY_OP = ("noise", "smooth")


def check(lowering: Lowering, program: Program) -> None:
    """Refuse a program that is not what its network computes, with the first op that differs."""
    images = check_images(lowering.size)
    engine = Engine(program)
    network = copy.deepcopy(lowering.module).eval()  # what it keeps from one pass to the next is not the user's to find
    for kind, image in images.items():
        _check_recorded(lowering, network, kind, image)
        if kind in OP_BY_OP or _off(engine.run(image[None])[0], lowering.maps_of(image)[-1]) > OFF:
            _check_ops(lowering, program, kind, image)


def check_images(size: tuple[int, int]) -> dict[str, NDArray[np.uint8]]:
    """Eight images whose values, means and edges are as unlike as images get."""
    height, width = size
    rng = np.random.default_rng(7)
    noise = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    down, right = np.linspace(0, 1, height)[:, None, None], np.linspace(0, 1, width)[None, :, None]
    smooth = (255 * (down * [0.9, 0.3, 0.1] + right * [0.1, 0.6, 0.4])).astype(np.uint8)
    black = np.zeros_like(noise)
    red, blue = black.copy(), black.copy()
    red[..., 0], blue[..., 2] = 255, 255
    faint = (118 + noise // 16).astype(np.uint8)
    stripes = np.broadcast_to((np.arange(width) % 6 < 3)[None, :, None] * np.uint8(255), noise.shape).copy()
    white = np.full_like(noise, 255)
    return {
        "noise": noise, "smooth": smooth, "black": black, "white": white,
        "red": red, "blue": blue, "faint noise": faint, "stripes": stripes,
    }  # fmt: skip


def _check_recorded(lowering: Lowering, network: nn.Module, kind: str, image: NDArray[np.uint8]) -> None:
    x = normalised(image[None], lowering.mean, lowering.std)
    with torch.no_grad():
        wanted = network(x)
    output = lowering.graph.output
    assert isinstance(output, Value)
    assert isinstance(wanted, torch.Tensor)
    made = Replay(lowering.graph, x)(output)
    if made.shape != wanted.shape or _off(made.numpy(), wanted.numpy()) > RECORDED:
        raise UserError(
            f"cannot lower {lowering.network}: on an image of {kind} its recorded graph gives another answer than the network; "
            f"keep counters, caches and random numbers out of forward"
        )


def _check_ops(lowering: Lowering, program: Program, kind: str, image: NDArray[np.uint8]) -> None:
    first = compare_on(lowering, program, image).first
    if first is not None:
        line = lowering.lines[first.index]
        raise UserError(
            f"cannot lower {lowering.network}: op {first.index} ({first.name}{line and ', ' + line}) differs from torch by "
            f"{first.error:.3g} on an image of {kind}, {first.excess:.3g} times the tolerance"
        )


def _off(made: NDArray[np.float32], wanted: NDArray[np.float32]) -> float:
    """The largest difference, in parts of the largest value."""
    largest = float(np.abs(wanted).max(initial=0)) or 1.0
    difference = float(np.abs(made.astype(np.float64).ravel() - wanted.astype(np.float64).ravel()).max(initial=0))
    return (
        difference / largest
        if np.isfinite(difference)
        else (0.0 if np.array_equal(made.ravel(), wanted.ravel(), equal_nan=True) else np.inf)
    )
