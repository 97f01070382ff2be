"""Kill real processes, then compare the final weights bit for bit with those of a run that was left alone."""

import multiprocessing
import os
import random
import signal
import time
from dataclasses import replace

import pytest
import tiny_runs
import torch
from PIL import Image
from tiny_runs import train

from bcnn.base.errors import UserError
from bcnn.training import checkpoint
from bcnn.training.interrupt import Interrupt, Stopped
from bcnn.training.run_folder import RunFolder
from bcnn.training.run_progress import RunProgress

# A server that has imported torch but never used it: a fork of it is a fresh process without the seconds of importing.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tiny", "sklearn.datasets", "torch._dynamo"])
SETTINGS = {"save_seconds": 0.0, "meter_every": 1}  # a checkpoint after every update


def final_weights(folder):
    last = checkpoint.read(folder)
    assert last.progress["finished"]
    return last.state


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    monkeypatch.setattr("bcnn.training.report.write", lambda folder: None)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "untouched"
    process = processes.Process(target=tiny_runs.run, args=(folder,), kwargs=SETTINGS)
    process.start()
    process.join()
    assert process.exitcode == 0
    return folder


def saved_at(folder):
    last = folder / "last.safetensors"
    return last.stat().st_mtime_ns if last.exists() else 0


def same_run(folder, untouched):
    a, b = final_weights(untouched), final_weights(folder)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[k], b[k]) for k in a)
    keys = ("kind", "step", "updates", "loss", "accuracy", "flips", "train_accuracy")
    logs = [[{k: r.get(k) for k in keys} for r in RunFolder(f).read_metrics()] for f in (untouched, folder)]
    assert logs[0] == logs[1]


def test_run_killed_at_random_moments_ends_with_the_same_bits(untouched, tmp_path):
    folder, kills, chance = tmp_path / "killed", 0, random.Random()
    process = processes.Process(target=tiny_runs.run, args=(folder,), kwargs=SETTINGS)
    while process.exitcode != 0:
        process.start()
        before = saved_at(folder)
        while process.is_alive() and saved_at(folder) == before:  # it must get somewhere, or this would never end
            time.sleep(0.005)
        process.join(chance.uniform(0, 0.3) if kills < 4 else None)
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            kills += 1
        if process.exitcode == 0:
            break
        process = processes.Process(target=tiny_runs.run, args=(folder, True))
    assert kills
    same_run(folder, untouched)


def die_inside_write(folder, resume, call, at):
    """Run, but die by SIGKILL in the middle of the `at`-th checkpoint write: before `call`, one of its system calls."""
    real, count = getattr(os, call), 0

    def deadly(*args):
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args)

    setattr(os, call, deadly)
    tiny_runs.run(folder, resume, **SETTINGS)


def test_run_killed_inside_checkpoint_writes_ends_with_the_same_bits(untouched, tmp_path):
    folder = tmp_path / "killed"
    for resume, call, at in ((False, "fsync", 9), (True, "replace", 5), (True, "replace", 7)):
        process = processes.Process(target=die_inside_write, args=(folder, resume, call, at))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert checkpoint.read(folder / "last.safetensors").state  # whole, whatever happened
    process = processes.Process(target=tiny_runs.run, args=(folder, True))
    process.start()
    process.join()
    same_run(folder, untouched)


