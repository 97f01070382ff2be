"""One trainer per run folder: a lock that the operating system takes back when its process ends, however it ends.

The lock is on the open file, not in it: a file that a dead process left means nothing. What stands in the file, the process
and its machine, is only for the sentence that the second trainer gets.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bcnn.base.errors import UserError

_held: set[int] = set()


def _let_go() -> None:
    """In a forked child: workers that outlive a killed trainer must not hold its lock for it."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file `path` during the block. If another process does, a `UserError` says that it has `what` in use."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise UserError(f"cannot write to {path.parent}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = "another process"
        with suppress(OSError):
            holder = os.pread(handle, 200, 0).decode("utf-8", "replace").strip() or holder
        os.close(handle)
        raise UserError(f"{what} is in use by {holder}; wait until it ends, or stop it") from None
    except OSError:
        pass  # a file system without locks: as good as it gets
    _held.add(handle)
    try:
        with suppress(OSError):  # a full disk: the lock holds without its note
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        if handle in _held:  # else this is a forked child, and the number may mean another file by now
            _held.remove(handle)
            os.close(handle)
