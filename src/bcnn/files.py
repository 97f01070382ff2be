"""Files that are complete or not there: everything this package writes for keeps goes through `write_atomic`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_atomic(path: Path, content: bytes) -> None:
    """Temporary file, fsync, rename: the name always means a complete file, before and after a crash of the machine."""
    temporary = path.with_name(
        f".{path.name}.part"
    )  # one name: what a kill leaves behind is overwritten by the next write
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # its bytes reach the disk before its name does
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)  # the rename itself must reach the disk
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
