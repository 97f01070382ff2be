import itertools
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import tiny_runs
import torch
from tiny_runs import train

from bcnn.base.errors import UserError
from bcnn.integers.quantize import fixed
from bcnn.integers.synthetic_images import pictures
from bcnn.lowering.lower import lower
from bcnn.nets.bcnn import Network
from bcnn.nets.latent import latent_weights as latents
from bcnn.program.ops import FixedPReLU
from bcnn.training import adam, checkpoint, loss_targets
from bcnn.training.config import Step
from bcnn.training.loop import Trainer
from bcnn.training.provenance import Provenance
from bcnn.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete two-step run."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    info = train(tiny_runs.config(meter_every=2), folder)
    return RunFolder(folder), info


def short(**changes):
    """One step of one epoch with some fields changed."""
    return tiny_runs.config(steps=(replace(tiny_runs.STEP1, warmup=0, **changes),))


def test_run_folder_keeps_config_versions_seed_command_and_results(finished):
    folder, info = finished
    kept = json.loads(folder.info.read_text())
    assert kept == info
    assert folder.config() == tiny_runs.config(meter_every=2)
    assert kept["seed"] == 0
    assert {"bcnn", "torch", "numpy", "python"} <= kept["versions"].keys()
    assert {"command", "commit", "machine", "started"} <= kept.keys()
    assert kept["processes"] == 1
    assert list(kept["accuracy"]) == ["step1", "step2"]


def test_steps_of_binary_weights_can_be_measured_in_the_engine(finished, tmp_path):
    """The same weights: the engine's accuracy is torch's but for roundings that flip a sign."""
    _, info = finished
    other = train(tiny_runs.config(meter_every=2, evaluate_with="engine"), tmp_path / "run")
    assert other["accuracy"]["step1"] == info["accuracy"]["step1"]
    assert abs(other["accuracy"]["step2"] - info["accuracy"]["step2"]) < 0.01


def test_an_epoch_can_be_shorter_than_the_data_set(tmp_path):
    train(tiny_runs.config(steps=short().steps, epoch_images=600), tmp_path / "run")
    (record,) = RunFolder(tmp_path / "run").read_metrics("epoch")
    assert record["updates"] == 2


def test_loss_falls_in_both_steps(finished):
    folder, info = finished
    epochs = folder.read_metrics("epoch")
    assert [e["step"] for e in epochs] == ["step1", "step1", "step2", "step2"]
    assert epochs[1]["loss"] < epochs[0]["loss"]
    assert epochs[3]["loss"] < epochs[1]["loss"]
    assert info["accuracy"]["step2"] == epochs[-1]["accuracy"]


def test_metrics_have_every_meter(finished):
    folder, _ = finished
    epoch = folder.read_metrics("epoch")[-1]
    assert 0 < epoch["flips"] < 0.5
    assert 0 <= epoch["outside"] < 1
    assert len(epoch["balance"]) == len(epoch["surviving"]) == 6
    assert epoch["images_per_second"] > 0
    assert len(folder.read_metrics("update")) == 12  # batches 0, 2, 4 of each of four epochs


def test_every_step_leaves_a_network_and_the_last_one_is_binary(finished):
    folder, info = finished
    step1, step2 = (checkpoint.read(folder.step(name)) for name in ("step1", "step2"))
    assert (step1.weights, step2.weights) == ("real", "binary")
    assert step1.meta.provenance["accuracy"] == {"step1": info["accuracy"]["step1"]}
    last = checkpoint.read(folder.path)
    assert last.progress["finished"]
    assert not last.optimizer
    assert all(torch.equal(last.state[k], v) for k, v in step2.state.items())
    assert checkpoint.read(folder.best).state.keys() == last.state.keys()


def test_shared_files_do_not_tell_where_the_data_lay(finished):
    folder, _ = finished
    assert checkpoint.read(folder.last).meta.provenance["config"]["data"]["source"] == "digits"
    assert checkpoint.read(folder.last).meta.labels == tuple("0123456789")


def test_same_seed_gives_the_same_bits_and_another_seed_does_not(finished, tmp_path):
    folder, _ = finished
    for seed, equal in ((0, True), (1, False)):
        train(tiny_runs.config(meter_every=2, seed=seed), tmp_path / str(seed))
        a, b = checkpoint.read(folder.path).state, checkpoint.read(tmp_path / str(seed)).state
        assert all(torch.equal(a[k], b[k]) for k in a) == equal


def test_folder_that_holds_a_run_is_not_overwritten(finished):
    folder, _ = finished
    with pytest.raises(UserError, match="holds a run already; continue it with: bcnn train --resume"):
        train(tiny_runs.config(), folder.path)


