"""Two real processes, launched by torchrun, on gloo."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import tiny_runs
import torch
from paths import HELPERS
from PIL import Image
from tiny_runs import train

from bcnn.training import checkpoint, recipes
from bcnn.training.batches import open_data
from bcnn.training.distributed import any_process, average_statistics, processes, rank_world
from bcnn.training.run_folder import RunFolder
from bcnn.training.schedule import learning_rate

PARTS = {
    "part": 128,
    "meter_every": 1,
}  # batch norm sees 128 images, whether one process has two parts or two have one each
SCRIPT = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import tiny_runs
from bcnn.cli import main
from bcnn.base.errors import UserError
from bcnn.training import loop

folder, resume, die_at = Path(sys.argv[1]), sys.argv[2] == "resume", int(sys.argv[3])
update = loop.Trainer.update

def deadly(self, *args):
    if self.rank == 1 and self.progress.updates == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
    update(self, *args)

loop.Trainer.update = deadly
try:
    tiny_runs.run(folder, resume, part=128, meter_every=1)
except UserError as error:
    print(f"bcnn: {{error}}", file=sys.stderr, flush=True)
    sys.exit(2)
"""


def torchrun(tmp_path, folder, how="start", die_at=-1):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(HELPERS)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run([*command, str(script), str(folder), how, str(die_at)], capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A run of two processes."""
    base = tmp_path_factory.mktemp("pair")
    done = torchrun(base, base / "run")
    assert done.returncode == 0, done.stderr[-2000:]
    return base / "run"


def test_two_processes_have_the_loss_curve_of_one(pair, tmp_path, monkeypatch):
    monkeypatch.setattr("bcnn.training.report.write", lambda folder: None)
    torch.set_num_threads(1)
    train(tiny_runs.config(**PARTS), tmp_path / "one")
    one, two = (RunFolder(f).read_metrics("update") for f in (tmp_path / "one", pair))
    assert [r["updates"] for r in one] == [r["updates"] for r in two] == list(range(1, 21))
    # Gradients are summed in another order; a rounding may flip a sign later on, so the bound is for the whole curve.
    assert [r["loss"] for r in one] == pytest.approx([r["loss"] for r in two], rel=1e-3)
    assert one[0]["loss"] == pytest.approx(two[0]["loss"], rel=1e-6)


def test_two_processes_count_every_image_once(pair):
    epochs = RunFolder(pair).read_metrics("epoch")
    count = len(open_data(tiny_runs.config().data, (8, 8)).val)
    assert count == 359  # odd: the two shares differ
    assert all((e["accuracy"] * count) == pytest.approx(round(e["accuracy"] * count), abs=1e-9) for e in epochs)
    network, _ = checkpoint.load(pair)
    from bcnn.training.evaluate import evaluate_network

    scores = evaluate_network(network, open_data(tiny_runs.config().data, (8, 8)))
    assert scores.count == count
    assert scores.top1 == epochs[-1]["accuracy"]


@pytest.mark.timeout(300)
def test_killed_worker_ends_the_run_clearly_and_it_resumes_to_the_same_bits(pair, tmp_path):
    done = torchrun(tmp_path, tmp_path / "run", die_at=8)
    assert done.returncode != 0
    assert "lost contact with another process of this run" in done.stderr
    assert "--resume" in done.stderr
    assert f"Signal {int(signal.SIGKILL)}" in done.stderr  # torchrun names the one that died
    assert checkpoint.read(tmp_path / "run").progress["updates"] == 5  # the end of the first epoch
    done = torchrun(tmp_path, tmp_path / "run", "resume")
    assert done.returncode == 0, done.stderr[-2000:]
    a, b = checkpoint.read(pair).state, checkpoint.read(tmp_path / "run").state
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_imagenet_recipe_trains_in_two_processes_on_the_papers_schedule(tmp_path):
    """From the command line, streaming, on a small network: all else is the recipe's."""
    for name in ("ant", "cat"):
        (tmp_path / "data" / "train" / name).mkdir(parents=True)
        for i in range(40):
            Image.new("RGB", (40, 36), (6 * i, 90, 0)).save(tmp_path / "data" / "train" / name / f"{i}.png")
    settings = ["steps.*.teacher=none", "network.image_size=32", "network.stem.replicate=2", "network.levels=[{}]", "batch=8",
                "part=4", "meter_every=1", "data.memory_mb=0", "data.workers=1", "threads=1", "tensorboard=false"]  # fmt: skip
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "bcnn", "train",
               "--recipe", "imagenet", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "run"),
               "--stop-after", "3", *(word for setting in settings for word in ("--set", setting))]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    updates = RunFolder(tmp_path / "run").read_metrics("update")
    step1 = recipes.imagenet().steps[0]
    assert [r["lr"] for r in updates] == [
        learning_rate(step1, i / 8) for i in range(3)
    ]  # 64 training images, 8 updates
    assert updates[0]["lr"] == 5e-6
    assert RunFolder(tmp_path / "run").config().steps == tuple(
        replace(s, teacher="none") for s in recipes.imagenet().steps
    )


def test_one_process_needs_no_group():
    with processes("cpu") as device:
        assert device == "cpu"
        assert rank_world() == (0, 1)
        assert any_process(True, device)
        assert not any_process(False, device)
        average_statistics(torch.nn.BatchNorm2d(3))
