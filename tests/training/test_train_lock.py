"""One trainer per run folder, and a dead one does not count."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
import tiny_runs
from tiny_runs import train

from bcnn.base.errors import UserError
from bcnn.training.interrupt import Stopped
from bcnn.training.lock import locked
from bcnn.training.run_folder import RunFolder

processes = multiprocessing.get_context("fork")


def hold(path: Path, ready: Event, worker: bool) -> None:
    with locked(path, "it"):
        if worker and os.fork() == 0:
            ready.set()
            time.sleep(5)  # a worker that outlives its trainer
            os._exit(0)
        if not worker:
            ready.set()
        time.sleep(60)


@pytest.mark.parametrize("worker", [False, True])
def test_a_living_process_holds_the_lock_and_a_killed_one_does_not(tmp_path: Path, worker: bool) -> None:
    path, ready = tmp_path / "lock", processes.Event()
    holder = processes.Process(target=hold, args=(path, ready, worker), daemon=True)
    holder.start()
    assert ready.wait(20)
    with (
        pytest.raises(UserError, match=f"^the run is in use by process {holder.pid} on .+; wait"),
        locked(path, "the run"),
    ):
        pass
    os.kill(holder.pid or 0, signal.SIGKILL)
    holder.join()
    with locked(path, "the run"):
        assert path.read_text().startswith(f"process {os.getpid()} ")


def test_a_lock_is_free_again_after_its_block_and_after_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(KeyError), locked(tmp_path / "lock", "it"):
            raise KeyError
    with locked(tmp_path / "lock", "it"), pytest.raises(UserError, match="in use"), locked(tmp_path / "lock", "it"):
        pass


def test_a_lock_holds_where_its_note_cannot_be_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")  # it can be opened and locked, and neither cut nor written at a place
    with (
        locked(tmp_path / "lock", "it"),
        pytest.raises(UserError, match="in use by another process"),
        locked(tmp_path / "lock", "it"),
    ):
        pass


def test_a_lock_in_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to("elsewhere")
    with pytest.raises(UserError, match=r"^cannot write to "), locked(tmp_path / "lock", "it"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_second_trainer_in_a_run_folder_is_turned_away(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(Stopped):
        train(tiny_runs.config(), folder.path, stop_after=2)
    before = sorted((file.name, file.stat().st_mtime_ns) for file in folder.path.iterdir())
    with folder.locked(), pytest.raises(UserError, match=f"run is in use by process {os.getpid()} on "):
        train(None, folder.path, resume=True)
    after = [(file.name, file.stat().st_mtime_ns) for file in folder.path.iterdir() if file.name != ".lock"]
    assert set(after) <= set(before)
    # A new run in a folder that another process has just made.
    other = RunFolder(tmp_path / "other")
    other.make()
    with other.locked(), pytest.raises(UserError, match="other is in use by process"):
        train(tiny_runs.config(), other.path)
    assert os.listdir(other.path) == [".lock"]
