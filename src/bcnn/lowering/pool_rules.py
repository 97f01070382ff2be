"""Operations of torch that begin an op, besides convolutions: pools, means, upsampling, channels joined and moved. By ATen name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bcnn.capture.capture import Node, Value
from bcnn.capture.channel_permutation import moved, reshaped, unmoved
from bcnn.lowering.op_builder import Draft, constant_draft
from bcnn.program import ops as o

if TYPE_CHECKING:
    from bcnn.lowering.lower import Lowering


def pair(value: Any, default: tuple[int, int] = (1, 1)) -> tuple[int, int]:
    """What torch takes for height and width: a number, one or two of them, or nothing."""
    if isinstance(value, int):
        return value, value
    values = tuple(value or default)
    return (values[0], values[0]) if len(values) == 1 else (values[0], values[1])


def pool_window(lowering: Lowering, node: Node, value: Value) -> o.Window:
    kernel = pair(node.args[1])
    stride = pair(node.arg(2, "stride"), kernel)
    top, left = pair(node.arg(3, "padding"), (0, 0))
    dilation = pair(node.arg(4, "dilation")) if node.op.startswith("max") else (1, 1)
    x, made = node.args[0].shape[2:], value.shape[2:]
    # torch rounds the size down, or with ceil_mode up: the padding behind the map is what makes it come out.
    behind = [(made[i] - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - x[i] - (top, left)[i] for i in range(2)]
    return o.Window(kernel, stride, (top, left, behind[0], behind[1]), dilation)


def _pooled(op: Callable[[int, o.Window], o.Op]) -> Callable[[Any, Node, Value], Draft]:
    def rule(lowering: Lowering, node: Node, value: Value) -> Draft:
        source = whole_map(lowering, node.args[0])
        window = pool_window(lowering, node, value)
        return Draft((source,), lambda map_of: op(map_of(source), window), node.module)

    return rule


def _avg_pool(lowering: Lowering, node: Node, value: Value) -> Draft:
    if node.arg(6, "divisor_override") is not None:
        raise lowering.error(node, "divisor_override is not lowered")
    source, window = whole_map(lowering, node.args[0]), pool_window(lowering, node, value)
    padding, include = pair(node.arg(3, "padding"), (0, 0)), bool(node.arg(5, "count_include_pad", True))
    if include and any(behind > given for behind, given in zip(window.padding[2:], padding, strict=True)):
        raise lowering.error(node, "ceil_mode with count_include_pad counts windows in a way that is not lowered")
    inside = not include and any(side > 0 for side in window.padding)
    return Draft((source,), lambda map_of: o.AvgPool(map_of(source), window, inside), node.module)


def whole_map(lowering: Lowering, value: Value) -> Value:
    """The map of `value` itself, for ops that do not replicate."""
    return reshaped(value) if reshaped(value).tensor.dim() in (2, 4) else value


def pool_of_replicas(lowering: Lowering, value: Value) -> tuple[Value, int] | None:
    """A pool after replication is a pool before it (which commute): the smaller one, read replicated. 1x1 pools are nothing."""
    node = value.node
    assert node is not None
    if node.op != "avg_pool2d":
        return None
    if pair(node.args[1]) == (1, 1) and pair(node.arg(2, "stride"), (1, 1)) == (1, 1):
        return lowering.replicated(node.args[0])
    source, count = lowering.replicated(node.args[0])
    own = source.shape[1]
    if count == own:
        return None
    key = (source, node)
    made: dict[Any, Value] = lowering.__dict__.setdefault("pooled", {})
    if key not in made:
        window = pool_window(lowering, node, value)
        inside = not bool(node.arg(5, "count_include_pad", True)) and any(window.padding)
        drafted = Draft((source,), lambda map_of: o.AvgPool(map_of(source), window, inside), node.module)
        made[key] = lowering.virtual(value, drafted, lambda x: x[:, :own], value)
    return made[key], count


def reduced_dims(node: Node) -> list[int]:
    """The dimensions that a mean, sum or maximum is taken over."""
    dims, count = node.arg(1, "dim"), node.args[0].tensor.dim()
    dims = [dims] if isinstance(dims, int) else dims or range(count)
    return sorted(d % count for d in dims)


def over_pixels(node: Node) -> Value | None:
    """The map of which a mean, sum or maximum is taken over all pixels, flattened before or not; none if it is taken otherwise."""
    x = node.args[0]
    source = reshaped(x)
    whole = reduced_dims(node) == list(range(2, x.tensor.dim())) and x.tensor.dim() > 2
    return source if whole and source.tensor.dim() == 4 and source.shape[:2] == x.shape[:2] else None


def _mean(lowering: Lowering, node: Node, value: Value) -> Draft:
    x, dims = node.args[0], reduced_dims(node)
    if (source := over_pixels(node)) is not None:
        return Draft((source,), lambda map_of: o.GlobalAvgPool(map_of(source)), node.module)
    inner = unmoved(x)
    if (
        x.tensor.dim() == 4
        and dims == [1]
        and value.tensor.dim() == 4
        and inner.node is not None
        and inner.node.op == "abs"
    ):
        magnitudes = whole_map(lowering, inner.node.args[0])
        return Draft((magnitudes,), lambda map_of: o.AbsMean(map_of(magnitudes)), node.module)
    if x.tensor.dim() == 4 and dims == [1] and value.tensor.dim() == 4:  # a grey image, say: one real filter
        whole, channels = whole_map(lowering, x), x.shape[1]
        share = np.full((1, 1, channels, 1), 1 / channels, np.float32)
        return Draft(
            (whole,), lambda map_of: o.Conv(map_of(whole), channels, share, np.zeros(1, np.float32)), node.module
        )
    raise lowering.error(
        node, f"a mean over dimensions {dims} of {x.shape} is not lowered; over all pixels or all channels it is"
    )


def _adaptive(op: Callable[[int, o.Window], o.Op]) -> Callable[[Any, Node, Value], Draft]:
    def rule(lowering: Lowering, node: Node, value: Value) -> Draft:
        source = whole_map(lowering, node.args[0])
        (h, w), (height, width) = source.shape[2:], value.shape[2:]
        if h % height or w % width:
            raise lowering.error(node, f"windows of unequal size: {h} x {w} to {height} x {width}")
        size = h // height, w // width
        return Draft((source,), lambda map_of: op(map_of(source), o.Window(size, size)), node.module)

    return rule


def _max(lowering: Lowering, node: Node, value: Value) -> Draft:
    source = over_pixels(node)
    if source is None or value is not node.outputs[0]:
        raise lowering.error(
            node, f"a maximum over dimensions {reduced_dims(node)} is not lowered; over all pixels it is"
        )
    size = source.shape[2], source.shape[3]
    return Draft((source,), lambda map_of: o.MaxPool(map_of(source), o.Window(size, size)), node.module)


def _upsample(lowering: Lowering, node: Node, value: Value) -> Draft:
    source = whole_map(lowering, node.args[0])
    (h, w), (height, width) = source.shape[2:], value.shape[2:]
    if height % h or width % w:
        raise lowering.error(node, f"{h} x {w} to {height} x {width} is no whole factor")
    return Draft((source,), lambda map_of: o.Upsample(map_of(source), (height // h, width // w)), node.module)


def channel_avg(source: Value, value: Value) -> Draft:
    module = value.node.module if value.node else ""
    return Draft((source,), lambda map_of: o.ChannelAvg(map_of(source), value.shape[1]), module)


def move(lowering: Lowering, value: Value) -> Draft:
    """Concatenation of maps, selected or reordered channels."""
    node = value.node
    assert node is not None
    found = moved(value)
    if found is not None:
        source, index = found[0], found[1].astype(np.int32)
        return Draft((source,), lambda map_of: o.Select(map_of(source), index), node.module)
    if node.op == "cat" and value.tensor.dim() in (2, 4) and node.arg(1, "dim", 0) % value.tensor.dim() == 1:
        parts = [whole_map(lowering, part) for part in node.args[0]]
        if all(not part.constant for part in parts):
            return Draft(tuple(parts), lambda map_of: o.Concat(tuple(map_of(part) for part in parts)), node.module)
    raise lowering.error(node, "values are moved in a way that is not lowered: not whole channels of maps of one size")


def _more_channels(lowering: Lowering, node: Node, value: Value) -> Draft:
    """Channels of one constant value in front of a map's own or behind them."""
    x, pads, fill = node.args[0], [*node.args[1], 0, 0, 0, 0, 0, 0], float(node.arg(2, "value", 0) or 0)
    if any(pads[:4]) or any(pads[6:]) or min(pads[4:6]) < 0:
        raise lowering.error(
            node, "a padded map is only lowered where a convolution reads it; else only channels are added"
        )
    source = whole_map(lowering, x)
    parts = [source]
    for at, count in ((0, pads[4]), (len(parts) + 1, pads[5])):
        if count:
            tensor = torch.full((1, count, *x.shape[2:]), fill)
            parts.insert(at, lowering.virtual(value, constant_draft(tensor, node.module), lambda tensor=tensor: tensor))
    return Draft(tuple(parts), lambda map_of: o.Concat(tuple(map_of(part) for part in parts)), node.module)


BASES: dict[str, Callable[[Any, Node, Value], Draft]] = {
    "max_pool2d_with_indices": _pooled(o.MaxPool),
    "avg_pool2d": _avg_pool,
    "mean": _mean,
    "amax": _max,
    "max": _max,
    "_adaptive_avg_pool2d": _adaptive(o.AvgPool),
    "adaptive_max_pool2d": _adaptive(o.MaxPool),
    "upsample_nearest2d": _upsample,
    "constant_pad_nd": _more_channels,
}
