"""Any torch module -> a graph of ATen operators (`torch.export`), or a `UserError` that names the line of the user's code.

`torch.export` runs the module's own Python code on tensors that have shapes and types but no values, so nothing of an image can be
taken for a constant. What code does with values (a branch, `.item()`, NumPy) ends here, and so does what differs from one pass to
the next (random operators, counters): two exports, with different images in between, must be equal.

`x.data` escapes every recorder. While the module runs, reading it is `x.detach()` and assigning it is `x.copy_(y)`.
"""

from __future__ import annotations

import copy
import functools
import logging
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode

from bcnn.base.errors import UserError

# Operators that stay whole, because a rule lowers them or an entry of the audit knows them; all others become core ATen.
WHOLE = frozenset(
    [
        "_prelu_kernel",
        "adaptive_max_pool2d",
        "channel_shuffle",
        "hardsigmoid",
        "hardswish",
        "heaviside",
        "leaky_relu",
        "native_channel_shuffle",
        "rsub",
        "scaled_dot_product_attention",
        "silu",
        "split",
        "split_with_sizes",
        "stack",
        "unbind",
        "upsample_nearest2d",
    ]
)
ROOT = "network."  # what names begin with, because the module is exported inside another one
TORCH = Path(torch.__file__).parent


def export(module: nn.Module | ExportedProgram, inputs: tuple[Any, ...]) -> ExportedProgram:
    """Export a module in evaluation mode, from a copy: nothing of it is changed, nor is any random state."""
    if isinstance(module, ExportedProgram):
        return _decomposed(module)
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise UserError(
            "a module made by torch.jit cannot be recorded: its operations have no modules; take the one it was made from"
        )
    name = type(module).__name__
    with _random_state_kept(), torch.no_grad(), _exporting():
        try:
            own = _Explicit(copy.deepcopy(module).eval())
        except Exception as error:
            raise UserError(f"cannot record {name}: it cannot be copied ({_first_line(error)})") from error
        first = _export_after(own, inputs, inputs, name)
        second = _export_after(own, tuple(_other(x) for x in inputs), inputs, name)
        _check_equal(first, second, name)
        return _decomposed(first)


def _export_after(own: _Explicit, before: tuple[Any, ...], inputs: tuple[Any, ...], name: str) -> ExportedProgram:
    """Export after a pass on `before`, whose errors are the network's own."""
    own(*before)
    try:
        return torch.export.export(own, inputs, strict=False)
    except Exception as error:
        raise UserError(_refusal(error, name)) from error


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    with _exporting(), torch.no_grad():
        decomposed: ExportedProgram = program.run_decompositions(dict(_decompositions()))
        return decomposed


@functools.cache
def _decompositions() -> dict[Any, Any]:
    """Core ATen, but for what stays whole."""
    table = torch.export.default_decompositions().materialize()
    return {op: made for op, made in table.items() if str(op).split(".")[1] not in WHOLE}


