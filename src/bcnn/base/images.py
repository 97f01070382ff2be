"""Any image a person has -> uint8 H,W,3 of the size a network wants: `read`, for engine, evaluation, learning and calibration. No torch.

Photos come sideways (EXIF), grey, with transparency, with 16 bits; `rgb` makes them plain. `fit` is the usual evaluation
transform: resize the shorter side to size / crop, cut out the centre. An image that has the size already passes unchanged.

Odd images cost no more than ordinary ones: a JPEG above `MAX_PIXELS_AT_FULL_SCALE` is decoded at a reduced scale, an image above `MAX_PIXELS` is
refused by its header, and one whose resized whole would be huge (30000 x 1) is cut before it is resized. Every other image
goes the plain way, with the same pixels whatever these limits are.
"""

from __future__ import annotations

import glob
import io
import os
import struct
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from PIL import features as pillow

from bcnn.base.errors import UserError
from bcnn.base.files import check_plain

Pixels = NDArray[np.uint8]  # H, W, 3
Photo = Pixels | Image.Image | str | Path | bytes  # what a person may hand over as one image
AVIF = "avif" in pillow.modules and pillow.check("avif")
SUFFIXES = frozenset(
    [".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"] + [".avif"] * bool(AVIF)
)
# Pillow goes by what is in a file, whatever its name, and reads some forty formats: one of them by starting Ghostscript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP") + ("AVIF",) * bool(AVIF)

# Pixels. Cameras of today make 12 to 32 million; a decoded one takes 4 bytes, and converting it as much again.
MAX_PIXELS_AT_FULL_SCALE = 1 << 25
MAX_PIXELS = 89_478_485  # from here on Pillow warns of decompression bombs: a quarter of a gigabyte in 24 bits
MAX_RESIZED_PIXELS = 1 << 24  # of a resized image before its centre is cut out: any photo up to 65536 : 256
ORIENTATION_TAG = 0x0112  # of EXIF
DECODERS_RAISE = (OSError, ValueError, SyntaxError, OverflowError, struct.error)  # Pillow's, on a damaged file
_opening = threading.Lock()  # filters of warnings belong to the process; images are read in threads


def below(folder: Path) -> Iterator[Path]:
    """Everything in a folder and those below it, linked ones too, each once: a link to a folder above it ends nowhere.

    One that may not be looked into is an error; `Path.rglob` would call it empty.
    """

    def closed(error: OSError) -> NoReturn:
        raise UserError(f"cannot look into folder {error.filename}: {error.strerror}")

    seen = {os.path.realpath(folder)}
    for place, folders, names in os.walk(folder, onerror=closed, followlinks=True):
        real = {os.path.realpath(Path(place, name)): name for name in sorted(folders, reverse=True)}
        folders[:] = [name for where, name in real.items() if where not in seen]
        seen.update(real)
        yield from (Path(place, name) for name in (*folders, *names))


