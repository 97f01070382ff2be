from dataclasses import replace

import numpy as np
import pytest
import tiny_runs
import torch
from PIL import Image
from tiny_runs import train
from typer.testing import CliRunner

import bcnn
from bcnn.base.errors import UserError
from bcnn.cli import deploy  # noqa: F401  (adds `pack`)
from bcnn.cli import train as verbs  # noqa: F401  (adds `train`)
from bcnn.cli.app import app
from bcnn.nets.bcnn import Network
from bcnn.training import checkpoint, initial_weights, new_decoder

ONE = (replace(tiny_runs.STEP2, warmup=0, lr=1e-3),)


pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(tiny_runs.config(pack=True), folder)
    return folder


def photos(folder, classes, size=12):
    random = np.random.default_rng(0)
    for i, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for j in range(8):
            pixels = random.integers(0, 60, (size, size, 3), dtype=np.uint8) + np.uint8(60 * i)
            Image.fromarray(pixels).save(folder / name / f"{j}.png")
    return str(folder)


def test_a_run_that_packs_itself_holds_the_packed_file(run):
    assert bcnn.load(run / "model.bcnn").program.labels == tuple("0123456789")


@pytest.mark.parametrize("which", ["model.bcnn", "last.safetensors", "."])
def test_a_run_starts_from_a_packed_file_a_checkpoint_or_a_run(run, tmp_path, which, capsys):
    init = str(run / which)
    train(tiny_runs.config(init=init, steps=ONE), tmp_path / "run")
    said = " ".join(capsys.readouterr().err.split())
    real = sum(parameter.numel() for parameter in Network(tiny_runs.NETWORK).parameters()) - 960
    assert (
        f"taken over from {init} (tiny): 960 binary weights and all {real:,} real parameters, the decoder of the"
        in said
    )
    assert ("mean and variance, which a packed file has not" in said) == (which == "model.bcnn")


@pytest.mark.parametrize("parameters", ["int8", "int16"])
def test_a_run_starts_from_a_packed_file_in_integers(run, tmp_path, parameters, capsys):
    file = str(tmp_path / "integers.bcnn")
    result = CliRunner().invoke(app, ["pack", str(run), "-o", file, "--numbers", "int16", "--parameters", parameters])
    assert result.exit_code == 0, result.output
    start, before = initial_weights.read(file), initial_weights.read(str(run))
    for name, tensor in start.state.items():
        if "branches" in name and tensor.dim() == 4:
            assert torch.equal(tensor >= 0, before.state[name] >= 0)
    assert start.mean == pytest.approx(before.mean, abs=1e-3)
    data = replace(tiny_runs.config().data, source=photos(tmp_path / "photos", ("ant", "bee", "cat")))
    larger = tiny_runs.NETWORK.replace(image_size=(16, 16))
    config = tiny_runs.config(init=file, steps=ONE, data=data, batch=8, network=larger)
    info = train(config, tmp_path / "run")
    assert (info["config"]["network"]["classes"], info["config"]["network"]["image_size"]) == (3, [16, 16])
    assert "960 binary weights" in " ".join(capsys.readouterr().err.split())


def test_other_classes_replace_the_decoder_and_the_report_says_so(run, tmp_path, capsys):
    data = replace(tiny_runs.config().data, source=photos(tmp_path / "photos", ("ant", "bee", "cat")))
    info = train(tiny_runs.config(init=str(run / "model.bcnn"), steps=ONE, data=data, batch=8), tmp_path / "run")
    said = " ".join(capsys.readouterr().err.split())
    assert "its decoder of 10 classes is replaced by one of 3" in said
    assert "new decoder: fitted to" in said
    assert info["config"]["network"]["classes"] == 3
    start, made = checkpoint.read(run), checkpoint.read(tmp_path / "run")
    assert made.meta.mean == pytest.approx(start.meta.mean)  # images are normalised as the start is used to
    assert made.meta.mean == tuple(info["data"]["mean"])


def test_the_same_classes_in_another_order_keep_their_rows_of_the_decoder(run):
    start = initial_weights.read(str(run))
    network = Network(tiny_runs.NETWORK)
    _, new = initial_weights.take_over(start, network, tuple("9876543210"))
    assert not new
    assert torch.equal(network.decoder.linear.weight, start.state["decoder.linear.weight"].flip(0))
    assert torch.equal(network.decoder.linear.bias, start.state["decoder.linear.bias"].flip(0))


def test_another_image_size_is_fine(run, tmp_path):
    larger = tiny_runs.NETWORK.replace(image_size=(16, 16))
    info = train(tiny_runs.config(init=str(run / "model.bcnn"), network=larger, steps=ONE), tmp_path / "run")
    assert info["config"]["network"]["image_size"] == [16, 16]


def test_another_network_cannot_take_the_weights_and_says_which_fits(run, tmp_path):
    other = tiny_runs.NETWORK.replace(name="wide", branches=2)
    with pytest.raises(UserError, match="it is tiny, and weights fit only the same network"):
        train(tiny_runs.config(init=str(run), network=other, steps=ONE), tmp_path / "run")


