"""A float program in integers, with the images it is calibrated on: what `bcnn convert` and `bcnn pack --numbers` do. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bcnn import images
from bcnn.deploy.verify import spread
from bcnn.errors import UserError
from bcnn.program.fixed import Fixed, fixed
from bcnn.program.pictures import COUNT, pictures
from bcnn.program.program import Program

NUMBERS = ("float32", "int16")


def in_integers(
    program: Program, parameters: str = "int16", data: Path | None = None, progress: Callable[[], None] = lambda: None
) -> Fixed:
    """`data` is a folder of images of what the network is for; without one, `pictures` stand in. Its card is left out: it tells of
    the float program."""
    made = fixed(program, calibration(program, data), parameters, progress)
    kept = {key: value for key, value in program.provenance.items() if key != "card"}
    how = {
        "numbers": "int16",
        "parameters": parameters,
        "calibrated_on": "synthetic pictures" if data is None else data.name,
    }
    return replace(made, program=replace(made.program, provenance={**kept, **how}))


def calibration(program: Program, data: Path | None) -> list[NDArray[np.uint8]]:
    height, width, _ = program.shapes[0]
    if data is None:
        return pictures(height, width)
    if not data.is_dir():
        raise UserError(f"no folder at {data}; --data takes a folder of images of what the network is for")
    found = []
    for file in spread(images.files(data), COUNT):
        found.append(images.fit(images.open_rgb(file), (height, width), program.crop))
    return found
