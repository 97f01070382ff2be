"""A torch network -> a `Program`: batch norm folded, bias and sign as thresholds, replication as an index rule.

One rule per module type, in the tables `NETWORKS` and `MODULES`: a rule emits ops and returns the index of the map that its
module makes. A module type without a rule is a `UserError` that names the layer; a new one needs a function with `@lowers`.
Folding is done in float64 and rounded once to float32.

Legend: C channels of the map read, K = RC after replication, O channels made, P branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from bcnn.errors import UserError
from bcnn.nets import layers
from bcnn.nets.bcnn import INTENSITY, Decoder, Intensity, Network
from bcnn.program import program as p
from bcnn.program.bits import pack_bits

Doubles = NDArray[np.float64]
Where = tuple[nn.Module, Literal["input", "output"]]  # the place in the torch network that has the values of a map
Part = TypeVar("Part", bound=nn.Module)


def lower(
    network: nn.Module,
    mean: Sequence[float],
    std: Sequence[float],
    labels: Sequence[str] = (),
    crop: float = 1.0,
    provenance: dict[str, Any] | None = None,
) -> p.Program:
    """The program of a network that was trained on (u / 255 - mean) / std, u being the bytes of an RGB image."""
    lowering = Lowering(network, mean, std)
    return p.Program(tuple(lowering.ops), tuple(lowering.op_names), tuple(labels), float(crop), dict(provenance or {}))


class Lowering:
    """The ops made so far, and what the rules share."""

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        self.names = {module: name for name, module in network.named_modules()}
        self.ops: list[p.Op] = []
        self.op_names: list[str] = []
        self.shapes: list[p.Shape] = []
        self.modules: list[nn.Module] = []  # that each op came from
        self.where: list[Where] = []  # where torch has the map that each op makes
        self.mean, self.std = _normalisation(mean, std)
        if type(network) not in NETWORKS:
            raise UserError(f"cannot lower a {type(network).__name__}; known networks: {_known(NETWORKS)}")
        NETWORKS[type(network)](self, network)

    def emit(self, op: p.Op, module: nn.Module, where: Where | None = None) -> int:
        """Append an op that came from `module`; `where` torch has the same map, if not at the module's output."""
        name = self.names[module]
        self.shapes.append(p.map_shape(op, name, self.shapes))
        self.ops.append(op)
        self.op_names.append(name)
        self.modules.append(module)
        self.where.append(where or (module, "output"))
        return len(self.ops) - 1

    def module(self, module: nn.Module, source: int) -> int:
        """Lower a module that reads map `source`. Exact types only: a subclass may compute something else."""
        if type(module) not in MODULES:
            raise self.error(module, f"no rule lowers a {type(module).__name__}; known modules: {_known(MODULES)}")
        return MODULES[type(module)](self, module, source)

    def part(self, module: nn.Module, name: str, kind: type[Part]) -> Part:
        """The child that a rule needs, if it is what the rule expects."""
        child = getattr(module, name)
        if type(child) is not kind:
            raise self.error(
                module, f"its {name} is a {type(child).__name__}, not the {kind.__name__} that can be folded"
            )
        return child

    def array(self, module: nn.Module, name: str, default: float | None = None) -> Doubles:
        """A parameter or buffer in float64; an absent one is `default`."""
        tensor: Tensor | None = getattr(module, name)
        if tensor is None:
            if default is None:
                raise self.error(module, f"it has no {name}")
            return np.array([default])
        values: Doubles = tensor.detach().double().cpu().numpy()
        if not np.isfinite(values).all():
            count = int((~np.isfinite(values)).sum())
            raise self.error(module, f"{count} of {values.size} values of its {name} are not finite; train it again")
        return values

    def error(self, module: nn.Module, why: str) -> UserError:
        return UserError(f"cannot lower {self.names.get(module) or 'the network'!r}: {why}")


# --- rules ------------------------------------------------------------------------------------------------------------

NETWORKS: dict[type[nn.Module], Callable[[Lowering, Any], None]] = {}
MODULES: dict[type[nn.Module], Callable[[Lowering, Any, int], int]] = {}
Rule = TypeVar("Rule", bound=Callable[..., Any])


def lowers(kind: type[nn.Module], table: dict[type[nn.Module], Any] = MODULES) -> Callable[[Rule], Rule]:
    """Register a rule: `@lowers(SomeModule) def rule(lowering, module, source) -> index of the map it makes`."""

    def register(rule: Rule) -> Rule:
        table[kind] = rule
        return rule

    return register


