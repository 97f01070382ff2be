"""Which pixels a filter reads: kernel, stride, padding, dilation, for convolutions and pools alike. No torch.

Tap (ky, kx) of output pixel (y, x) is input pixel (y S + ky D - top, x S + kx D - left). Taps are in raster order, y first.
Padding is top, left, bottom, right; a negative one crops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.ops.base import MAX_SIDE, Floats, Part, Shape, Values
from bcnn.program.ops.checks import whole


@dataclass(frozen=True)
class Window(Part):
    kernel: tuple[int, int] = (1, 1)  # height, width
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    dilation: tuple[int, int] = (1, 1)

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def pointwise(self) -> bool:
        """Reads just the pixel that it makes."""
        return self == ONE_PIXEL

    def extent(self, side: int) -> int:
        """Pixels from the first to the last tap."""
        return (self.kernel[side] - 1) * self.dilation[side] + 1

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Of the map made of one of `height` x `width`; a window that does not fit is a `UserError`."""
        for name, values, low in (
            ("kernel", self.kernel, 1),
            ("stride", self.stride, 1),
            ("dilation", self.dilation, 1),
        ):
            for value in values:
                whole(name, value, low, MAX_SIDE)
        for value in self.padding:
            whole("padding", value, -MAX_SIDE, MAX_SIDE)
        sizes = []
        for side, (given, name) in enumerate(((height, "height"), (width, "width"))):
            padded = given + self.padding[side] + self.padding[2 + side]
            if padded < self.extent(side):
                raise UserError(
                    f"a {name} of {given}, {padded} with padding, is less than the {self.extent(side)} of its kernel"
                )
            sizes.append((padded - self.extent(side)) // self.stride[side] + 1)
        return sizes[0], sizes[1]

    def views(self, x: Values, outside: float | Values) -> Iterator[Values]:
        """x, H,W,C, at every tap in raster order; `outside` is what a pixel outside the map has, for all channels or each."""
        height, width = self.size(*x.shape[:2])
        top, left, bottom, right = self.padding
        padded = np.empty((x.shape[0] + top + bottom, x.shape[1] + left + right, x.shape[2]), x.dtype)
        padded[...] = outside
        y0, x0 = max(-top, 0), max(-left, 0)
        y1, x1 = max(min(x.shape[0] + bottom, x.shape[0]), y0), max(min(x.shape[1] + right, x.shape[1]), x0)
        padded[y0 + top : y1 + top, x0 + left : x1 + left] = x[y0:y1, x0:x1]  # none of it, if all of the map is outside
        for ky in range(self.kernel[0]):
            for kx in range(self.kernel[1]):
                y0, x0 = ky * self.dilation[0], kx * self.dilation[1]
                rows = slice(y0, y0 + (height - 1) * self.stride[0] + 1, self.stride[0])
                columns = slice(x0, x0 + (width - 1) * self.stride[1] + 1, self.stride[1])
                yield padded[rows, columns]

    def inside(self, height: int, width: int) -> Floats:
        """How many taps of each output pixel are on the map, H',W',1."""
        total: Floats = sum(self.views(np.ones((height, width, 1), np.float32), 0.0))  # type: ignore[assignment]
        return total


ONE_PIXEL = Window()  # what a 1x1 convolution reads


def whole_map(window: Window, shape: Shape) -> bool:
    """Whether a pool is meant to read all of a map at once, and not to halve one that happens to be small.

    With stride 1 it is. Torch's default stride is the kernel itself: there it is from four pixels on, since networks halve or third.
    """
    covers = window.kernel == shape[:2] and window.padding == (0, 0, 0, 0) and window.dilation == (1, 1)
    return covers and shape[:2] != (1, 1) and (window.stride == (1, 1) or min(window.kernel) >= 4)


def pixels(shape: Shape) -> int:
    return shape[0] * shape[1]


def values(shape: Shape) -> int:
    return shape[0] * shape[1] * shape[2]
