"""What a network lowers to: a list of ops over feature maps, as plain data. No torch.

Op i makes map i; it names the maps it reads by their index, always smaller than its own. Map 0 is the image, the last map the
logits. `ops` says what each op computes, the engine computes the same bits.

Replication (sec. 4.2.2) is an index rule on the reader's side, never a copy: an op that `reads` K channels of a map of C takes
channel k mod C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.base import MAX_CHANNELS, MAX_MAP, MAX_SIDE, Op, Shape
from bcnn.program.ops.checks import whole


class TooLargeError(UserError):
    """A program that costs more than its `Limits`."""


SMALLEST_CROP = 0.05  # an image is made at most twenty times as large as the part of it that is read


@dataclass(frozen=True)
class Limits:
    """What one image may cost: far above any network, far below what would stop a machine. Pass larger ones where you trust a file."""

    ops: int = 10_000
    parts: int = 100_000  # branches and endings of all ops
    work: int = 1 << 40  # multiply-accumulates and element-wise operations
    map_bytes: int = 1 << 32  # of all maps together; an engine keeps a small part of them at a time
    arena_bytes: int = (
        1 << 31
    )  # that part, as an engine lays it out: it pads channels, and may keep a map for a late reader


@dataclass(frozen=True, eq=False)
class Program:
    """Ops in order, and what a packed file says about them. Making one checks it: a Program that exists may be trusted.

    >>> import bcnn
    >>> program = bcnn.load("digits").program
    >>> program.shapes[0], program.shapes[-1]
    ((8, 8, 4), (1, 1, 10))
    """

    ops: tuple[Op, ...]
    names: tuple[str, ...]  # the torch module each op came from, for reports
    labels: tuple[str, ...] = ()  # class names, if known
    crop: float = (
        1.0  # of an image of another size: shorter side resized to input / crop, centre kept, see `images.fit`
    )
    provenance: dict[str, Any] = field(default_factory=dict)  # config, recipe, measured accuracy: plain JSON data
    limits: Limits = Limits()
    rejects: bool = False  # the last class means that the image shows none of the others, see `learn.none`
    shapes: tuple[Shape, ...] = field(init=False)  # of every map

    def __post_init__(self) -> None:
        object.__setattr__(self, "shapes", _shapes(self))
        _affordable(self)

    @property
    def numbers(self) -> str:
        """Of its maps: float32 or int16."""
        return self.ops[0].NUMBERS

    @cached_property
    def fractions(self) -> tuple[int, ...]:
        """Of every map of an integer program, the fractional bits: value / 2^f is the real number it stands for."""
        made: list[int] = []
        for op in self.ops:
            made.append(made[next(op.maps_read())] + op.up if op.fraction is None else op.fraction)
        return tuple(made)

    def counts(self) -> tuple[Counts, ...]:
        """Of every op."""
        return tuple(op.counts(self.shapes) for op in self.ops)


MAX_FRACTION = 64  # bits: far beyond those of any format, and 2^-f is an ordinary number


def map_shape(op: Op, name: str, shapes: Sequence[Shape]) -> Shape:
    """The shape of the map that an op makes after maps of `shapes`; one that does not fit is a `UserError` that names it."""
    try:
        h, w, c = shape = op.shape(shapes)
        if op.fraction is not None:
            whole("fraction", op.fraction, -MAX_FRACTION, MAX_FRACTION)
        if not (0 < h <= MAX_SIDE and 0 < w <= MAX_SIDE and 0 < c <= MAX_CHANNELS and h * w * c <= MAX_MAP):
            raise UserError(f"its map of {h} x {w} x {c} is empty or too large")
    except UserError as error:
        raise UserError(f"op {len(shapes)} ({type(op).__name__} {name!r}): {error}") from None
    return shape


def _shapes(program: Program) -> tuple[Shape, ...]:
    if not program.ops or not program.ops[0].READS_IMAGE:
        raise UserError("a program must begin with an Input op")
    if len(program.names) != len(program.ops):
        raise UserError(f"program has {len(program.ops)} ops but {len(program.names)} names")
    at_most("ops", len(program.ops), program.limits.ops)
    shapes: list[Shape] = []
    for op, name in zip(program.ops, program.names, strict=True):
        for part in (op, *op.after):
            if part.numbers not in ("any", program.numbers):
                raise UserError(
                    f"op {len(shapes)} ({name!r}): {type(part).__name__} works on {part.numbers}, the program on {program.numbers}"
                )
        shapes.append(map_shape(op, name, shapes))
    if not isinstance(program.crop, float) or not SMALLEST_CROP <= program.crop <= 1:
        raise UserError(f"crop is {program.crop!r}, not a number from {SMALLEST_CROP} to 1")
    labels = len(program.labels)
    if labels and shapes[-1][2] != labels:
        raise UserError(f"program has {labels} labels but its last map is {shapes[-1]}")
    if not isinstance(program.rejects, bool) or (program.rejects and (labels < 2 or shapes[-1][:2] != (1, 1))):
        raise UserError(
            f"rejects is {program.rejects!r} with {labels} labels; it needs two or more, the last for none of them"
        )
    return tuple(shapes)


def _affordable(program: Program) -> None:
    """A file of a few bytes can ask for hours or terabytes: that is refused here, before anything is planned or run."""
    parts = sum(len(op.after) + len(op.branches) for op in program.ops)
    at_most("branches and endings", parts, program.limits.parts)
    value_bytes = 4 if program.numbers == "float32" else 2
    at_most("bytes of maps", value_bytes * sum(h * w * c for h, w, c in program.shapes), program.limits.map_bytes)
    counts = sum(program.counts(), Counts())
    at_most("operations", counts.binary_macs + counts.real_macs + counts.elementwise, program.limits.work)


def at_most(what: str, value: int, limit: int) -> None:
    if value > limit:
        raise TooLargeError(f"one image takes {value:,} {what}; the limit is {limit:,} (raise it with program.Limits)")
