"""An integer program -> the float program of the same parameters: the way back from `quantize`. No torch.

    program = reals(made)        # for what knows real numbers only: training again (`train.rebuild`), ONNX

Every parameter is a whole number by a power of two, so it becomes a float32 as it is. What `quantize` rounded away does not come back;
what an integer program does to keep its sums in 16 bits (`Bound`, `Shift`, saturation, rounding after each step) is left out. So
the two are networks of their own again: near each other op by op, and one sign that flips spreads.
"""

from __future__ import annotations

from dataclasses import replace

from bcnn.base.errors import UserError
from bcnn.program.ops.conversion import ToReals
from bcnn.program.program import Program


def reals(program: Program) -> Program:
    """Labels, crop and provenance stay; a float program is returned as it is."""
    if program.numbers == "float32":
        return program
    made = []
    for index, (op, name) in enumerate(zip(program.ops, program.names, strict=True)):
        try:
            made.append(op.to_reals(ToReals(program, index)))
        except UserError as error:
            raise UserError(f"op {index} ({type(op).__name__} {name!r}): {error}") from None
    return replace(program, ops=tuple(made))
