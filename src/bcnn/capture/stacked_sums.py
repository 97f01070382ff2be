"""Sums of maps that were stacked first, `torch.stack(maps).sum(0)`, as the additions they are, so that rules know one form of a sum."""

from __future__ import annotations

from typing import Any

import torch

from bcnn.capture.capture import Graph, Node, Value


def as_additions(graph: Graph) -> None:
    """Sums and means over the dimension that a `stack` made become additions of what was stacked, in its order."""
    for node in graph.nodes:
        stacked = node.args[0] if node.op in ("sum", "mean") and isinstance(node.args[0], Value) else None
        if stacked is not None and (parts := _stacked(node, stacked)):
            _add_up(node, stacked, parts)


def _stacked(node: Node, stacked: Value) -> list[Value] | None:
    stack = stacked.node
    if stack is None or stack.op != "stack" or node.arg(2, "keepdim", False):
        return None
    count = stacked.tensor.dim()
    if [d % count for d in node.arg(1, "dim") or []] != [stack.arg(1, "dim", 0) % count]:
        return None
    parts: list[Value] = list(stack.args[0])
    return parts if len(parts) > 1 and not any(part.constant for part in parts) else None


def _add_up(node: Node, stacked: Value, parts: list[Value]) -> None:
    """The value of `node` is made by additions from here on; the values between them come after what was stacked."""
    (out,) = node.outputs
    steps = len(parts) - (node.op == "sum")  # after which `out` is there

    def made(at: int, op: str, function: Any, *args: Value | int) -> Value:
        between = stacked.index + at / (len(parts) + 1)
        value = out if at == steps else Value(between, function(*_tensors(args)), False)  # type: ignore[arg-type]
        value.node = Node(node.index, op, function, args, {}, (value,), node.module)
        for read in value.node.inputs:
            read.readers.append(value.node)
        return value

    total = parts[0]
    for at, part in enumerate(parts[1:], start=1):
        total = made(at, "add", torch.ops.aten.add.Tensor, total, part)
    if node.op == "mean":
        made(steps, "div", torch.ops.aten.div.Tensor, total, len(parts))


def _tensors(args: tuple[Value | int, ...]) -> list[Any]:
    return [arg.tensor if isinstance(arg, Value) else arg for arg in args]