def test_weight_decay_is_on_convolution_weights_only():
    network = Network(tiny_runs.NETWORK)
    convolutions, others = adam.adam(network, Step(weight_decay=1e-5)).param_groups
    assert (convolutions["weight_decay"], others["weight_decay"]) == (1e-5, 0.0)
    names = {id(p): n for n, p in network.named_parameters()}
    decayed = {names[id(p)] for p in convolutions["params"]}
    assert decayed == {n for n in names.values() if n.endswith(("depthwise.conv.weight",)) or "branches.0.weight" in n}
    assert len(convolutions["params"]) + len(others["params"]) == len(names)


def test_parts_of_a_batch_add_up_to_the_gradient_of_each_part_alone(tmp_path):
    """With part = batch / 2, batch norm sees half a batch; the update is Adam's on the mean of the two gradients."""
    one = train(tiny_runs.config(steps=short().steps, part=128), tmp_path / "parts")
    two = train(tiny_runs.config(steps=short().steps, part=0), tmp_path / "whole")
    assert one["accuracy"] != two["accuracy"] or not torch.equal(
        checkpoint.read(tmp_path / "parts").state["decoder.linear.weight"],
        checkpoint.read(tmp_path / "whole").state["decoder.linear.weight"],
    )
    with pytest.raises(UserError, match="parts of 100"):
        train(tiny_runs.config(part=100), tmp_path / "uneven")


def test_clipping_keeps_latents_in_range(tmp_path):
    def latents_after(name, **changes):
        train(short(lr=0.5, weights="binary", **changes), tmp_path / name)
        network, _ = checkpoint.load(tmp_path / name)
        return torch.cat([w.detach().flatten() for w in latents(network)])

    assert latents_after("free").abs().max() > 1
    assert latents_after("clipped", clip=True).abs().max() <= 1


def test_bounded_slopes_stay_in_range_and_need_no_shift_in_integers(tmp_path):
    def shifts_after(name, **changes):
        train(short(lr=0.5, weights="binary", **changes), tmp_path / name)
        network, meta = checkpoint.load(tmp_path / name)
        slopes = torch.cat([m.weight.detach() for m in network.modules() if isinstance(m, torch.nn.PReLU)])
        program = lower(network, meta.mean, meta.std)
        made = fixed(program, pictures(*program.shapes[0][:2], 2)).program
        endings = [ending for op in made.ops for ending in getattr(op, "after", ())]
        return slopes, {ending.up for ending in endings if isinstance(ending, FixedPReLU)}

    slopes, shifts = shifts_after("free")
    assert slopes.min() < 0
    assert max(shifts) > 0
    slopes, shifts = shifts_after("bounded", slopes="bounded")
    assert 0 <= slopes.min() < slopes.max() <= 2
    assert shifts == {0}


def test_pull_toward_signs_brings_latents_nearer_to_them(tmp_path):
    def distance(name, strength):
        train(short(lr=0.02, toward_signs=strength), tmp_path / name)
        network, _ = checkpoint.load(tmp_path / name)
        return float(torch.cat([(w.detach().abs() - 1).abs().flatten() for w in latents(network)]).mean())

    assert distance("pulled", 1.0) < distance("free", 0.0) - 0.01


def test_tanh_step_ends_nearly_binary(tmp_path):
    step = replace(tiny_runs.STEP1, name="anneal", weights="tanh", temperature=(1.0, 50.0))
    train(tiny_runs.config(steps=(step, tiny_runs.STEP2)), tmp_path / "run")
    network = Network(tiny_runs.NETWORK, "tanh")
    network.load_state_dict(checkpoint.read(tmp_path / "run" / "anneal.safetensors").state)
    network.set_temperature(50.0)
    weights = torch.cat([torch.tanh(50 * w.detach()).abs().flatten() for w in latents(network)])
    assert float((weights > 0.9).float().mean()) > 0.8


def test_first_step_can_start_from_a_checkpoint(finished, tmp_path):
    folder, _ = finished
    train(replace(short(lr=1e-9), init=str(folder.step("step1"))), tmp_path / "run")
    a, b = checkpoint.read(folder.step("step1")).state, checkpoint.read(tmp_path / "run").state
    assert np.allclose(a["decoder.linear.weight"], b["decoder.linear.weight"], atol=1e-5)


def test_loss_that_is_not_finite_stops_the_run_and_names_the_step(tmp_path, monkeypatch):
    monkeypatch.setattr(loss_targets.Targets, "loss", lambda self, logits, *rest: logits.sum() * float("nan"))
    with pytest.raises(UserError, match="loss is nan in step 'step1'"):
        train(short(), tmp_path / "run")