@lowers(Network, NETWORKS)
def _network(lowering: Lowering, network: Network) -> None:
    first, *_ = levels = list(network.levels())
    height, width = network.config.image_size
    intensity = network.intensity is not None
    if intensity:
        lowering.part(network, "intensity", Intensity)
    source = emit_input(lowering, network.intensity or network, height, width, intensity, where=(first, "input"))
    for module in (*levels, network.decoder):
        source = lowering.module(module, source)


@lowers(nn.Sequential)
def _sequential(lowering: Lowering, modules: nn.Sequential, source: int) -> int:
    for module in modules:
        source = lowering.module(module, source)
    return source


@lowers(layers.Replicate)
def _replicate(lowering: Lowering, replicate: layers.Replicate, source: int) -> int:
    if replicate.channels >= replicate.channels_in:
        return source  # the reader's index rule does it: its arrays have K channels
    return lowering.emit(p.ChannelAvg(source, replicate.channels), replicate)


@lowers(layers.Block)
def _block(lowering: Lowering, block: layers.Block, source: int) -> int:
    source = lowering.module(block.replicate, source)
    residual = lowering.module(block.depthwise, lowering.module(block.conv1, source))
    identity = source
    if block.pool is not None and block.identity is not None:
        # Average pooling is linear in each channel, so it reads the map before replication.
        identity = lowering.module(block.identity, lowering.module(block.pool, source))
    conv3 = lowering.part(block, "conv3", layers.BinaryConv)
    if block.prelu is not None and conv3.prelu is not None:
        raise lowering.error(block, "it has a PReLU before and after its addition; an op holds one of them")
    return emit_binary_conv(
        lowering,
        conv3,
        residual,
        prelu_of=conv3 if block.prelu is None else block,
        add=identity,
        prelu_after_add=block.prelu is not None,
        where=(block, "output"),
    )


@lowers(layers.BinaryConv)
def _binary_conv(lowering: Lowering, conv: layers.BinaryConv, source: int) -> int:
    return emit_binary_conv(lowering, conv, source, prelu_of=conv)


@lowers(layers.DepthwiseConv)
def _depthwise(lowering: Lowering, module: layers.DepthwiseConv, source: int) -> int:
    conv = lowering.part(module, "conv", nn.Conv2d)
    settings = conv.kernel_size, conv.padding, conv.dilation, conv.padding_mode, conv.groups, conv.out_channels
    if settings != ((3, 3), (1, 1), (1, 1), "zeros", conv.in_channels, conv.in_channels) or len(set(conv.stride)) > 1:
        raise lowering.error(conv, f"{conv} is not a depth wise 3x3 convolution with one stride and zero padding 1")
    # BN(conv(x) + bias) = s * conv(x) + (beta + s * (bias - mean)): s goes into the weights.
    s, mean, beta = batch_norm(lowering, lowering.part(module, "norm", nn.BatchNorm2d))
    weight = lowering.array(conv, "weight")[:, 0].transpose(1, 2, 0)  # K,1,3,3 -> 3,3,K
    offset = beta + s * (lowering.array(conv, "bias", default=0) - mean)
    slope = prelu_slope(lowering, module, conv.out_channels)
    return lowering.emit(p.DepthwiseConv(source, single(weight * s), single(offset), slope, conv.stride[0]), module)


@lowers(nn.AvgPool2d)
def _avg_pool(lowering: Lowering, pool: nn.AvgPool2d, source: int) -> int:
    sizes = {*_pair(pool.kernel_size), *_pair(pool.stride)}
    if len(sizes) > 1 or set(_pair(pool.padding)) != {0} or pool.ceil_mode or pool.divisor_override:
        raise lowering.error(pool, f"{pool} is not a plain SxS average with stride S")
    return lowering.emit(p.AvgPool(source, sizes.pop()), pool)


@lowers(Decoder)
def _decoder(lowering: Lowering, decoder: Decoder, source: int) -> int:
    linear = lowering.part(decoder, "linear", nn.Linear)
    pooled = lowering.emit(p.GlobalAvgPool(source), decoder, where=(linear, "input"))
    weight = lowering.array(linear, "weight").T
    bias = np.broadcast_to(lowering.array(linear, "bias", default=0), weight.shape[1:])
    return lowering.emit(p.Linear(pooled, single(weight), single(bias)), linear)


# --- what rules are made of -------------------------------------------------------------------------------------------


