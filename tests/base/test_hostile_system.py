"""Pipes and devices where files belong, outputs that are closed or full, names too long: one sentence, and nothing waits or is lost."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bcnn import cli
from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.base.files import write_atomic
from bcnn.cli import options
from bcnn.data import cifar
from bcnn.nets import config as configs
from bcnn.packed import packfile
from bcnn.packed.container import format_of

READERS: dict[str, Callable[[Path], object]] = {
    "a.bcnn": packfile.read,
    "a.json": configs.read,
    "a.toml": configs.read,
    "a.png": images.open_rgb,
    "data_batch_1": cifar.read_batch,
    "labels.txt": lambda path: options.parse_labels(str(path)),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", READERS)
def test_a_pipe_where_a_file_belongs_is_a_sentence_and_no_wait_for_its_writer(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError):
        READERS[name](tmp_path / name)


@pytest.mark.timeout(60)
def test_a_pipe_is_no_checkpoint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.safetensors")
    assert format_of(tmp_path / "a.safetensors") == ""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["a.json", "labels.txt"])
def test_a_device_that_never_ends_is_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(UserError):
        READERS[name](tmp_path / name)


def test_a_pipe_or_a_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("pipe")
    for path in (pipe, link):
        with pytest.raises(OSError, match="pipe, a socket or a device"):
            write_atomic(path, b"x")
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_a_file_without_a_name_is_a_folder(tmp_path: Path) -> None:
    for path in (Path(), Path("/")):
        with pytest.raises(IsADirectoryError):
            write_atomic(path, b"x")


def sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    monkeypatch.setattr(sys, "argv", ["bcnn", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    said = capsys.readouterr().err
    assert said.startswith("bcnn: ")
    assert said.count("\n") == 1
    return said


def test_a_name_that_no_file_system_takes_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    long = "x" * 300 + ".bcnn"
    assert "File name too long" in sentence(monkeypatch, capsys, "predict", "a.png", "-m", long)
    assert "File name too long" in sentence(monkeypatch, capsys, "convert", "digits", "-o", long)
    assert os.listdir(tmp_path) == []


def test_an_interrupt_is_a_word_whenever_it_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*words: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bcnn.cli.app.importlib.import_module", interrupted)  # while the verbs are imported
    assert sentence(monkeypatch, capsys, "models", code=130) == "bcnn: stopped\n"
    monkeypatch.undo()
    monkeypatch.setattr("bcnn.models.resolve.resolve", interrupted)  # while a verb works
    assert sentence(monkeypatch, capsys, "info", "digits", code=130) == "bcnn: stopped\n"


def command(words: list[str], redirection: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""}  # waits for the end
    script = f'exec "$0" -m bcnn "$@" {redirection}'
    return subprocess.run(["sh", "-c", script, sys.executable, *words], capture_output=True, text=True, env=env)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("words", [["summary", "digits"], ["summary", "digits", "--csv"]], ids=["table", "plain"])
def test_a_full_disk_under_the_output_is_a_sentence(words: list[str]) -> None:
    done = command(words, ">/dev/full")
    assert (done.returncode, done.stderr) == (2, "bcnn: No space left on device\n")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    done = command(["summary", "imagenet", "--csv"], "| true")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_closed_stdin_is_a_sentence_and_closed_outputs_do_no_harm() -> None:
    done = command(["predict", "-", "-m", "digits"], "<&-")
    assert (done.returncode, done.stderr) == (2, "bcnn: there is no stdin to read an image from: it is closed\n")
    assert command(["summary", "digits"], ">&-").stderr == ""
    assert command(["summary", "digits"], "2>&-").returncode == 0
