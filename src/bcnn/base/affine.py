"""What a network reads of a byte u: (u / 255 - mean) / std of its channel.

1. (u / 255 - mean) / std = u * scale + offset with scale = 1 / (255 std) and offset = -mean / std, in float64.
2. Both are rounded once to float32. The multiplication and the addition that follow are in float32, too.

Torch and every executor of a program get scale and offset from here: bits depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bcnn.base.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Floats3 = tuple[float, float, float]
IMAGENET_MEAN: Floats3 = (0.485, 0.456, 0.406)  # what most pretrained networks expect
IMAGENET_STD: Floats3 = (0.229, 0.224, 0.225)


def scale_offset(mean: Sequence[float], std: Sequence[float]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(u / 255 - mean) / std = u * scale + offset."""
    import numpy as np  # here, because counting a network reads ImageNet's numbers above and nothing else

    try:
        m, s = np.array(mean, np.float64), np.array(std, np.float64)
    except (TypeError, ValueError):
        m = s = np.empty(0)
    if any(values.shape != (3,) or not np.isfinite(values).all() for values in (m, s)) or (s <= 0).any():
        raise UserError(f"mean and std must be three finite numbers each and std above 0, got {mean!r} and {std!r}")
    with np.errstate(over="ignore"):  # to infinity, which a program refuses by name
        return (1 / (255 * s)).astype(np.float32), (-m / s).astype(np.float32)


def mean_std(scale: NDArray[np.float32], offset: NDArray[np.float32]) -> tuple[Floats3, Floats3]:
    """The mean and std that `scale_offset` makes these of."""
    std = 1 / (255 * scale.astype("float64"))
    mean = -offset.astype("float64") * std
    return (float(mean[0]), float(mean[1]), float(mean[2])), (float(std[0]), float(std[1]), float(std[2]))


def normalise(images: NDArray[np.uint8], mean: Sequence[float], std: Sequence[float]) -> NDArray[np.float32]:
    """uint8 N,H,W,3 -> float32 N,H,W,3."""
    scale, offset = scale_offset(mean, std)
    made: NDArray[np.float32] = images.astype("float32") * scale + offset
    return made
