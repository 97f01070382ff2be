"""The native operators against `layers`, the definition: outputs, every gradient, running statistics, and when it applies.

Tolerance: both sides are float32 and differ in the order of sums only. Sums run over up to 800 pixels and 130 channels, so a value
may differ by about sqrt(800) * 2^-24 of the largest term, some 2e-6; batch norm and cancellation cost up to a digit and a half. We
allow 1e-4 of each tensor's largest value. Modules are compared one at a time with equal inputs, or rounding would flip signs.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bcnn.nets import config, fused, layers
from bcnn.nets.bcnn import Network
from bcnn.nets.fused_autograd import native

pytestmark = [
    pytest.mark.skipif(not fused.available(), reason="the native training kernels are not built"),
    pytest.mark.usefixtures("one_thread"),
]


def set_random(module: nn.Module) -> None:
    """Every parameter and statistic at a value that matters: no zero beta, both signs of gamma and slope."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name.endswith("norm.weight") or "prelu" in name:
                p.copy_(torch.randn_like(p))
            elif name.endswith("norm.bias"):
                p.copy_(torch.randn_like(p) * 0.3)
        for name, b in module.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(torch.randn_like(b))
            if name.endswith("running_var"):
                b.copy_(torch.rand_like(b) + 0.5)


def binary_conv(conv: layers.BinaryConv, **more: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The operator in the place of a module, in evaluation too."""
    branches = [(b.bias, b.weight, b.norm) for b in conv.branches]
    prelu = None if conv.prelu is None else conv.prelu.weight
    binary = conv.branches[0].weights == "binary"
    return lambda x: fused.binary_conv(x, branches, binary=binary, prelu=prelu, **more)


def depthwise_conv(conv: layers.DepthwiseConv) -> Callable[[Tensor], Tensor]:
    return lambda x: fused.depthwise_conv(x, conv.conv, conv.norm, conv.prelu)


def results(module: nn.Module, forward: Callable[[Tensor], Tensor], x: Tensor) -> dict[str, Tensor]:
    """Output, gradients of x and of every parameter, buffers after the call."""
    x = x.clone().requires_grad_()
    out = forward(x)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(7))
    (out * weight).sum().backward()
    found = {"out": out.detach(), "x": x.grad}
    found |= {f"gradient of {name}": p.grad for name, p in module.named_parameters()}
    found |= {f"buffer {name}": b for name, b in module.named_buffers()}
    return found


def assert_same(plain: dict[str, Tensor], native: dict[str, Tensor]) -> None:
    assert plain.keys() == native.keys()
    for name, expected in plain.items():
        assert native[name] is not None, name
        assert native[name].shape == expected.shape, name
        error = (native[name] - expected).abs().max() / expected.abs().max().clamp_min(1e-3)
        assert error < 1e-4, f"{name}: differs by {error:.1e} of its largest value"


def compare(module: nn.Module, native: Callable[[nn.Module], Callable[[Tensor], Tensor]], x: Tensor) -> None:
    twin = copy.deepcopy(module)
    fused.enabled = False
    try:
        expected = results(module, module, x)
    finally:
        fused.enabled = True
    assert_same(expected, results(twin, native(twin), x))


def set_weights(module: nn.Module, mode: str) -> None:
    for part in module.modules():
        if isinstance(part, layers.Branch):
            part.weights = mode


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("weights", ["binary", "real"])
@pytest.mark.parametrize(("channels", "branches"), [(4, 1), (5, 2), (31, 1), (33, 2), (64, 1), (65, 1), (130, 2)])
def test_binary_conv_equals_the_definition(channels: int, branches: int, weights: str, training: bool) -> None:
    conv = layers.BinaryConv(channels, branches).train(training)
    set_random(conv)
    set_weights(conv, weights)
    compare(conv, binary_conv, torch.randn(2, channels, 19, 21))


@pytest.mark.parametrize(("channels_in", "channels"), [(4, 12), (4, 16), (8, 20), (16, 40), (16, 64), (24, 33)])
def test_binary_conv_of_replicated_channels_equals_the_definition(channels_in: int, channels: int) -> None:
    conv = layers.BinaryConv(channels, 2)
    set_random(conv)
    compare(conv, binary_conv, torch.randn(2, channels_in, 9, 11))


@pytest.mark.parametrize("weights", ["binary", "real"])
@pytest.mark.parametrize(("channels", "out"), [(4, 9), (31, 17), (64, 128), (65, 3), (40, 64)])
def test_a_branch_of_its_own_equals_the_definition(channels: int, out: int, weights: str) -> None:
    """Without an identity path it may make another number of channels than it reads."""
    branch = layers.Branch(channels, torch.randn(channels), channels_out=out)
    set_random(branch)
    branch.weights = weights
    compare(branch, lambda twin: twin, torch.randn(2, channels, 9, 11))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("channels", [4, 33, 64])
def test_depthwise_conv_equals_the_definition(channels: int, stride: int, training: bool) -> None:
    conv = layers.DepthwiseConv(channels, stride).train(training)
    set_random(conv)
    compare(conv, depthwise_conv, torch.randn(3, channels, 7, 8))


@pytest.mark.parametrize("stride", [2, 3])
def test_avg_pool_equals_the_definition(stride: int) -> None:
    pool = nn.AvgPool2d(stride)
    compare(pool, lambda _: lambda x: fused.avg_pool(x, stride), torch.randn(2, 5, 6, 12))


def block(channels_in: int = 8, channels: int = 16, stride: int = 2, **changes: object) -> layers.Block:
    shape = {"name": "level1.0", "branches": 1, "filter": 1, "prelu": "block", "height_in": 8, "width_in": 8}
    made = layers.Block(
        config.BlockShape(**{**shape, "channels_in": channels_in, "channels": channels, "stride": stride, **changes})
    )  # type: ignore[arg-type]
    set_random(made)
    return made


BLOCKS = {
    "normal": {"channels_in": 16, "stride": 1},
    "down": {},
    "stem": {"name": "stem.0", "channels_in": 4, "channels": 32, "stride": 1},
    "replicate": {"channels_in": 5, "channels": 13, "stride": 1},
    "two branches": {"branches": 2},
}


def assert_block_same(made: layers.Block, x: Tensor) -> None:
    """Module by module: every module reads the plain path's map, so a rounded sign in one cannot flip the next."""
    fused.enabled = False
    try:
        with torch.no_grad():
            twin = copy.deepcopy(made)
            replicated = twin.replicate(x)
            inner = twin.depthwise(twin.conv1(replicated))
            other = x if twin.identity is None else twin.identity(twin.pool(replicated))
    finally:
        fused.enabled = True
    if made.identity is not None:
        stride = made.depthwise.conv.stride[0]
        expected = copy.deepcopy(made)
        plain = results(expected.identity, lambda v: expected.identity(expected.pool(expected.replicate(v))), x)
        identity = binary_conv(made.identity)
        assert_same(plain, results(made.identity, lambda v: identity(fused.avg_pool(v, stride)), x))
        made.zero_grad()

    def plain_end(module: layers.Block, other: Tensor) -> Callable[[Tensor], Tensor]:
        def forward(v: Tensor) -> Tensor:
            out = other + module.conv3(v)
            return out if module.prelu is None else module.prelu(out)

        return forward

    def native_end(module: layers.Block, other: Tensor) -> Callable[[Tensor], Tensor]:
        prelu = None if module.prelu is None else module.prelu.weight
        return binary_conv(module.conv3, add=other, prelu_after=prelu)

    ends = []
    for end, module in ((plain_end, copy.deepcopy(made)), (native_end, copy.deepcopy(made))):
        beside = other.clone().requires_grad_()
        keep = nn.ModuleDict({"conv3": module.conv3} | ({} if module.prelu is None else {"prelu": module.prelu}))
        ends.append(results(keep, end(module, beside), inner) | {"other path": beside.grad})
    assert_same(*ends)


@pytest.mark.parametrize("prelu", ["block", "module"])
@pytest.mark.parametrize("kind", BLOCKS)
def test_ends_of_a_block_equal_the_definition(kind: str, prelu: str) -> None:
    made = block(**{**BLOCKS[kind], "prelu": prelu})
    assert_block_same(made, torch.randn(3, made.replicate.channels_in, 8, 8))


@pytest.mark.parametrize("kind", BLOCKS)
def test_whole_block_equals_the_definition_where_no_sign_is_near_zero(kind: str) -> None:
    """With biases far from every activation the signs are certain, and the block can be compared in one piece."""
    made = block(**BLOCKS[kind])
    with torch.no_grad():
        for name, p in made.named_parameters():
            if name.endswith("branches.0.bias") or name.endswith("branches.1.bias"):
                p.copy_(torch.where(torch.randn_like(p) > 0, 100.0, -100.0))
            elif name.endswith("norm.weight") and "branches" in name:
                p.zero_()  # the statistics of constant maps would only amplify rounding
    compare(made, lambda twin: twin, torch.randn(3, made.replicate.channels_in, 8, 8))


def test_gradient_vanishes_for_latent_weights_beyond_one() -> None:
    conv = layers.BinaryConv(8)
    weight = conv.branches[0].weight
    with torch.no_grad():
        weight.copy_(torch.tensor([-1.5, -1.0, -0.0, 0.0, 0.5, 1.0, 1.0001, 2.0]).repeat(8, 1).reshape(8, 8, 1, 1))
    compare(conv, binary_conv, torch.randn(2, 8, 4, 4))
    assert torch.equal((weight.grad != 0).any(0).flatten(), weight[0].abs().flatten() <= 1)


def training_run(threads: int, steps: int = 3) -> list[Tensor]:
    torch.manual_seed(3)
    net = Network(config.preset("digits"))
    adam = torch.optim.Adam(net.parameters(), 1e-2)
    torch.set_num_threads(threads)
    with fused.cores(net):
        for _ in range(steps):
            adam.zero_grad()
            nn.functional.cross_entropy(net(torch.randn(16, 3, 8, 8)), torch.randint(0, 10, (16,))).backward()
            adam.step()
    return [t.clone() for t in net.state_dict().values()]


def test_training_gives_the_same_bits_for_any_number_of_threads() -> None:
    first = training_run(1)
    for threads in (1, 2, 3, 8):
        assert all(torch.equal(a, b) for a, b in zip(first, training_run(threads), strict=True)), threads


@pytest.mark.parametrize("weights", ["binary", "real"])
@pytest.mark.parametrize(("channels", "images", "size"), [(33, 3, 9), (16, 8, 40), (200, 2, 4), (8, 1, 3)])
def test_operators_give_the_same_bits_for_any_number_of_threads(
    channels: int, images: int, size: int, weights: str
) -> None:
    """More blocks than threads and fewer, blocks that are not full, several batches of them."""
    conv, depthwise = layers.BinaryConv(channels, 2), layers.DepthwiseConv(channels)
    set_weights(conv, weights)
    x = torch.randn(images, channels, size, size)
    for module in (conv, depthwise):
        twins = {threads: copy.deepcopy(module) for threads in (1, 2, 5)}
        found = {}
        for threads, twin in twins.items():
            torch.set_num_threads(threads)
            found[threads] = results(twin, twin, x)
        for threads in (2, 5):
            for name, expected in found[1].items():
                assert torch.equal(found[threads][name], expected), f"{name} with {threads} threads"


def test_two_networks_may_train_at_the_same_time() -> None:
    """One of them has the pool, the other goes on alone: same bits."""
    torch.set_num_threads(2)
    x = torch.randn(8, 16, 24, 24)
    modules = [layers.BinaryConv(16) for _ in range(4)]
    expected = [results(copy.deepcopy(m), copy.deepcopy(m), x)["out"] for m in modules]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(lambda m: results(m, m, x)["out"], [copy.deepcopy(m) for m in modules]))
            assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_a_forked_child_has_threads_of_its_own() -> None:
    torch.set_num_threads(2)
    x = torch.randn(8, 16, 24, 24).numpy()
    out = np.empty((8, 12, 12, 16), np.float32)
    image = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    native.avg_pool_forward(image, 2, 2, out)
    child = os.fork()
    if child == 0:
        again = np.empty_like(out)
        native.avg_pool_forward(image, 2, 2, again)
        os._exit(0 if np.array_equal(out, again) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_cores_gives_the_threads_of_torch_to_the_kernels_and_returns_them() -> None:
    torch.set_num_threads(3)
    with fused.cores(Network(config.preset("digits"))):
        assert (torch.get_num_threads(), fused.threads()) == (1, 3)
    assert (torch.get_num_threads(), fused.threads()) == (3, 3)
    with fused.cores(nn.Sequential(layers.BinaryConv(8), nn.Conv2d(8, 8, 3))):  # the larger part is torch's own
        assert torch.get_num_threads() == 3
    with fused.cores(Network(config.preset("digits"), "tanh")):
        assert torch.get_num_threads() == 3


@pytest.mark.parametrize("isa", ["scalar", "avx2"])
def test_other_instruction_sets_equal_the_definition_too(isa: str) -> None:
    """This process runs the best one. BCNN_ISA is read once a process, so a fresh one runs some of the tests above with another."""
    env = {**os.environ, "BCNN_ISA": isa, "OMP_NUM_THREADS": "1"}
    allowed = {"scalar": ["portable"], "avx2": ["avx2", "portable"]}[isa]  # whatever is above is not chosen
    code = f"from bcnn import _training; assert _training.isa() in {allowed}, _training.isa()"
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    some = "equals_the_definition and (33 or 65 or 64 or avg_pool) or operators_give_the_same_bits"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", __file__, "-k", some, "-p", "no:cacheprovider"],
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:]


