"""Two-valued activations: is a value a step, channel by channel, of a value before it, and where is each step?

People write sign in many ways: `x.sign()`, `torch.where(x >= 0, 1, -1)`, `2 * (x >= 0) - 1`, masks, autograd functions, and
`(sign(x) - clip(x)).detach() + clip(x)`; with a bias, a batch norm, a clip in front. So nothing is matched by its form. The
operations between the two-valued value and one before it, if all work value by value, are run again on values of our choice:

1. At the smallest and the largest float the step has its two levels; a falling step (batch norm with gamma < 0) has them swapped.
2. The first float with the upper level is found by bisection over all floats, 32 rounds for all channels at once. Every operation
   is monotone after rounding, too, so x >= threshold is exactly what torch computes.
3. On the recorded image the step must make what torch made; zeros that `torch.sign` leaves are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bcnn.capture.capture import Node, Value

# Operations that work value by value, with constants that spread over pixels.
POINTWISE = frozenset(
    [
        "add",
        "sub",
        "rsub",
        "mul",
        "div",
        "neg",
        "abs",
        "sign",
        "sgn",
        "ge",
        "gt",
        "le",
        "lt",
        "eq",
        "ne",
        "where",
        "_to_copy",
        "clone",
        "detach",
        "alias",
        "lift_fresh",
        "clamp",
        "clamp_min",
        "clamp_max",
        "hardtanh",
        "relu",
        "relu6",
        "leaky_relu",
        "_prelu_kernel",
        "sigmoid",
        "tanh",
        "native_batch_norm",
        "_native_batch_norm_legit_no_training",
        "index_put",
        "masked_fill",
        "copy",
        "heaviside",
        "minimum",
        "maximum",
        "pow",
        "logical_not",
        "bitwise_not",
        "hardsigmoid",
        "round",
        "floor",
        "ceil",
        "reciprocal",
        "sqrt",
        "exp",
        "copysign",
        "signbit",
        "trunc",
        "elu",
        "softplus",
        "erf",
        "logical_and",
        "logical_or",
    ]
)
# The same values in the same order, in another shape.
RESHAPES = frozenset(["view", "_unsafe_view", "reshape", "flatten", "squeeze", "unsqueeze"])
LARGEST = 3.4028234663852886e38  # of float32
MOST = 1e4  # of a level: what grows with the largest float is no step
NEAR = 1e-3  # levels may be off by rounding: -1 - 0.3 + 0.3 is not -1, and with 100.3 it is further off


@dataclass(frozen=True, eq=False)
class Step:
    """Channel c of the value is `high` where (source >= threshold[c]) != falls[c], else `low`; where padded, see `pad`."""

    source: Value
    threshold: Tensor  # [C] float32
    falls: Tensor  # [C] bool
    low: float
    high: float
    zeros: int  # values on the recorded image that are neither level: torch.sign of 0
    off: float = 0.0  # how far values there are from their level, by rounding
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right, around the source
    pad: Tensor | None = None  # [C] bool: the padded pixels' level; none: they are 0, a third value

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


def two_levels(x: Tensor) -> tuple[float, float] | None:
    """The two values that x has, or the one, up to rounding; values halfway between (`torch.sign` of 0) are passed over."""
    if x.numel() == 0 or x.dtype != torch.float32:
        return None
    low, high = float(x.min()), float(x.max())
    if not low <= high < float("inf") or low == float("-inf"):
        return None
    near = NEAR * (high - low)
    middle = (low + high) / 2
    fits = ((x - low).abs() <= near) | ((x - high).abs() <= near) | ((x - middle).abs() <= near * 1e-2)
    return (low, high) if bool(fits.all()) else None


def _one_level(x: Tensor) -> bool:
    return x.numel() > 0 and x.dtype == torch.float32 and bool((x == x.flatten()[0]).all())


def pointwise(node: Node, value: Value) -> bool:
    """Whether `value` is made value by value from what its node reads."""
    if not node.outputs or node.outputs[0] is not value:
        return False
    if node.op in RESHAPES:
        return True
    if node.op not in POINTWISE:
        return False
    return all(v.shape == value.shape or v.tensor.numel() == 1 for v in node.depends)


def origins(value: Value) -> Iterator[tuple[Value, list[Node]]]:
    """Values that all of `value` is made from value by value, nearest first, each with the nodes between in order."""
    yield value, []
    frontier: set[Value] = {value}
    nodes: list[Node] = []
    while True:
        latest = max(frontier, key=lambda v: v.index)
        if latest.node is None or not pointwise(latest.node, latest):
            return
        nodes.insert(0, latest.node)
        frontier = (frontier - {latest}) | set(latest.node.depends)
        if len(frontier) == 1:
            yield next(iter(frontier)), list(nodes)


def find_step(value: Value, live: frozenset[Node]) -> Step | None:
    """The step that `value` is, read as early in the graph as that makes no further map necessary; none if it is no step."""
    if two_levels(value.tensor) is None and not _one_level(value.tensor):  # a small map may show one of two
        return None
    candidates: list[tuple[Value, list[Node]]] = []
    for source, nodes in origins(value):
        if candidates and any(r not in candidates[-1][1] for r in candidates[-1][0].readers if r in live):
            break  # others read the source found before: it is a map anyway
        if (
            nodes
            and (made := function_of(source, nodes))
            and any(levels_of(made, end) for end in (LARGEST, ordinary(source)))
        ):
            candidates.append((source, nodes))
    for source, nodes in reversed(candidates):
        if step := _step(value, source, nodes):
            return step
    return _already_two_valued(value)


def _already_two_valued(value: Value) -> Step | None:
    """A map of two values that no step made just here, such as the maximum of signs: the threshold lies between them."""
    levels = two_levels(value.tensor)
    node = value.node
    if levels is None or levels[0] == levels[1] or node is None or not node.depends:
        return None
    if node.op not in (
        "max_pool2d_with_indices",
        "cat",
        "slice",
        "split",
        "upsample_nearest2d",
        "index_select",
        *RESHAPES,
    ):
        return None
    if any(two_levels(v.tensor) is None for v in node.depends):
        return None
    channels = value.shape[1]
    middle = torch.full((channels,), (levels[0] + levels[1]) / 2)
    return Step(value, middle, torch.zeros(channels, dtype=torch.bool), *levels, zeros=0)


@dataclass(frozen=True, eq=False)
class Function:
    """What `nodes` make of any values of `source`, channel by channel: P,C values -> P,C values."""

    source: Value
    nodes: list[Node]

    @property
    def channels(self) -> int:
        return self.source.shape[1]

    def __call__(self, x: Tensor) -> Tensor:
        trailing = (1,) * (self.source.tensor.dim() - 2)
        return run_again(self.nodes, self.source, x.reshape(*x.shape, *trailing)).reshape(x.shape)


def function_of(source: Value, nodes: list[Node]) -> Function | None:
    if source.tensor.dim() not in (2, 4) or source.shape[0] != 1 or source.tensor.dtype != torch.float32:
        return None
    f = Function(source, nodes)
    try:
        made = f(torch.ones(2, f.channels))
    except (
        RuntimeError,
        ValueError,
        IndexError,
        TypeError,
    ):  # a constant that differs from pixel to pixel does not fit
        return None
    return f if made.dtype == torch.float32 else None


def ordinary(source: Value) -> float:
    """A bound far above the values seen."""
    return 4 * float(source.tensor.abs().max()) + 64


def _step(value: Value, source: Value, nodes: list[Node]) -> Step | None:
    padding, pad_value, inner = (0, 0, 0, 0), 0.0, source
    if source.node is not None and source.node.op == "constant_pad_nd" and source.tensor.dim() == 4:
        left, right, top, bottom, *more = [*source.node.args[1], 0, 0, 0, 0][:6]
        if not any(more):
            padding, pad_value, inner = (
                (top, left, bottom, right),
                float(source.node.arg(2, "value", 0) or 0),
                source.node.args[0],
            )
    channels = source.shape[1]
    f = function_of(source, nodes)
    assert f is not None
    # x + (sign(x) - x) loses the sign of huge values to rounding: then a step as far as values go is what is meant.
    step = _bisect(f, LARGEST) or _bisect(f, ordinary(source))
    if step is None:
        return None
    threshold, falls, low, high = step
    spread = (1, channels, *(1,) * (source.tensor.dim() - 2))
    made = (source.tensor >= threshold.reshape(spread)) != falls.reshape(spread)
    middle, near = (low + high) / 2, NEAR * (high - low)
    recorded = value.tensor.reshape(source.shape)
    zeros = int(((recorded - middle).abs() <= near).sum())
    wrong = (made != (recorded >= middle)) & ((recorded - middle).abs() > near)
    # A vector unit may round batch norm otherwise than bisection's single values do; further away nothing may differ.
    close = (source.tensor - threshold.reshape(spread)).abs() <= 2**-20 * threshold.abs().reshape(spread).clamp_min(
        1e-30
    )
    if bool((wrong & ~close).any()):
        return None
    pad = None
    if any(padding):
        outside = f(torch.full((1, channels), pad_value))[0]
        third = (outside - middle).abs() <= near  # torch.sign of a padded 0 is 0: such a pixel contributes nothing
        if bool(third.any()) != bool(third.all()):
            return None
        pad = None if bool(third.any()) else outside >= middle
        zeros -= int(((recorded - middle).abs() <= near).sum()) - _inside(recorded, padding, middle, near)
    away = (recorded - middle).abs()
    off = (away - (high - low) / 2).abs()[away > near].max() if bool((away > near).any()) else torch.zeros(())
    return Step(inner, threshold, falls, low, high, zeros, float(off), padding, pad)


def _inside(recorded: Tensor, padding: tuple[int, int, int, int], middle: float, near: float) -> int:
    """Zeros that are not padding."""
    top, left, bottom, right = (max(side, 0) for side in padding)
    inner = recorded[:, :, top : recorded.shape[2] - bottom, left : recorded.shape[3] - right]
    return int(((inner - middle).abs() <= near).sum())


def run_again(nodes: list[Node], source: Value, x: Tensor) -> Tensor:
    """What `nodes` make of x in place of `source`, the last one's result."""
    values = {source: x}
    out = x
    with torch.no_grad():
        for node in nodes:
            for constant in node.inputs if node.op != "index_put" else ():  # that one writes into a map of full size
                if constant.constant and constant not in values and (one := _one_pixel(constant, source)) is not None:
                    values[constant] = one
            # Batch norm reads one parameter a channel, equal ones too; with fewer of them it would read what lies behind.
            for constant in node.inputs if "batch_norm" not in node.op else ():
                if constant.constant and constant.tensor.numel() > 1 and constant not in values:
                    values.update(_shapeless(constant, values))
            if node.op in RESHAPES:
                out = values[node.args[0]]  # the shape is ours
            else:
                made = node.replay(values)
                out = made if isinstance(made, Tensor) else made[0]
            values[node.outputs[0]] = out
    return out


