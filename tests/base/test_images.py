"""Any image a person has becomes uint8 H,W,3."""

from __future__ import annotations

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from bcnn import UserError
from bcnn.base import images
from bcnn.base.images import fit, open_rgb, rgb


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


def test_linked_folders_are_looked_into_once_and_loops_end(tmp_path: Path) -> None:
    for name in ("photos/a/one.png", "elsewhere/two.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    photos = tmp_path / "photos"
    for link, to in {"b": tmp_path / "elsewhere", "c": tmp_path / "elsewhere", "a/up": photos}.items():
        (photos / link).symlink_to(to)
    assert images.files(photos) == [photos / "a" / "one.png", photos / "b" / "two.png"]


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


# --- images that cost too much -----------------------------------------------------------------------------------------


def plain(path: Path, size: tuple[int, int], crop: float) -> np.ndarray:
    """What every photo went through before there were limits: the trained networks have seen such pixels."""
    height, width = size
    photo = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    ratio = max(height / crop / photo.height, width / crop / photo.width)
    larger = max(width, round(photo.width * ratio)), max(height, round(photo.height * ratio))
    photo = photo.resize(larger, Image.Resampling.BILINEAR)
    left, top = (larger[0] - width) // 2, (larger[1] - height) // 2
    return np.asarray(photo.crop((left, top, left + width, top + height)))


@pytest.mark.parametrize(
    "shape", [(1, 1), (32, 32), (375, 500), (500, 333), (160, 213), (100, 2000), (3024, 4032), (4096, 8192)]
)
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_ordinary_photos_keep_the_pixels_they_always_had(tmp_path: Path, shape: tuple[int, int], suffix: str) -> None:
    """Up to 8192 x 4096, exactly `LARGE`: neither the reduced decoding nor the early cut touches them."""
    if shape[0] * shape[1] > 1e6 and suffix == "png":
        pytest.skip("takes seconds to write, and PNGs are never decoded at a reduced scale")
    small = image(min(shape[0], 300), min(shape[1], 400))
    small.resize(shape[::-1]).save(tmp_path / f"photo.{suffix}")
    for size, crop in (((224, 224), 0.875), ((32, 32), 1.0), ((128, 160), 0.875)):
        made = fit(open_rgb(tmp_path / f"photo.{suffix}"), size, crop)
        assert (made == plain(tmp_path / f"photo.{suffix}", size, crop)).all()


@pytest.mark.parametrize(
    ("large", "size"), [(10_000, (80, 100)), (9_999, (40, 50)), (2_000, (20, 25)), (300, (10, 13))]
)
def test_a_large_jpeg_is_decoded_at_a_reduced_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int, size: tuple[int, int]
) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS_AT_FULL_SCALE", large * 8 // 10)
    image(80, 100).save(tmp_path / "a.jpg")
    image(80, 100).save(tmp_path / "a.png")
    assert open_rgb(tmp_path / "a.jpg").size[::-1] == size
    assert open_rgb(tmp_path / "a.png").size == (100, 80)


def test_an_early_cut_shows_the_same_centre(monkeypatch: pytest.MonkeyPatch) -> None:
    photo = image(60, 80).resize((800, 90), Image.Resampling.BILINEAR)
    whole = fit(photo, (32, 32), 0.875).astype(int)
    monkeypatch.setattr(images, "MAX_RESIZED_PIXELS", 0)
    assert abs(fit(photo, (32, 32), 0.875).astype(int) - whole).max() <= 1  # corners of the box are float32


PEAK = """
import sys
from bcnn.base.images import fit, open_rgb
def peak():  # not getrusage: that counts the process before exec, too
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
assert fit(open_rgb(sys.argv[1]), (224, 224), 0.875).shape == (224, 224, 3)
print((peak() - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("name", "shape", "most"),
    [("wide.png", (1, 30000), 20), ("tall.png", (30000, 1), 20), ("camera.jpg", (9000, 12000), 250)],
)
def test_odd_and_large_images_cost_little(tmp_path: Path, name: str, shape: tuple[int, int], most: int) -> None:
    Image.new("L", shape[::-1], 7).save(tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / name)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) < most  # megabytes


def test_what_is_too_large_is_one_sentence_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 5000)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5000)
    image(80, 100).save(tmp_path / "a.png")
    image(120, 100).save(tmp_path / "b.png")
    image(80, 100).save(tmp_path / "c.jpg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            UserError, match=r"a\.png: it has 100 x 80 pixels, more than the 5,000 that are decoded here"
        ):
            open_rgb(tmp_path / "a.png")
        with pytest.raises(UserError, match=r"b\.png: it has more than 10,000 pixels; make it smaller first$"):
            open_rgb(tmp_path / "b.png")
        monkeypatch.setattr(images, "MAX_PIXELS_AT_FULL_SCALE", 5000)
        assert open_rgb(tmp_path / "c.jpg").size == (50, 40)


def test_reading_in_threads_leaves_the_filters_of_warnings_as_they_were(tmp_path: Path) -> None:
    image(8, 8).save(tmp_path / "a.png")
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: open_rgb(tmp_path / "a.png"), range(200)))
    assert list(warnings.filters) == before


def test_a_picture_that_is_handed_over_is_not_changed() -> None:
    sideways = image(4, 8)
    sideways.getexif()[0x0112] = 6
    assert rgb(sideways).size == (4, 8)
    assert (sideways.size, sideways.getexif()[0x0112]) == ((8, 4), 6)


@pytest.mark.parametrize(("height", "width"), [(500, 375), (90, 30), (300, 40), (5, 5), (70, 3)])
def test_columns_are_resized_before_rows_whatever_pillow_prefers(height: int, width: int) -> None:
    """Pillow 13 resizes the rows of a tall image first: a pixel may differ by a level, and so an answer by a library's version."""
    tall = image(height, width)
    larger = round(height * 32 / width)
    wanted = tall.resize((32, height), Image.Resampling.BILINEAR).resize((32, larger), Image.Resampling.BILINEAR)
    top = (larger - 32) // 2
    assert np.array_equal(fit(tall, (32, 32)), np.asarray(wanted)[top : top + 32])


def test_a_file_is_not_read_as_what_no_photo_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow would start Ghostscript for the first, whatever its name."""
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n"
    (tmp_path / "a.jpg").write_bytes(program)
    image(8, 8).save(tmp_path / "b.png", "TGA")
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *args, **more: pytest.fail("Ghostscript was started"))
    for name in ("a.jpg", "b.png"):
        with pytest.raises(UserError, match=r"cannot read image .*: cannot identify image file"):
            open_rgb(tmp_path / name)


def test_every_kind_of_file_that_is_looked_for_is_read(tmp_path: Path) -> None:
    for suffix in images.SUFFIXES:
        image(8, 8).save(tmp_path / f"a{suffix}")
        assert open_rgb(tmp_path / f"a{suffix}").size == (8, 8)