# --- when it applies ------------------------------------------------------------------------------------------------


def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that run from now on."""
    seen: list[str] = []

    def watch(name: str) -> None:
        original = getattr(fused, name)
        monkeypatch.setattr(fused, name, lambda *a, **k: seen.append(name) or original(*a, **k))

    for name in ("binary_conv", "depthwise_conv", "avg_pool"):
        watch(name)
    return seen


DOWN = [
    "binary_conv",
    "depthwise_conv",
    "avg_pool",
    "binary_conv",
    "binary_conv",
]  # conv1, depth wise, pool, identity, conv3


def test_a_block_in_training_is_fused_and_one_in_evaluation_is_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, made, x = calls(monkeypatch), block(), torch.randn(2, 8, 8, 8)
    made(x)
    assert seen == DOWN
    made.eval()(x)
    assert seen == DOWN


def test_a_stranger_s_network_of_these_layers_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stranger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = layers.Branch(8, torch.zeros(8), channels_out=24)
            self.mix = layers.BinaryConv(24, 2)
            self.around = layers.DepthwiseConv(24, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.around(self.mix(torch.relu(self.wide(x))))

    seen = calls(monkeypatch)
    made = Stranger()
    made(torch.randn(2, 8, 8, 8))
    assert seen == ["binary_conv", "binary_conv", "depthwise_conv"]


def test_the_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, made = calls(monkeypatch), block()
    monkeypatch.setattr(fused, "enabled", False)
    made(torch.randn(2, 8, 8, 8))
    assert not seen
    code = "from bcnn.nets import fused; assert not fused.enabled"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "BCNN_FUSED": "0"}, check=True)


@pytest.mark.parametrize(
    ("name", "shape", "rest"),
    [
        ("conv1.branches.0", (2, 16, 8, 8), DOWN[1:]),
        ("conv1.branches.0.norm", (2, 16, 8, 8), DOWN[1:]),
        ("depthwise.prelu", (2, 16, 4, 4), [*DOWN[:1], *DOWN[2:]]),
        ("pool", (2, 8, 4, 4), [*DOWN[:2], *DOWN[3:]]),
        ("replicate", (2, 16, 8, 8), DOWN),
        ("prelu", (2, 16, 4, 4), [*DOWN[:4], "binary_conv"]),
    ],
)
def test_a_hook_sees_its_module(
    name: str, shape: tuple[int, ...], rest: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it sits in takes the plain path; a branch by itself may still be one operator."""
    seen, made, shapes = calls(monkeypatch), block(), []
    handle = made.get_submodule(name).register_forward_hook(lambda _m, _i, out: shapes.append(tuple(out.shape)))
    made(torch.randn(2, 8, 8, 8))
    assert shapes == [shape]
    assert [s for s in seen if s != "binary_conv"] == [s for s in rest if s != "binary_conv"]
    handle.remove()
    seen.clear()
    made.register_forward_hook(
        lambda _m, _i, out: shapes.append(tuple(out.shape))
    )  # around the block: no reason to leave
    made(torch.randn(2, 8, 8, 8))
    assert shapes[1:] == [(2, 16, 4, 4)]
    assert seen == DOWN


