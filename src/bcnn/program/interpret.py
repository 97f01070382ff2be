"""The slow, obvious executor: what every op of a `Program` computes, map by map, in NumPy. The engine must equal it. No torch.

uint8 image H,W,3 -> float32 logits. What an op means stands in its class, `ops`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bcnn.errors import UserError
from bcnn.program.ops import Floats, Op
from bcnn.program.program import Program


def interpret(program: Program, image: NDArray[np.uint8]) -> Floats:
    """The logits of one image that has exactly the program's input size: its last map, flat."""
    return interpret_maps(program, image)[-1].reshape(-1)


def interpret_maps(program: Program, image: NDArray[np.uint8]) -> list[Floats]:
    """Map i of the result, float32 H,W,C, is what op i makes."""
    check_image(program, image)
    maps = [run_op(program.ops[0], [image])]  # type: ignore[list-item]
    for op in program.ops[1:]:
        maps.append(run_op(op, maps))
    return maps


def run_op(op: Op, maps: Sequence[Floats]) -> Floats:
    """One op on maps that are given, whatever made them; an Input reads the image as its only map."""
    # Finite parameters can still overflow on hostile input: that is inf or NaN, as in the engine, and no warning.
    with np.errstate(all="ignore"):
        return op.run(maps)


def check_image(program: Program, image: NDArray[np.uint8]) -> None:
    height, width, _ = program.shapes[0]
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.shape != (height, width, 3):
        got = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
        raise UserError(f"image is {got}, not the uint8 {(height, width, 3)} that the program reads")
