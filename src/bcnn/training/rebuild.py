"""A packed file -> a network that can be trained again: the other direction of `program.lower`, for the paper's family.

A packed file holds signs, thresholds, and batch norm folded to one scale s and one offset o (`ops.Branch`). Back from them:

1. bias = -threshold, exactly.
2. A latent weight is `LATENT_MAGNITUDE` times its sign. How far training had moved it from zero is lost: all signs are as easy to flip.
3. dot = N - 2 n, so s = scale / -2 and o = offset - s N. Batch norm gets mean 0, variance 1, weight s, bias o. The mean and
   variance that it had seen are lost; `calibrate` measures them again on images of the data it will be trained on.
4. A depth wise filter and its batch norm come as one product. The filter gets the size that a new network's has, since the
   learning rate is meant for that, and batch norm the rest.

A file in integers becomes one of real numbers first (`program.reals`): its parameters are those of the trained network, rounded.

What the file's provenance says about the network is checked against every op before anything is believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bcnn.base.affine import Floats3, mean_std
from bcnn.base.errors import UserError
from bcnn.integers.dequantize import reals
from bcnn.nets import layers, network_spec
from bcnn.nets.bcnn import Network
from bcnn.nets.config import NetworkConfig
from bcnn.program import ops as o
from bcnn.program.bits import unpack_bits
from bcnn.program.program import Program
from bcnn.training.inspection import evaluating

LATENT_MAGNITUDE = 0.03  # nearer to zero than nine in ten of a trained network's: a short run flips some


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """A network with the file's weights, in evaluation mode, and what it was made to read."""

    network: nn.Module
    config: NetworkConfig
    mean: Floats3
    std: Floats3


def stated(program: Program, source: str) -> network_spec.AnyNetwork:
    """Which network the file says it holds, with the classes and the image size that its ops have."""
    found: Any = program.provenance.get("config")
    plain = found.get("network") if isinstance(found, dict) else None
    if plain is None:
        where = "the run or checkpoint it was packed from"
        if "learned" in program.provenance:
            where = "the network that it was learned from, whose features its decoder reads (`bcnn info`)"
        raise UserError(f"{source} does not say which network it holds: start from {where}")
    height, width, _ = program.shapes[0]
    return network_spec.from_plain(plain).replace(classes=program.shapes[-1][2], image_size=(height, width))


def rebuild(program: Program, source: str) -> Rebuilt:
    """The network of a packed file. What does not fit is a `UserError` that names the op."""
    program, config = reals(program), stated(program, source)
    if not isinstance(config, NetworkConfig):
        raise UserError(
            f"{source} holds {config.name}, and only the paper's networks can be rebuilt from a packed file: "
            "start from the run or checkpoint it was packed from"
        )
    named = {name: _op(program, name) for name in _modules(config)}
    with torch.device(
        "meta"
    ):  # a file of a few kilobytes may describe a network of gigabytes: look before memory is taken
        _check(Network(config), program, named, source)
    network = Network(config).eval()
    with torch.no_grad():
        for name, module in network.named_modules():
            if isinstance(module, layers.Block):
                _block(name, module, named)
        linear = named["decoder.linear"]
        assert isinstance(linear, o.Linear)
        network.decoder.linear.weight.copy_(torch.from_numpy(linear.weight.T.copy()))
        network.decoder.linear.bias.copy_(torch.from_numpy(linear.bias))
    first = program.ops[0]
    assert isinstance(first, o.Input)
    return Rebuilt(network, config, *mean_std(first.scale, first.offset))


# --- does the file hold what it says? ---------------------------------------------------------------------------------


def _modules(config: NetworkConfig) -> list[str]:
    """Names of the modules that become an op with weights."""
    parts = ("conv1", "depthwise", "conv3", "identity")
    return [*(f"{block.name}.{part}" for block in config.plan() for part in parts), "decoder.linear"]


def _op(program: Program, module: str) -> o.Op | None:
    """The one op that is named after a module, or after a part of it."""
    found = [op for name, op in zip(program.names, program.ops, strict=True) if f"{name}.".startswith(f"{module}.")]
    return found[0] if len(found) == 1 else None


def _check(network: Network, program: Program, named: dict[str, o.Op | None], source: str) -> None:
    first = program.ops[0]
    whole = isinstance(first, o.Input) and (first.intensity is not None) == (network.intensity is not None)
    for name, module in network.named_modules():
        if isinstance(module, layers.BinaryConv):
            op = named.get(name)
            slopes = _prelus(network, name, module)
            whole &= isinstance(op, o.BinaryConv) and _fits_binary(op, module) and _slopes(op) == slopes
        elif isinstance(module, layers.DepthwiseConv):
            op = named.get(name)
            channels = module.norm.num_features
            whole &= isinstance(op, o.Conv) and op.weight.shape == (3, 3, 1, channels) and _slopes(op) == [channels]
        if not whole:
            raise UserError(f"{source} is not the {network.config.name} that its provenance says: see its op {name!r}")
    linear = named.get("decoder.linear")
    shape = network.decoder.linear.weight.shape
    if not isinstance(linear, o.Linear) or linear.weight.shape != (shape[1], shape[0]):
        raise UserError(f"{source} is not the {network.config.name} that its provenance says: see its decoder")


