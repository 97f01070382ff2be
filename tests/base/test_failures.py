"""A failure at every write, fsync, rename and allocation: nothing that was saved is lost, and one sentence tells."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import programs
import pytest
import tiny_runs
import torch
from tiny_runs import train

from bcnn import cli
from bcnn.base import files
from bcnn.base.errors import UserError
from bcnn.nets.bcnn import Network
from bcnn.packed import packfile
from bcnn.training import checkpoint
from bcnn.training.checkpoint import Checkpoint, Meta

CALLS = ("open", "fdopen", "write", "fsync", "replace", "link")
META = Meta((0.5,) * 3, (0.5,) * 3, tuple("0123456789"), 1.0)


class Failing:
    """`os` as `bcnn.base.files` sees it, whose n-th call of one kind fails: n = 0 counts only. "write" is that of the open file."""

    def __init__(self, call: str, at: int, code: int) -> None:
        self.call, self.at, self.code, self.count = call, at, code, 0

    def __getattr__(self, name: str) -> object:
        real = getattr(os, name)
        if name == "fdopen" and self.call == "write":
            return lambda *args: self.file(real(*args))
        return self.guarded(real) if name == self.call else real

    def guarded(self, real: object) -> object:
        def call(*args: object, **more: object) -> object:
            self.count += 1
            if self.count == self.at:
                raise OSError(self.code, os.strerror(self.code))
            return real(*args, **more)  # type: ignore[operator]

        return call

    def file(self, file: object) -> object:
        half, guard = file.write, self.guarded(file.write)  # type: ignore[attr-defined]

        def write(content: bytes) -> int:
            if self.count + 1 == self.at:
                half(content[: len(content) // 2])  # a disk fills up in the middle
            return guard(content)  # type: ignore[operator, no-any-return]

        file.write = write  # type: ignore[attr-defined]
        return file


def failures(monkeypatch: pytest.MonkeyPatch, call: str) -> Iterator[Failing]:
    """One after the other: the first call fails, the second, ... until there is none left to fail."""
    for at in range(1, 50):
        for code in (errno.ENOSPC, errno.EIO):
            failing = Failing(call, at, code)
            monkeypatch.setattr(files, "os", failing)
            yield failing
            monkeypatch.setattr(files, "os", os)
        if failing.count < at:
            assert at > 1, f"{call} was never called"
            return
    pytest.fail(f"{call} is called without end")


def network(value: float) -> Checkpoint:
    torch.manual_seed(0)
    state = Network(tiny_runs.NETWORK).state_dict()
    state["decoder.linear.bias"] += value
    return Checkpoint(tiny_runs.NETWORK, "binary", state, META, progress={"updates": int(value)})


@pytest.mark.parametrize("call", CALLS)
def test_a_checkpoint_or_the_one_before_it_can_always_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "last.safetensors"
    contents = [network(value) for value in (1, 2, 3)]
    for _ in failures(monkeypatch, call):
        monkeypatch.setattr(files, "os", os)
        for content in contents[:2]:
            checkpoint.save(path, content, keep=True)
        monkeypatch.setattr(files, "os", _)
        raised = False
        try:
            checkpoint.save(path, contents[2], keep=True)
        except OSError:
            raised = True
        monkeypatch.setattr(files, "os", os)
        found, _note = checkpoint.read_or_previous(path)
        assert found is not None
        assert found.progress["updates"] in ((2, 3) if raised else (3,))
        before = checkpoint.read(checkpoint.previous(path)).progress["updates"]
        assert before in (1, 2)
        assert sorted(os.listdir(tmp_path)) == ["last.previous.safetensors", "last.safetensors"]


@pytest.mark.parametrize("call", [call for call in CALLS if call != "link"])
def test_a_packed_file_is_the_old_one_or_the_new_one_and_a_failure_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "model.bcnn"
    old, new = (programs.of_config(tiny_runs.NETWORK, seed) for seed in (0, 1))
    packfile.save(old, path)
    before = path.read_bytes()
    packfile.save(new, path)
    after = path.read_bytes()
    for _ in failures(monkeypatch, call):
        path.write_bytes(before)
        try:
            packfile.save(new, path)
            expected = (after,)
        except UserError as error:
            assert "cannot write" in str(error)  # noqa: PT017
            expected = (before, after)
        assert path.read_bytes() in expected
        packfile.open_packed(path)
        assert os.listdir(tmp_path) == ["model.bcnn"]


COMMANDS = {  # what each writes besides models: pictures and tables
    "confusion.png": ["eval", "digits", "--picture"],
    "result.json": ["bench", "digits", "--rounds", "1", "--json"],
    "step.png": ["approximate", "step", "--plot"],
    "step.svg": ["approximate", "step", "--plot"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_picture_or_a_table_that_cannot_be_written_whole_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).write_bytes(b"the one before")
    monkeypatch.setattr(files, "os", Failing("fsync", 1, errno.ENOSPC))
    monkeypatch.setattr(sys, "argv", ["bcnn", *COMMANDS[name], str(tmp_path / name)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err.splitlines()[-1]) == (2, "bcnn: No space left on device")
    assert (tmp_path / name).read_bytes() == b"the one before"
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("call", ["fsync", "replace", "link", "write"])
def test_a_run_on_a_failing_disk_goes_on_and_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], call: str
) -> None:
    monkeypatch.setattr("bcnn.training.report.write", lambda folder: None)
    config = tiny_runs.config(save_seconds=0.0, steps=(replace(tiny_runs.STEP1, warmup=0),))
    train(config, tmp_path / "whole")
    real, count = checkpoint.save, 0

    def save(path: Path, content: Checkpoint, keep: bool = False) -> None:
        """Every second checkpoint of the run itself meets a failure; those it must write do not."""
        nonlocal count
        count += keep
        monkeypatch.setattr(files, "os", Failing(call, 1, errno.EIO) if keep and count % 2 == 0 and count < 6 else os)
        try:
            real(path, content, keep)
        finally:
            monkeypatch.setattr(files, "os", os)

    monkeypatch.setattr(checkpoint, "save", save)
    train(config, tmp_path / "failing")
    said = capsys.readouterr().err.replace("\n", " ")
    assert said.count("Input/output error; the checkpoint before it is kept") == 2
    states = [checkpoint.read(tmp_path / name).state for name in ("whole", "failing")]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_a_run_that_cannot_write_its_result_ends_with_a_sentence_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bcnn.training.report.write", lambda folder: None)
    config = tiny_runs.config(steps=(replace(tiny_runs.STEP1, warmup=0),))
    real = checkpoint.save

    def save(path: Path, content: Checkpoint, keep: bool = False) -> None:
        if path.name == "step1.safetensors":
            raise OSError(errno.EIO, "Input/output error")
        real(path, content, keep)

    monkeypatch.setattr(checkpoint, "save", save)
    with pytest.raises(UserError, match=r"cannot write to .*: Input/output error; what was saved before is complete"):
        train(config, tmp_path / "run")
    monkeypatch.setattr(checkpoint, "save", real)
    assert train(None, tmp_path / "run", resume=True)["accuracy"]


def test_a_checkpoint_that_memory_does_not_suffice_for_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bcnn.training.report.write", lambda folder: None)
    real, count = checkpoint.safetensors.torch.save, 0

    def save(*args: object) -> bytes:
        nonlocal count
        count += 1
        if count == 2:
            raise MemoryError
        return real(*args)

    monkeypatch.setattr(checkpoint.safetensors.torch, "save", save)
    train(tiny_runs.config(save_seconds=0.0, steps=(replace(tiny_runs.STEP1, warmup=0),)), tmp_path / "run")
    assert "not enough memory; the checkpoint before it is kept" in capsys.readouterr().err.replace("\n", " ")


ALLOCATIONS = """
import os, sys
from pathlib import Path
import _testcapi
from bcnn import cli
from bcnn.base import files
path, previous = Path(sys.argv[1]) / "a", Path(sys.argv[1]) / "b"
failed = whole = 0
for start in range(5000):
    files.write_atomic(path, b"1" * 1000)
    files.write_atomic(path, b"2" * 1000, previous)
    raised = False
    _testcapi.set_nomemory(start, start + 1)
    try:
        files.write_atomic(path, b"3" * 1000, previous)
    except Exception:  # a MemoryError, or what parts of Python make of one
        raised = True
    finally:
        _testcapi.remove_mem_hooks()
    failed += raised
    whole = 0 if raised else whole + 1
    assert path.read_bytes() in ((b"2" * 1000, b"3" * 1000) if raised else (b"3" * 1000,)), start
    assert previous.read_bytes() in (b"1" * 1000, b"2" * 1000), start
    if whole == 100:
        break
files.write_atomic(path, b"4", previous)
print(failed, sorted(os.listdir(sys.argv[1])))
"""


def test_a_failure_at_every_allocation_of_a_write_loses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("_testcapi")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", ALLOCATIONS, str(tmp_path)], env=env, capture_output=True, text=True, check=False
    )
    failed, _, left = done.stdout.strip().partition(" ")
    assert (done.returncode, left) == (0, "['a', 'b']"), done.stderr
    assert int(failed) > 20
