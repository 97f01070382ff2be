"""A program in other numbers: what `bcnn convert` and `bcnn pack --numbers` do. No torch.

To integers it takes images to calibrate on; back to float32 it takes nothing. A card is left out: it tells of the program before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.integers.dequantize import reals
from bcnn.integers.quantize import Fixed, fixed
from bcnn.integers.synthetic_images import COUNT, pictures
from bcnn.packed import card, packfile
from bcnn.program.interpret import interpret
from bcnn.program.program import Program

NUMBERS = ("float32", "int16")


def in_integers(
    program: Program, parameters: str = "int16", data: Path | None = None, progress: Callable[[], None] = lambda: None
) -> Fixed:
    """`data` is a folder of images of what the network is for; without one, `pictures` stand in."""
    made = fixed(program, calibration(program, data), parameters, progress)
    kept = {key: value for key, value in program.provenance.items() if key != card.KEY}
    how = {
        "numbers": "int16",
        "parameters": parameters,
        "calibrated_on": "synthetic pictures" if data is None else data.name,
    }
    return replace(made, program=replace(made.program, provenance={**kept, **how}))


def in_floats(program: Program) -> Program:
    """The float program of the same parameters, see `program.reals`."""
    if program.numbers == "float32":
        raise UserError("the program is one in float32 already")
    left_out = (card.KEY, "numbers", "parameters", "calibrated_on")
    kept = {key: value for key, value in program.provenance.items() if key not in left_out}
    how = {"from_parameters": program.provenance["parameters"]} if "parameters" in program.provenance else {}
    return replace(reals(program), provenance={**kept, "numbers": "float32", **how})


def packed_in_floats(packed: packfile.Packed) -> packfile.Packed:
    """A file in integers as if it had been packed in float32, with test vectors of its own."""
    program = reals(packed.program)
    images = [packfile.vector_image(seed, *program.shapes[0][:2]) for seed in packed.test_seeds]
    logits = [interpret(program, image) for image in images]
    return replace(packed, program=program, test_logits=np.stack(logits) if logits else packed.test_logits)


def calibration(program: Program, data: Path | None) -> list[NDArray[np.uint8]]:
    height, width, _ = program.shapes[0]
    if data is None:
        return pictures(height, width)
    if not data.is_dir():
        raise UserError(f"no folder at {data}; --data takes a folder of images of what the network is for")
    return [images.read(file, (height, width), program.crop) for file in images.spread(images.files(data), COUNT)]