def _one_pixel(constant: Value, source: Value) -> Tensor | None:
    """A constant as large as the map and the same at all its pixels, such as `bias.expand_as(x)`, at one of them."""
    x = constant.tensor
    if x.dim() != 4 or x.shape[2:] == (1, 1) or x.shape[2:] != source.tensor.shape[2:]:
        return None
    return x[:, :, :1, :1] if bool((x == x[:, :, :1, :1]).all()) else None


def _shapeless(constant: Value, values: dict[Value, Tensor]) -> dict[Value, Tensor]:
    """A constant that is the same everywhere (`ones_like(x)`, `-ones_like(x)`) in the shape of what stands in for a map like it."""
    first = constant.tensor.flatten()[0]
    if not bool((constant.tensor == first).all()):
        return {}
    like = next((x for value, x in values.items() if value.shape == constant.shape), first)
    return {constant: torch.full_like(like, first.item(), dtype=constant.tensor.dtype)}


def levels_of(f: Function, end: float) -> tuple[float, float] | None:
    """The two values that f has at both ends and at ordinary values between them; none if it has others."""
    probes = torch.tensor([-end, *(probe for probe in PROBES if abs(probe) < end), end])
    made = f(probes[:, None].expand(-1, f.channels).contiguous())
    if not bool(made.isfinite().all()):
        return None
    low, high = float(made[[0, -1]].min()), float(made[[0, -1]].max())
    if not low < high or max(-low, high) > MOST:
        return None
    off = torch.minimum((made - low).abs(), (made - high).abs())
    return (low, high) if bool((off <= NEAR * (high - low)).all()) else None


