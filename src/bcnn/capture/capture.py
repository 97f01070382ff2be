"""One forward pass of any torch module, recorded: ATen operations with their inputs, outputs and the module that issued them.

The module runs as it is, in evaluation mode, on one image; whatever its own code does reaches torch's dispatcher as operations,
and this keeps them with their values. What does not depend on the image is constant: its value is what counts (`sign(w)`,
`alpha * sign(w)`, centred, clamped, annealed ...), and the parameters that it was made from are remembered.

An operation that writes in place makes a new `Value` of the same tensor, so a graph has no order of writes to follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from bcnn.base.errors import UserError

# Their result depends on the shape of what they are given, not on its values.
BY_SHAPE = frozenset(
    [
        "zeros_like",
        "ones_like",
        "full_like",
        "empty_like",
        "rand_like",
        "randn_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_empty",
    ]
)


@dataclass(eq=False)
class Value:
    """A tensor at one moment of the pass."""

    index: int
    tensor: Tensor
    constant: bool  # does not depend on the image
    node: Node | None = None  # what made it; none for inputs, parameters and what the module's code brings along
    parameters: frozenset[str] = frozenset()  # those it was made from
    readers: list[Node] = field(default_factory=list)
    written_in_part: bool = False  # a view of it was written to: what it holds is no longer what its node made

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)


@dataclass(eq=False)
class Node:
    """One operation."""

    index: int
    op: str  # aten name without overload: "convolution"
    function: Any  # the overload, to be called again
    args: tuple[Any, ...]  # with Values where tensors were
    kwargs: dict[str, Any]
    outputs: tuple[Value, ...]
    module: str  # its name in the network, as in named_modules()

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
        """The operation on other tensors in place of some of its inputs; never in place."""

        def tensor(v: Value) -> Tensor:
            given = values.get(v)
            return v.tensor if given is None else given

        args, kwargs = _mapped((self.args, self.kwargs), Value, tensor)
        if writes(self.function):
            args = (args[0].clone(), *args[1:])
        return self.function(*args, **kwargs)


@dataclass(eq=False)
class Graph:
    """A recorded pass: nodes in the order in which they ran."""

    nodes: list[Node]
    inputs: list[Value]
    output: Any  # what the module returned, with Values where tensors were
    parameters: dict[str, nn.Parameter]


def capture(module: nn.Module, *inputs: Any, parameters: dict[str, Tensor] | None = None) -> Graph:
    """Run `module` once on `inputs` in evaluation mode; nothing of it is changed. `parameters` stand in for its own, by name."""
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise UserError(
            "a module made by torch.jit cannot be recorded: its operations have no modules; take the one it was made from"
        )
    stack: list[str] = []
    names = dict(module.named_parameters())
    recorder = _Recorder(stack)
    for name, parameter in names.items():
        recorder.see((parameters or {}).get(name, parameter), constant=True, parameters=frozenset((name,)))
    given = [recorder.see(x, constant=False) for x in _each(inputs, Tensor)]
    with torch.no_grad(), evaluating(module), _named_calls(module, stack), recorder:
        output = torch.func.functional_call(module, parameters, inputs) if parameters else module(*inputs)
    return Graph(recorder.nodes, given, _mapped(output, Tensor, recorder.value), names)


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


@contextmanager
def _named_calls(module: nn.Module, stack: list[str]) -> Iterator[None]:
    """Keeps the names of the modules whose forward is running on `stack`, the innermost last."""
    with ExitStack() as hooks:
        for name, part in module.named_modules():
            title = name or type(module).__name__
            enter = part.register_forward_pre_hook(lambda *_, title=title: stack.append(title))
            leave = part.register_forward_hook(lambda *_: stack.pop() and None, always_call=True)
            hooks.callback(enter.remove)
            hooks.callback(leave.remove)
        yield


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


def writes(function: Any) -> bool:
    """Whether an operation changes its first argument."""
    return bool(function._schema.arguments and function._schema.arguments[0].is_write)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Values are found by the tensor object; every object seen is kept, so that no two share an id."""

    def __init__(self, stack: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stack = stack
        self.nodes: list[Node] = []
        self.values: dict[int, Value] = {}
        self.kept: list[Tensor] = []
        self.views: dict[int, list[Tensor]] = {}  # storage -> the tensors seen on it
        self.count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled in here, and looking it up would import torch's compiler: two seconds

    def see(self, tensor: Tensor, constant: bool, parameters: frozenset[str] = frozenset()) -> Value:
        self.count += 1
        value = Value(self.count, tensor.detach(), constant, None, parameters)
        if id(tensor) not in self.values:
            self.kept.append(tensor)
            self.views.setdefault(_storage(tensor), []).append(tensor)
        self.values[id(tensor)] = value
        return value

    def value(self, tensor: Tensor) -> Value:
        known = self.values.get(id(tensor))
        return self.see(tensor, constant=True) if known is None else known  # a buffer, or made before the pass

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        read_args, read_kwargs = _mapped((args, kwargs or {}), Tensor, self.value)
        inputs = [*_each((read_args, read_kwargs), Value)]
        if in_place := writes(func) and isinstance(args[0], Tensor):
            self._before_write(args[0])
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.rpartition("::")[2]
        constant = all(v.constant for v in inputs) or name in BY_SHAPE
        parameters = frozenset().union(*(v.parameters for v in inputs))
        outputs = tuple(self.see(tensor, constant, parameters) for tensor in _each(out, Tensor))
        module = self.stack[-1] if self.stack else ""
        op = name.removesuffix("_") if in_place else name
        node = Node(len(self.nodes), op, func, read_args, read_kwargs, outputs, module)
        self.nodes.append(node)
        for v in outputs:
            v.node = node
        for v in inputs:
            v.readers.append(node)
        return out

    def _before_write(self, tensor: Tensor) -> None:
        """Values that the write would change keep a copy of what they are; views of the same memory are no longer what they were."""
        for other in self.views.get(_storage(tensor), []):
            value = self.values[id(other)]
            if _storage(value.tensor) == _storage(other):
                value.tensor = value.tensor.clone()
            if other is not tensor:
                value = self.see(other, value.constant, value.parameters)
                value.written_in_part = True


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else id(tensor)
