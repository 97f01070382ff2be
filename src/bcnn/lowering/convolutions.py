"""Convolutions and fully connected layers -> `BinaryConv` where both operands are two-valued, else `Conv` or `Linear`.

Sums of several binary convolutions of the same map (P branches, shifted branches, bases) become branches of one op; the other maps
of such a sum are its endings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bcnn.capture.capture import Value
from bcnn.capture.channel_permutation import reshaped, unmoved
from bcnn.lowering.binary import Binary, binary_of
from bcnn.lowering.filters import Filter, behind_flatten, filter_of
from bcnn.lowering.fold import After, Doubles, Folded, single
from bcnn.lowering.op_builder import Draft, Ending, Resolve, resolved
from bcnn.program import ops as o

if TYPE_CHECKING:
    from bcnn.lowering.lower import Lowering


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
