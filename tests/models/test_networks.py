"""What a user types, and the networks that strangers wrote in plain torch: found, audited, counted, packed, verified, run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import plain_torch_networks
import pytest
import torch
from command_line import run
from paths import HELPERS
from PIL import Image

import bcnn
from bcnn import UserError
from bcnn.base.affine import IMAGENET_MEAN
from bcnn.cli import bench, count, deploy, predict  # noqa: F401  (add their verbs)
from bcnn.cli.options import given
from bcnn.lowering.lower import normalised
from bcnn.models import bench as bench_model
from bcnn.models.networks import Given, network
from bcnn.models.resolve import resolve
from bcnn.nets import latent


def find(what, given=None):
    return network(resolve(what, "audit"), given)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A user's file: a function for each of the strangers, and some that go wrong."""
    (tmp_path / "helper.py").write_text("CLASSES = 10\n")
    file = tmp_path / "mine.py"
    functions = [
        f"def {name.replace(' ', '_')}(): return stranger({name!r})[0]" for name in plain_torch_networks.STRANGERS
    ]
    head = f"import sys\nsys.path.append({str(HELPERS)!r})\nimport helper\nfrom torch import nn\nfrom plain_torch_networks import stranger\n"
    wrong = "def number(): return 3\n\ndef broken():\n    x = 1\n    return x / 0\n\ndef training(): return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())\n"
    file.write_text(head + "\n".join(functions) + "\n" + wrong)
    return file


@pytest.mark.parametrize("name", plain_torch_networks.STRANGERS)
def test_a_strangers_network_goes_the_whole_way(name: str, mine: Path, tmp_path: Path) -> None:
    network, (height, width) = plain_torch_networks.stranger(name)
    size, what, packed = f"{height}x{width}", f"{mine}:{name.replace(' ', '_')}", tmp_path / "x.bcnn"
    audited = run("audit", what, "--size", size, code=1).output  # their first layers are real
    assert "products are not 1 x 1 bit" in audited
    counted = json.loads(run("summary", what, "--size", size, "--json").stdout)
    assert counted["size"] == [height, width]
    assert counted["counts"]["binary_macs"] > 0
    assert "weight_bytes" not in counted["counts"]
    assert counted["counts"]["binary_params"] + counted["counts"]["real_params"] == sum(
        parameter.numel() for parameter in network.parameters()
    )
    run("pack", what, "-o", packed, "--size", size, "--mean", "0.5", "--std", "0.25,0.3,0.35")
    verified = run("verify", packed, "--checkpoint", what).output
    assert "equal torch's up to rounding" in verified
    assert "FAIL" not in verified
    image = np.random.default_rng(1).integers(0, 256, (1, height, width, 3), dtype=np.uint8)
    with torch.no_grad():
        wanted = network(normalised(image, (0.5,) * 3, (0.25, 0.3, 0.35))).numpy()
    if name != "residual":  # which ends in a log_softmax that the program leaves out
        made = bcnn.load(packed).run(image).reshape(wanted.shape[0], *wanted.shape[2:], -1)
        assert np.corrcoef(np.moveaxis(wanted, 1, -1).ravel(), made.ravel())[0, 1] > 0.99


def test_a_packed_network_of_a_users_own_names_what_it_sees(mine: Path, tmp_path: Path) -> None:
    packed, photo, names = tmp_path / "x.bcnn", tmp_path / "photo.png", tmp_path / "names.txt"
    names.write_text("\n".join(f"class {i}" for i in range(10)) + "\n")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(photo)
    run("pack", f"{mine}:hand_written", "-o", packed, "--size", 16, "--labels", names)
    assert "class " in run("predict", photo, "--model", packed).stdout
    assert bcnn.load(packed).program.provenance["network"] == "mine.py:hand_written"
    with pytest.raises(UserError, match="program has 2 labels but its last map"):
        run("pack", f"{mine}:hand_written", "-o", packed, "--size", 16, "--labels", "cat,dog")


def test_a_module_is_packed_from_python(tmp_path: Path) -> None:
    network, size = plain_torch_networks.stranger("hand written")
    bcnn.pack(network, tmp_path / "x.bcnn", size=size, labels=tuple("abcdefghij"))
    assert bcnn.load(tmp_path / "x.bcnn").program.shapes[0][:2] == size


