"""What every op of a program has: fields, a shape rule, its meaning in NumPy, its counts. No torch.

An op is one frozen dataclass; `run` is its definition, for float32 maps, int16 ones or both. File format, native binding, comparison, exports and reports know no op by name: they walk over the
fields, whose types are the few listed in `FIELDS`. A new op is a class in this folder and a file in `native/ops`.

Maps are float32, H,W,C (one image). Every real operation is one float32 rounding, in the order that `run` states. So sums are
running sums, one vector at a time: `np.sum` and `@` choose their own order. Sums of signs are exact in any order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts

if TYPE_CHECKING:
    from bcnn.program.ops.conversion import ToIntegers, ToReals
    from bcnn.program.ops.endings import Ending
    from bcnn.program.ops.window import Window

Floats = NDArray[np.float32]
Words = NDArray[np.uint32]
Indices = NDArray[np.int32]
Shorts = NDArray[np.int16]
Values = NDArray[Any]  # of a map: Floats, or Shorts in a program in integers
Map = int  # the index of the op whose map is read
Shape = tuple[int, int, int]  # H, W, C of a map

MAX_SIDE, MAX_CHANNELS, MAX_MAP = 1 << 14, 1 << 20, 1 << 28  # far above any network, far below any overflow


class Part:
    """A frozen dataclass whose fields can be walked over: an op, or a branch, ending or window of one."""

    def fields(self) -> Iterator[tuple[str, str, Any]]:
        """Name, type as written in the class, value."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            yield field.name, str(field.type), getattr(self, field.name)

    def maps_read(self) -> Iterator[Map]:
        """The maps that this part reads, in the order of its fields."""
        for _, kind, value in self.fields():
            if kind in ("Map", "tuple[Map, ...]"):
                yield from (value,) if kind == "Map" else value
            for part in _parts(value):
                yield from part.maps_read()

    def arrays(self) -> Iterator[NDArray[Any]]:
        """The parameters, in the order of the fields."""
        for _, _, value in self.fields():
            if isinstance(value, np.ndarray):
                yield value
            for part in _parts(value):
                yield from part.arrays()


def _parts(value: Any) -> list[Part]:
    """Of a field."""
    return [part for part in (value if isinstance(value, tuple) else (value,)) if isinstance(part, Part)]


class Kind(Part):
    """A part that a file calls by the name of its class: an op, or an ending. `KINDS` has every class by its names."""

    KINDS: ClassVar[dict[str, type[Any]]]
    NUMBERS: ClassVar[str] = "float32"  # of the maps it reads and makes: float32, int16, or any
    INTEGER_NAME: ClassVar[str] = ""  # in files of integer programs, if it is not the name of the class

    def __init_subclass__(cls) -> None:
        if "KINDS" not in vars(cls) and not cls.__name__.startswith("_"):
            cls.KINDS.update({name: cls for name in (cls.__name__, cls.INTEGER_NAME) if name})

    @classmethod
    def kind(cls, numbers: str) -> str:
        """Its name in the file of a program in such numbers."""
        return (cls.INTEGER_NAME if numbers == "int16" else "") or cls.__name__

    @classmethod
    def kinds(cls, numbers: str) -> dict[str, type[Any]]:
        """Those that a program in such numbers may have, by their names in its file."""
        return {known.kind(numbers): known for known in cls.KINDS.values() if known.NUMBERS in ("any", numbers)}

    @property
    def numbers(self) -> str:
        """`NUMBERS`, unless its fields say more."""
        return self.NUMBERS


class Op(Kind):
    """One op. What most ops have not stands here with the value that says so."""

    KINDS: ClassVar[dict[str, type[Op]]] = {}
    READS_IMAGE: ClassVar[bool] = False
    MOVES: ClassVar[bool] = False  # values, or averages them: its map has the format of those it reads
    MEANS: ClassVar[bool] = False  # over all pixels: its map may have more fractional bits than what it reads, see `up`
    WEIGHS: ClassVar[bool] = False  # what it reads by parameters, which make up for any format

    source: Map
    after: tuple[Ending, ...] = ()
    branches: tuple[Part, ...] = ()
    window: Window | None = None
    fraction: int | None = (
        None  # fractional bits of its map in an integer program; none: `up` more than what it reads has
    )
    up: int = 0

    @property
    def depthwise(self) -> bool:
        """Whether it is a real convolution of one filter a channel."""
        return False

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Of the map it makes after maps of `shapes`; fields that do not fit are a `UserError`."""
        raise NotImplementedError

    def run(self, maps: Sequence[Values]) -> Values:
        """Its map, from the maps before it."""
        raise NotImplementedError

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        """What it holds and does for one image; `shapes` are those of the maps before it, and may go on. Most hold nothing."""
        return Counts()

    def absolute(self, more: Floats) -> Op:
        """The op that makes, of the magnitudes of maps, those of all that is added up: `compare` bounds rounding by it. `more`
        has what its offsets are differences of, per channel."""
        return self

    def resized(self, size: tuple[int, int], before: Sequence[Shape], now: Sequence[Shape]) -> Op:
        """For images of another `size`; maps had the shapes `before`, and those it reads have `now`."""
        return self

    # --- integers -------------------------------------------------------------------------------------------------

    def in_format(self) -> tuple[Map, ...]:
        """The maps it reads whose format is that of its own."""
        return tuple(self.maps_read()) if self.MOVES else ()

    def sums_wide(self, shape: Shape) -> bool:
        """Whether it becomes sums of 32 bits, though it is none: values between its endings may be large then."""
        return False

    def to_integers(self, at: ToIntegers) -> Op:
        """The op of an integer program; what cannot be said in 16 bits is a `UserError`."""
        if self.NUMBERS != "any":
            raise UserError(f"{type(self).__name__} has no integer form")
        assert all(at.of(source) == at.made for source in self.maps_read())
        return self

    def to_reals(self, at: ToReals) -> Op:
        """The op of a float program, of the same parameters."""
        if self.NUMBERS != "any":
            raise UserError(f"{type(self).__name__} has no form in real numbers")
        if any(at.of(source) != at.made for source in self.maps_read()):
            raise UserError("it joins maps of different fractional bits")
        return self


def replicated(x: Values, channels: int) -> Values:
    """Replication (sec. 4.2.2): channel k of the result is channel k mod C of x."""
    if x.shape[-1] == channels:
        return x
    return np.ascontiguousarray(x[..., np.arange(channels) % x.shape[-1]])
