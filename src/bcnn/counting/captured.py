"""A recorded pass -> parameters and operations, module by module: one rule an operation, for any torch network.

The second, independent derivation of `counts`: for the paper's networks both give the same numbers. Rules, for one image:

    products        MACs: binary where a step (`graph.step`) meets weights of one magnitude a filter, else real; padded taps count,
                    biases start the sums and cost nothing
    sign            one a value, however it is written; what stands in front of it (bias, batch norm) counts on its own
    batch norm      one mult and one add a value; additions and multiplications one each
    PReLU and such  one a value: ReLU, clips, sigmoid; a maximum one a tap
    averages        one add a tap
    intensity       3 MACs a pixel (sec. 4.1)
    moving values   nothing: replication, slices, concatenation, upsampling

Parameters are the network's own: binary where they become the weights of a binary product, else real.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

import torch

from bcnn.capture.capture import Graph, Node, Value, capture
from bcnn.capture.channel_permutation import averaged, intensity
from bcnn.capture.sign_detection import LARGEST, find_step, function_of, levels_of, ordinary, origins, two_levels
from bcnn.counting.counts import CountNode
from bcnn.program.counts import Counts

if TYPE_CHECKING:
    from torch import nn

PRODUCTS = ("convolution", "mm", "addmm", "bmm", "baddbmm", "mv", "dot")
ADDS = ("add", "sub", "rsub")
MULTS = ("mul", "div", "neg", "reciprocal")
NORMS = ("native_batch_norm", "_native_batch_norm_legit_no_training")
CURVES = [
    "relu",
    "relu6",
    "hardtanh",
    "clamp",
    "clamp_min",
    "clamp_max",
    "_prelu_kernel",
    "leaky_relu",
    "sigmoid",
    "tanh",
    "hardsigmoid",
    "silu",
    "hardswish",
    "elu",
    "gelu",
    "abs",
    "exp",
    "sqrt",
    "softplus",
    "mish",
]


def count_network(network: nn.Module, size: tuple[int, int], name: str = "") -> CountNode:
    """The tree of a network that reads images of `size`, from one recorded pass."""
    return count_graph(capture(network, torch.randn(1, 3, *size)), name or type(network).__name__)


def count_graph(graph: Graph, name: str) -> CountNode:
    """The tree of modules that ran, each with what it did itself and its children."""
    own: dict[str, Counts] = defaultdict(
        Counts, {node.module: Counts() for node in graph.nodes}
    )  # in the order of the pass
    binary: set[str] = set()
    live = frozenset(node for node in graph.nodes if node.depends)
    done = _regions(graph, live, own)
    for node in graph.nodes:
        if node in done or not node.depends:
            continue
        own[node.module] += _count(node, live, binary)
    for parameter, values in graph.parameters.items():
        module = parameter.rpartition(".")[0] or name
        many = values.numel()
        own[module] += Counts(binary_params=many) if parameter in binary else Counts(real_params=many)
    order: dict[str, int] = {}
    for node in graph.nodes:
        order.setdefault(node.module, len(order))
    return _tree(name, dict(sorted(own.items(), key=lambda item: order.get(item[0], len(order)))))


def _regions(graph: Graph, live: frozenset[Node], own: dict[str, Counts]) -> set[Node]:
    """Operations that together are one thing: the intensity channel, signs, means of channels."""
    done: set[Node] = set()
    if (found := intensity(graph)) and found[0].node is not None:
        out = found[0]
        done |= {node for node in graph.nodes if node.depends and node.index <= found[0].node.index}
        own[found[0].node.module] += Counts(real_macs=3 * math.prod(out.shape[2:]))
    for node in reversed(graph.nodes):
        if node in done or not node.depends or not node.outputs:
            continue
        out = node.outputs[0]
        if node.op == "div" and out.tensor.dim() == 4 and (source := averaged(out)) is not None:
            pixels = math.prod(out.shape[2:])
            own[node.module] += Counts(adds=source.shape[1] * pixels, mults=out.shape[1] * pixels)
            done |= {
                other
                for other in graph.nodes
                if source.index < (other.outputs or (out,))[0].index <= out.index and other.depends
            }
        elif (nodes := _sign(out)) is not None:
            own[node.module] += Counts(signs=out.tensor.numel())
            done.update(nodes)
    return done


def _sign(value: Value) -> list[Node] | None:
    """The operations that make `value` two-valued of one that is not."""
    if two_levels(value.tensor) is None:
        return None
    for source, nodes in origins(value):
        if nodes and source.tensor.dtype == torch.float32 and two_levels(source.tensor) is None:
            f = function_of(source, nodes)
            step = f is not None and any(levels_of(f, end) for end in (LARGEST, ordinary(source)))
            return nodes if step else None
    return None


def _count(node: Node, live: frozenset[Node], binary: set[str]) -> Counts:
    if node.op in PRODUCTS:
        return _product(node, live, binary)
    out = node.outputs[0]
    made = out.tensor.numel()
    if node.op in ADDS:
        return Counts(adds=made)
    if node.op in MULTS:
        return Counts(mults=made)
    if node.op in NORMS:
        return Counts(mults=made, adds=made)
    if node.op in CURVES:
        return Counts(prelus=made)
    if node.op in ("avg_pool2d", "max_pool2d_with_indices"):
        kernel = node.args[1] if len(node.args[1]) == 2 else [*node.args[1]] * 2
        taps = made * math.prod(kernel)
        return Counts(adds=taps) if node.op == "avg_pool2d" else Counts(prelus=taps)
    if node.op in ("mean", "sum", "_adaptive_avg_pool2d"):
        return Counts(adds=node.depends[0].tensor.numel())
    return Counts()


def _product(node: Node, live: frozenset[Node], binary: set[str]) -> Counts:
    from bcnn.lowering.filters import magnitudes  # the same test as in lowering

    if node.op == "convolution":
        x, weight = node.args[:2]
        macs = node.outputs[0].tensor.numel() * math.prod(weight.shape[1:])
        filters = weight.tensor
    else:
        x, weight = node.args[1:3] if node.op in ("addmm", "baddbmm") else node.args[:2]
        macs = node.outputs[0].tensor.numel() * x.shape[-1]
        filters = weight.tensor.t() if weight.tensor.dim() == 2 else weight.tensor
    while x.node is not None and x.node.op in ("constant_pad_nd", "view", "_unsafe_view", "clone", "detach"):
        x = x.node.args[0]  # padding of a +-1 map
    one_bit = filters.dim() >= 2 and magnitudes(filters) is not None and find_step(x, live) is not None
    if not one_bit:
        connected = macs if node.op in ("addmm", "mm") else 0
        return Counts(real_macs=macs, connected_macs=connected)
    binary.update(_latent(node, weight))
    return Counts(binary_macs=macs)


def _latent(node: Node, weight: Value) -> set[str]:
    """The parameters that the weights are the signs of: those with as many values."""
    made_from: set[str] = set()
    wanted, seen = [weight], set()
    while wanted:
        value = wanted.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.node is None:
            if len(value.parameters) == 1 and value.tensor.numel() == weight.tensor.numel():
                made_from |= value.parameters
        else:
            wanted += value.node.inputs
    return made_from


def _tree(name: str, own: dict[str, Counts]) -> CountNode:
    """Modules under the modules whose names theirs begin with, in the order in which they first did something."""
    children: dict[str, list[str]] = defaultdict(list)
    for module in own:
        if module in ("", name):
            continue
        parts = module.split(".")
        for depth in range(len(parts)):
            parent, child = ".".join(parts[:depth]), ".".join(parts[: depth + 1])
            if child not in children[parent]:
                children[parent].append(child)

    def node(module: str) -> CountNode:
        inner = tuple(node(child) for child in children[module])
        mine = own.get(module, Counts()) if module else own.get(name, Counts()) + own.get("", Counts())
        return CountNode(module or name, mine, inner)

    return node("")
