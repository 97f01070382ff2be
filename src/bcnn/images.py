"""Any image a person has -> uint8 H,W,3 of the size a network wants. No torch: evaluation and the engine share this code.

Photos come sideways (EXIF), grey, with transparency, with 16 bits; `rgb` makes them plain. `fit` is the usual evaluation
transform: resize the shorter side to size / crop, cut out the centre. An image that has the size already passes unchanged.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from bcnn.errors import UserError

Pixels = NDArray[np.uint8]  # H, W, 3
SUFFIXES = frozenset([".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"])


def files(path: str | Path) -> list[Path]:
    """An image, or every image in a folder and the folders below it, in the order of their names."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not found:
        raise UserError(
            f"no images in {path}; it should hold files such as .jpg or .png, in one folder per class if you have classes"
        )
    return found


def rgb(image: Image.Image) -> Image.Image:
    """Upright 8-bit RGB. 16-bit grey keeps its upper 8 bits; transparent pixels are shown on white."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        array = np.asarray(image).astype(np.int64)
        image = Image.fromarray((array >> 8 if array.max(initial=0) > 255 else array).clip(0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


def open_rgb(path: str | Path) -> Image.Image:
    """The image in a file; one that cannot be read is a `UserError` that names it."""
    try:
        with Image.open(path) as image:
            return rgb(image)
    except FileNotFoundError:
        raise UserError(f"no such image: {path}") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder, not an image") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:  # what Pillow's decoders raise
        raise UserError(f"cannot read image {path}: {error}") from None


def fit(image: Image.Image, size: tuple[int, int], crop: float = 1.0) -> Pixels:
    """Resize so that the image covers size / crop, then take the centre of `size` = (height, width)."""
    height, width = size
    if image.size != (width, height):
        ratio = max(height / crop / image.height, width / crop / image.width)
        larger = max(width, round(image.width * ratio)), max(height, round(image.height * ratio))
        image = image.resize(larger, Image.Resampling.BILINEAR)
        left, top = (larger[0] - width) // 2, (larger[1] - height) // 2
        image = image.crop((left, top, left + width, top + height))
    return np.asarray(image, dtype=np.uint8)
