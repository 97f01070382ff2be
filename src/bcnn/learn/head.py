"""A decoder behind features, as ops of a packed file; and such a file taken apart again. No torch.

features 1,1,D -> x = features * scale + offset -> Linear                              C logits
                                               '-> |x| mean, beside x -> Linear         C + 1 logits, the last: none of these
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bcnn.learn.fit import Decoder, Scale
from bcnn.program.ops import AbsMean, Affine, Concat, Linear, Op, Pointwise
from bcnn.program.program import Program


@dataclass(frozen=True, eq=False)
class Head:
    """What `bcnn learn` puts behind features."""

    scale: Scale
    decoder: Decoder  # with one feature more than `scale`, the strangeness, and one class more where there is a none
    rejects: bool


def put_on(reader: Program, head: Head, labels: tuple[str, ...], provenance: dict[str, Any]) -> Program:
    """The whole network: `reader` makes the features."""
    last, ops = len(reader.ops), list(reader.ops)
    ops.append(Pointwise(last - 1, head.scale.scale.size, (Affine(head.scale.scale, head.scale.offset),)))
    names = [*reader.names, "decoder.scale"]
    more: list[Op] = [AbsMean(last), Concat((last, last + 1))] if head.rejects else []
    names += ["decoder.strangeness", "decoder.read"] if head.rejects else []
    weight, bias = head.decoder.weight.astype(np.float32), head.decoder.bias.astype(np.float32)
    ops += [*more, Linear(last + len(more), weight, bias)]
    return replace(
        reader,
        ops=tuple(ops),
        names=(*names, "decoder"),
        labels=labels,
        provenance=provenance,
        rejects=head.rejects,
    )


def taken_off(program: Program) -> Head | None:
    """The head of a file that `put_on` made; nothing for any other file."""
    *_, linear = program.ops
    at = len(program.ops) - (4 if program.rejects else 2)
    scaling = program.ops[at] if at > 0 else None
    if not isinstance(linear, Linear) or linear.after or not isinstance(scaling, Pointwise) or len(scaling.after) != 1:
        return None
    affine = scaling.after[0]
    if not isinstance(affine, Affine) or affine.scale is None or affine.offset is None:
        return None
    if program.rejects:
        size, joined = program.ops[at + 1 : at + 3]
        if not isinstance(size, AbsMean) or not isinstance(joined, Concat):
            return None
        if size.source != at or joined.sources != (at, at + 1):
            return None
    elif linear.source != at:
        return None
    decoder = Decoder(linear.weight.astype(np.float64), linear.bias.astype(np.float64))
    return Head(Scale(affine.scale, affine.offset), decoder, program.rejects)
