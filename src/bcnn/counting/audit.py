"""The paper's thesis as a check: every operation that lowers to matrix-matrix multiplication is 1 bit x 1 bit (sec. 1).

`audit(module, *inputs)` evaluates the exported graph of any torch module as it is and with its parameters shaken, and lists what
that computed: each matrix product with the width of both operands, its MACs and the module that issued it.

Widths come from values: all +-1 is 1 bit, anything else the bits of its dtype. A real tensor can hold only +-1 by accident (a
filter of ones), so a width counts only if it survives adding noise to every trainable parameter: what sign makes stays binary,
a real weight does not. Stored +-1 tensors that do not train (buffers, frozen parameters) are taken as they are. Zero padding of
a +-1 map adds a third value, 0, so such an operand is 2 bits wide.

A product may also be written as a broadcast multiplication and a sum over the axis that both share, or as many products of one
matrix with a vector each: both are found. An operator that `operators.py` does not know could be a product, too: with one of
those a network cannot be certified.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry

from bcnn.capture.capture import Graph, Node, Value, evaluate
from bcnn.capture.channel_permutation import unmoved
from bcnn.capture.export import export
from bcnn.counting.operators import KNOWN, MOVES, REDUCTIONS

# Products by the last part of their aten name. The pattern also catches ones that torch may add or a backend may bring.
PRODUCT = re.compile(r"(^|_)(conv\w*|\w*mm|matmul|addmm_\w+|rnn\w*|lstm\w*|gru\w*)$|linear$|attention")
NOT_A_PRODUCT = re.compile(r"backward|_weight$")


@dataclass(frozen=True)
class Operation:
    """One product: `m x k` times `k x n`, `batch` times."""

    module: str  # its name in the network, as in named_modules()
    op: str  # aten name
    bits: tuple[int, int]  # of the activations and of the weights (first and second operand)
    m: int
    k: int
    n: int
    batch: int = 1  # products of this size: groups of a convolution, heads of an attention
    depthwise: bool = False

    @property
    def macs(self) -> int:
        return self.batch * self.m * self.k * self.n

    @property
    def is_matrix_product(self) -> bool:
        """Not one with a vector: depth wise convolution, or a fully connected layer on one image, stays real in the paper."""
        return not self.depthwise and min(self.m, self.k, self.n) > 1

    @property
    def passes(self) -> bool:
        return not self.is_matrix_product or self.bits == (1, 1)


@dataclass(frozen=True)
class Unknown:
    """An operator without an entry, and where it is."""

    module: str
    op: str
    line: str

    def __str__(self) -> str:
        return f"{self.op} in {self.module}{self.line and ', ' + self.line}"


@dataclass(frozen=True)
class AuditReport:
    """Every product that ran, in order; `matrix` are those the thesis is about."""

    operations: tuple[Operation, ...]
    unknown: tuple[Unknown, ...] = ()

    @property
    def matrix(self) -> tuple[Operation, ...]:
        return tuple(op for op in self.operations if op.is_matrix_product)

    @property
    def vector(self) -> tuple[Operation, ...]:
        return tuple(op for op in self.operations if not op.is_matrix_product)

    @property
    def failures(self) -> tuple[Operation, ...]:
        return tuple(op for op in self.operations if not op.passes)

    @property
    def passes(self) -> bool:
        return not self.failures and not self.unknown


def audit(module: nn.Module, *inputs: Any, noise: float = 0.1, seed: int = 0) -> AuditReport:
    """Audit one forward pass of `module` on `inputs`, in evaluation mode. Nothing of the module is changed.

    Give it one image: a fully connected layer on a batch is a matrix-matrix product and is reported as one. Give it ordinary
    values (random ones do): an image that holds only +-1 looks binary.

    >>> import bcnn, torch
    >>> from bcnn.nets.bcnn import Network
    >>> bcnn.audit(Network(bcnn.preset("digits")), torch.randn(1, 3, 8, 8)).passes
    True
    """
    given = dict(module.named_parameters())
    generator = torch.Generator().manual_seed(seed)
    shaken = {
        name: parameter + noise * torch.randn(parameter.shape, generator=generator).to(parameter)
        for name, parameter in given.items()
        if parameter.requires_grad and parameter.is_floating_point()
    }
    program = export(module, inputs)
    graph = evaluate(module, program, inputs)
    first = products(graph)
    second = products(evaluate(module, program, inputs, {name: value.detach() for name, value in shaken.items()}))
    return AuditReport(tuple(_wider(a, b) for a, b in zip(first, second, strict=True)), _unknown_operators(graph))


def _wider(a: Operation, b: Operation) -> Operation:
    return replace(a, bits=(max(a.bits[0], b.bits[0]), max(a.bits[1], b.bits[1])))


def products(graph: Graph) -> list[Operation]:
    """Every product of the graph; those of one matrix with several vectors are one."""
    found: list[tuple[object, Operation]] = []
    for node in graph.nodes:
        for product in _products_of(node):
            found.append((_matrix(node, product), replace(product, module=node.module, op=node.op)))
    return _joined(found)


def _products_of(node: Node) -> Iterator[Operation]:
    outputs = [value.tensor for value in node.outputs]
    out = outputs[0] if len(outputs) == 1 else outputs
    if _is_product(node):
        yield from READERS.get(node.op, _unknown)(node.tensors(), out)
    elif node.op in REDUCTIONS and node.depends:
        yield from _multiplied_and_summed(node)


def _is_product(node: Node) -> bool:
    return (
        node.op in READERS
        or node.function.overloadpacket in flop_registry
        or bool(PRODUCT.search(node.op) and not NOT_A_PRODUCT.search(node.op))
    )


def _unknown_operators(graph: Graph) -> tuple[Unknown, ...]:
    return tuple(
        dict.fromkeys(
            Unknown(node.module, node.op, node.line)
            for node in graph.nodes
            if node.depends and not _is_product(node) and node.op not in KNOWN
        )
    )


def _multiplied_and_summed(node: Node) -> Iterator[Operation]:
    """m,1,k times 1,n,k summed over k: a product without its name. Where neither has an axis of its own it is a dot product."""
    source = unmoved(node.args[0])
    if source.node is None or source.node.op != "mul" or not all(isinstance(x, Value) for x in source.node.args[:2]):
        return
    count = source.tensor.dim()
    dims = node.arg(1, "dim")
    summed = {d % count for d in ([dims] if isinstance(dims, int) else dims or range(count))}
    a, b = (x.tensor for x in source.node.args[:2])
    sizes = [(1,) * (count - x.dim()) + tuple(x.shape) for x in (a, b)]
    m = k = n = batch = 1
    for axis, (mine, other) in enumerate(zip(*sizes, strict=True)):
        if axis in summed:
            k *= mine if other > 1 else 1
        elif mine > 1 and other > 1:
            batch *= mine
        else:
            m, n = m * mine, n * other
    if k > 1:
        yield Operation("", "", (width(a), width(b)), m, k, n, batch)


def _matrix(node: Node, product: Operation) -> object:
    """What several products with vectors have in common if they are of one matrix: its parameter, or the tensor behind views."""
    if product.batch > 1 or product.depthwise or product.is_matrix_product or min(product.m, product.n) != 1:
        return None
    multiplied = unmoved(node.args[0]).node if node.op in REDUCTIONS else None
    read = node.inputs if multiplied is None else multiplied.inputs
    size = product.k * max(product.m, product.n)
    constants = [value for value in read if value.constant and value.tensor.numel() == size]
    if len(constants) != 1 or constants[0].tensor.dim() < 2:
        return None
    matrix = constants[0]
    while matrix.node is not None and matrix.node.op in MOVES and not matrix.parameters:
        matrix = matrix.node.inputs[0]
    return (matrix.parameters or matrix, node.op, product.k)


def _joined(found: list[tuple[object, Operation]]) -> list[Operation]:
    joined: dict[object, Operation] = {}
    for index, (matrix, product) in enumerate(found):
        if matrix is None or matrix not in joined:
            joined[index if matrix is None else matrix] = product
            continue
        before = joined[matrix]
        bits = max(before.bits[0], product.bits[0]), max(before.bits[1], product.bits[1])
        by_rows = product.m <= product.n
        m, n = (before.m + product.m, before.n) if by_rows else (before.m, before.n + product.n)
        joined[matrix] = replace(before, bits=bits, m=m, n=n)
    return list(joined.values())


def width(x: Tensor, padded: bool = False) -> int:
    """Bits an element of x needs: 1 if all are +-1 (2 with the zeros of padding), else those of its dtype."""
    if x.dtype == torch.bool:
        return 1
    if x.numel() and bool((x.abs() == 1).all()):
        return 2 if padded else 1
    return x.element_size() * 8


def _product(a: Tensor, b: Tensor) -> Iterator[Operation]:
    """(batch) m,k times (batch) k,n."""
    batch = math.prod(a.shape[:-2])
    yield Operation("", "", (width(a), width(b)), a.shape[-2], a.shape[-1], b.shape[-1], batch)


def _vector(a: Tensor, b: Tensor) -> Iterator[Operation]:
    yield Operation("", "", (width(a), width(b)), a.shape[0] if a.dim() == 2 else 1, a.shape[-1], 1)


def _convolution(args: Any, out: Tensor) -> Iterator[Operation]:
    """im2col (sec. 1): m pixels of the output, k inputs of each, n channels of the output; per group."""
    x, weight, _bias, _stride, padding, _dilation, transposed, _output_padding, groups = args[:9]
    bits = width(x, padded=any(padding) or transposed), width(weight)
    taps = math.prod(weight.shape[2:])
    if transposed:  # every input pixel makes taps x channels: weight is [in, out / groups, ...]
        m, k, n = x.shape[0] * math.prod(x.shape[2:]), weight.shape[0] // groups, weight.shape[1] * taps
    else:
        m, k, n = out.shape[0] * math.prod(out.shape[2:]), weight.shape[1] * taps, weight.shape[0] // groups
    depthwise = groups > 1 and x.shape[1] == groups
    yield Operation("", "", bits, m, k, n, groups, depthwise)


def _attention(args: Any, _out: Any) -> Iterator[Operation]:
    """softmax(q k') v: two products; the first operand of the second is real, whatever q and k are."""
    q, k, v = args[:3]
    batch, rows, depth, columns = math.prod(q.shape[:-2]), q.shape[-2], q.shape[-1], k.shape[-2]
    yield Operation("", "", (width(q), width(k)), rows, depth, columns, batch)
    yield Operation("", "", (q.element_size() * 8, width(v)), rows, columns, v.shape[-1], batch)


def _unknown(args: Any, out: Any) -> Iterator[Operation]:
    """A product this module cannot read is never passed over: the widths of its two largest tensors, sizes guessed from them."""
    tensors = sorted((a for a in args if isinstance(a, Tensor)), key=Tensor.numel, reverse=True)[:2]
    if len(tensors) == 2:
        (a, b), made = tensors, out if isinstance(out, Tensor) else out[0]
        n = b.shape[0] if b.dim() else 1
        yield Operation("", "", (width(a), width(b)), max(2, made.numel() // max(1, n)), max(2, a.shape[-1]), max(2, n))


Reader = Callable[[Any, Any], Iterator[Operation]]
READERS: dict[str, Reader] = {
    "convolution": _convolution,
    "_convolution": _convolution,
    "mm": lambda args, _: _product(args[0], args[1]),
    "bmm": lambda args, _: _product(args[0], args[1]),
    "_int_mm": lambda args, _: _product(args[0], args[1]),
    "addmm": lambda args, _: _product(args[1], args[2]),
    "_addmm_activation": lambda args, _: _product(args[1], args[2]),
    "addbmm": lambda args, _: _product(args[1], args[2]),
    "baddbmm": lambda args, _: _product(args[1], args[2]),
    "mv": lambda args, _: _vector(args[0], args[1]),
    "addmv": lambda args, _: _vector(args[1], args[2]),
    "dot": lambda args, _: _vector(args[0], args[1]),
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_cudnn_attention": _attention,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
}
