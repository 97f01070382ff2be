"""A name means a complete file: with two writers, links in the way, permissions, kills, and a disk that fails at any call."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import stat
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from bcnn.base import files
from bcnn.base.files import write_atomic

processes = multiprocessing.get_context("fork")


def write_often(path: Path, letter: bytes, times: int) -> None:
    for _ in range(times):
        write_atomic(path, letter * 100_000)


def test_two_writers_never_fail_and_readers_see_complete_files_only(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a" * 100_000)
    writers = [processes.Process(target=write_often, args=(path, letter, 150)) for letter in (b"a", b"b")]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        content = path.read_bytes()
        assert content in (b"a" * 100_000, b"b" * 100_000)
        seen += 1
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert seen > 10
    assert os.listdir(tmp_path) == ["a"]


def test_bytes_reach_the_disk_before_the_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls = tmp_path / "a", []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        found = os.fstat(handle)
        folder = stat.S_ISDIR(found.st_mode)
        assert not folder or found.st_ino == tmp_path.stat().st_ino
        calls.append("folder" if folder else f"{found.st_size} bytes")
        real_fsync(handle)

    def replace(old: Path, new: Path) -> None:
        calls.append("rename")
        real_replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_atomic(path, b"x" * 12_345)
    assert calls == ["12345 bytes", "rename", "folder"]


def test_a_link_in_the_way_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    # The one name that is known beforehand, and names that are guessed.
    (tmp_path / ".a.part").symlink_to("precious")
    guesses = iter(["0" * 16, "1" * 16])
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: next(guesses))
    (tmp_path / f".a.{'0' * 16}.part").symlink_to("precious")
    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "a", b"new")
    write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "precious").read_bytes() == b"precious"
    # A target that is a link becomes a file; what it pointed to stays.
    monkeypatch.undo()
    (tmp_path / "b").symlink_to("precious")
    write_atomic(tmp_path / "b", b"new")
    assert not (tmp_path / "b").is_symlink()
    assert (tmp_path / "precious").read_bytes() == b"precious"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_permissions_of_a_file_are_kept_and_never_wider_while_it_is_written(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(mode)
    with files.replacing(path) as file:
        file.write(b"new")
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_file_that_others_must_not_read_is_never_open_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, modes, real = tmp_path / "a", [], os.fchmod
    write_atomic(path, b"secret")
    path.chmod(0o600)

    def fchmod(handle: int, mode: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        real(handle, mode)

    monkeypatch.setattr(os, "fchmod", fchmod)
    before = os.umask(0)
    try:
        write_atomic(path, b"new secret")
    finally:
        os.umask(before)
    assert modes == [0o600]


def test_a_new_file_gets_the_usual_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def write_and_wait(path: Path) -> None:
    with files.replacing(path) as file:
        file.write(b"half")
        file.flush()
        time.sleep(60)


@pytest.mark.timeout(60)
def test_what_a_killed_writer_leaves_is_swept_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a"
    writers = [processes.Process(target=write_and_wait, args=(path,), daemon=True) for _ in range(2)]
    for writer in writers:
        writer.start()
    while sum(file.stat().st_size == 4 for file in tmp_path.iterdir()) < 2:
        time.sleep(0.005)
    os.kill(writers[0].pid or 0, signal.SIGKILL)
    writers[0].join()
    write_atomic(path, b"whole")
    assert len(os.listdir(tmp_path)) == 2  # ours, and that of the living
    os.kill(writers[1].pid or 0, signal.SIGKILL)
    writers[1].join()
    write_atomic(path, b"again")
    assert os.listdir(tmp_path) == ["a"]


# --- the generation before ---------------------------------------------------------------------------------------------


def test_the_generation_before_is_kept(tmp_path: Path) -> None:
    path, previous = tmp_path / "a", tmp_path / "a.previous"
    for generation in (b"1", b"2", b"3"):
        write_atomic(path, generation, previous)
    assert (path.read_bytes(), previous.read_bytes()) == (b"3", b"2")
    assert sorted(os.listdir(tmp_path)) == ["a", "a.previous"]


def test_the_generation_before_is_kept_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*args: object, **more: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    test_the_generation_before_is_kept(tmp_path)


CALLS = ("open", "fsync", "replace", "link", "unlink", "fchmod", "close")


@pytest.mark.parametrize("call", CALLS)
def test_a_failure_at_any_call_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Every call of every kind in turn fails, once: the name means the old file or the new one, and nothing else is left."""
    path, previous = tmp_path / "a", tmp_path / "a.previous"
    real = getattr(os, call)
    failed = 0
    for at in range(20):
        write_atomic(path, b"1" * 1000)
        write_atomic(path, b"2" * 1000, previous)
        count = 0

        def broken(*args: object, at: int = at, **more: object) -> object:
            nonlocal count
            count += 1
            if count == at + 1:
                if call == "close":
                    real(*args)  # a failing close closes, too
                raise OSError(errno.EIO, "Input/output error")
            return real(*args, **more)

        monkeypatch.setattr(os, call, broken)
        raised = False
        try:
            write_atomic(path, b"3" * 1000, previous)
        except OSError:
            raised = True
        monkeypatch.setattr(os, call, real)
        failed += raised
        assert path.read_bytes() in ((b"2" * 1000, b"3" * 1000) if raised else (b"3" * 1000,))
        assert previous.read_bytes() in (b"1" * 1000, b"2" * 1000)
        left = set(os.listdir(tmp_path)) - {"a", "a.previous"}
        write_atomic(path, b"4", previous)  # a temporary that could not be removed goes with the next write
        assert sorted(os.listdir(tmp_path)) == ["a", "a.previous"], left
        if count <= at:
            break  # it is not called more often
    else:
        pytest.fail(f"{call} is called without end")
    assert failed or call == "unlink"


def fill(file: BinaryIO) -> None:
    file.write(b"half of it")
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_keeps_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with files.replacing(path) as file:
        file.write(b"whole")
    with pytest.raises(OSError, match="No space left"), files.replacing(path) as file:
        fill(file)
    assert path.read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("name", ["x" * 255, "ü" * 127, "x" * 221])
def test_a_name_may_be_as_long_as_a_file_system_allows(tmp_path, name):
    for content in (b"1", b"2"):
        files.write_atomic(tmp_path / name, content, tmp_path / "before")
    assert ((tmp_path / name).read_bytes(), (tmp_path / "before").read_bytes()) == (b"2", b"1")
    assert sorted(os.listdir(tmp_path)) == sorted([name, "before"])
