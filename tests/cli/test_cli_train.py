import re
from dataclasses import replace

import numpy as np
import pytest
import tiny_runs
import torch
from PIL import Image
from tiny_runs import train
from typer.testing import CliRunner

from bcnn.base.errors import UserError
from bcnn.cli import deploy  # noqa: F401  (adds `pack`)
from bcnn.cli import train as verbs
from bcnn.cli.app import app
from bcnn.nets import latent
from bcnn.nets.network_spec import Chosen
from bcnn.training import checkpoint
from bcnn.training.run_folder import free_folder

SMALL = ["--set", "network.levels=[{}]", "--set", "network.stem.replicate=2", "--set", "steps.*.epochs=1",
         "--set", "batch=256", "--set", "tensorboard=false"]  # fmt: skip


def bcnn(*arguments):
    result = CliRunner().invoke(app, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "digits"
    return folder, bcnn("train", "--recipe", "digits", "--out", str(folder), *SMALL)


def test_train_says_what_it_reached_and_what_comes_next(run):
    folder, result = run
    assert result.exit_code == 0
    assert re.search(r"step1: \d+\.\d+% top-1\nstep2: \d+\.\d+% top-1", result.stdout)
    assert f"bcnn pack {folder}" in result.stdout
    assert (folder / "report.html").exists()


def test_eval_measures_a_checkpoint_as_training_did(run, tmp_path):
    folder, trained = run
    reached = re.search(r"step2: (\S+) top-1", trained.stdout).group(1)
    result = bcnn("eval", str(folder), "--picture", str(tmp_path / "c.png"))
    assert result.exit_code == 0
    assert f"top-1 {reached}" in result.stdout
    assert "over 359 images (torch, float32, binary weights)" in result.stdout
    assert len(re.findall(r"│ \d +│", result.stdout)) == 10  # a row for every class
    assert Image.open(tmp_path / "c.png").size[0] > 300


def test_eval_measures_a_packed_file_in_the_engine(run, tmp_path):
    folder, _ = run
    packed = str(tmp_path / "digits.bcnn")
    assert bcnn("pack", str(folder), "-o", packed).exit_code == 0
    result = bcnn("eval", packed, "--picture", str(tmp_path / "c.png"))
    engine, torch_ = (
        float(re.search(r"top-1 (\S+)%", output).group(1))
        for output in (result.stdout, bcnn("eval", str(folder), "--picture", str(tmp_path / "c.png")).stdout)
    )
    assert "359 images (engine, " in result.stdout
    assert abs(engine - torch_) < 1.0  # a rounding may flip a sign, and that a prediction


def test_eval_refuses_data_with_other_classes(run, tmp_path):
    folder, _ = run
    for name in ("ant", "cat"):
        (tmp_path / name).mkdir()
        for i in range(2):
            Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / name / f"{i}.png")
    with pytest.raises(UserError, match="knows 10 classes"):
        bcnn("eval", str(folder), "--data", str(tmp_path))


def test_dry_run_prints_the_papers_schedule():
    result = bcnn("train", "--recipe", "imagenet", "--data", "no/such/folder", "--dry-run")
    assert result.exit_code == 0
    rows = re.findall(r"│ +(\d+) │ +(\S+) │", result.stdout)
    assert [int(epoch) for epoch, _ in rows] == [*range(26), *range(106), *range(106)]
    rates = [rate for _, rate in rows]
    assert (rates[0], rates[5], rates[25]) == ("5.000000e-06", "5.000000e-04", "5.000000e-07")  # step 1
    assert (rates[26], rates[31], rates[131]) == ("5.000000e-06", "5.000000e-04", "5.000000e-07")  # step 2
    assert (rates[132], rates[137], rates[237]) == ("2.500000e-06", "2.500000e-04", "2.500000e-07")  # its second cycle
    assert '"batch": 128' in result.stdout
    assert "teacher torchvision:resnet34" in result.stdout


def test_stop_after_then_resume_finishes(tmp_path):
    folder = str(tmp_path / "run")
    first = bcnn("train", "--recipe", "digits", "--out", folder, "--stop-after", "2", *SMALL)
    assert first.exit_code == 0
    assert "bcnn train --resume --out" in first.stderr
    second = bcnn("train", "--resume", "--out", folder)
    assert "step2:" in second.stdout