def _bisect(f: Function, end: float) -> tuple[Tensor, Tensor, float, float] | None:
    """Threshold and whether it falls for every channel, and the two levels."""
    if (levels := levels_of(f, end)) is None:
        return None
    low, high = levels
    middle, near = (low + high) / 2, NEAR * (high - low)
    first, last = f(torch.tensor([[-end], [end]]).expand(-1, f.channels).contiguous())
    falls, constant = first > last + near, (first - last).abs() <= near
    below, above = torch.full((f.channels,), _key(-end)), torch.full((f.channels,), _key(end))
    while bool((above - below > 1).any()):
        between = (below + above) // 2
        upper = (f(_from_key(between)[None])[0] >= middle) != falls
        below, above = torch.where(upper, below, between), torch.where(upper, between, above)
    threshold = _from_key(above)
    # A channel that never changes is always at least the smallest float, or never at least the largest.
    threshold = torch.where(constant, torch.where(first >= middle, -LARGEST, LARGEST), threshold)
    falls = falls & ~constant
    # Only two levels on both sides of the threshold, too, or it is no step.
    beside = torch.stack(
        [
            torch.nextafter(threshold, torch.full_like(threshold, -end)),
            -threshold.abs() * 2 - 1,
            threshold.abs() * 2 + 1,
        ]
    )
    beside = beside.clamp(-end, end)
    made, wanted = f(beside), torch.where((beside >= threshold) != falls, high, low)
    if bool((((made - wanted).abs() > near) & ((made - middle).abs() > near)).any()):
        return None
    return threshold, falls, low, high


# None of them 0, where torch.sign has a third value, nor such that a bias of 0.5 or -1 makes a 0 of them.
PROBES = (-101.3, -3.17, -1.031, -0.5471, -0.1137, -1.29e-3, 1.29e-3, 0.1137, 0.5471, 1.031, 3.17, 101.3)


def _key(x: float) -> int:
    """Floats as whole numbers in the same order."""
    bits = int(torch.tensor(x).view(torch.int32))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


def _from_key(key: Tensor) -> Tensor:
    positive = key.clamp_min(0).to(torch.int32).view(torch.float32)
    negative = -(-key).clamp_min(0).to(torch.int32).view(torch.float32)
    return torch.where(key >= 0, positive, negative)
