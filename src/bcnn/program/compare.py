"""Torch against program, module by module, each with the same input: which layer is the first that differs?

A free-running comparison means nothing: a rounding difference in one module flips signs in the next. So torch runs once, the
values at every module are kept, and each op of the program computes from torch's maps what torch made of them. Bits and
popcounts are then equal; what is left is the rounding of real arithmetic, for which `tolerance` derives a bound.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcnn.errors import UserError
from bcnn.program import program as p
from bcnn.program.interpret import input_map, run_op
from bcnn.program.lower import Lowering


@dataclass(frozen=True)
class Difference:
    """How far one op is from the torch module of the same name."""

    index: int
    name: str
    error: float  # the largest |program - torch|
    excess: float  # the largest |program - torch| / tolerance: above 1 they differ; infinite where binary weights do

    @property
    def equal(self) -> bool:
        return self.excess <= 1


def compare(
    network: nn.Module, program: p.Program, image: NDArray[np.uint8], mean: Sequence[float], std: Sequence[float]
) -> list[Difference]:
    """One entry per op. A network whose layers are not those of the program is a `UserError`."""
    network = copy.deepcopy(network).float().cpu().eval()
    lowering = Lowering(network, mean, std)
    found = [
        (type(op).__name__, name, shape)
        for op, name, shape in zip(lowering.ops, lowering.op_names, lowering.shapes, strict=True)
    ]
    wanted = [
        (type(op).__name__, name, shape)
        for op, name, shape in zip(program.ops, program.names, program.shapes, strict=True)
    ]
    for index, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other:
            raise UserError(f"op {index} of the program is {other}, but the checkpoint's network has {one} there")
    if len(found) != len(wanted):
        raise UserError(f"the program has {len(wanted)} ops, but the checkpoint's network lowers to {len(found)}")
    maps = torch_maps(network, lowering, image, mean, std)
    differences = []
    for index, (op, module) in enumerate(zip(lowering.ops, lowering.modules, strict=True)):
        difference = _difference(program, index, maps, image, norm_sizes(module))
        if not _same_bits(op, program.ops[index]):  # even where a batch norm scale of zero hides it
            difference = replace(difference, excess=np.inf)
        differences.append(difference)
    return differences


def _same_bits(one: p.Op, other: p.Op) -> bool:
    if not isinstance(one, p.BinaryConv) or not isinstance(other, p.BinaryConv):
        return True
    pairs = zip(one.branches, other.branches, strict=False)
    return len(one.branches) == len(other.branches) and all(np.array_equal(a.weight, b.weight) for a, b in pairs)


def first_difference(differences: list[Difference]) -> Difference | None:
    return next((difference for difference in differences if not difference.equal), None)


def normalised(images: NDArray[np.uint8], mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """uint8 N,H,W,3 -> what the network was trained on, float32 N,3,H,W."""
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    return (x - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)


@torch.no_grad()
def torch_maps(
    network: nn.Module, lowering: Lowering, image: NDArray[np.uint8], mean: Sequence[float], std: Sequence[float]
) -> list[p.Floats]:
    """The values that torch has for every map of the program, H,W,C."""
    kept: dict[tuple[nn.Module, str], Tensor] = {}

    def keep(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        kept[module, "input"], kept[module, "output"] = inputs[0], output

    hooks = [module.register_forward_hook(keep) for module in {module for module, _ in lowering.where}]
    try:
        network(normalised(image[None], mean, std))
    finally:
        for hook in hooks:
            hook.remove()
    return [_map(kept[where], shape) for where, shape in zip(lowering.where, lowering.shapes, strict=True)]


def _map(x: Tensor, shape: p.Shape) -> p.Floats:
    # Pooling in torch comes after replication, in the program before it: the first C of K channels are the map.
    x_nhwc = x.reshape(1, -1, *shape[:2]).permute(0, 2, 3, 1)
    return np.ascontiguousarray(x_nhwc[0, :, :, : shape[2]].numpy())


def _difference(
    program: p.Program, index: int, maps: list[p.Floats], image: NDArray[np.uint8], norms: list[p.Floats]
) -> Difference:
    op = program.ops[index]
    made = input_map(op, image) if isinstance(op, p.Input) else run_op(op, maps)
    error = np.abs(made.astype(np.float64) - maps[index])
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(error == 0, 0, error / tolerance(op, maps, image, norms))
    worst = float(np.nan_to_num(excess, nan=np.inf, posinf=np.inf).max())  # NaN on either side is a difference
    return Difference(index, program.names[index], float(np.nan_to_num(error, nan=np.inf).max()), worst)


def tolerance(op: p.Op, maps: list[p.Floats], image: NDArray[np.uint8], norms: list[p.Floats]) -> p.Floats:
    """How far two float32 evaluations of an op may be apart, for every value that it makes.

    1. Adding m terms in any order, each product or sum rounded once, is off by at most about m * 2^-24 * sum of |terms|.
    2. Two evaluations (torch's and ours): twice that.
    3. Torch folds batch norm in float32 and divides where we multiply: a few roundings more a term. Counted as 8 terms.

    So the bound is 2^-23 * (m + 8) * M, where M, the sum of the magnitudes, is the op itself on absolute values. `norms` has
    those of each folded batch norm: an offset is a difference that may be far smaller than its parts.
    """
    sizes = [np.abs(x) for x in maps]
    if isinstance(op, p.Input):
        terms = 2 if op.intensity is None else 6
        size = input_map(replace(op, offset=np.abs(op.offset)), image)
    elif isinstance(op, p.BinaryConv):
        terms = 2 + 2 * len(op.branches)
        k = op.branches[0].threshold.size  # |dot| <= K, and |scale| is 2 |s|
        branches = tuple(
            replace(branch, scale=branch.scale * 0, offset=norm + np.abs(branch.scale) * k)
            for branch, norm in zip(op.branches, norms, strict=True)
        )
        size = run_op(replace(op, branches=branches, slope=None), sizes) * _steepest(op.slope)
    elif isinstance(op, p.DepthwiseConv):
        terms = 11
        size = run_op(replace(op, weight=np.abs(op.weight), offset=norms[0], slope=None), sizes) * _steepest(op.slope)
    elif isinstance(op, p.Linear):
        terms = len(op.weight) + 1
        size = run_op(replace(op, weight=np.abs(op.weight), bias=np.abs(op.bias)), sizes)
    else:  # the averages
        height, width, channels = maps[op.source].shape
        if isinstance(op, p.AvgPool):
            terms = op.stride**2
        else:
            terms = channels if isinstance(op, p.ChannelAvg) else height * width
        size = run_op(op, sizes)
    return size * np.float32(2**-23 * (terms + 8))


def norm_sizes(module: nn.Module) -> list[p.Floats]:
    """|beta| + |s mean| of every batch norm in a module, in order: the parts of the offsets folded from them."""
    sizes = []
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d) and norm.running_mean is not None and norm.running_var is not None:
            gamma, beta = (norm.weight, norm.bias) if norm.affine else (torch.ones(1), torch.zeros(1))
            s = gamma / (norm.running_var + norm.eps).sqrt()
            sizes.append(((s * norm.running_mean).abs() + beta.abs()).detach().numpy())
    return sizes


def _steepest(slope: p.Floats | None) -> p.Floats:
    """A PReLU multiplies errors by its slope at most, or leaves them."""
    return np.ones(1, np.float32) if slope is None else np.maximum(1, np.abs(slope))