def files(path: str | Path) -> list[Path]:
    """An image, or every image in a folder and the folders below it, in the order of their names."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    found = sorted(file for file in below(path) if file.suffix.lower() in SUFFIXES and file.is_file())
    if not found:
        raise UserError(
            f"no images in {path}; it should hold files such as .jpg or .png, in one folder per class if you have classes"
        )
    return found


def chosen(what: str) -> tuple[list[Path], list[Path]]:
    """(images, files that are none): a file, a folder and those below it, or a pattern such as 'photos/**/*.jpg' that no shell has expanded."""
    path = Path(what)
    if path.is_dir():
        there = sorted(file for file in below(path) if file.is_file() and not file.name.startswith("."))
        return files(path), [file for file in there if file.suffix.lower() not in SUFFIXES]
    if path.exists() or not glob.has_magic(what):
        return [path], []
    found = sorted(Path(name) for name in glob.glob(what, recursive=True))
    named = [file for file in found if file.is_file()]
    pictures = [file for file in named if file.suffix.lower() in SUFFIXES]
    if not pictures:
        raise UserError(f"no image matches {what}")
    return pictures, [file for file in named if file not in set(pictures)]


def spread(files: list[Path], limit: int) -> list[Path]:
    """At most `limit` of them, at even distances: so that sorted classes are all there."""
    count = min(limit, len(files))
    return [files[index * len(files) // count] for index in range(count)]


def read(photo: Photo, size: tuple[int, int], crop: float = 1.0) -> Pixels:
    """A photo as a network of `size` = (height, width) reads it: opened, decoded and fitted, whatever it comes as."""
    if isinstance(photo, (str, Path, bytes)):
        image = open_rgb(photo)
    elif isinstance(photo, Image.Image):
        image = rgb(photo)
    elif isinstance(photo, np.ndarray) and photo.dtype == np.uint8 and photo.ndim == 3 and photo.shape[2] == 3:
        image = Image.fromarray(photo)
    else:
        got = f"{photo.dtype} {photo.shape}" if isinstance(photo, np.ndarray) else type(photo).__name__
        raise UserError(
            f"cannot read an image from {got}; give a uint8 array H,W,3, a PIL image, a path or the bytes of a file"
        )
    return fit(image, size, crop)


def rgb(image: Image.Image) -> Image.Image:
    """Upright 8-bit RGB. 16-bit grey keeps its upper 8 bits; transparent pixels are shown on white."""
    if image.getexif().get(ORIENTATION_TAG, 1) != 1:
        image = ImageOps.exif_transpose(image)  # a copy, also of an upright image
    if image.mode.startswith("I"):
        array = np.asarray(image)
        image = Image.fromarray((array >> 8 if array.max(initial=0) > 255 else array).clip(0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image if image.mode == "RGB" else image.convert("RGB")


def open_rgb(path: str | Path | bytes) -> Image.Image:
    """The image in a file, or in the bytes of one; what cannot be read is a `UserError` that names it."""
    if isinstance(path, bytes):
        return _rgb(io.BytesIO(path), f"of {len(path):,} bytes")
    return _rgb(path, str(path))


def _rgb(file: str | Path | io.BytesIO, path: str) -> Image.Image:
    try:
        if not isinstance(file, io.BytesIO):
            check_plain(file)
        with header(file) as image:
            pixels = image.width * image.height
            if pixels > MAX_PIXELS_AT_FULL_SCALE:
                # Only a JPEG can: its decoder leaves out the high frequencies. Half, a quarter or an eighth of both sides,
                # the largest of them that is not MAX_PIXELS_AT_FULL_SCALE, if there is one; what a network reads is far smaller still.
                scale = next((scale for scale in (2, 4) if pixels <= MAX_PIXELS_AT_FULL_SCALE * scale**2), 8)
                image.draft(None, (image.width // scale, image.height // scale))
            if image.width * image.height > MAX_PIXELS:
                raise UserError(
                    f"cannot read image {path}: it has {image.width} x {image.height} pixels, more than the "
                    f"{MAX_PIXELS:,} that are decoded here; make it smaller first"
                )
            image.load()
            return rgb(image)
    except UserError:
        raise
    except Image.DecompressionBombError:
        raise UserError(
            f"cannot read image {path}: it has more than {2 * MAX_PIXELS:,} pixels; make it smaller first"
        ) from None
    except FileNotFoundError:
        raise UserError(f"no such image: {path}") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder, not an image") from None
    except DECODERS_RAISE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(f"cannot read image {path}: {reason}") from None


def header(path: str | Path | io.BytesIO) -> Image.Image:
    """An image of which only the header is read. Pillow's warning of a large image is silent here: what is too large gets a sentence of ours."""
    with _opening, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(path, formats=FORMATS)


def fit(image: Image.Image, size: tuple[int, int], crop: float = 1.0) -> Pixels:
    """Resize so that the image covers size / crop, then take the centre of `size` = (height, width)."""
    height, width = size
    if image.size != (width, height):
        ratio = max(height / crop / image.height, width / crop / image.width)
        larger = max(width, round(image.width * ratio)), max(height, round(image.height * ratio))
        left, top = (larger[0] - width) // 2, (larger[1] - height) // 2
        if larger[0] * larger[1] > max(MAX_RESIZED_PIXELS, 4 * width * height):
            # The same centre, but cut first: of 30000 x 1 pixels the resized whole would take gigabytes. Not for all images,
            # since Pillow rounds the corners of a box to float32, and pixels may change by one level.
            x, y = image.width / larger[0], image.height / larger[1]
            box = (left * x, top * y, min(image.width, (left + width) * x), min(image.height, (top + height) * y))
            return np.asarray(_resized(image, size, box, image.height > image.width), dtype=np.uint8)
        image = _resized(image, (larger[1], larger[0]), (0, 0, *image.size))
        image = image.crop((left, top, left + width, top + height))
    return np.asarray(image, dtype=np.uint8)


def _resized(
    image: Image.Image, size: tuple[int, int], box: tuple[float, float, float, float], rows_first: bool = False
) -> Image.Image:
    """Pillow's bilinear filter, one side after the other. Both at once is the same but for what goes first, which changes pixels by
    a level, and which Pillow chose by itself from version 13 on."""
    height, width = size
    if rows_first:
        image = image.resize((image.width, height), Image.Resampling.BILINEAR, (0, box[1], image.width, box[3]))
        return image.resize((width, height), Image.Resampling.BILINEAR, (box[0], 0, box[2], height))
    image = image.resize((width, image.height), Image.Resampling.BILINEAR, (box[0], 0, box[2], image.height))
    return image.resize((width, height), Image.Resampling.BILINEAR, (0, box[1], width, box[3]))