def test_full_disk_is_reported_and_the_run_goes_on(tmp_path, monkeypatch, capsys):
    real, failed = checkpoint.save, []

    def sometimes_full(path, contents, keep):
        if path.name == "last.safetensors" and not failed:
            failed.append(path)
            raise OSError(28, "No space left on device")
        real(path, contents, keep)

    monkeypatch.setattr(checkpoint, "save", sometimes_full)
    info = train(short(), tmp_path / "run")
    assert failed
    assert "step1" in info["accuracy"]
    assert "No space left on device; the checkpoint before it is kept" in capsys.readouterr().err.replace("\n", " ")


def test_disk_that_stays_full_ends_the_run_with_a_sentence(tmp_path, monkeypatch):
    def full(path, contents, keep):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(UserError, match="No space left on device; what was saved before is complete; when it can be"):
        train(short(), tmp_path / "run")


def test_batch_larger_than_the_data_is_lowered(tmp_path, capsys):
    train(replace(short(), batch=5000), tmp_path / "run")
    assert "lowered to the 1438 training images" in capsys.readouterr().err.replace("\n", " ")


def test_network_follows_the_number_of_classes_of_the_data(tmp_path):
    train(replace(short(), network=tiny_runs.NETWORK.replace(classes=1000)), tmp_path / "run")
    assert checkpoint.load(tmp_path / "run")[0].config.classes == 10


def test_a_step_may_train_on_smaller_images_and_is_measured_on_whole_ones(monkeypatch, tmp_path):
    seen = []
    forward = Network.forward
    monkeypatch.setattr(
        Network, "forward", lambda self, x: seen.append((self.training, tuple(x.shape[2:]))) or forward(self, x)
    )
    train(short(size=0.5), tmp_path / "run")
    assert set(seen) == {(True, (4, 4)), (False, (8, 8))}


def test_a_size_that_the_strides_do_not_divide_is_refused():
    with pytest.raises(
        UserError, match=r"step 'step1': size 0.4 makes images of 3 x 3, but both must be multiples of 2"
    ):
        short(size=0.4)


def test_epochs_between_evaluations_have_no_accuracy_and_the_last_always_has(tmp_path):
    steps = (replace(tiny_runs.STEP1, warmup=0, epochs=3),)
    info = train(tiny_runs.config(steps=steps, evaluate_every=2), tmp_path / "run")
    epochs = RunFolder(tmp_path / "run").read_metrics("epoch")
    assert [e["accuracy"] is not None for e in epochs] == [False, True, True]
    assert info["accuracy"]["step1"] == epochs[-1]["accuracy"]


def test_the_float_twin_teaches_the_steps_after_it(tmp_path):
    twin = replace(tiny_runs.STEP1, name="twin", weights="float", warmup=0)
    step2 = replace(tiny_runs.STEP2, warmup=0, teacher="twin")
    info = train(tiny_runs.config(steps=(twin, step2)), tmp_path / "run")
    assert list(info["accuracy"]) == ["twin", "step2"]
    assert checkpoint.read(RunFolder(tmp_path / "run").step("twin")).weights == "float"


def test_every_epoch_of_every_step_has_an_order_and_crops_of_its_own(tmp_path, monkeypatch):
    seen = {}
    real = Trainer.update

    def update(self, stage, batch, t):
        seen.setdefault((stage.step.name, self.progress.epoch), []).append((batch.index, batch.x))
        real(self, stage, batch, t)

    monkeypatch.setattr(Trainer, "update", update)
    monkeypatch.setattr("bcnn.training.report.write", lambda folder: None)
    train(tiny_runs.config(), tmp_path / "run")
    assert sorted(seen) == [("step1", 0), ("step1", 1), ("step2", 0), ("step2", 1)]
    orders = [tuple(np.concatenate([index for index, _ in batches])) for batches in seen.values()]
    assert len(set(orders)) == 4
    crops = []
    for batches in seen.values():
        index, x = np.concatenate([i for i, _ in batches]), torch.cat([x for _, x in batches])
        crops.append({int(i): pixels for i, pixels in zip(index, x, strict=True)})
    for first, second in itertools.combinations(crops, 2):
        both = first.keys() & second.keys()
        same = sum(torch.equal(first[i], second[i]) for i in both)
        assert same < len(both) / 100


def test_provenance_is_text_that_a_packed_file_holds_whatever_the_data_is_called():
    config = tiny_runs.config(data=replace(tiny_runs.config().data, source="/photos/caf\udce9"))
    made = asdict(Provenance.of(config, {"step1": 0.5}))
    assert made["config"]["data"]["source"] == "caf?"
    assert json.dumps(made, ensure_ascii=False).encode()