def test_counting_operations_sees_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, made = calls(monkeypatch), block()
    with FlopCounterMode(display=False) as counter:
        made(torch.randn(2, 8, 8, 8))
    assert not seen
    assert counter.get_total_flops() > 0


def test_export_autocast_and_compile_see_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, made, x = calls(monkeypatch), block(), torch.randn(2, 8, 8, 8)
    program = torch.export.export(made, (x,))
    assert any("conv2d" in str(node.target) for node in program.graph.nodes)
    with torch.autocast("cpu", torch.bfloat16):
        made(x)
    torch.compile(made, backend="eager")(x)
    assert not seen


class Stranger(nn.PReLU):
    """May compute something else."""


def test_other_types_and_modules_take_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, x = calls(monkeypatch), torch.randn(2, 8, 8, 8)
    layers.BinaryConv(8).double()(x.double())
    assert not seen
    layers.BinaryConv(8, filter=3)(x)  # shifted branches, but for the centre
    assert seen == ["binary_conv"]
    seen.clear()
    for name, module in (
        ("norm", nn.BatchNorm2d(8, momentum=None)),
        ("norm", nn.BatchNorm2d(8, affine=False)),
        ("norm", nn.GroupNorm(2, 8)),
        ("norm", nn.BatchNorm2d(8).eval()),
        ("prelu", nn.PReLU()),
        ("prelu", nn.ReLU()),
        ("prelu", Stranger()),
        ("conv", nn.Conv2d(8, 8, 3, padding=1, groups=8)),  # with bias
        ("conv", nn.Conv2d(8, 8, 5, padding=2, groups=8, bias=False)),
        ("conv", nn.Conv2d(8, 8, 3, padding=1, bias=False)),
    ):
        depthwise = layers.DepthwiseConv(8)
        depthwise.add_module(name, module)
        depthwise(x)
        assert not seen, module


