"""The page of `--to web` in a headless Chromium, opened as a file: what a person would do, and the logits of the Python engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tampered_files
from PIL import Image
from tools.pages.chromium import FOUND, Chromium

import bcnn
from bcnn.base import images
from bcnn.exports import web
from bcnn.packed import packfile, shipped

pytestmark = pytest.mark.skipif(FOUND is None, reason="no Chromium is installed: the page cannot be opened")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made: Path = tmp_path_factory.mktemp("browser")
    web.export(packfile.open_packed(shipped.find("cifar10")), made / "cifar10.html")
    rng = np.random.default_rng(0)
    for name, size in (("wide.png", (90, 160)), ("tall.png", (200, 61)), ("fits.png", (32, 32))):
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(made / name)
    return made


@pytest.fixture(scope="module")
def browser(folder):
    with Chromium() as made:
        made.open((folder / "cifar10.html").as_uri())
        made.wait("globalThis.bcnn?.ready")
        yield made


@pytest.fixture(scope="module")
def engine():
    return bcnn.load("cifar10", threads=1)


def answered(browser: Chromium, act) -> None:
    before = browser.evaluate("bcnn.done ?? 0")
    act()
    browser.wait(f"(bcnn.done ?? 0) > {before}")


def same(browser: Chromium, engine: bcnn.Engine, photo: Path) -> None:
    assert browser.text("problem") == ""
    pixels = images.fit(images.open_rgb(photo), engine.program.shapes[0][:2], engine.program.crop)
    assert browser.evaluate("Array.from(bcnn.pixels)") == pixels.reshape(-1).tolist()
    assert browser.evaluate("bcnn.logits") == engine(photo)[0].tolist()
    best, _ = engine.predict(photo, top=1)[0][0]
    assert browser.evaluate("bcnn.label") == best
    assert browser.text("answer").startswith(f"{best}, ")


def test_the_page_verifies_itself_and_shows_the_card(browser):
    assert browser.text("verified") == "Verified: 2 test vectors equal, to the bit, computed in this page."
    assert browser.evaluate("document.title") == browser.text("title")
    assert "% of" in browser.text("card")


@pytest.mark.parametrize("photo", ["wide.png", "tall.png", "fits.png"])
def test_a_chosen_photo_gets_the_label_and_all_logits_of_python(browser, engine, folder, photo):
    answered(browser, lambda: browser.choose("file", folder / photo))
    same(browser, engine, folder / photo)


def test_a_dropped_photo_does_too(browser, engine, folder):
    answered(browser, lambda: browser.drop(folder / "tall.png"))
    same(browser, engine, folder / "tall.png")
    assert browser.evaluate("document.querySelectorAll('#classes li').length") == 5
    assert " ms" in browser.text("time")


def test_what_is_no_image_is_a_sentence(browser, folder):
    (folder / "notes.txt").write_text("hello")
    answered(browser, lambda: browser.drop(folder / "notes.txt"))
    assert browser.text("problem").startswith("notes.txt: this browser cannot read it as an image")
    assert browser.evaluate("document.getElementById('problem').hidden") is False


def test_hostile_packed_files_are_a_sentence_and_the_network_stays(browser, engine, folder):
    raw = shipped.find("digits").read_bytes()
    header, program, data = tampered_files.parts(raw)
    program["ops"][3][1] = 10**6
    hostile = {
        "short": raw[:1000],
        "empty": b"",
        "flipped": raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:],
        "forged": tampered_files.forged(header, program, data),
        "text": b'<script>alert("x")</script>' * 10,
    }
    for name, content in hostile.items():
        (folder / f"{name}.bcnn").write_bytes(content)
        answered(browser, lambda name=name: browser.drop(folder / f"{name}.bcnn"))
        sentence = browser.text("problem")
        assert sentence.startswith(f"{name}.bcnn: ")
        assert "something went wrong" not in sentence
    answered(browser, lambda: browser.choose("file", folder / "wide.png"))
    same(browser, engine, folder / "wide.png")


def test_the_camera_is_classified_frame_by_frame(browser):
    """A fake one: a green picture with a clock."""
    browser.evaluate("delete bcnn.logits; document.getElementById('camera').click()")
    browser.wait("bcnn.logits?.length === 10")
    assert browser.text("camera") == "Stop the camera"
    browser.evaluate("document.getElementById('camera').click()")
    assert browser.text("camera") == "Use the camera"


def test_the_keyboard_reaches_the_photo_and_the_camera(browser):
    browser.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    reached = []
    for _ in range(6):
        browser.key("Tab", 9)
        reached.append(browser.evaluate("document.activeElement.id"))
    assert {"file", "camera"} <= set(reached)


def test_a_phone_needs_no_sideways_scrolling(browser):
    browser.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360
    browser.call("Emulation.clearDeviceMetricsOverride")


def test_another_dropped_network_runs_instead(browser, folder):
    digits = bcnn.load("digits", threads=1)
    answered(browser, lambda: browser.drop(shipped.find("digits")))
    assert browser.text("verified") == "Verified: 2 test vectors equal, to the bit, computed in this page."
    answered(browser, lambda: browser.choose("file", folder / "wide.png"))
    same(browser, digits, folder / "wide.png")


def test_the_page_asked_nobody_for_anything(browser):
    assert [address for address in browser.requests if address.startswith("http")] == []


@pytest.mark.parametrize(
    ("lacks", "element", "words"),
    [
        ("delete globalThis.WebAssembly", "verified", "This browser has no WebAssembly, or it is switched off. "),
        ("WebAssembly.validate = () => false", "verified", "This browser has no WebAssembly SIMD. "),
        ("Object.defineProperty(Navigator.prototype, 'mediaDevices', {value: undefined})", "no_camera", "No camera here: "),
    ],
)  # fmt: skip
def test_a_browser_that_lacks_something_is_told_so(browser, folder, lacks, element, words):
    script = browser.call("Page.addScriptToEvaluateOnNewDocument", source=lacks)["identifier"]
    browser.open((folder / "cifar10.html").as_uri())
    browser.wait(f"document.getElementById({element!r})?.textContent.startsWith({words!r})")
    assert browser.evaluate("document.getElementById('camera').disabled") is True
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


@pytest.mark.parametrize("name", shipped.names())
def test_the_page_of_every_shipped_model_answers_like_python(browser, folder, name):
    web.export(packfile.open_packed(shipped.find(name)), folder / f"{name}.html")
    browser.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
    browser.open((folder / f"{name}.html").as_uri())
    browser.wait("globalThis.bcnn?.ready")
    assert browser.text("verified") == "Verified: 2 test vectors equal, to the bit, computed in this page."
    answered(browser, lambda: browser.choose("file", folder / "tall.png"))
    same(browser, bcnn.load(name, threads=1), folder / "tall.png")
    assert " 0.0" not in browser.text("time")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360  # with an answer and a card, too
    browser.call("Emulation.clearDeviceMetricsOverride")
