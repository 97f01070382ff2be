"""The network, and everything a torch user would try with it."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import Tensor, nn

from bcnn import Level, NetworkConfig, UserError, preset
from bcnn.nets.bcnn import INTENSITY, Decoder, Intensity, Network

torch.set_num_threads(1)

SMALL = NetworkConfig(
    name="small",
    image_size=(8, 8),
    classes=5,
    branches=2,
    stem=Level(1, 1, 2),
    levels=(Level(2, 2, 1.5), Level(1, 2, 0.5, 3)),
)
# For what is slow per layer: tracing.
LEAN = NetworkConfig(image_size=(4, 4), classes=3, stem=Level(1, 2, 1.5), levels=())


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    return Network(SMALL).eval()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["imagenet", "imagenet-p2", "imagenette", "tinyimagenet", "cifar10", "digits"])
def test_presets_make_logits_of_their_classes(name: str) -> None:
    config = preset(name)
    with torch.device("meta"):
        assert Network(config)(torch.empty(2, 3, *config.image_size)).shape == (2, config.classes)


def test_module_names_are_those_of_the_plan() -> None:
    config = preset("cifar10")
    names = dict(Network(config).named_modules())
    assert all(block.name in names for block in config.plan())
    assert [name for name, _ in Network(config).named_children()] == [
        "intensity",
        "stem",
        "level1",
        "level2",
        "level3",
        "decoder",
    ]


def test_intensity_is_the_fourth_channel() -> None:
    x = torch.randn(2, 3, 4, 5)
    out = Intensity()(x)
    assert out.shape == (2, 4, 4, 5)
    assert torch.equal(out[:, :3], x)
    assert torch.allclose(out[:, 3], (x * torch.tensor(INTENSITY).reshape(3, 1, 1)).sum(1), atol=1e-6)
    assert sum(INTENSITY) == pytest.approx(1)


def test_without_intensity_there_is_no_fourth_channel(images: Tensor) -> None:
    network = Network(SMALL.replace(intensity=False))
    assert network.intensity is None
    assert network(images).shape == (2, 5)


def test_decoder_is_linear_of_the_mean() -> None:
    decoder, x = Decoder(6, 4), torch.randn(3, 6, 5, 5)
    assert torch.allclose(decoder(x), decoder.linear(x.flatten(2).mean(2)), atol=1e-6)


def test_other_sizes_run_if_the_strides_allow_them(network: Network) -> None:
    assert network(torch.randn(1, 3, 12, 16)).shape == (1, 5)


@pytest.mark.parametrize("shape", [(1, 3, 9, 8), (1, 3, 8, 10), (1, 4, 8, 8), (3, 8, 8)])
def test_images_of_a_wrong_shape_get_a_sentence(network: Network, shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="images must be N,3,H,W with H and W multiples of 4, got"):
        network(torch.randn(shape))


# --- weights: step 1 and step 2 -------------------------------------------------------------------------------------


def test_switching_weights_keeps_every_parameter_and_changes_the_output(network: Network, images: Tensor) -> None:
    before = copy.deepcopy(network.state_dict())
    binary = network(images)
    network.weights = "real"
    real = network(images)
    assert network.weights == "real"
    assert all(torch.equal(network.state_dict()[name], value) for name, value in before.items())
    assert not torch.equal(real, binary)
    network.weights = "binary"
    assert torch.equal(network(images), binary)


def test_step_1_and_step_2_hold_the_same_state() -> None:
    step_1, step_2 = Network(SMALL, weights="real"), Network(SMALL, weights="binary")
    step_2.load_state_dict(step_1.state_dict(), strict=True)
    step_1.weights = "binary"
    x = torch.randn(1, 3, 8, 8)
    assert torch.equal(step_1.eval()(x), step_2.eval()(x))


def test_unknown_weights_get_a_sentence(network: Network) -> None:
    with pytest.raises(
        UserError, match=r"unknown weights 'binery'; did you mean 'binary'\? known: binary, float, real, scaled, tanh"
    ):
        network.weights = "binery"
    assert network.weights == "binary"


@pytest.mark.parametrize("weights", ["real", "binary"])
def test_binary_weights_are_plus_and_minus_one_by_parameter_name(weights: str) -> None:
    network = Network(SMALL, weights)
    parameters = dict(network.named_parameters())
    binary = dict(network.binary_weights())
    assert set(binary) == {
        name for name, p in parameters.items() if p.dim() == 4 and "branches" in name and name.endswith("weight")
    }
    for name, tensor in binary.items():
        assert torch.equal(tensor, torch.where(parameters[name] >= 0, 1.0, -1.0))
        assert not tensor.requires_grad
    assert sum(t.numel() for t in binary.values()) == sum(p.numel() for n, p in parameters.items() if n in binary)


@pytest.mark.parametrize("prelu", ["module", "block"])
@pytest.mark.parametrize("weights", ["real", "binary"])
def test_every_parameter_gets_a_finite_gradient(weights: str, prelu: str) -> None:
    torch.manual_seed(0)
    network = Network(SMALL.replace(prelu=prelu), weights)
    network(torch.randn(4, 3, 8, 8)).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name


# --- what users would try -------------------------------------------------------------------------------------------


def gradients(module: nn.Module, loss: Tensor) -> list[Tensor]:
    module.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def test_compiles_to_one_graph_forward_and_backward_and_follows_a_switch_of_weights() -> None:
    torch.manual_seed(0)
    network = Network(LEAN).eval()
    images = torch.randn(2, 3, 4, 4)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    outputs = []
    for weights in ("binary", "real"):
        network.weights = weights
        expected = gradients(network, network(images).square().sum())
        out = compiled(images)
        assert torch.equal(out, network(images))
        outputs.append(out.detach())
        for a, b in zip(gradients(network, out.square().sum()), expected, strict=True):
            assert torch.allclose(a, b, atol=1e-4, rtol=1e-4)
    assert not torch.equal(*outputs)


def test_channels_last_gives_the_same_logits(network: Network, images: Tensor) -> None:
    expected = network(images)
    last = copy.deepcopy(network).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    out = last(images.to(memory_format=torch.channels_last))
    assert torch.allclose(out, expected, atol=1e-4)


@pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="fails inside torch 2.6")
def test_exports_with_a_free_batch_size() -> None:
    network, images = Network(LEAN).eval(), torch.randn(2, 3, 4, 4)
    exported = torch.export.export(network, (images,), dynamic_shapes={"x": {0: torch.export.Dim("n", min=2)}}).module()
    assert torch.equal(exported(images), network(images))
    more = torch.randn(5, 3, 4, 4)
    assert torch.allclose(exported(more), network(more), atol=1e-5)


@pytest.mark.parametrize("weights", ["real", "binary"])
def test_autocast_to_bfloat16_trains(weights: str, images: Tensor) -> None:
    torch.manual_seed(0)
    network = Network(SMALL, weights)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = network(images)
    assert out.dtype == torch.bfloat16
    out.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in network.parameters())


def test_binary_dots_are_exact_under_autocast() -> None:
    """Sums of up to 256 signs are whole numbers that bfloat16 holds, so autocast changes no dot of a small network."""
    branch = Network(preset("digits")).eval().get_submodule("stem.0.conv1.branches.0")
    dots: list[Tensor] = []
    branch.get_submodule("norm").register_forward_pre_hook(lambda _, args: dots.append(args[0]))
    x = torch.randn(1, 32, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        branch(x)
    branch(x)
    assert dots[0].dtype == torch.bfloat16
    assert torch.equal(dots[0].float(), dots[1])


def test_bfloat16_and_double_networks_run(network: Network, images: Tensor) -> None:
    assert copy.deepcopy(network).double()(images.double()).dtype == torch.float64
    assert copy.deepcopy(network).bfloat16()(images.bfloat16()).dtype == torch.bfloat16


def test_deepcopy_is_independent(network: Network, images: Tensor) -> None:
    other = copy.deepcopy(network)
    expected = network(images)
    assert torch.equal(other(images), expected)
    other.weights = "real"
    nn.init.zeros_(other.decoder.linear.weight)
    assert network.weights == "binary"
    assert torch.equal(network(images), expected)


def test_state_dict_round_trips_through_a_file(network: Network, images: Tensor) -> None:
    file = io.BytesIO()
    torch.save(network.state_dict(), file)
    file.seek(0)
    other = Network(SMALL).eval()
    assert not torch.equal(other(images), network(images))
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert torch.equal(other(images), network(images))


def test_pickle_keeps_the_switch(network: Network, images: Tensor) -> None:
    network.weights = "real"
    other = pickle.loads(pickle.dumps(network))
    assert other.weights == "real"
    assert torch.equal(other(images), network(images))


def test_functional_call_uses_the_parameters_it_is_given(network: Network, images: Tensor) -> None:
    others = [network, copy.deepcopy(network)]
    with torch.no_grad():
        for parameter in others[1].parameters():
            parameter.add_(0.1)
    for other in others:
        state = {**dict(other.named_parameters()), **dict(other.named_buffers())}
        assert torch.equal(torch.func.functional_call(network, state, (images,)), other(images))


def replicated(network: nn.Module) -> nn.Module:
    """What DataParallel makes on each device: shallow copies whose parameters are plain tensors."""
    copies = {module: module._replicate_for_data_parallel() for module in network.modules()}
    for module, replica in copies.items():
        for name, child in module._modules.items():
            replica._modules[name] = None if child is None else copies[child]
        for name, parameter in module._parameters.items():
            if parameter is None:
                replica._parameters[name] = None
            else:
                setattr(replica, name, parameter.clone())
        for name, buffer in module._buffers.items():
            replica._buffers[name] = buffer
    return copies[network]


@pytest.mark.parametrize("weights", ["real", "binary"])
def test_data_parallel_replicas_compute_the_same(network: Network, images: Tensor, weights: str) -> None:
    network.weights = weights
    replica = replicated(network)
    assert torch.equal(replica(images), network(images))
    replica(images).sum().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_one_image_gives_the_same_logits_alone_and_in_a_batch(network: Network, images: Tensor) -> None:
    assert torch.allclose(network(images)[:1], network(images[:1]), atol=1e-5)
