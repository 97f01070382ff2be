import pickle
import sys
import types
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import tiny_runs
import torch
from tiny_runs import train
from torch import nn

from bcnn.base.errors import UserError
from bcnn.data.config import Augment
from bcnn.nets.bcnn import Network
from bcnn.training import checkpoint, teachers
from bcnn.training.batches import open_data
from bcnn.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def data():
    return open_data(tiny_runs.config().data, (8, 8))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run whose step 2 has step 1 as teacher."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(tiny_runs.config(steps=(tiny_runs.STEP1, replace(tiny_runs.STEP2, teacher="step1", matching=10.0))), folder)
    return folder


class Plain(nn.Module):
    """Stands for a pretrained network; remembers what it was shown."""

    def __init__(self, classes=10):
        super().__init__()
        self.linear = nn.Linear(3, classes)
        self.seen = None

    def forward(self, x):
        self.seen = x.detach()
        return self.linear(x.mean((2, 3)))


def test_step1_teaches_step2_with_feature_maps(trained, tmp_path):
    assert checkpoint.read(trained).progress["finished"]
    train(tiny_runs.config(steps=(tiny_runs.STEP1, tiny_runs.STEP2)), tmp_path / "labels")
    a, b = checkpoint.read(trained).state, checkpoint.read(tmp_path / "labels").state
    assert not torch.equal(a["decoder.linear.weight"], b["decoder.linear.weight"])


def test_checkpoint_as_teacher_gives_its_own_probabilities(trained, data):
    teacher = teachers.load(str(trained / "step1.safetensors"), data)
    network, _ = checkpoint.load(trained / "step1.safetensors")
    x = next(data.train_batches(0, 32, seed=0)).x
    probabilities, maps = teacher(x)
    assert torch.allclose(probabilities, network(x).softmax(1), atol=1e-6)
    assert len(maps) == 2
    assert not probabilities.requires_grad


def test_teacher_is_shown_its_own_normalisation_and_size(data, monkeypatch):
    library = types.SimpleNamespace(get_model=lambda name, weights: plain)
    plain = Plain()
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", library)
    teacher = replace(teachers.load("torchvision:resnet34", data), size=(16, 16))
    pixels = torch.full((1, 8, 8, 3), 128, dtype=torch.uint8)
    teacher(data.normalise(pixels))
    assert plain.seen.shape == (1, 3, 16, 16)
    mean, std = teachers.IMAGENET
    expected = [(128 / 255 - m) / s for m, s in zip(mean, std, strict=True)]
    assert plain.seen[0, :, 0, 0].tolist() == pytest.approx(expected, rel=1e-4)


def test_exported_program_teaches(data, tmp_path):
    plain = Plain().eval()
    batch = torch.export.Dim("batch", min=1, max=512)
    program = torch.export.export(nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(48, 10)).eval(),
                                  (torch.zeros(2, 3, 8, 8),), dynamic_shapes={"input": {0: batch}})  # fmt: skip
    torch.export.save(program, tmp_path / "teacher.pt2")
    teacher = teachers.load(str(tmp_path / "teacher.pt2"), data, trust=True)
    assert teacher.size == (8, 8)
    probabilities, _ = teacher(torch.randn(5, 3, 8, 8))
    assert torch.allclose(probabilities.sum(1), torch.ones(5))
    assert plain.seen is None


def test_teachers_that_cannot_be_had_say_why(data, tmp_path, trained):
    with pytest.raises(UserError, match=r"needs timm, which cannot be imported here.*steps.*teacher=none"):
        teachers.load("timm:resnet34", data)
    with pytest.raises(UserError, match="no exported teacher at"):
        teachers.load(str(tmp_path / "no.pt2"), data)
    (tmp_path / "bad.pt2").write_bytes(b"bad")
    with pytest.raises(UserError, match="not an exported torch program"):
        teachers.load(str(tmp_path / "bad.pt2"), data, trust=True)
    with pytest.raises(UserError, match="no checkpoint at"):
        teachers.load(str(tmp_path / "nothing"), data)
    with pytest.raises(UserError, match="knows other classes"):
        teachers.load(str(trained), replace(data, classes=tuple("abcdefghij")))


class Hostile:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.fixture
def hostile(tmp_path):
    """An exported program in the older layout, whose weights are a pickle that runs code."""
    with zipfile.ZipFile(tmp_path / "hostile.pt2", "w") as archive:
        archive.writestr("version", "8.18")
        for name in ("serialized_exported_program.json", "serialized_constants.pt", "serialized_example_inputs.pt"):
            archive.writestr(name, b"{}")
        archive.writestr("serialized_state_dict.pt", pickle.dumps(Hostile(tmp_path / "ran")))
    return tmp_path / "hostile.pt2"