def _fits_binary(op: o.BinaryConv, module: layers.BinaryConv) -> bool:
    branches = list(module.branches)
    return (
        op.reads == module.channels
        and op.groups == 1
        and op.window.pointwise
        and len(op.branches) == len(branches)
        and all(
            mine.scale.size == theirs.weight.shape[0] and mine.shift == theirs.shift
            for mine, theirs in zip(op.branches, branches, strict=True)
            if isinstance(theirs, layers.Branch)
        )
    )


def _slopes(op: o.BinaryConv | o.Conv) -> list[int]:
    return [ending.slope.size for ending in op.after if isinstance(ending, o.PReLU)]


def _prelus(network: nn.Module, name: str, module: layers.BinaryConv) -> list[int]:
    """Channels of the PReLU that the op of a convolution module ends with: its own, or that of the block."""
    owner = network.get_submodule(name.rpartition(".")[0])
    after = getattr(owner, "prelu", None) if name.endswith("conv3") else None
    return [module.channels] if module.prelu is not None or after is not None else []


# --- op by op ---------------------------------------------------------------------------------------------------------


def _block(name: str, block: layers.Block, named: dict[str, o.Op | None]) -> None:
    for part, prelu in (("conv1", None), ("conv3", block.prelu), ("identity", None)):
        module = getattr(block, part)
        op = named.get(f"{name}.{part}")
        if isinstance(module, layers.BinaryConv) and isinstance(op, o.BinaryConv):
            for branch, packed in zip(module.branches, op.branches, strict=True):
                assert isinstance(branch, layers.Branch)
                _branch(branch, packed, op.bits)
            _prelu(module.prelu or prelu, op)
    op = named[f"{name}.depthwise"]
    assert isinstance(op, o.Conv)
    _depthwise(block.depthwise, op)


def _branch(branch: layers.Branch, packed: o.Branch, bits: int) -> None:
    made, read = branch.weight.shape[:2]
    signs = np.where(unpack_bits(packed.weight, read), LATENT_MAGNITUDE, -LATENT_MAGNITUDE).reshape(made, read, 1, 1)
    s = packed.scale.astype(np.float64) / -2
    branch.bias.copy_(_tensor(-packed.threshold).reshape(branch.bias.shape))
    branch.weight.copy_(_tensor(signs))
    _norm(branch.norm, s, packed.offset.astype(np.float64) - s * bits)


def _depthwise(module: layers.DepthwiseConv, op: o.Conv) -> None:
    weight = op.weight.astype(np.float64)[:, :, 0].transpose(2, 0, 1)[:, None]  # C,1,3,3
    size = np.sqrt((weight**2).mean((1, 2, 3)))
    fresh = float(module.conv.weight.square().mean().sqrt())
    s = np.where(size > 0, size / fresh, 1.0)
    module.conv.weight.copy_(_tensor(weight / s[:, None, None, None]))
    _norm(module.norm, s, op.offset.astype(np.float64))
    _prelu(module.prelu, op)


def _prelu(module: nn.PReLU | None, op: o.BinaryConv | o.Conv) -> None:
    for ending in op.after:
        if module is not None and isinstance(ending, o.PReLU):
            module.weight.copy_(_tensor(ending.slope))


def _norm(norm: nn.BatchNorm2d, scale: o.Floats | Any, offset: Any) -> None:
    """s v + o as batch norm of mean 0 and variance 1: 1 - eps + eps is 1 up to a 30 millionth, less than s is rounded by."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.zero_()
    norm.running_var.fill_(1 - norm.eps)
    norm.weight.copy_(_tensor(scale))
    norm.bias.copy_(_tensor(offset))


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


# --- statistics that a packed file does not have ----------------------------------------------------------------------


@torch.no_grad()
def calibrate(network: nn.Module, images: Tensor) -> int:
    """Give every batch norm the mean and variance of what it reads when `images` pass, and leave what it computes as it is.

    With s = weight / sqrt(var + eps) and o = bias - s mean from before: weight = s sqrt(var' + eps), bias = o + s mean'. So
    training, where batch norm takes the statistics of the batch, begins with the function that the file has. Returns how many.
    """
    done = 0

    def measure(norm: nn.Module, args: tuple[Tensor, ...]) -> None:
        nonlocal done
        assert isinstance(norm, nn.BatchNorm2d)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        s = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
        offset = norm.bias.double() - s * norm.running_mean.double()
        var, mean = torch.var_mean(args[0], (0, 2, 3))
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(var)
        # With the statistics as they were rounded, so that the function keeps its last digits.
        norm.weight.copy_(s * (norm.running_var.double() + norm.eps).sqrt())
        norm.bias.copy_(offset + s * norm.running_mean.double())
        done += 1

    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d) and module.affine]
    with evaluating(network, [(norm, measure) for norm in norms]):
        network(images)
    return done
