"""The page of a model in a browser, with an answer on it -> docs/web.png. For maintainers, after a change to the page.

python -m tools.pages.web_picture PHOTO      needs Chromium
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image
from tools.pages.chromium import Chromium

from bcnn.exports import targets

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "web.png"


def main() -> None:
    photo = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder, Chromium(width=820, height=960) as browser:
        page = Path(folder) / "imagenette.html"
        targets.export("imagenette", "web", page)
        browser.call("Emulation.setDeviceMetricsOverride", width=820, height=900, deviceScaleFactor=1, mobile=False)
        browser.open(page.as_uri())
        browser.wait("globalThis.bcnn?.ready")
        browser.choose("file", photo)
        browser.wait("bcnn.done")
        browser.screenshot(PICTURE)
    Image.open(PICTURE).convert("RGB").quantize(128).save(PICTURE, optimize=True)
    print(f"wrote {PICTURE.name}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