def test_what_was_not_said_is_decided_and_told(mine: Path) -> None:
    found = find(f"{mine}:training")
    assert (found.size, found.mean, found.module.training) == ((224, 224), IMAGENET_MEAN, False)
    assert [note.partition(":")[0].partition(" was ")[0].partition(" were ")[0] for note in found.notes] == [
        "no size",
        f"{mine}",
        "no mean and std",
    ]
    assert find(f"{mine}:training", Given(size=(8, 8), mean=(0.5,) * 3)).notes == (
        f"{mine}:training is in training mode: put into evaluation mode",
    )


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("{mine}", "which function of {mine} makes the network? Say it as {mine}:FUNCTION"),
        ("{mine}:densee", "{mine} has no function 'densee'; did you mean 'dense'? known: "),
        ("{mine}:number", "{mine}:number must return a torch.nn.Module, it returned a int"),
        ("{mine}:broken", "{mine}:broken failed: ZeroDivisionError: division by zero (line "),
        ("{folder}/none.py:make", "there is no file {folder}/none.py"),
        (
            "birealnet",
            "unknown network 'birealnet'; did you mean 'birealnet-50' or 'birealnet-34' or 'birealnet-18'? `bcnn networks` lists all ",
        ),
        ("{folder}/none", "no checkpoint at {folder}/none; give a .safetensors file of a run, or the run folder"),
    ],
)
def test_what_cannot_be_found_gets_a_sentence(what: str, sentence: str, mine: Path) -> None:
    places = {"mine": mine, "folder": mine.parent}
    with pytest.raises(UserError) as error:
        find(what.format(**places))
    assert str(error.value).startswith(sentence.format(**places))


def test_a_network_that_cannot_read_the_size_says_so(mine: Path) -> None:
    with pytest.raises(
        UserError, match=r"fails on an image of 3 x 30 x 30: RuntimeError: .*; give its size with --size"
    ):
        find(f"{mine}:hand_written", given("30"))


def test_options_are_read_as_people_write_them(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("cat\n\n dog \n")
    assert given("180x240", "0.5", "0.1,0.2,0.3", str(tmp_path / "names.txt")) == Given(
        (180, 240), (0.5, 0.5, 0.5), (0.1, 0.2, 0.3), ("cat", "dog")
    )
    assert given("32", labels="cat, dog") == Given((32, 32), labels=("cat", "dog"))
    for options in ({"size": "32x"}, {"size": "1x2x3"}, {"mean": "a"}, {"std": "1,2"}, {"labels": "nowhere.txt"}):
        with pytest.raises(UserError, match="give "):
            given(**options)


def test_a_registered_network_is_audited_counted_and_packed(tmp_path: Path) -> None:
    assert "the first in stem.0: 32 x 32" in run("audit", "birealnet-20-cifar", code=1).output
    lines = run("summary", "birealnet-20-cifar", "--width", "0.5", "--depth", "1", "--csv").stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "module",
        "stem",
        "stage1",
        "stage2",
        "stage3",
        "decoder",
        "total",
    ]
    assert "weight bytes" not in lines[0]
    total = [int(value) for value in lines[-1].split(",")[1:9]]
    assert total == [sum(int(line.split(",")[i + 1]) for line in lines[1:-1]) for i in range(8)]
    made = run("pack", "birealnet-20-cifar", "--random", "-o", tmp_path / "x.bcnn", "--size", 16)
    assert "the weights of birealnet-20-cifar are random" in made.output
    verified = run("verify", tmp_path / "x.bcnn", "--checkpoint", "birealnet-20-cifar").output
    assert "equal torch's up to rounding" in verified
    assert "FAIL" not in verified


def test_step_1_is_refused_by_pack(tmp_path: Path) -> None:
    found = find("birealnet-20-cifar", Given(size=(8, 8)))
    latent.set_weights(found.module, "real")
    with pytest.raises(UserError, match="finish step 2 of the training before you lower it"):
        bcnn.pack(found.module, tmp_path / "x.bcnn")


def test_bench_times_a_registered_network_and_a_users_own(mine: Path) -> None:
    from bcnn.bench import rivals

    job = bench_model.job("birealnet-20-cifar", given=given("16"))
    assert job.program.shapes[0][:2] == (16, 16)
    assert rivals.engine(job).checked == "interpreter, logits =="
    job = bench_model.job(f"{mine}:hand_written", given=given("16"))
    assert rivals.engine(job).checked == "interpreter, logits =="
    assert "maps within the rounding" in rivals._torch_eager(job).checked
