import pytest
import tiny_runs
import torch
from torch.nn import functional as F

from bcnn.base.errors import UserError
from bcnn.nets.bcnn import Network
from bcnn.nets.binarize import WEIGHTS, magnitude, sign
from bcnn.nets.latent import latent_weights as latents
from bcnn.training import binary_metrics, losses
from bcnn.training.transfer import transfer


def test_distribution_loss_of_one_hot_targets_is_cross_entropy():
    logits, y = torch.randn(5, 4), torch.tensor([0, 3, 1, 1, 2])
    one_hot = F.one_hot(y, 4).float()
    assert torch.allclose(losses.distribution_loss(logits, one_hot), F.cross_entropy(logits, y))


def test_distribution_loss_is_least_where_student_equals_teacher():
    logits = torch.randn(3, 6, requires_grad=True)
    losses.distribution_loss(logits, logits.detach().softmax(1)).backward()
    assert logits.grad.abs().max() < 1e-6


def test_matching_loss_ignores_scale_and_channel_count_and_sees_place():
    x = torch.rand(2, 8, 4, 4)
    assert losses.matching_loss([x], [3 * x]) < 1e-10
    assert losses.matching_loss([x], [torch.cat([x, x], dim=1)]) < 1e-10
    assert losses.matching_loss([x], [x.flip(3)]) > 1e-3


def test_taps_keep_one_map_per_level_and_leave_no_hook():
    network = Network(tiny_runs.NETWORK)
    with losses.LevelMaps(network) as seen:
        network(torch.randn(2, 3, 8, 8))
    assert [tuple(m.shape) for m in seen.maps] == [(2, 8, 8, 8), (2, 16, 4, 4)]
    network(torch.randn(2, 3, 8, 8))
    assert len(seen.maps) == 2


def test_pull_toward_signs_is_the_gradient_of_its_penalty():
    weight = torch.nn.Parameter(torch.tensor([-1.5, -0.2, 0.0, 0.3, 1.0]))
    weight.grad = torch.zeros(5)
    losses.pull_toward_signs([weight], 0.1)
    assert torch.allclose(weight.grad, torch.tensor([-0.05, 0.08, -0.1, -0.07, 0.0]))


def test_tanh_weights_go_from_real_to_sign_with_the_temperature():
    w = torch.tensor([-0.5, -0.1, 0.1, 0.5])
    assert torch.allclose(WEIGHTS["tanh"](w, 1e-3) / 1e-3, w, atol=1e-5)
    assert torch.allclose(WEIGHTS["tanh"](w, 100.0), sign(w), atol=1e-6)


def test_scaled_convolution_has_binary_operands_and_the_nearest_scale():
    w = torch.randn(6, 6, 1, 1)
    assert set(WEIGHTS["scaled"](w, 1.0).flatten().tolist()) == {-1.0, 1.0}
    scale = magnitude(w)
    distance = lambda s: float((w[0] - s * sign(w[0])).pow(2).sum())  # noqa: E731
    best = float(scale[0, 0])
    assert distance(best) < min(distance(best * 0.9), distance(best * 1.1))


@pytest.mark.parametrize("mode", ["real", "binary", "scaled", "tanh", "float"])
def test_every_weights_mode_trains_its_latents(mode):
    torch.manual_seed(0)
    network = Network(tiny_runs.NETWORK, mode)
    F.cross_entropy(network(torch.randn(8, 3, 8, 8)), torch.arange(8)).backward()
    assert all(w.grad.abs().sum() > 0 for w in latents(network))


def test_flips_and_outside_count_what_they_say():
    w = torch.nn.Parameter(torch.tensor([-2.0, -0.5, 0.5, 3.0]))
    before = binary_metrics.signs([w])
    with torch.no_grad():
        w[1] = 0.0  # sign(0) is +1: a flip
    assert binary_metrics.flipped(before, [w]) == 0.25
    assert binary_metrics.outside([w]) == 0.5


def test_activity_sees_every_branch_and_changes_nothing():
    torch.manual_seed(0)
    network = Network(tiny_runs.NETWORK)
    state = {k: v.clone() for k, v in network.state_dict().items()}
    first = network.get_submodule("stem.0.conv1.branches.0")
    x = torch.full((2, 3, 8, 8), -100.0)
    activity = binary_metrics.activity(network, x)
    assert len(activity.balance) == len(activity.surviving) == len(latents(network))
    assert activity.balance["stem.0.conv1.branches.0"] == 0.0
    assert activity.surviving["stem.0.conv1.branches.0"] == 0.0
    assert first.training
    assert all(torch.equal(state[k], v) for k, v in network.state_dict().items())


def test_transfer_is_strict_and_reports_what_it_moved():
    torch.manual_seed(0)
    one, two = Network(tiny_runs.NETWORK, "real"), Network(tiny_runs.NETWORK, "binary")
    report = transfer(one.state_dict(), two, "step1")
    assert report.tensors == len(one.state_dict())
    assert report.binary_weights == sum(w.numel() for w in latents(one)) == 3 * 64 + 3 * 256
    assert report.plus == sum(int((w >= 0).sum()) for w in latents(one))
    assert "transferred from step1" in str(report)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s.pop("decoder.linear.bias"), "lacks 1 tensors of this network, the first is 'decoder.linear.bias'"),
        (lambda s: s.update(extra=torch.zeros(1)), "has 1 tensors this network has not, the first is 'extra'"),
        (lambda s: s.update({"decoder.linear.bias": torch.zeros(11)}), r"decoder.linear.bias is \(11,\)"),
        (lambda s: s.update({"decoder.linear.bias": torch.zeros(10).double()}), "torch.float64"),
    ],
)
def test_transfer_of_what_does_not_match_is_an_error(change, sentence):
    state = dict(Network(tiny_runs.NETWORK).state_dict())
    change(state)
    with pytest.raises(UserError, match=sentence):
        transfer(state, Network(tiny_runs.NETWORK), "step1")
