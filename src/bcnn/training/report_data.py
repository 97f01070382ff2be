"""What a run's report shows of *your* data: about.json in the run folder, from which `report` draws.

Counts per class and the confusion matrix of the last evaluation, its most confident mistakes as thumbnails, and some training
images beside what augmentation makes of them. Thumbnails are JPEGs in base64, so that the report needs no other file.
"""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.base.files import check_plain, write_atomic
from bcnn.base.scores import Scores
from bcnn.base.softmax import softmax
from bcnn.training import augment
from bcnn.training.batches import Data, Split
from bcnn.training.run_folder import RunFolder

FILE = "about.json"
MAX_MISTAKES = 12  # shown
SAMPLES, VARIANTS = 4, 4  # training images, and what augmentation makes of each
SIDE = 128  # pixels of a thumbnail


@dataclass
class Mistakes:
    """The wrong answers that the network was surest of, as an evaluation goes along."""

    worst: list[tuple[float, int, int, int]] = field(default_factory=list)  # probability, image, class, answer

    def look(self, index: NDArray[np.int64], logits: NDArray[np.float32], y: NDArray[np.int64]) -> None:
        p = softmax(logits)
        guess = p.argmax(1)
        wrong = np.flatnonzero(guess != y)
        self.worst += [(float(p[i, guess[i]]), int(index[i]), int(y[i]), int(guess[i])) for i in wrong]
        self.worst = sorted(self.worst, key=lambda row: (-row[0], row[1]))[:MAX_MISTAKES]


def write(folder: RunFolder, data: Data, scores: Scores, mistakes: Mistakes, size: tuple[int, int], seed: int) -> None:
    """about.json, whole or not at all."""
    names = data.classes
    trained = np.bincount(data.train.labels, minlength=len(names)).tolist()
    about = {
        "source": data.config.source,
        "classes": [
            {"name": name, "training": count, "evaluation": int(total), "right": share}
            for name, count, total, share in zip(
                names, trained, scores.confusion.sum(1), scores.per_class(), strict=True
            )
        ],
        "top1": scores.top1,
        "confusion": scores.confusion.tolist(),
        "mistakes": [
            {"probability": p, "is": names[y], "said": names[guess], "image": picture}
            for p, index, y, guess in mistakes.worst
            if (picture := thumbnail(pixels(data.val, index, data.size, data.config.crop)))
        ],
        "augmented": augmented(data, size, seed),
    }
    write_atomic(folder.path / FILE, json.dumps(about).encode())


def read(folder: RunFolder) -> dict[str, Any]:
    """What `write` left; nothing where there is none, or a damaged one: a report without it is still a report."""
    try:
        check_plain(folder.path / FILE)
        about = json.loads((folder.path / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}


def augmented(data: Data, size: tuple[int, int], seed: int) -> list[dict[str, Any]]:
    """Training images spread over the data set, each with `VARIANTS` crops as the first epochs have them."""
    count = len(data.train)
    rows = []
    red, green, blue = (round(255 * channel) for channel in data.mean)
    for index in np.linspace(0, count - 1, min(SAMPLES, count)).astype(int).tolist():
        image = pixels(data.train, index, None, 1.0)
        if image is None:
            continue
        made = []
        for epoch in range(VARIANTS):
            draws = augment.draw(data.config.augment, count, seed, epoch)[index : index + 1]
            (box,) = augment.boxes(draws, image.shape[1] / image.shape[0])
            made.append(thumbnail(augment.cut_image(Image.fromarray(image), box, size, (red, green, blue))))
        rows.append({"name": data.classes[int(data.train.labels[index])], "image": thumbnail(image), "crops": made})
    return rows


def pixels(split: Split, index: int, size: tuple[int, int] | None, crop: float) -> NDArray[np.uint8] | None:
    """One image of a split, H,W,3; None for a file that cannot be read (any more)."""
    if split.pixels is not None:
        found: NDArray[np.uint8] = split.pixels[index]
        return found
    try:
        picture = images.open_rgb(split.files[index])
        return np.asarray(picture) if size is None else images.fit(picture, size, crop)
    except UserError:
        return None


def thumbnail(image: NDArray[np.uint8] | None) -> str:
    """A JPEG of at most `SIDE` pixels in base64; tiny images are enlarged, pixel by pixel."""
    if image is None:
        return ""
    picture = Image.fromarray(image)
    if max(picture.size) < SIDE // 2:
        factor = SIDE // max(picture.size)
        picture = picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
    picture.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return base64.b64encode(buffer.getvalue()).decode()
