"""An image to time with: any will do, as long as its values are ordinary. No torch."""

from __future__ import annotations

import numpy as np

from bcnn.base.images import Pixels


def sample_image(height: int, width: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
