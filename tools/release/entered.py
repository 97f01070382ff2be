"""How many files and named functions of ours a photo passes on its way to an answer: `python -m tools.release.entered [MODEL]`.

Counted are functions that have a name, each once; lambdas, comprehensions, generator expressions and imports are not. A test holds
the limits: a reader should be able to follow a file's opening, and then a photo, in one sitting.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from PIL import Image

import bcnn
from bcnn.engine import Engine
from bcnn.packed import packfile, shipped

ROOT = Path(bcnn.__file__).parent
Entered = set[tuple[str, str]]  # file below bcnn, function


def entered(call: Callable[[], object]) -> Entered:
    """What a second call enters: the first imports what is needed."""
    found: Entered = set()

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and not code.co_name.startswith("<"):
            path = Path(code.co_filename)
            if path.is_relative_to(ROOT):
                found.add((path.relative_to(ROOT).as_posix(), code.co_qualname))

    call()
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def walk(model: str) -> dict[str, Entered]:
    """Opening the file, making its engine, and answering for one photo that has another size."""
    path = shipped.find(model)
    program = packfile.read(path)
    engine = Engine(program)
    with tempfile.TemporaryDirectory() as folder:
        photo = Path(folder) / "photo.jpg"
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)).save(photo)
        return {
            "open": entered(lambda: packfile.open_packed(path)),
            "engine": entered(lambda: Engine(program)),
            "predict": entered(lambda: engine.predict(photo)),
        }


def main() -> None:
    names = sys.argv[1:] or list(shipped.names())
    for name in names:
        for step, found in walk(name).items():
            print(f"{name:<14}{step:<9}{len({file for file, _ in found}):>3} files {len(found):>4} functions")
            if len(names) == 1:
                print("".join(f"    {file}  {function}\n" for file, function in sorted(found)), end="")


if __name__ == "__main__":
    main()
