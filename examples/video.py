"""Say what is on every frame of a video, and how many frames a second that makes. No torch.

    python examples/video.py model.bcnn holiday.mp4      a video file    (needs: pip install opencv-python-headless)
    python examples/video.py model.bcnn 0                webcam number 0 (the same; stop with Ctrl-C)
    python examples/video.py model.bcnn cat.gif          an animated GIF, or a folder of frames in the order of their names

model.bcnn is what `bcnn pack` or examples/own_photos.py wrote; a name from `bcnn models` works too. Frames are resized and cropped as in evaluation.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageSequence

import bcnn
from bcnn.base import images


def frames(source: str) -> Iterator[Image.Image]:
    """Upright RGB, one at a time: a film of hours needs the memory of a frame."""
    if Path(source).is_dir():
        yield from map(images.open_rgb, images.files(source))
    elif Path(source).suffix.lower() in images.SUFFIXES:
        with Image.open(source) as animation:
            yield from (images.rgb(frame.copy()) for frame in ImageSequence.Iterator(animation))
    else:
        import cv2

        video = cv2.VideoCapture(int(source) if source.isdigit() else source)
        if not video.isOpened():
            raise bcnn.UserError(f"cannot open {source}: no video file and no webcam of this number")
        while (frame := video.read()[1]) is not None:
            yield Image.fromarray(np.ascontiguousarray(frame[..., ::-1]))  # OpenCV has blue first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="packed file")
    parser.add_argument("source", help="video file, webcam number, animated GIF or folder of frames")
    arguments = parser.parse_args()

    engine = bcnn.load(arguments.model)
    start, inside, count = time.perf_counter(), 0.0, 0
    try:
        for count, frame in enumerate(frames(arguments.source), start=1):
            before = time.perf_counter()
            ((label, probability),) = engine.predict(frame, top=1)[0]
            inside += time.perf_counter() - before
            print(f"frame {count:5}  {probability:6.1%}  {label}")
    except KeyboardInterrupt:
        pass  # how a webcam is stopped
    total = time.perf_counter() - start
    print(f"{count} frames, {count / total:.0f} a second; resizing and network alone: {count / (inside or total):.0f}")


if __name__ == "__main__":
    try:
        main()
    except (bcnn.UserError, OSError) as error:
        sys.exit(f"video: {error}")
    except ModuleNotFoundError as error:
        sys.exit(f"video: this source needs {error.name}; install it with: pip install opencv-python-headless")