def emit_input(lowering: Lowering, module: nn.Module, height: int, width: int, intensity: bool, where: Where) -> int:
    """(u / 255 - mean) / std = u * scale + offset with scale = 1 / (255 std), offset = -mean / std."""
    scale, offset = 1 / (255 * lowering.std), -lowering.mean / lowering.std
    weights = single(np.array(INTENSITY)) if intensity else None
    return lowering.emit(p.Input(height, width, single(scale), single(offset), weights), module, where)


def emit_binary_conv(
    lowering: Lowering,
    conv: nn.Module,
    source: int,
    prelu_of: nn.Module,
    identity: bool = True,
    add: int | None = None,
    prelu_after_add: bool = False,
    where: Where | None = None,
) -> int:
    """A convolution module: `conv.branches` holds its `layers.Branch`es; the PReLU is that of `prelu_of`."""
    height, width, _ = lowering.shapes[source]
    modules = lowering.part(conv, "branches", nn.ModuleList)
    if not len(modules):
        raise lowering.error(conv, "it has no branches")
    branches = tuple(fold_branch(lowering, branch, height, width) for branch in modules)
    slope = prelu_slope(lowering, prelu_of, branches[0].scale.size)
    return lowering.emit(p.BinaryConv(source, branches, identity, slope, add, prelu_after_add), conv, where)


def fold_branch(lowering: Lowering, branch: nn.Module, height: int, width: int) -> p.Branch:
    """Bias, sign, binary 1x1 convolution, batch norm -> threshold, bits, scale, offset: see `program.Branch`."""
    if type(branch) is not layers.Branch:
        raise lowering.error(branch, f"no rule folds a {type(branch).__name__}; known: {layers.Branch.__name__}")
    if branch.weights != "binary":
        raise lowering.error(
            branch,
            f"its weights are {branch.weights!r}, not 'binary'; finish step 2 of the training before you lower it",
        )
    latent = lowering.array(branch, "weight")
    if latent.ndim != 4 or latent.shape[2:] != (1, 1):
        raise lowering.error(branch, f"its weight of {latent.shape} is not O x K x 1 x 1")
    k = latent.shape[1]
    s, mean, beta = batch_norm(lowering, lowering.part(branch, "norm", nn.BatchNorm2d))
    # BN(dot) = s * (dot - mean) + beta with dot = K - 2 n. The offset is made with the s that scale holds after its rounding:
    # so the error of that rounding grows with |dot - mean| and not with K.
    s = single(s).astype(np.float64)
    dy, dx = branch.shift
    return p.Branch(
        threshold=single(-lowering.array(branch, "bias").reshape(-1)),
        weight=pack_bits(latent[:, :, 0, 0] >= 0),  # sign(-0.0) = +1
        scale=single(-2 * s),
        offset=single(beta + s * (k - mean)),
        shift=(max(-height, min(height, dy)), max(-width, min(width, dx))),  # further out all is zero, too
    )


def batch_norm(lowering: Lowering, norm: nn.BatchNorm2d) -> tuple[Doubles, Doubles, Doubles]:
    """s, mean, beta with BN(x) = s * (x - mean) + beta and s = gamma / sqrt(var + eps)."""
    mean, var = lowering.array(norm, "running_mean"), lowering.array(norm, "running_var")
    if (var + norm.eps <= 0).any():
        raise lowering.error(norm, "its running_var has negative values, which no variance has")
    s = lowering.array(norm, "weight", default=1) / np.sqrt(var + norm.eps)
    return s, mean, lowering.array(norm, "bias", default=0)


def prelu_slope(lowering: Lowering, module: nn.Module, channels: int) -> p.Floats | None:
    """The slope of `module.prelu` for every channel; one shared slope is written out."""
    if module.prelu is None:
        return None
    slope = lowering.array(lowering.part(module, "prelu", nn.PReLU), "weight")
    return single(np.broadcast_to(slope, (channels,)) if slope.size == 1 else slope)


def single(values: Doubles) -> p.Floats:
    """The one rounding to float32; what overflows becomes inf, which `Program` refuses by name."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32)


def _normalisation(mean: Sequence[float], std: Sequence[float]) -> tuple[Doubles, Doubles]:
    try:
        pair = np.array(mean, np.float64), np.array(std, np.float64)
    except (TypeError, ValueError):
        pair = np.empty(0), np.empty(0)
    if any(values.shape != (3,) or not np.isfinite(values).all() for values in pair) or (pair[1] <= 0).any():
        raise UserError(f"mean and std must be three finite numbers each and std above 0, got {mean!r} and {std!r}")
    return pair


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def _known(table: dict[type[nn.Module], Any]) -> str:
    return ", ".join(sorted(kind.__name__ for kind in table))
