"""Values that are other values in another order: replication, slices, shuffles, and the image with its intensity.

Like steps, these are not matched by their form (`cat`, slices, `view` and `transpose`, `index_select` ...): the operations run
again on a tensor that holds its own indices, and where each channel came from is read off.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bcnn.capture.capture import Graph, Node, Value
from bcnn.capture.sign_detection import RESHAPES

MOVES = (
    frozenset(
        [
            "cat",
            "slice",
            "select",
            "split",
            "split_with_sizes",
            "unbind",
            "stack",
            "permute",
            "transpose",
            "t",
            "expand",
            "index_select",
            "channel_shuffle",
            "chunk",
            "repeat",
            "index",
            "_reshape_alias",
            "as_strided",
            "native_channel_shuffle",
        ]
    )
    | RESHAPES
)
# A copy, or the value itself.
SAME = frozenset(["clone", "detach", "alias", "lift_fresh", "dropout", "contiguous"])


def unmoved(value: Value) -> Value:
    """The value behind copies and changes of its type to what it is."""
    while value.node is not None:
        node = value.node
        if node.op in SAME or (node.op == "_to_copy" and node.args[0].tensor.dtype == value.tensor.dtype):
            value = node.args[0]
        else:
            break
    return value


def reshaped(value: Value) -> Value:
    """The same behind changes of the shape that keep the order, up to a map N,C,H,W or a vector N,F."""
    value = unmoved(value)
    seen = value
    while seen.node is not None and seen.node.op in RESHAPES:
        seen = unmoved(seen.node.args[0])
        if seen.tensor.dim() in (2, 4) and seen.shape[0] == 1 and seen.tensor.numel() == value.tensor.numel():
            value = seen
    return value


def moved(value: Value) -> tuple[Value, NDArray[np.int64]] | None:
    """(source, index): channel o of `value` is channel index[o] of `source`, all pixels alike; none if it is made otherwise."""
    if value.tensor.dim() not in (2, 4):
        return None
    found = None
    for source, nodes in _sources(value):
        if nodes and source.tensor.dim() in (2, 4) and source.shape[0] == 1 and source.shape[2:] == value.shape[2:]:
            index = _channels(value, source, nodes)
            if index is not None:
                found = source, index
                if source.readers and set(source.readers) - set(nodes):
                    break
    return found


def _sources(value: Value) -> Iterator[tuple[Value, list[Node]]]:
    """Values that all of `value` is moved from, nearest first."""
    frontier: set[Value] = {value}
    nodes: list[Node] = []
    while True:
        latest = max(frontier, key=lambda v: v.index)
        node = latest.node
        if node is None or node.op not in MOVES | SAME or any(v.constant for v in node.inputs):
            return
        nodes.insert(0, node)
        frontier = (frontier - set(node.outputs)) | set(node.depends)
        if len(frontier) == 1:
            yield next(iter(frontier)), list(dict.fromkeys(nodes))


def _channels(value: Value, source: Value, nodes: list[Node]) -> NDArray[np.int64] | None:
    numbers = torch.arange(source.tensor.numel(), dtype=torch.float64).reshape(source.shape)
    values: dict[Value, Tensor] = {source: numbers}
    for node in nodes:
        made = node.replay(values)
        for out, tensor in zip(node.outputs, [made] if isinstance(made, Tensor) else made, strict=True):
            values[out] = tensor
    origin = values[value].reshape(value.shape[1], -1).to(torch.int64)
    pixels = origin.shape[1]
    channel, pixel = origin // pixels, origin % pixels
    if not bool((channel == channel[:, :1]).all() and (pixel == torch.arange(pixels)).all()):
        return None
    index: NDArray[np.int64] = channel[:, 0].numpy()
    return index


def averaged(value: Value) -> Value | None:
    """The map with more channels of which `value` is the mean, those c with equal c mod C together (R < 1, sec. 4.2.2)."""
    frontier: set[Value] = {value}
    nodes: list[Node] = []
    while True:
        latest = max(frontier, key=lambda v: v.index)
        node = latest.node
        if node is None or node.op not in MOVES | SAME | {"add", "div", "constant_pad_nd"}:
            return None
        nodes.insert(0, node)
        frontier = (frontier - set(node.outputs)) | set(node.depends)
        source = next(iter(frontier))
        if len(frontier) == 1 and source.tensor.dim() == 4 and source.shape[1] > value.shape[1]:
            break
    channels = value.shape[1]
    groups = [source.tensor[:, j::channels] for j in range(channels)]
    means = torch.cat([group.double().mean(1, keepdim=True) for group in groups], dim=1)
    return source if torch.allclose(means, value.tensor.double(), rtol=1e-5, atol=1e-6) else None


def intensity(graph: Graph) -> tuple[Value, NDArray[np.float64]] | None:
    """The value that is the image with a weighted sum of its three channels as fourth (sec. 4.1), and the weights."""
    if len(graph.inputs) != 1 or graph.inputs[0].tensor.dim() != 4:
        return None
    image = graph.inputs[0]
    known = {image}
    nodes: list[Node] = []
    for node in graph.nodes:
        if not node.depends or not all(v in known for v in node.depends) or node.op not in MOVES | {"mul", "add"}:
            continue
        if not all(v.constant is False or v.tensor.numel() == 1 for v in node.inputs):
            continue
        nodes.append(node)
        known.update(node.outputs)
        out = node.outputs[0]
        if node.op == "cat" and out.shape == (1, 4, *image.shape[2:]):
            colours = torch.eye(3).reshape(3, 3, 1, 1).unbind(0)  # one pixel that is red, one green, one blue
            try:
                weights = [_replay(nodes, image, colour[None], out) for colour in colours]
            except RuntimeError:  # a shape written out: not what this looks for
                continue
            if not all(torch.equal(w[0, :3], c) for w, c in zip(weights, colours, strict=True)):
                continue
            i = torch.stack([w[0, 3, 0, 0] for w in weights])
            r, g, b = image.tensor[0]
            if torch.equal(out.tensor[0, 3], r * i[0] + g * i[1] + b * i[2]):
                return out, i.double().numpy()
    return None


def _replay(nodes: list[Node], image: Value, x: Tensor, last: Value) -> Tensor:
    values: dict[Value, Tensor] = {image: x}
    for node in nodes:
        made = node.replay(values)
        for out, tensor in zip(node.outputs, [made] if isinstance(made, Tensor) else made, strict=True):
            values[out] = tensor
    return values[last]
