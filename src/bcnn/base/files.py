"""Files that are complete or not there: everything this package writes for keeps goes through `write_atomic` or `replacing`,
and what it reads may be asked by `check_plain` first whether it is a file at all.

A temporary file of its own beside the target, fsync, rename, fsync of the folder: the name always means a complete file,
before and after a crash of the machine, and however many processes write it at once. What a killed process leaves behind
is removed by the next write of the same name; a lock on each temporary tells the dead from the living. POSIX only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# The last component is never followed if it is a link, and never shared: the file is ours or there is an error.
NEW_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # what file systems without hard links answer


def write_atomic(path: Path, content: bytes, previous: Path | None = None) -> None:
    """Replace a file as a whole; what was there before stays as `previous`, if that is given."""
    with replacing(path, previous) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path, previous: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends, or vanishes if it raises.

    An existing file's permissions are kept. A symbolic link is replaced, not followed. A pipe or a device is neither: writing
    to /dev/null must not put a file in its place.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        check_plain(path)
    for name in (path, previous):
        if name is not None:
            _sweep(name)
    temporary, file = _create(path)
    with file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())  # its bytes reach the disk before its name does
            if previous is not None:
                _keep(path, previous)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)  # the rename itself must reach the disk
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def check_plain(path: str | Path) -> None:
    """An `OSError` unless it is a file: to open a pipe is to wait for its writer, and a device such as /dev/zero never ends."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, not a file", os.fspath(path))


def digest(data: bytes | memoryview) -> str:
    """128 bits of SHA-256: processors have instructions for it, and half of it is enough against accidents."""
    return hashlib.sha256(data).hexdigest()[:32]


def _start(path: Path) -> str:
    """How the names of its temporaries begin: with its own, as far as a name of 255 bytes has room."""
    name = os.fsencode(path.name)
    return f".{path.name if len(name) <= 220 else digest(name)}."


def _name(path: Path) -> Path:
    return path.with_name(f"{_start(path)}{secrets.token_hex(8)}.part")


def _create(path: Path) -> tuple[Path, BinaryIO]:
    """A new file beside `path`, locked, with the permissions of what it will replace."""
    try:
        found = os.lstat(path)
        kept = stat.S_IMODE(found.st_mode) & 0o777 if stat.S_ISREG(found.st_mode) else None
    except FileNotFoundError:
        kept = None
    while True:
        temporary = _name(path)
        # A file that others must not read is never open to them, not even while it is written.
        handle = os.open(temporary, NEW_FILE_FLAGS, 0o666 if kept is None else 0o600)
        try:
            swept = _locked_too_late(handle)
            if kept is not None and not swept:
                os.fchmod(handle, kept)
            file = os.fdopen(handle, "w+b")
        except BaseException:
            os.close(handle)
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if not swept:
            return temporary, file
        file.close()


def _locked_too_late(handle: int) -> bool:
    """Lock a new temporary; whether another writer has swept it before that, or is about to."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks: nothing is swept there
    return os.fstat(handle).st_nlink == 0


def _sweep(path: Path) -> None:
    """Remove temporaries of `path` that nobody holds: their writers are dead."""
    start, end = _start(path), ".part"
    with contextlib.suppress(OSError):
        for entry in os.listdir(path.parent):
            if not (entry.startswith(start) and entry.endswith(end) and len(entry) == len(start) + 16 + len(end)):
                continue
            with contextlib.suppress(OSError):
                handle = os.open(path.with_name(entry), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(path.with_name(entry))
                finally:
                    os.close(handle)


def _keep(path: Path, previous: Path) -> None:
    """What `path` means now is also called `previous` from here on; a moment without either name does not exist."""
    link = _name(previous)
    try:
        os.link(path, link, follow_symlinks=False)
    except FileNotFoundError:
        return  # the first of its name
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        with contextlib.suppress(FileNotFoundError):
            os.replace(path, previous)  # for a moment only `previous` is there
        return
    try:
        with contextlib.suppress(FileNotFoundError):  # swept by another writer, who keeps a generation of its own
            os.replace(link, previous)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(link)  # renaming one link of a file to another does nothing, and leaves both
