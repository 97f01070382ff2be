"""The slow, obvious executor: what every op of a `Program` computes, map by map, in NumPy. The engine must equal it. No torch.

uint8 image H,W,3 -> float32 logits. What an op means stands in its class, `ops`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError
from bcnn.program.ops import Floats, Op, Values
from bcnn.program.program import Program


def interpret(program: Program, image: NDArray[np.uint8]) -> Floats:
    """The logits of one image that has exactly the program's input size: its last map, flat, as real numbers."""
    return as_real(program, interpret_maps(program, image)[-1].reshape(-1))


def as_real(program: Program, logits: Values) -> Floats:
    """What the last map's values stand for: exact, since a number of 16 bits by a power of two is a float32."""
    if program.numbers == "float32":
        return logits
    real: Floats = np.ldexp(logits.astype(np.float32), -program.fractions[-1])
    return real


def interpret_maps(program: Program, image: NDArray[np.uint8]) -> list[Values]:
    """Map i of the result, H,W,C, is what op i makes; float32, or int16 if the program is one in integers."""
    check_image(program, image)
    maps = [run_op(program.ops[0], [image])]
    for op in program.ops[1:]:
        maps.append(run_op(op, maps))
    return maps


def run_op(op: Op, maps: Sequence[Values]) -> Values:
    """One op on maps that are given, whatever made them; an Input reads the image as its only map."""
    # Finite parameters can still overflow on hostile input: that is inf or NaN, as in the engine, and no warning.
    with np.errstate(all="ignore"):
        return op.run(maps)


def check_image(program: Program, image: NDArray[np.uint8]) -> None:
    height, width, _ = program.shapes[0]
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.shape != (height, width, 3):
        got = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
        raise UserError(f"image is {got}, not the uint8 {(height, width, 3)} that the program reads")
