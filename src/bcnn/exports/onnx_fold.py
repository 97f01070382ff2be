"""Nodes of a graph -> the same with what ops have in common said once, as functions of the model.

Two ops whose nodes are the same but for the values they read are two calls of one function: a node each, which a viewer shows as a box
with the op's kind, its name and its parameters, and opens to its steps. Nothing is computed otherwise: a runtime puts the steps in place when it loads the
model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper


@dataclass(frozen=True)
class Steps:
    """Nodes `first` to `last`, without it, are an op's."""

    kind: str
    name: str
    first: int
    last: int


def folded(
    nodes: list[onnx.NodeProto], ops: list[Steps], domain: str, opset: int
) -> tuple[list[onnx.NodeProto], list[onnx.FunctionProto]]:
    """The nodes, and the functions that they call. Only calls of `domain` may have attributes of which ops have values of their own."""
    alike: dict[Any, list[Steps]] = {}
    for op in ops:
        if op.last - op.first > 1 and _closed(nodes, op):
            alike.setdefault(_shape(nodes[op.first : op.last], domain), []).append(op)
    functions, calls, kinds = [], dict[int, tuple[Steps, onnx.NodeProto]](), Counter[str]()
    for same in alike.values():
        steps = [nodes[op.first : op.last] for op in same]
        name = f"{same[0].kind}{kinds[same[0].kind] + 1}"  # with a number: none is called like an operator of ONNX
        function = _function(name, steps[0], domain, opset)
        made_calls = [_call(name, op.name, own, domain) for op, own in zip(same, steps, strict=True)]
        if _bytes([function, *made_calls]) < sum(map(_bytes, steps)):
            kinds[same[0].kind] += 1
            functions.append(function)
            calls |= {op.first: (op, call) for op, call in zip(same, made_calls, strict=True)}
    made, index = [], 0
    while index < len(nodes):
        if index in calls:
            op, call = calls[index]
            made.append(call)
            index = op.last
        else:
            made.append(nodes[index])
            index += 1
    return made, functions


def _bytes(parts: Iterable[onnx.NodeProto | onnx.FunctionProto]) -> int:
    return sum(len(part.SerializeToString()) for part in parts)


def _closed(nodes: list[onnx.NodeProto], op: Steps) -> bool:
    """Nobody else reads what the op makes on its way to its map."""
    inner = {name for node in nodes[op.first : op.last] for name in node.output} - set(nodes[op.last - 1].output)
    return not any(inner.intersection(node.input) for node in (*nodes[: op.first], *nodes[op.last :]))


def _outside(nodes: list[onnx.NodeProto]) -> list[str]:
    """What the nodes read and do not make, in the order of reading."""
    made = {name for node in nodes for name in node.output}
    return list(dict.fromkeys(name for node in nodes for name in node.input if name and name not in made))


def _shape(nodes: list[onnx.NodeProto], domain: str) -> tuple[Any, ...]:
    """What the nodes have in common with others that differ in names only."""
    places = {name: place for place, name in enumerate(_outside(nodes))}
    found: list[Any] = []
    for node in nodes:
        attributes = [
            given.name if node.domain == domain else given.SerializeToString(deterministic=True)
            for given in node.attribute
        ]
        read = [places.get(name) for name in node.input]
        for name in node.output:
            places[name] = len(places)
        found.append((node.op_type, node.domain, tuple(attributes), tuple(read), len(node.output)))
    return tuple(found)


def _function(name: str, nodes: list[onnx.NodeProto], domain: str, opset: int) -> onnx.FunctionProto:
    inside = lettered((*_outside(nodes), *(name for node in nodes for name in node.output)))
    steps, own = [], iter(_own(nodes, domain))
    for node in nodes:
        step = helper.make_node(node.op_type, [inside[v] for v in node.input], [inside[v] for v in node.output])
        step.domain = node.domain
        for given in node.attribute:
            if node.domain == domain:
                refers = {"ref_attr_name": next(own).name}
                step.attribute.append(onnx.AttributeProto(name=given.name, type=given.type, **refers))
            else:
                step.attribute.append(given)
        steps.append(step)
    opsets = [helper.make_opsetid("", opset)]
    if any(node.domain == domain for node in nodes):
        opsets.append(helper.make_opsetid(domain, 1))
    read, made = ([inside[v] for v in values] for values in (_outside(nodes), nodes[-1].output))
    attributes = [given.name for given in _own(nodes, domain)]
    return without_defaults(helper.make_function(domain, name, read, made, steps, opsets, attributes))


def without_defaults(function: onnx.FunctionProto) -> onnx.FunctionProto:
    """The domain of ONNX's own operators is the empty name, and need not be written."""
    for opset in function.opset_import:
        if not opset.domain:
            opset.ClearField("domain")
    return function


def lettered(values: Iterable[str], kept: Iterable[str] = ()) -> dict[str, str]:
    """New names of values: a letter or a digit, two where these do not suffice; some may keep their names."""
    names = {name: name for name in ("", *kept)}
    letters = (first + second for first in ("", *ascii_letters) for second in ascii_letters + digits)
    free = (letter for letter in letters if letter not in names)
    often = (value for value, _ in Counter(values).most_common())
    return names | {value: next(free) for value in often if value not in names}


def _own(nodes: list[onnx.NodeProto], domain: str) -> list[onnx.AttributeProto]:
    """The attributes of which an op has values of its own, with a name each: `real`, `by`, `real2`, `by2`."""
    found = [
        onnx.AttributeProto.FromString(g.SerializeToString()) for n in nodes if n.domain == domain for g in n.attribute
    ]
    times = Counter[str]()
    for given in found:
        times[given.name] += 1
        if times[given.name] > 1:
            given.name += str(times[given.name])
    return found


def _call(name: str, op: str, nodes: list[onnx.NodeProto], domain: str) -> onnx.NodeProto:
    call = helper.make_node(name, _outside(nodes), list(nodes[-1].output), op, domain=domain)
    call.attribute.extend(_own(nodes, domain))
    return call


def stored(array: NDArray[Any], name: str = "") -> onnx.TensorProto:
    """A tensor in the shorter of ONNX's two ways: its bytes, or its numbers, of which small ones take a byte whatever their type."""
    plain = numpy_helper.from_array(array, name or None)
    if array.dtype.kind not in "iu":
        return plain
    listed = helper.make_tensor(name, plain.data_type, array.shape, array.reshape(-1).tolist())
    if not name:
        listed.ClearField("name")
    return min(plain, listed, key=lambda tensor: len(tensor.SerializeToString()))
