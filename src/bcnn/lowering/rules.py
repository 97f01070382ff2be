"""Which op an operation of torch becomes: one rule each, by its ATen name.

What comes first in an op is drafted by `bases` or `binary`; a rule here, for what follows value by value, says which value comes
before it and what it adds to the endings. Legend: C channels read, K after replication, O channels made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bcnn.capture.capture import Node, Value
from bcnn.capture.channel_permutation import MOVES, averaged, reshaped, unmoved
from bcnn.lowering.convolutions import binary_terms, draft_convolution
from bcnn.lowering.fold import After, Doubles, Folded, single
from bcnn.lowering.op_builder import Draft, Ending, Found, Resolve, constant_draft, resolved
from bcnn.lowering.pool_rules import BASES, channel_avg, move, over_pixels, reduced_dims
from bcnn.program import ops as o

if TYPE_CHECKING:
    from bcnn.lowering.lower import Lowering


def draft(lowering: Lowering, value: Value) -> Draft:
    """The op that makes `value`: backwards over what can be an ending, to what comes first."""
    after: list[Ending] = []  # the last one first
    reads: list[Value] = []
    at = value
    while True:
        at = unmoved(at)
        if at is not value and lowering.is_map(at):
            break
        if at.node is None or lowering.step(at) is not None:
            break
        node = at.node
        if node.op == "add" and (terms := binary_terms(lowering, at)):
            return draft_convolution(lowering, value, terms, after, reads)
        if node.op == "div" and not after and (whole := averaged(at)) is not None:
            return channel_avg(whole, at)
        found = lowering.ending(at)
        if found is None:
            break
        before, endings, maps = found
        after += reversed(endings)
        reads += maps
        at = before
    after.reverse()
    return _base(lowering, value, at, after, reads)


def _base(lowering: Lowering, value: Value, at: Value, after: list[Ending], reads: list[Value]) -> Draft:
    step = lowering.step(at)
    if step is not None and step.padding != (0, 0, 0, 0):
        step = None
    fresh = at is value or not lowering.is_map(at)
    if fresh and step is not None and step.source is not at:
        signs: list[Ending] = [o.Sign(step.threshold.numpy())]
        levels = np.where(step.falls.numpy(), -step.half, step.half)
        if not (levels == 1).all() or step.middle:
            signs.append(Folded(levels, np.full(1, step.middle) if step.middle else None))
        return pointwise(lowering, at, step.source, [*signs, *after], reads)
    if fresh and at.node is not None and step is None:
        if at.node.op in ("convolution", "addmm", "mm"):
            return draft_convolution(lowering, value, [at], list(reversed(after)), reads)
        if at.node.op in BASES and not after:
            lowering.check_keywords(at.node)
            return BASES[at.node.op](lowering, at.node, at)
        if at.node.op in MOVES and not after:
            return move(lowering, at)
    if after:
        return pointwise(lowering, at, at, after, reads)
    if at is not value:  # a copy of a map
        return Draft((at,), lambda map_of: o.Select(map_of(at), np.arange(at.shape[1], dtype=np.int32)), "")
    raise lowering.error(at.node, "no rule lowers this operation" if at.node else "it is not computed from the image")


def pointwise(lowering: Lowering, at: Value, source: Value, after: list[Ending], reads: list[Value]) -> Draft:
    source, count = lowering.replicated(source)

    def make(map_of: Resolve) -> o.Op:
        folded = After(endings=[])
        folded.endings.append(Folded())  # so that nothing goes to the front: there is no op to fold it into
        for ending in after:
            folded.append(resolved(ending, map_of))
        if (
            isinstance(folded.endings[0], Folded)
            and folded.endings[0].scale is None
            and folded.endings[0].offset is None
        ):
            folded.endings.pop(0)
        return o.Pointwise(map_of(source), count, folded.tuple(count))

    sizes = [e.size.sum() for e in after if isinstance(e, Folded) and e.size is not None]
    return Draft((source, *reads), make, at.node.module if at.node else "", np.full(1, sum(sizes)) if sizes else None)


# --- endings: value by value ------------------------------------------------------------------------------------------------


def per_channel(lowering: Lowering, node: Node, constant: Any, value: Value) -> Doubles | None:
    """A number, or a tensor that is the same for all pixels, as one value per channel; none if it differs from pixel to pixel."""
    if isinstance(constant, (int, float)):
        return np.full(1, float(constant))
    tensor: Tensor = constant.tensor.double()
    if tensor.numel() == 1:
        return np.full(1, float(tensor))
    shape = (1,) * (value.tensor.dim() - tensor.dim()) + tuple(tensor.shape)
    if len(shape) != value.tensor.dim() or shape[0] != 1:
        return None
    pixels = tensor.reshape(*shape[:2], -1)
    if pixels.shape[2] > 1 and not bool((pixels == pixels[..., :1]).all()):
        return None
    tensor = pixels[..., 0]
    if shape[1] not in (1, value.shape[1]):
        raise lowering.error(node, f"a constant of {tuple(tensor.shape)} does not fit {value.shape}")
    return tensor.reshape(-1).numpy()


def _constant_map(lowering: Lowering, constant: Value, value: Value, full: bool) -> Value:
    """A constant that differs from pixel to pixel as a map of its own."""
    shape = (1,) * (value.tensor.dim() - constant.tensor.dim()) + constant.shape
    tensor = constant.tensor.reshape(shape).float()
    tensor = tensor.expand(value.shape).contiguous() if full else tensor
    return lowering.virtual(value, constant_draft(tensor, value.node.module if value.node else ""), lambda: tensor)


def _is_constant(x: Any) -> bool:
    return not isinstance(x, Value) or x.constant


def _add(lowering: Lowering, node: Node, value: Value) -> Found | None:
    left, right = node.args[:2]
    factor = float(node.arg(2, "alpha", 1))
    sign = -1.0 if node.op == "sub" else 1.0
    if node.op == "rsub":
        left, right, sign = right, left, -1.0
    if _is_constant(left) and _is_constant(right):
        return None
    if _is_constant(right) or _is_constant(left):
        constant, before = (right, left) if _is_constant(right) else (left, right)
        times = sign * factor if constant is right else 1.0
        turn = [Folded(np.full(1, sign * factor))] if before is right and sign * factor != 1 else []
        offset = per_channel(lowering, node, constant, value)
        if offset is not None:
            return before, [*turn, Folded(None, offset * times, np.abs(offset * times))], []
        made = _constant_map(lowering, constant, value, full=True)
        if times != 1:
            raise lowering.error(node, "a constant map is subtracted; add its negative")
        return before, [*turn, lambda map_of: o.Add(map_of(made), value.shape[1])], [made]
    if left.shape != right.shape or left.shape != value.shape:
        raise lowering.error(node, f"maps of {left.shape} and {right.shape} are added: only equal shapes are lowered")
    main, other = choose_main(lowering, left, right)
    if sign * factor != 1 and other is right:  # main - other: the other one with its sign turned
        other = _scaled(lowering, other, sign * factor, value)
        turn = []
    else:
        turn = [Folded(np.full(1, sign * factor))] if sign * factor != 1 else []
    source, count = lowering.replicated(other)
    return main, [*turn, lambda map_of: o.Add(map_of(source), count)], [source]


def _scaled(lowering: Lowering, value: Value, factor: float, before: Value) -> Value:
    draft_of = pointwise(lowering, value, value, [Folded(np.full(1, factor))], [])
    return lowering.virtual(before, draft_of, lambda x: x * factor, value)


def choose_main(lowering: Lowering, left: Value, right: Value) -> tuple[Value, Value]:
    """Which of two added values is computed in one op with the addition: one that nobody else reads, the later one."""

    def rank(value: Value) -> tuple[bool, bool, float]:
        value = unmoved(value)
        alone = not lowering.is_map(value) and value.node is not None
        return (
            alone,
            alone and value.node is not None and value.node.op not in BASES and value.node.op not in MOVES,
            value.index,
        )

    return (left, right) if rank(left) > rank(right) else (right, left)


def _mul(lowering: Lowering, node: Node, value: Value) -> Found | None:
    left, right = node.args[:2]
    if _is_constant(left) and _is_constant(right):
        return None
    if _is_constant(right) or _is_constant(left):
        constant, before = (right, left) if _is_constant(right) else (left, right)
        if node.op == "div" and constant is left:
            raise lowering.error(node, "division by a map is not lowered")
        if before.shape != value.shape:
            raise lowering.error(node, f"a map of {before.shape} is spread over {value.shape} by a constant")
        scale = per_channel(lowering, node, constant, value)
        if scale is not None:
            return before, [Folded(1 / scale if node.op == "div" else scale)], []
        if node.op == "div":
            raise lowering.error(node, "division by a constant map is not lowered; multiply by its inverse")
        made = _constant_map(lowering, constant, value, full=False)
        return before, [lambda map_of: o.Gate(map_of(made))], [made]
    if node.op == "div":
        raise lowering.error(node, "division of maps is not lowered")
    left, right = _unspread(left), _unspread(right)
    if left.shape == right.shape:
        main, gate = choose_main(lowering, left, right)
    else:
        main, gate = (left, right) if left.shape == value.shape else (right, left)
    if main.shape != value.shape:
        raise lowering.error(node, f"maps of {left.shape} and {right.shape} are multiplied: both are spread")
    gate_map, count = lowering.replicated(gate)
    if count != gate_map.shape[1]:
        gate_map = reshaped(gate)
    return main, [lambda map_of: o.Gate(map_of(gate_map))], [gate_map]


def _unspread(gate: Value) -> Value:
    """One value a channel, before it was written to all pixels."""
    source = unmoved(gate)
    if source.node is None or source.node.op != "expand":
        return gate
    before: Value = source.node.args[0]
    return before if before.shape == (*gate.shape[:2], 1, 1) else gate


def _sum(lowering: Lowering, node: Node, value: Value) -> Found:
    """Over all pixels: their mean times their number."""
    source = over_pixels(node)
    if source is None:
        raise lowering.error(
            node,
            f"a sum over dimensions {reduced_dims(node)} of {node.args[0].shape} is not lowered; over all pixels it is",
        )
    count = math.prod(source.shape[2:])
    draft_of = Draft((source,), lambda map_of: o.GlobalAvgPool(map_of(source)), node.module)
    mean = lowering.virtual(value, draft_of, lambda x: x.mean((2, 3)), source)
    return mean, [Folded(np.full(1, float(count)))], []


def _batch_norm(lowering: Lowering, node: Node, value: Value) -> Found:
    x, weight, bias, mean, var = node.args[:5]
    eps = node.args[-1]
    if not (isinstance(mean, Value) and isinstance(var, Value)):
        raise lowering.error(node, "its batch norm has no running statistics")
    variance = var.tensor.double().numpy() + eps
    if (variance <= 0).any():
        raise lowering.error(node, "its running variance has negative values, which no variance has")
    scale = (1.0 if weight is None else weight.tensor.double().numpy()) / np.sqrt(variance)
    shift = np.zeros(1) if bias is None else bias.tensor.double().numpy()
    centre = mean.tensor.double().numpy()
    return x, [Folded(scale, shift - scale * centre, np.abs(shift) + np.abs(scale * centre))], []


def _clip(low: Callable[[Node], Any], high: Callable[[Node], Any]) -> Callable[[Lowering, Node, Value], Found]:
    def rule(lowering: Lowering, node: Node, value: Value) -> Found:
        bounds = [low(node), high(node)]
        for bound in bounds:
            if isinstance(bound, Value) and (not bound.constant or bound.tensor.numel() != 1):
                raise lowering.error(node, "its bounds are tensors")
        numbers = [float(b.tensor) if isinstance(b, Value) else b for b in bounds]
        lowest = -3.4028234663852886e38 if numbers[0] is None else float(numbers[0])
        highest = 3.4028234663852886e38 if numbers[1] is None else float(numbers[1])
        if lowest == 0 and numbers[1] is None:
            return node.args[0], [o.ReLU()], []
        return node.args[0], [o.Clip(np.array([lowest, highest], np.float32))], []

    return rule


def _prelu(lowering: Lowering, node: Node, value: Value) -> Found:
    slope = per_channel(lowering, node, node.args[1], value)
    if slope is None:
        raise lowering.error(node, "its slopes differ from pixel to pixel")
    return node.args[0], [o.PReLU(single(np.broadcast_to(slope, value.shape[1])))], []


def _leaky(lowering: Lowering, node: Node, value: Value) -> Found:
    slope = np.full(value.shape[1], float(node.arg(1, "negative_slope", 0.01)))
    return node.args[0], [o.PReLU(single(slope))], []


def _hard_sigmoid() -> list[Ending]:
    return [Folded(np.full(1, 1 / 6), np.full(1, 0.5), np.full(1, 0.5)), o.Clip(np.array([0, 1], np.float32))]


def _times_itself(gate: Callable[[], list[Ending]], function: Callable[[Tensor], Tensor]) -> Any:
    """x * gate(x): silu, hardswish."""

    def rule(lowering: Lowering, node: Node, value: Value) -> Found:
        x = node.args[0]
        made = lowering.virtual(value, pointwise(lowering, value, x, gate(), []), function, x)
        lowering.maps.add(unmoved(x))  # read twice: by the gate and by what it gates
        return x, [lambda map_of: o.Gate(map_of(made))], [made]

    return rule


def _just(*endings: Callable[[], Ending]) -> Callable[[Lowering, Node, Value], Found]:
    return lambda lowering, node, value: (node.args[0], [ending() for ending in endings], [])


# The arguments by name that a rule here or in `pool_rules` handles.
KEYWORDS = {"add": ("alpha",), "sub": ("alpha",), "addmm": ("alpha", "beta"), "rsub": ("alpha",)}
ENDINGS: dict[str, Callable[[Any, Node, Value], Found | None]] = {
    "add": _add,
    "sub": _add,
    "rsub": _add,
    "mul": _mul,
    "div": _mul,
    "sum": _sum,
    "neg": _just(lambda: Folded(np.full(1, -1.0))),
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "relu": _just(o.ReLU),
    "relu6": _clip(lambda n: 0.0, lambda n: 6.0),
    "hardtanh": _clip(lambda n: n.arg(1, "min_val", -1.0), lambda n: n.arg(2, "max_val", 1.0)),
    "clamp": _clip(lambda n: n.arg(1, "min"), lambda n: n.arg(2, "max")),
    "clamp_min": _clip(lambda n: n.arg(1, "min"), lambda n: None),
    "clamp_max": _clip(lambda n: None, lambda n: n.arg(1, "max")),
    "_prelu_kernel": _prelu,
    "leaky_relu": _leaky,
    "sigmoid": _just(o.Sigmoid),
    "hardsigmoid": lambda lowering, node, value: (node.args[0], _hard_sigmoid(), []),
    "silu": _times_itself(lambda: [o.Sigmoid()], torch.sigmoid),
    "hardswish": _times_itself(_hard_sigmoid, torch.nn.functional.hardsigmoid),
}
