"""Any image a person has becomes uint8 H,W,3."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bcnn import UserError
from bcnn.images import fit, open_rgb, rgb


def image(height: int, width: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_an_image_of_the_right_size_passes_unchanged() -> None:
    assert np.array_equal(fit(image(8, 12), (8, 12), crop=0.5), np.asarray(image(8, 12)))


@pytest.mark.parametrize("size", [(7, 9), (100, 3), (3, 100), (1, 1), (33, 32)])
@pytest.mark.parametrize("crop", [1.0, 0.875])
def test_fit_makes_the_wanted_size_of_any_size(size: tuple[int, int], crop: float) -> None:
    pixels = fit(image(*size), (32, 16), crop)
    assert pixels.shape == (32, 16, 3)
    assert pixels.dtype == np.uint8


def test_fit_keeps_the_centre_and_the_aspect() -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 255
    assert fit(Image.fromarray(wide), (10, 10)).min() == 255


def test_crop_shows_less_of_the_image() -> None:
    framed = np.zeros((40, 40, 3), np.uint8)
    framed[10:30, 10:30] = 255
    assert fit(Image.fromarray(framed), (20, 20), crop=0.5).min() == 255
    assert fit(Image.fromarray(framed), (20, 20), crop=1.0).min() == 0


def test_grey_palette_and_bilevel_become_rgb() -> None:
    for mode in ("L", "P", "1", "CMYK", "LAB", "F"):
        assert rgb(Image.new(mode, (3, 2))).mode == "RGB"


def test_sixteen_bit_grey_keeps_its_upper_bits() -> None:
    deep = Image.fromarray(np.array([[0, 256, 65535]], np.uint16))
    assert np.asarray(rgb(deep))[0, :, 0].tolist() == [0, 1, 255]


def test_transparent_pixels_are_white() -> None:
    clear = Image.new("RGBA", (1, 1), (10, 20, 30, 0))
    assert rgb(clear).getpixel((0, 0)) == (255, 255, 255)
    assert rgb(Image.new("LA", (1, 1), (7, 255))).getpixel((0, 0)) == (7, 7, 7)


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # taken sideways
    image(4, 8).save(tmp_path / "photo.jpg", exif=exif)
    assert open_rgb(tmp_path / "photo.jpg").size == (4, 8)


def test_files_that_are_no_images_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^no such image: .*none\.png$"):
        open_rgb(tmp_path / "none.png")
    with pytest.raises(UserError, match=r"is a folder, not an image$"):
        open_rgb(tmp_path)
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(UserError, match=r"^cannot read image .*text\.png"):
        open_rgb(tmp_path / "text.png")
    image(64, 64).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:200])
    with pytest.raises(UserError, match=r"^cannot read image .*cut\.png"):
        open_rgb(tmp_path / "cut.png")
