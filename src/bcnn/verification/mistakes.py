"""The images that were taken for something else, as thumbnails in a folder, the surest mistake first. No torch."""

from __future__ import annotations

import re
from pathlib import Path

from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.base.files import replacing
from bcnn.verification.evaluation import Result

MAX_THUMBNAILS = 200  # nobody looks at more
SIDE = 256  # of a thumbnail, the longer one


def check_folder(folder: Path) -> None:
    """Before minutes of work: thumbnails of two measurements must not mix."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not an empty folder; give a new one for the mistakes")


def write(result: Result, folder: Path) -> int:
    """A JPEG for each, named by rank, probability, truth, answer and file; how many there are now."""
    if not result.answers:
        raise UserError("mistakes are kept for packed files only; pack the run first: bcnn pack RUN")
    check_folder(folder)
    wrong = result.mistakes()[:MAX_THUMBNAILS]
    shown = [(answer, answer.image) for answer in wrong if isinstance(answer.image, Path)]
    if len(shown) < len(wrong):
        raise UserError("the data set has no files that could be shown; --mistakes needs a folder of images")
    folder.mkdir(parents=True, exist_ok=True)
    for rank, (answer, path) in enumerate(shown, start=1):
        image = images.open_rgb(path)
        image.thumbnail((SIDE, SIDE))
        truth, said = (_plain(result.classes[index]) for index in (answer.truth, answer.said))
        name = f"{rank:03}_{answer.probability:.0%}_{truth}_taken_for_{said}_{_plain(path.stem)}.jpg"
        with replacing(folder / name.replace("%", "pct")) as file:
            image.save(file, "JPEG", quality=85)
    return len(shown)


def _plain(text: str) -> str:
    """For the name of a file on any system."""
    return re.sub(r"[^\w-]+", "-", text)[:40]
