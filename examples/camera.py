"""Say what a camera sees, and how many frames a second that makes. Made for a Raspberry Pi. No torch.

    python examples/camera.py                          the Pi's camera (picamera2), else webcam 0 (OpenCV); stop with Ctrl-C
    python examples/camera.py --model model.bcnn       a packed file of your own, or a name from `bcnn models`
    python examples/camera.py --camera photos/         a folder of images in place of a camera

The label shown is the mean of the last few frames: a single frame of a moving camera is often blurred.
"""

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import bcnn
from bcnn.base import images


def frames(camera: str) -> Iterator[np.ndarray]:
    """uint8 H,W,3, red first."""
    if camera and Path(camera).is_dir():
        yield from (np.asarray(images.open_rgb(file)) for file in images.files(camera))
        return
    if not camera.isdigit():  # the Pi's own camera, unless a webcam was asked for by its number
        try:
            from picamera2 import Picamera2
        except ModuleNotFoundError:
            camera = camera or "0"
        else:
            device = Picamera2()
            # picamera2's BGR888 is an array with red first: it names the order of the bits in a word.
            device.configure(device.create_video_configuration(main={"size": (640, 480), "format": "BGR888"}))
            device.start()
            try:
                while True:
                    yield device.capture_array()
            finally:
                device.stop()
    try:
        import cv2
    except ModuleNotFoundError:
        raise bcnn.UserError(
            "no camera can be read: install picamera2 (Raspberry Pi: sudo apt install python3-picamera2) or OpenCV "
            "(pip install opencv-python-headless), or give a folder of images with --camera"
        ) from None
    video = cv2.VideoCapture(int(camera))
    if not video.isOpened():
        raise bcnn.UserError(f"webcam {camera} does not open; is it plugged in, and not used by another program?")
    try:
        while (frame := video.read()[1]) is not None:
            yield np.ascontiguousarray(frame[..., ::-1])  # OpenCV has blue first
    finally:
        video.release()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="imagenette", help="packed file or shipped model")
    parser.add_argument("--camera", default="", help="number of a webcam, or a folder of images")
    parser.add_argument("--mean", type=int, default=5, help="show the mean of so many frames")
    arguments = parser.parse_args()
    if arguments.camera and not arguments.camera.isdigit() and not Path(arguments.camera).is_dir():
        raise bcnn.UserError(f"--camera {arguments.camera} is neither the number of a webcam nor a folder of images")

    engine = bcnn.load(arguments.model)
    labels = engine.program.labels or tuple(str(i) for i in range(engine.program.shapes[-1][2]))
    print(f"{arguments.model} on {engine.isa}, {engine.threads} threads; it knows: {', '.join(labels)}")
    last: deque[np.ndarray] = deque(maxlen=max(arguments.mean, 1))
    count, inside, start = 0, 0.0, time.perf_counter()
    try:
        for frame in frames(arguments.camera):
            before = time.perf_counter()
            logits = engine(frame)[0].astype(np.float64)
            inside += time.perf_counter() - before
            chances = np.exp(logits - logits.max())
            last.append(chances / chances.sum())
            count += 1
            mean = np.mean(last, axis=0)
            rate = count / (time.perf_counter() - start)
            print(
                f"{rate:6.1f} frames/s  {mean.max():6.1%}  {labels[mean.argmax()]:<20}",
                end="\r" if sys.stdout.isatty() else "\n",
            )
    except KeyboardInterrupt:
        pass  # how a camera is stopped
    total = time.perf_counter() - start
    print(
        f"\n{count} frames, {count / total:.1f} a second; resizing and network alone: {count / (inside or total):.1f}"
    )


if __name__ == "__main__":
    try:
        main()
    except (bcnn.UserError, OSError) as error:
        sys.exit(f"camera: {error}")