def test_ctrl_c_saves_and_says_how_to_resume(untouched, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"
    asked = Interrupt.asked

    def press(self, updates):
        if updates == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return asked(self, updates)

    monkeypatch.setattr(Interrupt, "asked", press)
    with pytest.raises(Stopped) as stopped:
        train(tiny_runs.config(meter_every=1), folder)
    assert stopped.value.signal_number == signal.SIGINT
    assert f"bcnn train --resume --out {folder}" in capsys.readouterr().err.replace("\n", "")
    monkeypatch.undo()
    assert checkpoint.read(folder).progress["updates"] == 7
    train(None, folder, resume=True)
    same_run(folder, untouched)


def test_stop_after_stops_there_and_resumes(tmp_path):
    with pytest.raises(Stopped):
        train(tiny_runs.config(), tmp_path / "run", stop_after=3)
    assert checkpoint.read(tmp_path / "run").progress["updates"] == 3
    with pytest.raises(Stopped):
        train(None, tmp_path / "run", resume=True, stop_after=3)
    assert checkpoint.read(tmp_path / "run").progress["updates"] == 6


def damage(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_ends_with_the_same_bits(untouched, tmp_path, capsys):
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        train(tiny_runs.config(**SETTINGS), folder, stop_after=7)
    last, before = folder / "last.safetensors", folder / "last.previous.safetensors"
    assert (checkpoint.read(last).progress["updates"], checkpoint.read(before).progress["updates"]) == (7, 6)
    damage(last)
    with pytest.raises(Stopped):
        train(None, folder, resume=True, stop_after=1)
    said = capsys.readouterr().err.replace("\n", " ")
    assert "does not match its hash; resumed from the generation before it, last.previous.safetensors" in said
    # The damaged one is not kept as a generation of its own.
    assert (checkpoint.read(last).progress["updates"], checkpoint.read(before).progress["updates"]) == (7, 6)
    last.unlink()
    train(None, folder, resume=True)
    assert "last.safetensors is gone; resumed from" in capsys.readouterr().err.replace("\n", " ")
    same_run(folder, untouched)


def test_two_damaged_generations_are_one_sentence(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        train(tiny_runs.config(**SETTINGS), folder, stop_after=2)
    damage(folder / "last.safetensors")
    damage(folder / "last.previous.safetensors")
    with pytest.raises(UserError, match="does not match its hash; and the generation before it is no better: "):
        train(None, folder, resume=True)


PROGRESS = {"step": 0, "epoch": 1, "batch": 2, "updates": 7, "epochs_done": 1, "flips": [0.1], "accuracies": {}}


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": "0"},
        {"steps": 0},
        {"step": -1},
        {"step": 3},
        {"step": 2, "finished": False},
        {"step": 1, "accuracies": {}},
        {"finished": True},
        {"epoch": 3},
        {"epoch": 2, "batch": 0},
        {"epoch": 2, "batch": 1, "accuracies": {"step1": 0.5}},
        {"batch": 6},
        {"updates": None},
        {"flips": ["a"]},
        {"flips": 1},
        {"accuracies": [1]},
        {"accuracies": {"step1": "high"}},
        {"accuracies": {"other": 0.5}},
        {"seconds": "long"},
    ],
)
def test_damaged_progress_is_one_sentence(wrong):
    steps = tiny_runs.config().steps
    assert RunProgress.typed(PROGRESS).check(steps, 5).updates == 7
    with pytest.raises(UserError, match="progress"):
        RunProgress.typed({**PROGRESS, **wrong}).check(steps, 5)


def test_damaged_progress_in_a_checkpoint_names_the_file(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        train(tiny_runs.config(), folder, stop_after=2)
    last = checkpoint.read(folder)
    for progress in ({**last.progress, "step": "one"}, {"updates": 1, "more": 2}):
        checkpoint.save(folder / "last.safetensors", replace(last, progress=progress))
        with pytest.raises(UserError, match=r"last.safetensors: progress.*start a new run"):
            train(None, folder, resume=True)


def test_resuming_a_finished_run_changes_nothing(untouched):
    before = (untouched / "last.safetensors").read_bytes()
    train(None, untouched, resume=True)
    assert (untouched / "last.safetensors").read_bytes() == before


def test_resuming_on_other_data_is_an_error(tmp_path):
    for name in ("ant", "cat"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(6):
            Image.new("RGB", (8, 8), (40 * i, 0, 0)).save(tmp_path / "data" / name / f"{i}.png")
    config = tiny_runs.config(data=replace(tiny_runs.config().data, source=str(tmp_path / "data")))
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", stop_after=1)
    (tmp_path / "data" / "ant" / "5.png").unlink()
    with pytest.raises(UserError, match="not the data this run began with: its 'train' changed"):
        train(None, tmp_path / "run", resume=True)


def photos(folder):
    """Two classes with images of the same sizes and the same colours, in other orders."""
    for name, offset in (("ant", 0), ("cat", 3)):
        (folder / name).mkdir(parents=True)
        for i in range(6):
            image = Image.new("RGB", (8, 8), (40 * ((i + offset) % 6), 0, 0))
            image.save(folder / name / f"{i}.bmp")  # as many bytes for every colour
    return folder


@pytest.mark.parametrize("memory_mb", [2048, 0])
def test_swapped_class_folders_are_noticed(tmp_path, memory_mb):
    folder = photos(tmp_path / "data")
    if not memory_mb:  # streamed images are known by names and sizes
        Image.new("RGB", (8, 9)).save(folder / "ant" / "0.bmp")
    config = replace(tiny_runs.config().data, source=str(folder), memory_mb=memory_mb)
    config = tiny_runs.config(data=config, batch=4)
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", stop_after=1)
    (folder / "ant").rename(folder / "x")
    (folder / "cat").rename(folder / "ant")
    (folder / "x").rename(folder / "cat")
    with pytest.raises(UserError, match=r"not the data this run began with: its '(train|val)_images' changed"):
        train(None, tmp_path / "run", resume=True)


def test_a_run_from_before_images_were_compared_goes_on(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(Stopped):
        train(tiny_runs.config(), folder.path, stop_after=1)
    info = folder.read_info()
    del info["data"]["train_images"], info["data"]["val_images"]
    folder.write_info(info)
    with pytest.raises(Stopped):
        train(None, folder.path, resume=True, stop_after=1)
    folder.write_info({**info, "data": [1]})
    with pytest.raises(UserError, match=r"run.json is damaged: its data"):
        train(None, folder.path, resume=True)


@pytest.mark.parametrize("name", ["no\xa0break", "tab\there", "\x1b[2J", " "])
def test_a_class_that_could_not_be_packed_is_refused_before_training(tmp_path, name):
    folder = photos(tmp_path / "data")
    (folder / "cat").rename(folder / name)
    config = tiny_runs.config(data=replace(tiny_runs.config().data, source=str(folder)))
    with pytest.raises(UserError, match=r"^class .* cannot be a label of a packed file: .*; rename its folder$"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_resuming_nothing_is_an_error(tmp_path):
    with pytest.raises(UserError, match="nothing to resume"):
        train(None, tmp_path, resume=True)


def test_run_killed_before_its_first_checkpoint_starts_again(tmp_path):
    RunFolder(tmp_path / "run").create(tiny_runs.config(steps=(replace(tiny_runs.STEP1, warmup=0),)))
    assert train(None, tmp_path / "run", resume=True)["accuracy"]


def test_resuming_with_another_number_of_processes_is_said(tmp_path, capsys):
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        train(tiny_runs.config(), folder, stop_after=2)
    info = RunFolder(folder).read_info()
    RunFolder(folder).write_info({**info, "processes": 2})
    with pytest.raises(Stopped):
        train(None, folder, resume=True, stop_after=3)
    assert "began with 2 processes, goes on with 1: as good, but not the same bits" in capsys.readouterr().err


def test_a_folder_whose_checkpoints_could_not_be_read_again_is_refused_at_once(tmp_path):
    with pytest.raises(UserError, match=r"is no text \(UTF-8\); name another --out"):
        train(tiny_runs.config(), tmp_path / "run\udcff")
    assert not list(tmp_path.iterdir())