def test_resume_takes_no_settings():
    with pytest.raises(UserError, match="own settings"):
        bcnn("train", "--resume", "--out", "x", "--set", "batch=2")
    with pytest.raises(UserError, match="own settings"):
        bcnn("train", "--resume", "--out", "x", "--strict-data")
    with pytest.raises(UserError, match="needs the run's folder"):
        bcnn("train", "--resume")


def test_dry_run_of_a_resumed_run_shows_its_own_settings(run):
    folder, _ = run
    result = bcnn("train", "--resume", "--out", str(folder), "--dry-run")
    assert '"batch": 256' in result.stdout
    assert "step2: binary weights, 1 + 1 epochs" in result.stdout


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("3", "run.json is damaged"),
        ("{", "run.json is damaged"),
        ("{}", "has no config"),
        ('{"config": {}}', "lacks 'recipe'"),
    ],
)
def test_damaged_run_json_is_one_sentence(tmp_path, content, says):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError, match=says):
        bcnn("train", "--resume", "--out", str(tmp_path))


def test_missing_teacher_library_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"--set steps\.\*\.teacher=none"):
        bcnn(
            "train",
            "--recipe",
            "digits",
            "--out",
            str(tmp_path / "run"),
            "--set",
            "steps.*.teacher=timm:nothing",
            *SMALL,
        )


def test_strict_data_stops_at_an_unreadable_image(tmp_path):
    for name in ("ant", "cat"):
        (tmp_path / name).mkdir()
        for i in range(3):
            Image.fromarray(np.full((9, 9, 3), 50 * i, np.uint8)).save(tmp_path / name / f"{i}.png")
    (tmp_path / "ant" / "1.png").write_bytes(b"x")
    arguments = ["train", "--recipe", "digits", "--data", str(tmp_path), *SMALL]
    with pytest.raises(UserError, match=r"ant/1.png"):
        bcnn(*arguments, "--out", str(tmp_path / "strict"), "--strict-data")
    result = bcnn(*arguments, "--out", str(tmp_path / "run"))
    assert "1 unreadable image skipped" in result.stderr


def test_runs_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(free_folder("digits")) == "runs/digits"
    torch.manual_seed(0)
    monkeypatch.setattr("bcnn.training.report.write", lambda folder: None)
    train(tiny_runs.config(steps=(tiny_runs.STEP1,)), "runs/digits")
    assert str(free_folder("digits")) == "runs/digits-2"


def test_a_run_about_photos_is_called_as_they_are(tmp_path, monkeypatch):
    (tmp_path / "flowers").mkdir()
    (tmp_path / "photos").symlink_to("flowers")
    config = replace(tiny_runs.config(), minutes=1.0)
    assert verbs._name(config, f"{tmp_path}/photos/", False) == "photos"
    monkeypatch.chdir(tmp_path / "flowers")
    assert verbs._name(config, ".", False) == "flowers"
    assert verbs._name(tiny_runs.config(), ".", False) == "tiny"


def _photos(folder, classes, images=3):
    for name in classes:
        (folder / name).mkdir(parents=True)
        for i in range(images):
            Image.fromarray(np.full((9, 9, 3), 50 * i, np.uint8)).save(folder / name / f"{i}.png")


def test_names_with_brackets_are_text_and_not_markup(tmp_path):
    _photos(tmp_path / "photos", ("[b]ant", "[cat]"))
    (tmp_path / "photos" / "[cat]" / "[ x ].png").write_bytes(b"no image")
    folder = str(tmp_path / "[red]run")
    result = bcnn("train", "--recipe", "digits", "--data", str(tmp_path / "photos"), "--out", folder, *SMALL)
    assert f"bcnn pack {folder}" in result.stdout
    assert f"into {folder}" in result.stderr
    assert "[cat]/[ x ].png" in result.stderr
    measured = bcnn("eval", folder, "--data", str(tmp_path / "photos"), "--picture", str(tmp_path / "c.png"))
    assert "[b]ant" in measured.stdout
    assert "2 of 7 images split off" in measured.stderr  # not all of the folder was measured, and it says so


