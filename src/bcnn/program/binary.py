"""Convolutions and fully connected layers -> `BinaryConv` where both operands are two-valued, else `Conv` or `Linear`.

A binary convolution is one of a step (`graph.step`) against a constant weight that is +-1 times one scale per output channel,
however that was made. Sums of several on the same map (P branches, shifted branches, bases) become branches of one op.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bcnn.graph.capture import Node, Value
from bcnn.graph.moves import reshaped, unmoved
from bcnn.graph.step import Step
from bcnn.program import ops as o
from bcnn.program.draft import Draft, Ending, Resolve, resolved
from bcnn.program.fold import After, Doubles, Folded, Term, single

if TYPE_CHECKING:
    from bcnn.program.lower import Lowering

ALIKE = 1e-5  # magnitudes of a filter's weights may be off by rounding


@dataclass(frozen=True, eq=False)
class Filter:
    """A convolution or fully connected layer as torch ran it: which map, which weights."""

    node: Node
    x: Value  # the map, N,C,H,W or N,F
    weight: Tensor  # O, C / G, kernel height, kernel width
    bias: Doubles | None
    window: o.Window
    groups: int
    padded: tuple[int, int, int, int]  # by torch, with zeros


def filter_of(lowering: Lowering, value: Value) -> Filter | None:
    node = value.node
    if node is None:
        return None
    if node.op == "convolution":
        x, weight, bias, stride, padding, dilation, transposed, _, groups = node.args[:9]
        if transposed:
            raise lowering.error(node, "a transposed convolution is not lowered; upsample and convolve instead")
        if x.tensor.dim() != 4 or not weight.constant:
            raise lowering.error(node, "only two-dimensional convolutions with constant weights are lowered")
        pads = (padding[0], padding[-1], padding[0], padding[-1])
        kernel = (weight.shape[2], weight.shape[3])
        window = o.Window(kernel, (stride[0], stride[-1]), pads, (dilation[0], dilation[-1]))
        return Filter(node, x, weight.tensor, _bias(bias), window, groups, pads)
    if node.op in ("addmm", "mm"):
        bias, x, matrix = (None, *node.args[:2]) if node.op == "mm" else node.args[:3]
        if x.constant or not matrix.constant or x.shape[0] != 1:
            raise lowering.error(node, "only products of one image's vector with a constant matrix are lowered")
        if node.op == "addmm" and (node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("beta", 1) != 1):
            raise lowering.error(node, "addmm with alpha or beta is not lowered")
        source = behind_flatten(x)
        kernel = (1, 1) if source.tensor.dim() == 2 else (source.shape[2], source.shape[3])
        weight_t = matrix.tensor.t().reshape(matrix.shape[1], source.shape[1], *kernel)
        return Filter(node, x, weight_t, _bias(bias), o.Window(kernel), 1, (0, 0, 0, 0))
    return None


def behind_flatten(x: Value) -> Value:
    """The map that a vector was flattened from, through what works value by value."""
    from bcnn.graph.step import RESHAPES, origins

    best = reshaped(x)
    if best.tensor.dim() == 4:
        return best
    for source, nodes in origins(x):
        if (
            any(n.op in RESHAPES for n in nodes)
            and source.tensor.dim() == 4
            and source.tensor.numel() == x.tensor.numel()
        ):
            return source
    return best


def _bias(bias: Any) -> Doubles | None:
    return None if bias is None else np.broadcast_to(bias.tensor.double().numpy(), bias.tensor.shape)


def magnitudes(weight: Tensor) -> Tensor | None:
    """The scale of each filter whose weights are all plus or minus that; none if they are not."""
    size = weight.abs().flatten(1)
    if bool((size.amin(1) < size.amax(1) * (1 - ALIKE)).any()):
        return None
    return size.double().mean(1)


@dataclass(frozen=True, eq=False)
class Binary:
    """A binary convolution found: the map it reads, and the branch it would be."""

    source: Value
    reads: int
    window: o.Window
    groups: int
    term: Term
    node: Node

    def fits(self, other: Binary) -> bool:
        """Whether both can be branches of one op."""
        mine = self.source, self.reads, self.window, self.groups, self.term.bits.shape
        return mine == (other.source, other.reads, other.window, other.groups, other.term.bits.shape)


def binary_of(lowering: Lowering, value: Value) -> Binary | None:
    """The binary convolution that makes `value`, if one does."""
    known: dict[Value, Binary | None] = lowering.__dict__.setdefault("binaries", {})
    if value not in known:
        known[value] = _binary_of(lowering, value)
    return known[value]


def _binary_of(lowering: Lowering, value: Value) -> Binary | None:
    found = filter_of(lowering, value)
    if found is None:
        return None
    scale = magnitudes(found.weight)
    if scale is None:
        return None
    x = unmoved(found.x)
    outer, outer_value = (0, 0, 0, 0), 0.0
    if x.node is not None and x.node.op == "constant_pad_nd" and lowering.step(x.node.args[0]) is not None:
        left, right, top, bottom, *more = [*x.node.args[1], 0, 0, 0, 0][:6]
        if not any(more):
            outer, outer_value, x = (top, left, bottom, right), float(x.node.arg(2, "value", 0) or 0), x.node.args[0]
    step = lowering.step(x)
    if step is None:
        return None
    kinds = [pads for pads in (step.padding, outer, found.padded) if any(pads)]
    if len(kinds) > 1:
        raise lowering.error(found.node, "its map is padded twice, before and after the sign: pad once")
    padding = kinds[0] if kinds else (0, 0, 0, 0)
    pad = _pad_bits(lowering, found.node, step, outer, outer_value, found.padded)
    if pad is None and any(p > 0 for p in padding) and step.middle:
        raise lowering.error(
            found.node,
            f"its input has the values {step.low:g} and {step.high:g} and zeros around the map: pad with one of them",
        )
    source, reads = lowering.replicated(step.source)
    bits = found.weight >= 0
    made, inner = bits.shape[:2]
    falls = step.falls.reshape(found.groups, inner)
    group = torch.arange(made) // (made // found.groups)
    bits = bits != falls[group][:, :, None, None]
    level = float(step.half) * scale.numpy()
    offset, size = np.zeros(made), np.zeros(made)
    # Weights and levels that torch has only up to rounding: what compare must allow for, as magnitudes that round by so much.
    size = (
        size + float(step.half) * (found.weight.double().abs().flatten(1) - scale[:, None]).abs().sum(1).numpy() * 2**21
    )
    size = size + step.off * scale.numpy() * found.weight[0].numel() * 2**21
    if step.middle:
        extra = step.middle * found.weight.double().sum((1, 2, 3)).numpy()
        offset, size = offset + extra, size + np.abs(extra)
    if found.bias is not None:
        offset, size = offset + found.bias, size + np.abs(found.bias)
    window, shift = _shifted(o.Window(found.window.kernel, found.window.stride, padding, found.window.dilation))
    taps = bits.permute(0, 2, 3, 1).reshape(made, -1, inner).numpy()
    if pad is not None:
        pad = pad != step.falls.numpy()
    term = Term(step.threshold.double().numpy(), taps, Folded(level, offset, size), pad, shift)
    return Binary(source, reads, window, found.groups, term, found.node)


def _pad_bits(
    lowering: Lowering, node: Node, step: Step, outer: tuple[int, ...], outer_value: float, padded: tuple[int, ...]
) -> NDArray[np.bool_] | None:
    """The level of each channel outside the map; none where it is 0, no level, or where nothing is padded."""
    if any(step.padding) and step.pad is not None:
        return step.pad.numpy() if any(p > 0 for p in step.padding) else None
    value = outer_value if any(outer) else 0.0
    if not any(p > 0 for p in (*outer, *padded)):
        return None
    near = 1e-3 * (step.high - step.low)
    for level, bit in ((step.low, False), (step.high, True)):
        if abs(value - level) <= near:
            return np.full(step.threshold.numel(), bit)
    if value != 0:
        raise lowering.error(
            node, f"its map is padded with {value:g}, but has the values {step.low:g} and {step.high:g}"
        )
    return None


def _shifted(window: o.Window) -> tuple[o.Window, tuple[int, int]]:
    """A window that reads one pixel elsewhere, as many rows added above as cut below, is a shift."""
    top, left, bottom, right = window.padding
    if window.kernel == (1, 1) and window.stride == (1, 1) and top == -bottom and left == -right and (top or left):
        return o.Window(), (-top, -left)
    return window, (0, 0)


# --- drafts -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Summand:
    """One part of a sum: a binary convolution with what is folded onto it, or any other map."""

    value: Value
    binary: Binary | None = None
    affine: Folded = field(default_factory=Folded)


def binary_terms(lowering: Lowering, value: Value) -> list[Any] | None:
    """The parts of a sum, if some are binary convolutions and all of those can be branches of one op."""
    parts = _summands(lowering, value)
    binaries = [part.binary for part in parts if part.binary is not None]
    if not binaries or not all(binaries[0].fits(other) for other in binaries):
        return None
    return list(parts)


def _summands(lowering: Lowering, value: Value) -> list[Summand]:
    out: list[Summand] = []
    wanted = [value]
    while wanted:
        at = unmoved(wanted.pop())
        node = at.node
        alone = at is value or not lowering.is_map(at)
        plain = node is not None and node.op == "add" and node.arg(2, "alpha", 1) == 1
        if (
            alone
            and plain
            and node is not None
            and all(isinstance(a, Value) and not a.constant and a.shape == at.shape for a in node.args[:2])
        ):
            wanted += [node.args[1], node.args[0]]
            continue
        out.append(_summand(lowering, at) if alone else Summand(at))
    return out


def _summand(lowering: Lowering, value: Value) -> Summand:
    """Back over affines that nobody else reads, to a binary convolution."""
    at = value
    affines: list[Folded] = []
    while at.node is not None and (at is value or not lowering.is_map(at)):
        if at.node.op in ("convolution", "addmm", "mm"):
            binary = binary_of(lowering, at)
            affine = Folded()
            for folded in reversed(affines):
                affine = affine.then(folded)
            return Summand(value, binary, affine)
        found = lowering.ending(at) if len(at.node.depends) == 1 else None
        if found is None or found[2] or not all(isinstance(e, Folded) for e in found[1]):
            break
        affines += [e for e in reversed(found[1]) if isinstance(e, Folded)]
        at = unmoved(found[0])
    return Summand(value)


def draft_convolution(
    lowering: Lowering, value: Value, parts: list[Any], after: list[Ending], reads: list[Value]
) -> Draft:
    """The op of one convolution (`parts` is its value), or of a sum with binary ones in it; `after`: the endings, last first."""
    summands = [part if isinstance(part, Summand) else Summand(part, binary_of(lowering, part)) for part in parts]
    endings = list(reversed(after))
    binaries = [s for s in summands if s.binary is not None]
    if not binaries:
        return _real(lowering, summands[0].value, endings, reads)
    others = [lowering.replicated(s.value) for s in summands if s.binary is None]
    own = next(s.binary.source for s in binaries if s.binary)
    others.sort(key=lambda other: other[0] is not own)  # its own input first: the convolution module of Fig. 4
    return _binary(lowering, binaries, others, endings, reads)


def _binary(
    lowering: Lowering, parts: list[Summand], others: list[tuple[Value, int]], endings: list[Ending], reads: list[Value]
) -> Draft:

    first = parts[0].binary
    assert first is not None
    made = first.term.bits.shape[0]
    sizes = np.zeros(made)
    for part in parts:
        if part.binary is not None:
            sizes = sizes + _size(part.binary.term.affine.then(part.affine), made)
    sizes = _followed(sizes, endings)

    def make(map_of: Resolve) -> o.Op:
        after = After()
        for other, count in others:
            after.append(o.Add(map_of(other), count))
        for ending in endings:
            after.append(resolved(ending, map_of))
        front, scale_only = after.front, Folded(after.front.scale)
        branches = tuple(
            part.binary.term.branch(part.affine.then(scale_only if index else front))
            for index, part in enumerate(parts)
            if part.binary
        )
        return o.BinaryConv(map_of(first.source), first.reads, branches, first.window, first.groups, after.tuple(made))

    names = [part.binary.node.module for part in parts if part.binary]
    return Draft((first.source, *(other for other, _ in others), *reads), make, _common(names), sizes)


def _real(lowering: Lowering, value: Value, endings: list[Ending], reads: list[Value]) -> Draft:

    found = filter_of(lowering, value)
    assert found is not None
    x = behind_flatten(found.x) if found.node.op != "convolution" else unmoved(found.x)
    if x.tensor.numel() != found.x.tensor.numel():
        x = found.x
    window = found.window
    if (
        x.node is not None
        and x.node.op == "constant_pad_nd"
        and not any(found.padded)
        and not float(x.node.arg(2, "value", 0) or 0)
    ):
        left, right, top, bottom, *more = [*x.node.args[1], 0, 0, 0, 0][:6]
        if not any(more):
            window, x = (
                o.Window(window.kernel, window.stride, (top, left, bottom, right), window.dilation),
                x.node.args[0],
            )
    if (
        found.node.op != "convolution"
        and reshaped(found.x) is not x
        and found.x.tensor.dim() == 2
        and x.tensor.dim() == 4
    ):
        x = reshaped(found.x) if reshaped(found.x).tensor.dim() == 4 else _flattened(lowering, found, x)
    source, count = lowering.replicated(x)
    weight = found.weight.double().permute(2, 3, 1, 0).numpy()  # O,I,kh,kw -> kh,kw,I,O
    made = weight.shape[3]
    bias = np.zeros(made) if found.bias is None else np.broadcast_to(found.bias, made)
    size = np.abs(bias)

    def make(map_of: Resolve) -> o.Op:
        after = After()
        for ending in endings:
            after.append(resolved(ending, map_of))
        front = Folded(None, bias).then(after.front)
        scaled = weight if front.scale is None else weight * front.scale
        offset = np.zeros(made) if front.offset is None else np.broadcast_to(front.offset, made)
        one_pixel = source.tensor.dim() == 2 or (source.shape[2:] == (1, 1) and window.kernel == (1, 1))
        if one_pixel and found.groups == 1 and count == source.shape[1]:
            return o.Linear(map_of(source), single(scaled[0, 0]), single(offset), after.tuple(made))
        return o.Conv(map_of(source), count, single(scaled), single(offset), window, found.groups, after.tuple(made))

    size = _followed(size, endings)
    return Draft((source, *reads), make, found.node.module, size)


def _flattened(lowering: Lowering, found: Filter, source: Value) -> Value:
    """A map on which something works value by value after it was flattened: that runs on the map."""
    raise lowering.error(found.node, "it reads a flattened map that was changed after flattening; change it before")


def _followed(size: Doubles, endings: list[Ending]) -> Doubles:
    """Magnitudes after the affines that fold into the op."""
    for ending in endings:
        if isinstance(ending, Folded):
            size = size if ending.scale is None else size * np.abs(ending.scale)
            size = size if ending.size is None else size + ending.size
        elif isinstance(ending, o.Ending):
            break  # an addition of a map lets offsets through
    return size


def _size(affine: Folded, made: int) -> Doubles:
    return np.broadcast_to(np.zeros(1) if affine.size is None else affine.size, made)


def _common(names: list[str]) -> str:
    """The module that holds all of them."""
    parts = [name.split(".") for name in names]
    shared = [level[0] for level in zip(*parts, strict=False) if len(set(level)) == 1]
    return ".".join(shared) if len(names) > 1 else names[0]
