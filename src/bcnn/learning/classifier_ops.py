"""A decoder behind features, as ops of a packed file; and such a file taken apart again. No torch.

features 1,1,D -> x = features * scale + offset -> Linear                              C logits
                                               '-> |x| mean, beside x -> Linear         C + 1 logits, the last: none of these

Behind integer features the same in integers: both products are sums of 32 bits (`FixedConv`), so scales and weights are rounded and
nothing else is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bcnn.integers.calibration import room
from bcnn.integers.dequantize import reals
from bcnn.learning.features import SCALED, limits
from bcnn.learning.fit import Decoder, Floats, Scale
from bcnn.learning.rejection import GAIN, strangeness
from bcnn.program.ops import AbsMean, Affine, Concat, FixedConv, Linear, Op, Pointwise
from bcnn.program.ops.conversion import sums
from bcnn.program.program import Program

MAX_KNOWN_STRANGENESS = (
    4.0  # strangeness up to which none of these has a logit of its own; photos of something known have about 1
)


@dataclass(frozen=True, eq=False)
class Head:
    """What `bcnn learn` puts behind features."""

    scale: Scale
    decoder: Decoder  # with one feature more than `scale`, the strangeness, and one class more where there is a none
    rejects: bool

    def largest(self, x: Floats) -> float:
        """Of the logits that scaled features of photos have; with a none, also what a strange photo has."""
        if not self.rejects:
            return float(np.abs(self.decoder(x)).max())
        logits = self.decoder(np.concatenate([x, strangeness(x)], axis=1))
        return max(float(np.abs(logits).max()), MAX_KNOWN_STRANGENESS * GAIN + float(self.decoder.bias[-1]))


def put_on(reader: Program, head: Head, labels: tuple[str, ...], provenance: dict[str, Any], x: Floats) -> Program:
    """The whole network: `reader` makes the features; `x` are scaled ones, for the range of the logits in integers."""
    last, whole = len(reader.ops), reader.numbers != "float32"
    names = [*reader.names, "decoder.scale"]
    more: list[Op] = [AbsMean(last), Concat((last, last + 1))] if head.rejects else []
    names += ["decoder.strangeness", "decoder.read"] if head.rejects else []
    scaled, linear = (_fixed if whole else _real)(reader, head, last + len(more), x)
    return replace(
        reader,
        ops=(*reader.ops, scaled, *more, linear),
        names=(*names, "decoder"),
        labels=labels,
        provenance=provenance,
        rejects=head.rejects,
    )


def _real(reader: Program, head: Head, read: int, x: Floats) -> tuple[Op, Op]:
    """The scaling, and the decoder that reads map `read`."""
    scaled = Pointwise(len(reader.ops) - 1, head.scale.scale.size, (Affine(head.scale.scale, head.scale.offset),))
    return scaled, Linear(read, head.decoder.weight.astype(np.float32), head.decoder.bias.astype(np.float32))


def _fixed(reader: Program, head: Head, read: int, x: Floats) -> tuple[Op, Op]:
    d = head.scale.scale.size
    weight, offset, down = sums(
        head.scale.scale[None, None, None], head.scale.offset, reader.fractions[-1], SCALED, bytes_=False
    )
    scaled = FixedConv(len(reader.ops) - 1, d, weight, offset, down, groups=d, fraction=SCALED)
    decoder, made = head.decoder, room(head.largest(x))
    # A byte a weight, unless the strangeness is one feature of many: its weights are fifty times those of the others.
    bytes_ = not (head.rejects and decoder.weight[-1, :-1].any())
    weight, offset, down = sums(decoder.weight[None, None], decoder.bias, SCALED, made, bytes_)
    return scaled, FixedConv(read, len(decoder.weight), weight, offset, down, fraction=made)


def taken_off(program: Program) -> Head | None:
    """The head of a file that `put_on` made; nothing for any other file."""
    most = limits(program)[1]
    program = reals(program)
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
    return Head(Scale(affine.scale, affine.offset, most), decoder, program.rejects)
