"""Folders of drawn photos, each class of another colour and pattern: easy to tell apart, and made in milliseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (40, 60, 200), "white": (230, 230, 230)}


def drawn(name: str, seed: int, side: int = 40) -> Image.Image:
    """Noise around the colour of the class, with stripes whose direction is the class's, too."""
    rng = np.random.default_rng([seed, *name.encode()])
    colour = np.array(COLOURS[name], float)
    pixels = colour + rng.normal(0, 25, (side, side, 3))
    rows, columns = np.mgrid[:side, :side]
    stripes = (rows if list(COLOURS).index(name) % 2 else columns) % 8 < 4
    return Image.fromarray((pixels * np.where(stripes, 1.0, 0.7)[..., None]).clip(0, 255).astype(np.uint8))


def folder(path: Path, names: tuple[str, ...] = ("blue", "green", "red"), count: int = 12, first: int = 0) -> Path:
    for name in names:
        (path / name).mkdir(parents=True, exist_ok=True)
        for seed in range(first, first + count):
            drawn(name, seed).save(path / name / f"{seed:03}.png")
    return path


def checks(path: Path, count: int = 12, side: int = 40) -> Path:
    """Photos of nothing that a class shows: boards of random squares."""
    path.mkdir(parents=True, exist_ok=True)
    for seed in range(count):
        squares = np.random.default_rng(seed).integers(0, 2, (side // 2, side // 2, 3)) * 255
        Image.fromarray(squares.repeat(2, 0).repeat(2, 1).astype(np.uint8)).save(path / f"{seed}.png")
    return path