def test_a_resumed_run_does_not_need_its_start_any_more(run, tmp_path):
    copy = tmp_path / "start.bcnn"
    copy.write_bytes((run / "model.bcnn").read_bytes())
    from bcnn.training.interrupt import Stopped

    with pytest.raises(Stopped):
        train(tiny_runs.config(init=str(copy), steps=ONE), tmp_path / "run", stop_after=2)
    copy.unlink()
    info = train(None, tmp_path / "run", resume=True)
    assert list(info["accuracy"]) == ["step2"]


def test_the_engines_features_are_torchs(run):
    network, meta = checkpoint.load(run)
    x = torch.rand(20, 3, 8, 8).mul(255).round()
    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (meta.mean, meta.std))
    batches = [((x / 255 - mean) / std, torch.arange(20) % 10)]
    one, y = new_decoder.features(network, batches)
    other, same = new_decoder.features(network, batches, (meta.mean, meta.std, (8, 8)))
    assert torch.equal(y, same)
    close = (one - other).abs().amax(1) < 1e-3  # a rounding may flip a sign
    assert float(close.float().mean()) >= 0.9
    assert isinstance(network.decoder.linear, torch.nn.Linear)


def test_a_fitted_decoder_knows_more_than_a_random_one(run):
    torch.manual_seed(0)  # few images: at another seed it is 94 % now and then
    network = checkpoint.load(run)[0]
    x = torch.randn(200, network.decoder.linear.in_features)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    network.decoder.linear = torch.nn.Linear(x.shape[1], 4)
    assert new_decoder.fit_decoder(network, x, y) > 0.8  # of those left out of a fit
    assert float((network.decoder.linear(x).argmax(1) == y).float().mean()) > 0.95


def test_a_fitted_decoder_leaves_out_what_hardly_changes(run):
    torch.manual_seed(0)
    network = checkpoint.load(run)[0]
    x = torch.randn(200, network.decoder.linear.in_features)
    y = (x[:, 0] > 0).long()
    x[:, 1] = 0.001 * (2 * y - 1)  # it would tell all, with a weight that is a thousand times the others'
    network.decoder.linear = torch.nn.Linear(x.shape[1], 2)
    new_decoder.fit_decoder(network, x, y)
    weight = network.decoder.linear.weight.detach()
    assert float(weight[:, 1].abs().max()) == 0
    assert float(weight.abs().max()) < 10


def test_init_on_the_command_line_takes_its_network_and_trains_binary_weights_alone(run, tmp_path):
    result = CliRunner().invoke(
        app,
        ["train", "--data", "digits", "--init", str(run / "model.bcnn"), "--epochs", "2", "--out", str(tmp_path / "run"),
         "--set", "batch=256", "--set", "tensorboard=false"],
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("tune: ")
    assert checkpoint.read(tmp_path / "run").network == tiny_runs.NETWORK


def test_a_finished_run_is_extended_by_epochs_of_its_last_step(run, tmp_path):
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    result = CliRunner().invoke(app, ["train", "--resume", str(folder), "--epochs", "+2"])
    assert result.exit_code == 0, result.stderr
    epochs = bcnn.Run(folder).info["config"]["steps"][-1]["epochs"]
    assert epochs == tiny_runs.STEP2.epochs + 2
    from bcnn.training.run_folder import RunFolder

    records = RunFolder(folder).read_metrics("epoch")
    assert [(r["step"], r["epoch"]) for r in records] == [
        ("step1", 1), ("step1", 2), ("step2", 1), ("step2", 2), ("step2", 3), ("step2", 4)
    ]  # fmt: skip
    assert checkpoint.read(folder).progress["finished"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--resume", "runs/x", "--minutes", "3"], "own settings"),
        (["runs/x"], "--resume runs/x"),
        (["--epochs", "0"], "whole number above 0"),
        (["--minutes", "3", "--epochs", "2", "--data", "digits"], "leave out one of --minutes and --epochs"),
        (["--minutes", "0.1", "--data", "digits"], "give at least 0.5"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(arguments, says):
    result = CliRunner().invoke(app, ["train", *arguments])
    assert isinstance(result.exception, UserError)
    assert says in str(result.exception)


def test_pack_says_which_checkpoint_it_takes_and_takes_the_best(run, tmp_path):
    for options, says in (
        ([], "last.safetensors: the end of the run; "),
        (["--best"], "best.safetensors: the epoch with"),
    ):
        result = CliRunner().invoke(app, ["pack", str(run), "-o", str(tmp_path / "x.bcnn"), *options])
        assert result.exit_code == 0, result.stderr
        assert says in " ".join(result.stderr.split())
        assert "top-1 after step" in result.stderr
    with pytest.raises(UserError, match="chooses among the checkpoints of a run folder"):
        checkpoint.best_of(run / "last.safetensors")


def test_a_run_from_a_packed_file_is_a_function_of_its_config_and_data(run, tmp_path):
    """Whatever was drawn at random before it."""
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        train(tiny_runs.config(init=str(run / "model.bcnn"), steps=ONE), tmp_path / str(seed))
        states.append(checkpoint.read(tmp_path / str(seed)).state)
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
