"""Each example runs as its docstring says, on data so small that nothing is learned, in this process: torch is imported once."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import samples
import torch
from paths import ROOT
from PIL import Image

from bcnn.lowering.lower import lower
from bcnn.packed.packfile import save

EXAMPLES = ROOT / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    """The example's output, given its arguments."""

    def start(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        except SystemExit as done:
            if done.code:
                raise
        finally:
            torch.set_num_threads(threads)
        return capsys.readouterr().out

    return start


def test_every_example_is_tested_and_says_how_to_run_it():
    for script in EXAMPLES.glob("*.py"):
        text = script.read_text(encoding="utf-8")
        assert f"    python examples/{script.name}" in text.split('"""')[1]
        assert f'"{script.name}"' in Path(__file__).read_text(encoding="utf-8")


def photo(colour, seed):
    """Noise with a tint, of a size that no network wants."""
    noise = np.random.default_rng(seed).integers(0, 120, (40, 52, 3))
    return Image.fromarray((noise + colour).clip(0, 255).astype(np.uint8))


def test_own_photos_become_a_packed_classifier(run, tmp_path):
    for name, colour in {"red": (130, 0, 0), "blue": (0, 0, 130)}.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for seed in range(6):
            photo(colour, seed).save(tmp_path / "photos" / name / f"{seed}.jpg")
    output = run("own_photos.py", tmp_path / "photos", tmp_path / "run", "--size", 32, "--epochs", 1)
    assert re.search(r"% of 2 photos right in the engine", output)
    assert len(re.findall(r"^pass", output, re.MULTILINE)) >= 4
    assert "FAIL" not in output
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"model.bcnn", "report.html", "step1.safetensors", "step2.safetensors"} <= left

    animation = [photo((0, 0, 130), seed) for seed in range(3)]
    animation[0].save(tmp_path / "a.gif", save_all=True, append_images=animation[1:])
    output = run("video.py", tmp_path / "run" / "model.bcnn", tmp_path / "a.gif")
    assert re.search(r"frame +3 +\d+\.\d% +(blue|red)\n3 frames, \d+ a second", output)


def test_own_photos_says_what_is_missing(run, tmp_path):
    with pytest.raises(SystemExit, match=r"own_photos: .* no class folders"):
        run("own_photos.py", tmp_path, tmp_path / "run")


@pytest.fixture
def model(tmp_path):
    save(lower(samples.network(), samples.MEAN, samples.STD, ("ant", "bee", "cat")), tmp_path / "tiny.bcnn")
    return tmp_path / "tiny.bcnn"


def test_video_reads_a_folder_of_frames_in_the_order_of_their_names(run, model, tmp_path):
    (tmp_path / "frames").mkdir()
    for index in range(4):
        photo((40 * index, 0, 0), index).save(tmp_path / "frames" / f"{index}.png")
    output = run("video.py", model, tmp_path / "frames")
    assert [int(number) for number in re.findall(r"^frame +(\d+)", output, re.MULTILINE)] == [1, 2, 3, 4]
    assert "4 frames, " in output


def test_video_without_opencv_says_what_to_install(run, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(SystemExit, match="pip install opencv-python-headless"):
        run("video.py", model, "film.mp4")


def test_camera_shows_labels_and_frames_a_second_over_a_folder_of_images(run, model, tmp_path):
    (tmp_path / "seen").mkdir()
    for index in range(4):
        photo((40 * index, 0, 0), index).save(tmp_path / "seen" / f"{index}.png")
    output = run("camera.py", "--model", model, "--camera", tmp_path / "seen")
    assert len(re.findall(r"frames/s +\d+\.\d% +(?:ant|bee|cat)", output)) == 4
    assert re.search(r"^4 frames, \d+\.\d a second", output, re.MULTILINE)


def test_camera_without_a_camera_says_what_to_install(run, model, monkeypatch):
    for package in ("cv2", "picamera2"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit, match=r"no camera can be read: install picamera2 .* or OpenCV"):
        run("camera.py", "--model", model)
    with pytest.raises(SystemExit, match="neither the number of a webcam nor a folder"):
        run("camera.py", "--model", model, "--camera", "nowhere")


def test_paper_tables_come_out_to_the_last_digit(run):
    output = run("paper_tables.py")
    assert "24 of 24 rows equal" in output
    assert "2.28 MB of parameters,  131.28 normalised MOPs/2" in output


def test_backbone_is_trained_and_audited(run):
    output = run("backbone.py", "--updates", 3)
    assert re.search(r"^real weights: .*\nbinary weights: ", output)
    assert "12 matrix products, all 1 x 1 bit: True" in output
    assert "module 'head' multiplies (32, 32) bits" in output