class _Explicit(nn.Module):
    """A network whose uses of `.data` are operations."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Any) -> Any:
        with _DataAsOperations():
            return self.network(*inputs)


class _DataAsOperations(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == Tensor.data.__get__:  # type: ignore[attr-defined]
            return args[0].detach()
        if func == Tensor.data.__set__:  # type: ignore[attr-defined]
            with torch.no_grad():
                args[0].copy_(args[1])
            return None
        return func(*args, **(kwargs or {}))


# --- what makes two passes differ -------------------------------------------------------------------------------------


@contextmanager
def _random_state_kept() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


class _UserCode:
    """Stands where torch keeps the functions whose lines it records; else those are only methods named `forward`."""

    def __contains__(self, function: tuple[str, str]) -> bool:
        return _of_the_user(function[0])


@contextmanager
def _exporting() -> Iterator[None]:
    """Without torch's own remarks on what it cannot trace: the refusal says it. With the lines of all of the user's functions."""
    loggers = [
        logging.getLogger(name) for name in ("torch.fx.experimental.symbolic_shapes", "torch.export", "torch.__trace")
    ]
    disabled = [logger.disabled for logger in loggers]
    anchors = getattr(torch.fx.proxy, "_STACK_TRACE_ANCHORS", None)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # attention as the operations it consists of
    try:
        for logger in loggers:
            logger.disabled = True
        if anchors is not None:
            torch.fx.proxy._STACK_TRACE_ANCHORS = _UserCode()  # type: ignore[assignment]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        if anchors is not None:
            torch.fx.proxy._STACK_TRACE_ANCHORS = anchors
        for logger, state in zip(loggers, disabled, strict=True):
            logger.disabled = state


def _other(x: Any) -> Any:
    """Another image of the same shape."""
    return x.flip(-1) * 0.75 + 0.1 if isinstance(x, Tensor) and x.is_floating_point() else x


def _check_equal(first: ExportedProgram, second: ExportedProgram, name: str) -> None:
    """A counter, a cache or an unseeded weight shows as another operation or another constant."""
    for one, other in zip(first.graph.nodes, second.graph.nodes, strict=False):
        if (one.op, one.target, str(one.args), str(one.kwargs)) != (
            other.op,
            other.target,
            str(other.args),
            str(other.kwargs),
        ):
            raise UserError(_stateful(name, line_of(one)))
    if len(first.graph.nodes) != len(second.graph.nodes):
        raise UserError(_stateful(name, ""))
    for kind in ("state_dict", "constants"):
        mine, theirs = getattr(first, kind), getattr(second, kind)
        for key, tensor in mine.items():
            if isinstance(tensor, Tensor) and not _same_bits(tensor, theirs.get(key)):
                raise UserError(_stateful(name, _line_of_constant(first, key), key.removeprefix(ROOT)))


def _line_of_constant(program: ExportedProgram, key: str) -> str:
    """Where it is first used."""
    names = {spec.arg.name for spec in program.graph_signature.input_specs if spec.target == key}
    nodes = [node for node in program.graph.nodes if node.name in names]
    return next((line_of(user) for node in nodes for user in node.users), "")


def _stateful(name: str, line: str, constant: str = "") -> str:
    what = f"its {constant}" if constant else "what it does"
    return (
        f"cannot record {name}{line and f', {line}'}: {what} differs from one pass to the next; "
        f"keep counters, caches and random numbers out of forward"
    )


def _same_bits(one: Tensor, other: Any) -> bool:
    if not isinstance(other, Tensor) or one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or torch.equal(
        one.detach().contiguous().reshape(-1).view(torch.uint8),
        other.detach().contiguous().reshape(-1).view(torch.uint8),
    )


# --- refusals ---------------------------------------------------------------------------------------------------------

REASONS = (
    (
        ("data-dependent", "GuardOnDataDependent", "unbacked"),
        "what it does next depends on the values of a tensor (`if`, `int()`, `.item()` or an index made of them); "
        "write it with torch.where, or decide it by shapes",
    ),
    (("numpy", "DLPack"), "it leaves torch for NumPy; write it with torch operators"),
    (
        ("fake tensor", "FakeTensor", "leaked"),
        "it keeps a tensor of one pass in Python for the next one; compute it in the same pass or register it as a buffer",
    ),
    (("tolist", "item()", "data_ptr", "storage"), "it reads values back into Python; write it with torch operators"),
)


def _refusal(error: Exception, name: str) -> str:
    text = f"{type(error).__name__} {error}"
    reason = next((reason for words, reason in REASONS if any(word in text for word in words)), "")
    line = _line_of_error(error)
    return f"cannot record {name}{line and f', {line}'}: {reason or 'torch.export says: ' + _first_line(error)}"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def _line_of_error(error: BaseException) -> str:
    """The last line of the user's code that was running."""
    line, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if _of_the_user(file):
            line = f"line {trace.tb_lineno} of {Path(file).name}"
        trace = trace.tb_next
    return line


def line_of(node: torch.fx.Node) -> str:
    """Where in the user's code an operation was written: `line 12 of mine.py`; nothing where only torch's modules call each other."""
    found = ""
    for entry in str(node.meta.get("stack_trace") or "").splitlines():
        if entry.lstrip().startswith('File "'):
            file, _, rest = entry.partition('File "')[2].partition('", line ')
            if _of_the_user(file):
                found = f"line {rest.partition(',')[0]} of {Path(file).name}"
    return found


def _of_the_user(file: str) -> bool:
    if file.startswith("<"):
        return False
    path = Path(file)
    return not path.is_relative_to(TORCH) and path.parent != Path(__file__).parent
