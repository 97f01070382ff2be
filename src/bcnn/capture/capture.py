"""What a torch module computes: the exported graph of ATen operators, with values, and the module and line that each comes from.

The graph is `torch.export`'s (`export.py`), so its form does not depend on an image. What does not depend on the image is constant:
its value is what counts (`sign(w)`, `alpha * sign(w)`, centred, clamped, annealed ...), and the parameters that it was made from
are remembered. There are no writes in place in an exported graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._pytree import tree_unflatten

from bcnn.base.errors import UserError
from bcnn.capture.export import ROOT, export, line_of

# Their result depends on the shape of what they are given, not on its values.
BY_SHAPE = frozenset(
    [
        "zeros_like",
        "ones_like",
        "full_like",
        "empty_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_empty",
    ]
)
# What memory holds before anything is written there.
UNWRITTEN = frozenset(["empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"])
CHECKS = frozenset(["_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range_for_size"])
MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


@dataclass(eq=False, repr=False)
class Value:
    """A tensor of the graph."""

    index: int
    tensor: Tensor
    constant: bool  # does not depend on the image
    node: Node | None = None  # what made it; none for inputs, parameters and what the module's code brings along
    parameters: frozenset[str] = frozenset()  # those it was made from
    readers: list[Node] = field(default_factory=list)
    recipe: tuple[Callable[..., Tensor], tuple[Value, ...]] | None = (
        None  # how it is made, if by no operation of the graph
    )

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)


@dataclass(eq=False, repr=False)
class Node:
    """One operation."""

    index: int
    op: str  # aten name without overload: "convolution"
    function: Any  # the overload, to be called again
    args: tuple[Any, ...]  # with Values where tensors were
    kwargs: dict[str, Any]
    outputs: tuple[Value, ...]
    module: str  # its name in the network, as in named_modules()
    line: str = ""  # of the user's code: "line 12 of mine.py"

    @property
    def inputs(self) -> list[Value]:
        """Every tensor it reads, in order."""
        return [*_each((self.args, self.kwargs), Value)]

    @property
    def depends(self) -> list[Value]:
        """The tensors among them that depend on the image."""
        return [v for v in self.inputs if not v.constant]

    def arg(self, position: int, name: str, default: Any = None) -> Any:
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    def tensors(self) -> tuple[Any, ...]:
        """Its positional arguments as they were."""
        args: tuple[Any, ...] = _mapped(self.args, Value, lambda value: value.tensor)
        return args

    def replay(self, values: dict[Value, Tensor]) -> Any:
        """The operation on other tensors in place of some of its inputs."""

        def tensor(v: Value) -> Tensor:
            given = values.get(v)
            return v.tensor if given is None else given

        args, kwargs = _mapped((self.args, self.kwargs), Value, tensor)
        return self.function(*args, **kwargs)


@dataclass(eq=False, repr=False)
class Graph:
    """Operations in order, each after what it reads."""

    nodes: list[Node]
    inputs: list[Value]
    output: Any  # what the module returns, with Values where tensors were
    parameters: dict[str, nn.Parameter]


class Replay:
    """The values of a graph on another image, each made when it is asked for."""

    def __init__(self, graph: Graph, image: Tensor) -> None:
        self.known: dict[Value, Tensor] = {graph.inputs[0]: image}

    def __call__(self, value: Value) -> Tensor:
        wanted = [value]
        with torch.no_grad():
            while wanted:
                at = wanted[-1]
                missing = [] if at.constant or at in self.known else [v for v in _sources(at) if v not in self.known]
                if not missing and not at.constant and at not in self.known:
                    self._make(at)
                wanted = [*wanted, *missing] if missing else wanted[:-1]
        return value.tensor if value.constant else self.known[value]

    def _make(self, value: Value) -> None:
        if value.recipe is not None:
            function, sources = value.recipe
            self.known[value] = function(*(v.tensor if v.constant else self.known[v] for v in sources))
            return
        assert value.node is not None
        made = value.node.replay(self.known)
        self.known.update(zip(value.node.outputs, _each(made, Tensor), strict=True))

    def forget_all_but(self, values: set[Value]) -> None:
        self.known = {value: tensor for value, tensor in self.known.items() if value in values}


def _sources(value: Value) -> list[Value]:
    if value.recipe is not None:
        return [v for v in value.recipe[1] if not v.constant]
    return value.node.depends if value.node is not None else []


def capture(module: nn.Module, *inputs: Any) -> Graph:
    """The graph of `module` in evaluation mode, with its values on `inputs`; nothing of the module is changed."""
    return evaluate(module, export(module, inputs), inputs)


def evaluate(
    module: nn.Module, program: ExportedProgram, inputs: tuple[Any, ...], parameters: dict[str, Tensor] | None = None
) -> Graph:
    """The values of an exported program on `inputs`. `parameters` stand in for its own, by name."""
    with torch.no_grad():
        return _Evaluation(module, program, inputs, parameters or {}).graph()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, and each part's own mode afterwards."""
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in training.items():
            part.training = mode