def test_an_exported_program_is_not_opened_without_trust(data, hostile, monkeypatch):
    opened = []
    monkeypatch.setattr(torch.export, "load", lambda path: opened.append(path))
    for use in (teachers.check, lambda name: teachers.load(name, data)):
        with pytest.raises(UserError, match=r"can run any code that is in it; .* say so with --trust"):
            use(str(hostile))
    assert not opened
    assert not (hostile.parent / "ran").exists()
    with pytest.raises(UserError):
        teachers.load(str(hostile), data, trust=True)
    assert opened == [hostile]


@pytest.mark.parametrize("name", ["timm:hf-hub:someone/model", "timm:local-dir:/tmp/model", "torchvision:../model"])
def test_a_teacher_from_anywhere_needs_trust(name, monkeypatch):
    monkeypatch.setattr(teachers, "_library", lambda package, model: None)
    with pytest.raises(UserError, match=r"may be fetched from anywhere; .* --trust"):
        teachers.check(name)
    teachers.check(name, trust=True)
    teachers.check("timm:resnet34.a1_in1k")


def test_a_run_folder_cannot_give_trust_for_the_person_who_resumes_it(tmp_path, hostile, monkeypatch):
    opened = []
    monkeypatch.setattr(torch.export, "load", lambda path: opened.append(path))
    config = tiny_runs.config(steps=(replace(tiny_runs.STEP1, teacher=str(hostile)),))
    with pytest.raises(UserError, match="--trust"):
        train(config, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    RunFolder(tmp_path / "run").create(config)
    with pytest.raises(UserError, match="--trust"):
        train(None, tmp_path / "run", resume=True)
    assert not opened
    with pytest.raises(UserError, match="not an exported torch program"):
        train(None, tmp_path / "run", resume=True, trust=True)
    assert opened == [hostile]


@pytest.mark.parametrize("table", [np.zeros((2, 5, 10), np.float64), np.zeros((1, 5, 10), np.float32), None])
def test_damaged_stored_outputs_are_one_sentence(tmp_path, table):
    file = tmp_path / "teacher.npy"
    np.save(file, np.array([{}]) if table is None else table)
    with pytest.raises(UserError, match=r"is damaged: .*; remove it, and it is made again"):
        teachers.Stored(file, 2, 5, 10)


def test_teacher_with_another_number_of_classes_is_refused(data, tmp_path):
    network = Network(tiny_runs.NETWORK.replace(classes=4))
    meta = checkpoint.Meta((0.5,) * 3, (0.5,) * 3, (), 1.0)
    checkpoint.save(
        tmp_path / "a.safetensors", checkpoint.Checkpoint(network.config, "binary", network.state_dict(), meta)
    )
    with pytest.raises(UserError, match="has 4 classes, the data 10"):
        teachers.load(str(tmp_path / "a.safetensors"), data)


def test_matching_needs_a_network_of_ours(tmp_path, monkeypatch):
    fake = lambda package, model: Plain()  # noqa: E731
    monkeypatch.setattr(teachers, "_pretrained", fake)
    monkeypatch.setattr(teachers, "_library", lambda package, model: None)
    with pytest.raises(UserError, match="matching needs a teacher with the paper's levels"):
        train(tiny_runs.config(steps=(replace(tiny_runs.STEP1, teacher="timm:x", matching=1.0),)), tmp_path / "run")


def test_stored_outputs_are_the_teachers_for_every_fixed_variant(trained, tmp_path):
    config = replace(tiny_runs.config().data, augment=Augment(scale=(0.5, 1.0), fixed=2))
    data = open_data(config, (8, 8))
    teacher = teachers.load(str(trained), data)
    file = tmp_path / teachers.stored_name(str(trained), data, 0)
    assert sum(teachers.store(file, teacher, data, 0, 256, "cpu")) == 2 * len(data.train)
    stored = teachers.Stored(file, 2, len(data.train), 10)
    for epoch in (0, 1, 2):
        batch = next(data.train_batches(epoch, 64, seed=0))
        assert torch.allclose(
            stored(epoch, batch.index, "cpu"), teacher(batch.x)[0], atol=1e-5
        )  # other batch, other rounding
    assert file.name != teachers.stored_name(str(trained), data, 1)
    assert file.name != teachers.stored_name(str(trained / "step1.safetensors"), data, 0)


def test_run_with_stored_outputs_asks_the_teacher_once_per_variant(trained, tmp_path, monkeypatch):
    asked = []
    real = teachers.Teacher.__call__
    monkeypatch.setattr(teachers.Teacher, "__call__", lambda self, x: asked.append(len(x)) or real(self, x))
    config = tiny_runs.config(steps=(replace(tiny_runs.STEP1, teacher=str(trained), epochs=3),))
    config = replace(config, data=replace(config.data, augment=Augment(scale=(0.8, 1.0), fixed=1)))
    train(config, tmp_path / "run")
    assert sum(asked) == 1438 + 1  # the variants, and one look at the number of classes
    table = np.load(next((tmp_path / "run").glob("teacher-*.npy")))
    assert table.shape == (1, 1438, 10)
