"""Nodes of a graph -> the same with what ops have in common said once, as functions of the model.

Two ops whose nodes are the same but for the values they read are two calls of one function: a node each, which a viewer shows as a box
with the op's kind, its map and its parameters, and opens to its steps. Nothing is computed otherwise: a runtime puts the steps in place when it loads the
model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_letters
from typing import Any

import onnx
from onnx import helper


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
    for same in (ops for ops in alike.values() if len(ops) > 1):
        kinds[same[0].kind] += 1
        name = f"{same[0].kind}{kinds[same[0].kind]}"  # with a number: none is called like an operator of ONNX
        functions.append(_function(name, nodes[same[0].first : same[0].last], same[0].name, domain, opset))
        for op in same:
            calls[op.first] = (op, _call(name, nodes[op.first : op.last], domain))
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


def _function(name: str, nodes: list[onnx.NodeProto], op: str, domain: str, opset: int) -> onnx.FunctionProto:
    """Parameters are called by their field, maps and constants by letters."""
    values = [*_outside(nodes), *(name for node in nodes for name in node.output)]
    inside = lettered(values, {v: v.removeprefix(f"{op}.") for v in values if v.startswith(f"{op}.")})
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
    return helper.make_function(domain, name, read, made, steps, opsets, [given.name for given in _own(nodes, domain)])


def lettered(values: Iterable[str], named: dict[str, str]) -> dict[str, str]:
    """New names of all the values of a function: those of `named`, and for the others letters, which keep a small file small."""
    names = {"": "", **named}
    letters = (first + second for first in ("", *ascii_letters) for second in ascii_letters)
    free = (letter for letter in letters if letter not in named.values())
    return names | {value: next(free) for value in values if value not in names}


def _own(nodes: list[onnx.NodeProto], domain: str) -> list[onnx.AttributeProto]:
    """The attributes of which an op has values of its own, with a name each: `steps`, `steps2`."""
    found = [
        onnx.AttributeProto.FromString(g.SerializeToString()) for n in nodes if n.domain == domain for g in n.attribute
    ]
    for index, given in enumerate(found[1:], 2):
        given.name += str(index)
    return found


def _call(name: str, nodes: list[onnx.NodeProto], domain: str) -> onnx.NodeProto:
    call = helper.make_node(name, _outside(nodes), list(nodes[-1].output), domain=domain)
    call.attribute.extend(_own(nodes, domain))
    return call