def _each(part: Any, kind: type) -> Iterator[Any]:
    """Everything of a kind in nested lists, tuples and tables. (torch's own walk is several times slower.)"""
    if isinstance(part, kind):
        yield part
    elif isinstance(part, (list, tuple)):
        for item in part:
            yield from _each(item, kind)
    elif isinstance(part, dict):
        yield from _each(list(part.values()), kind)


def _mapped(part: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The same structure with everything of a kind changed."""
    if isinstance(part, kind):
        return change(part)
    if isinstance(part, (list, tuple)):
        return type(part)([_mapped(item, kind, change) for item in part]) if type(part) in (list, tuple) else part
    if isinstance(part, dict):
        return {key: _mapped(item, kind, change) for key, item in part.items()}
    return part


class _Evaluation:
    """An exported program, operator by operator, on one image."""

    def __init__(
        self, module: nn.Module, program: ExportedProgram, inputs: tuple[Any, ...], parameters: dict[str, Tensor]
    ) -> None:
        self.name = type(module).__name__
        self.program, self.given, self.parameters = program, inputs, parameters
        self.own = dict(module.named_parameters())
        self.values: dict[torch.fx.Node, Any] = {}
        self.nodes: list[Node] = []
        self.count = 0

    def graph(self) -> Graph:
        images = [*_each(self.given, Tensor)]
        inputs: list[Value] = []
        kinds = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                spec = kinds[node.name]
                if spec.kind is InputKind.USER_INPUT:
                    if isinstance(node.meta.get("val"), Tensor):
                        inputs.append(self.see(images[len(inputs)], constant=False))
                        self.values[node] = inputs[-1]
                else:
                    self.values[node] = self.stored(spec.kind, str(spec.target))
            elif node.op == "call_function":
                self.call(node)
            elif node.op == "output":
                output = self.output(node)
            else:
                raise self.error(node, f"a {node.op} inside the graph is not recorded")
        return Graph(self.nodes, inputs, output, self.own)

    def see(self, tensor: Tensor, constant: bool, parameters: frozenset[str] = frozenset()) -> Value:
        self.count += 1
        return Value(self.count, tensor.detach(), constant, None, parameters)

    def stored(self, kind: InputKind, target: str) -> Any:
        """A parameter, buffer or constant; a stand-in for a parameter if there is one."""
        name = target.removeprefix(ROOT)
        stored = self.program.state_dict.get(target)
        tensor = self.program.constants[target] if stored is None else stored
        if kind is not InputKind.PARAMETER:
            return self.see(tensor, True) if isinstance(tensor, Tensor) else tensor
        return self.see(self.parameters.get(name, tensor), True, frozenset((name,)))

    def call(self, node: torch.fx.Node) -> None:
        args, kwargs = self.read(tuple(node.args)), self.read(dict(node.kwargs))
        if node.target is operator.getitem:
            outputs = args[0]
            self.values[node] = outputs[args[1]]
            return
        inputs = [*_each((args, kwargs), Value)]
        if not isinstance(node.target, torch._ops.OpOverload):
            if inputs or not callable(node.target):
                raise self.error(node, f"{node.target} is not recorded; write the network without it")
            self.values[node] = node.target(*args, **kwargs)  # arithmetic with numbers
            return
        op = node.target._schema.name.rpartition("::")[2]
        if op in CHECKS:
            return
        self.refuse(node, op, inputs)
        tensors, others = _mapped((args, kwargs), Value, lambda value: value.tensor)
        made = node.target(*tensors, **others)
        if not [*_each(made, Tensor)]:
            self.values[node] = made  # a number read from a constant
            return
        if op in UNWRITTEN:
            made.fill_(float("nan") if made.is_floating_point() else 85)  # so that nothing hangs on what memory held
        constant = all(v.constant for v in inputs) or op in BY_SHAPE
        parameters = frozenset().union(*(v.parameters for v in inputs))
        outputs = tuple(self.see(tensor, constant, parameters) for tensor in _each(made, Tensor))
        mine = Node(len(self.nodes), op, node.target, args, kwargs, outputs, self.module(node), line_of(node))
        self.nodes.append(mine)
        for value in outputs:
            value.node = mine
        for value in inputs:
            value.readers.append(mine)
        self.values[node] = outputs[0] if isinstance(made, Tensor) else list(outputs)

    def read(self, part: Any) -> Any:
        """Arguments as plain lists and tables, with Values where the graph has nodes."""
        if isinstance(part, torch.fx.Node):
            return self.values[part]
        if isinstance(part, (list, tuple)):
            items = [self.read(item) for item in part]
            return tuple(items) if isinstance(part, tuple) else items
        return {key: self.read(item) for key, item in part.items()} if isinstance(part, dict) else part

    def refuse(self, node: torch.fx.Node, op: str, inputs: list[Value]) -> None:
        """Operations that make two passes differ, or that bring values of the image into Python."""
        random = torch.Tag.nondeterministic_seeded in node.target.tags  # type: ignore[union-attr]
        if op == "scaled_dot_product_attention":
            random = bool(node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0))
        if random:
            raise self.error(node, "it is random; give functions training=self.training, or leave it out")
        if op.startswith("_native_batch_norm_legit") and "no_training" not in op:
            raise self.error(
                node,
                "it normalises by statistics of the image: batch norm in training, without running statistics, or instance norm; "
                "only batch norm with running statistics is recorded",
            )
        if op == "_local_scalar_dense" and not all(value.constant for value in inputs):
            raise self.error(node, "it reads a value of the image back into Python; write it with torch operators")

    def module(self, node: torch.fx.Node) -> str:
        """The innermost module that issued it."""
        names = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
        return (names[-1] if names else "").removeprefix(ROOT[:-1]).removeprefix(".") or self.name

    def error(self, node: torch.fx.Node, reason: str) -> UserError:
        line = line_of(node)
        op = str(node.target).removeprefix("aten.").partition(".")[0]
        return UserError(f"cannot record {self.module(node)} ({op}){line and f', {line}'}: {reason}")

    def output(self, node: torch.fx.Node) -> Any:
        made = []
        for spec, value in zip(self.program.graph_signature.output_specs, node.args[0], strict=True):  # type: ignore[arg-type]
            result = self.values[value] if isinstance(value, torch.fx.Node) else value
            if spec.kind is OutputKind.USER_OUTPUT:
                made.append(result)
            elif spec.kind in MUTATIONS and isinstance(result, Value) and not result.constant:
                what = str(spec.target).removeprefix(ROOT)
                raise self.error(value, f"it changes {what} by what it computes of the image; keep no state in forward")
        return tree_unflatten(made, self.program.call_spec.out_spec)