@pytest.mark.parametrize("weights", ["scaled", "tanh", "float"])
def test_other_transforms_of_weights_take_the_plain_path(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, network = calls(monkeypatch), Network(config.preset("digits"), weights).train()
    network(torch.randn(2, 3, 8, 8))
    assert "binary_conv" not in seen
    network.weights = "real"
    network(torch.randn(2, 3, 8, 8))
    assert "binary_conv" in seen


@pytest.mark.parametrize("shape", [(2, 8, 7, 8), (2, 4, 8, 8), (8, 8, 8)], ids=["odd", "channels", "no batch"])
def test_a_wrong_map_is_the_same_error_as_in_the_plain_path(shape: tuple[int, ...]) -> None:
    made, x = block(), torch.randn(shape)
    with pytest.raises((RuntimeError, ValueError, IndexError)) as native_error:
        made(x)
    fused.enabled = False
    try:
        with pytest.raises((RuntimeError, ValueError, IndexError)) as plain_error:
            made(x)
    finally:
        fused.enabled = True
    assert type(native_error.value) is type(plain_error.value)


def test_one_pixel_is_refused_by_batch_norm_as_in_the_plain_path() -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        layers.BinaryConv(8)(torch.randn(1, 8, 1, 1))


def test_channels_last_and_plain_layout_give_the_same_bits() -> None:
    x = torch.randn(2, 8, 8, 8)
    first = block()
    second = copy.deepcopy(first)
    assert torch.equal(first(x), second(x.contiguous(memory_format=torch.channels_last)))


def test_a_wrong_native_call_is_an_exception() -> None:
    x, out = torch.randn(2, 4, 4, 3).numpy(), torch.empty(2, 2, 2, 3).numpy()
    native.avg_pool_forward(x, 2, 1, out)
    with pytest.raises(ValueError, match="does not divide"):
        native.avg_pool_forward(x, 3, 1, out)
    with pytest.raises(ValueError, match="out: 24 elements, expected 96"):
        native.avg_pool_forward(x, 1, 1, out)
    with pytest.raises(TypeError, match="contiguous float32"):
        native.avg_pool_forward(x.astype("float64"), 2, 1, out)
    with pytest.raises(ValueError, match="threads"):
        native.avg_pool_forward(x, 2, 0, out)