def test_eval_reads_no_training_image(run, tmp_path):
    folder, _ = run
    _photos(tmp_path / "train", "0123456789")
    _photos(tmp_path / "val", "0123456789", images=1)
    (tmp_path / "train" / "0" / "1.png").write_bytes(b"no image")
    result = bcnn("eval", str(folder), "--data", str(tmp_path), "--strict-data", "--picture", str(tmp_path / "c.png"))
    assert "over 10 images" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--split", "train"), "digits has no split 'train'"),
        (("--picture", "no/such/folder/c.png"), "there is no folder no/such/folder"),
        (("--picture", "c.txt"), "c.txt is no picture"),
    ],
)
def test_eval_refuses_what_it_cannot_do_before_it_measures(run, arguments, says):
    folder, _ = run
    with pytest.raises(UserError, match=says):
        bcnn("eval", str(folder), *arguments)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("device=tpu", "device 'tpu' cannot be used here, set device to auto or cpu"),
        (
            "device=meta",
            "device 'meta' cannot be used here, set device to auto or cpu",
        ),  # which has shapes and no numbers
        ("init=nowhere", "nothing to start from at nowhere: give a shipped model"),
        ("steps.*.teacher=nowhere", "no checkpoint at nowhere"),
        ("steps.*.teacher=nowhere.pt2", "no exported teacher at nowhere.pt2"),
    ],
)
def test_a_run_that_cannot_begin_leaves_no_folder_behind(tmp_path, setting, says):
    with pytest.raises(UserError, match=says):
        bcnn("train", "--recipe", "digits", "--out", str(tmp_path / "run"), *SMALL, "--set", setting)
    assert not (tmp_path / "run").exists()


def test_a_run_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot make the run folder .*file: File exists; name another --out"):
        bcnn("train", "--recipe", "digits", "--out", str(tmp_path / "file"), *SMALL)


RIVAL = ["--network", "birealnet-20-cifar", "--recipe", "digits", "--set", "network.width=0.125", "--set", "network.size=8",
         "--set", "steps.*.epochs=1", "--set", "batch=256", "--set", "tensorboard=false"]  # fmt: skip


def test_a_registered_network_trains_resumes_and_is_measured_packed_and_verified(tmp_path):
    run, other, packed = tmp_path / "run", tmp_path / "other", str(tmp_path / "x.bcnn")
    trained = bcnn("train", *RIVAL, "--out", str(run))
    assert trained.exit_code == 0
    assert bcnn("train", *RIVAL, "--out", str(other), "--stop-after", "13").exit_code == 0
    assert bcnn("train", "--resume", "--out", str(other)).exit_code == 0
    one, two = (checkpoint.read(folder) for folder in (run, other))
    assert one.network == two.network == Chosen("birealnet-20-cifar", 10, (8, 8), {"width": 0.125})
    assert one.weights == "binary"
    assert all(torch.equal(one.state[name], two.state[name]) for name in one.state)
    reached = re.search(r"step2: (\S+) top-1", trained.stdout).group(1)
    assert f"top-1 {reached}" in bcnn("eval", str(run), "--picture", str(tmp_path / "c.png")).stdout
    assert bcnn("pack", str(run), "-o", packed).exit_code == 0
    verified = bcnn("verify", packed, "--checkpoint", str(run))
    assert verified.exit_code == 0
    assert "equal torch's up to rounding" in verified.stdout
    with pytest.raises(UserError, match="finish step 2 of the training before you lower it"):
        bcnn("pack", str(run / "step1.safetensors"), "-o", packed)


def test_a_network_whose_rules_constrain_its_weights_keeps_them_there_while_it_trains(tmp_path):
    network = Chosen("xnornet-nin", 10, (8, 8), {"width": 0.125})
    train(tiny_runs.config(network=network, steps=(tiny_runs.STEP2,)), tmp_path / "run")
    loaded, _ = checkpoint.load(tmp_path / "run")
    weights = latent.latent_weights(loaded)
    assert weights
    for weight in weights:
        assert weight.abs().max() <= 1
        assert weight.mean(1).abs().max() < 0.05  # centred, then clamped


def test_a_network_without_binary_layers_trains_and_is_reported(tmp_path):
    network = Chosen("resnet-18-cifar", 10, (8, 8), {"width": 0.125})
    step = replace(tiny_runs.STEP2, warmup=0, epochs=1)
    train(tiny_runs.config(network=network, steps=(step,), batch=1024), tmp_path / "run")
    assert (tmp_path / "run" / "report.html").exists()
    assert latent.latent_weights(checkpoint.load(tmp_path / "run")[0]) == []
