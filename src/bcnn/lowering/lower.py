"""A torch network -> a `Program`, from one recorded pass: whatever the network's code is, by what its tensors are.

Backwards from the output, each value that must be a map is drafted: the operation that makes it (a convolution, a pool ...) with
what follows it value by value as endings, and the maps that those read, which are drafted in turn. Values on the way that only one
operation reads are never maps. Then the drafts are written down in the order of the pass. What no rule here can lower is a
`UserError` with module, operation and reason.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bcnn.base.affine import normalise, scale_offset
from bcnn.base.errors import UserError
from bcnn.capture.capture import Graph, Node, Replay, Value, capture
from bcnn.capture.channel_permutation import MOVES, intensity, moved, reshaped
from bcnn.capture.sign_detection import Step, find_step
from bcnn.capture.stacked_sums import as_additions
from bcnn.lowering import pool_rules, rules
from bcnn.lowering.fold import Doubles, single
from bcnn.lowering.op_builder import Draft, Found, as_map
from bcnn.program import ops as o
from bcnn.program.program import Program

ACCIDENTS = 1e-3  # the share of values that may be exactly zero by chance: reported by verify, not refused


def lower(
    network: nn.Module,
    mean: Sequence[float],
    std: Sequence[float],
    labels: Sequence[str] = (),
    crop: float = 1.0,
    provenance: dict[str, Any] | None = None,
    size: tuple[int, int] | None = None,
    check: bool = False,
) -> Program:
    """The program of a network that reads (u / 255 - mean) / std, u being the bytes of an RGB image of `size`.

    A network that has a `config` with an `image_size` needs no `size`. With `check`, the program is compared with torch on eight
    images (`bcnn.lowering.check`), and one that differs is refused.

    >>> import bcnn
    >>> from bcnn.nets.bcnn import Network
    >>> program = bcnn.lower(Network(bcnn.preset("digits")).eval(), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    >>> bcnn.Engine(program).program.shapes[-1]
    (1, 1, 10)
    """
    lowering = Lowering(network, sample_image(image_size(network, size)), mean, std)
    program = lowering.program(tuple(labels), crop, provenance or {})
    if check:
        from bcnn.lowering.check import check as compare_all

        compare_all(lowering, program)
    return program


def image_size(network: nn.Module, size: tuple[int, int] | None = None) -> tuple[int, int]:
    size = size or getattr(getattr(network, "config", None), "image_size", None)
    if size is None:
        raise UserError(f"say how large the images of a {type(network).__name__} are: size=(height, width)")
    return size


def sample_image(size: tuple[int, int], seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Ordinary values, so that nothing is two-valued by accident."""
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


def normalised(images: np.ndarray[Any, Any], mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """uint8 N,H,W,3 -> float32 N,3,H,W, with the multiplication and addition that the program does, too."""
    return torch.from_numpy(np.ascontiguousarray(normalise(images, mean, std).transpose(0, 3, 1, 2)))


class Lowering:
    """A recorded pass and the ops it becomes; `values[i]` is torch's value of map i."""

    def __init__(
        self, network: nn.Module, image: np.ndarray[Any, Any], mean: Sequence[float], std: Sequence[float]
    ) -> None:
        scale, offset = scale_offset(mean, std)
        self.network = type(network).__name__
        if any(p.device.type != "cpu" or p.dtype != torch.float32 for p in network.parameters()):
            network = copy.deepcopy(network).float().cpu()
        self.module, self.mean, self.std, self.size = network, mean, std, (image.shape[0], image.shape[1])
        self.graph: Graph = capture(network, normalised(image[None], mean, std))
        as_additions(self.graph)
        self.notes: list[str] = []
        self.drafts: dict[Value, Draft] = {}
        self.maps: set[Value] = set()  # what must be one for another reason
        self.steps: dict[Value, Step | None] = {}
        output = self._output()
        self.live = live_nodes(output)
        image_value = self.graph.inputs[0]
        found = intensity(self.graph)
        weights = None if found is None else single(found[1])
        first = image_value if found is None else found[0]
        height, width = image.shape[:2]
        op = o.Input(height, width, scale, offset, weights)
        self.drafts[first] = Draft((), lambda _: op, found[0].node.module if found and found[0].node else "")
        if found:
            index = np.arange(3, dtype=np.int32)
            self.drafts[image_value] = Draft((first,), lambda at: o.Select(at(first), index), "")
        self._draft_all(output, first)
        self._write_down(first)

    def program(self, labels: tuple[str, ...], crop: float, provenance: dict[str, Any]) -> Program:
        return Program(tuple(self.ops), tuple(self.names), labels, crop, provenance)

    def error(self, node: Node | None, reason: str) -> UserError:
        where = (
            "its input"
            if node is None
            else f"{node.module or self.network} ({node.op}){node.line and ', ' + node.line}"
        )
        return UserError(f"cannot lower {where}: {reason}")

    # --- the whole ----------------------------------------------------------------------------------------------------

    def _output(self) -> Value:
        output = self.graph.output
        if not isinstance(output, Value) or output.shape[:1] != (1,):
            raise UserError(f"cannot lower {self.network}: it must return one tensor of logits, N,classes or N,C,H,W")
        output = reshaped(output)
        while output.node is not None and output.node.op in ("_log_softmax", "_softmax"):
            if output.node.args[1] % output.tensor.dim() != 1:
                raise self.error(
                    output.node, f"a softmax over dimension {output.node.args[1]} is not lowered; over classes it is"
                )
            self.notes.append(f"{output.node.op[1:]} at the end is left out: the program returns what it is taken of")
            output = reshaped(output.node.args[0])
        if output.constant or output.node is None:
            raise UserError(f"cannot lower {self.network}: its output does not depend on the image")
        return output

    def _draft_all(self, output: Value, first: Value) -> None:
        wanted = [output]
        drafted: set[Value] = {first}
        while wanted:
            value = wanted.pop()
            if value in drafted:
                continue
            drafted.add(value)
            self.check_map(value)
            if value not in self.drafts:
                self.drafts[value] = rules.draft(self, value)
            wanted += self.drafts[value].reads
        self.wanted = sorted(drafted, key=lambda v: (v is not first, v.index))

    def _write_down(self, first: Value) -> None:
        self.ops: list[o.Op] = []
        self.names: list[str] = []
        self.values: list[Value] = []
        self.sizes: list[Doubles | None] = []
        self.lines: list[str] = []  # of the user's code
        index: dict[Value, int] = {}
        for value in self.wanted:
            draft = self.drafts[value]
            self.ops.append(draft.make(index.__getitem__))
            self.names.append(draft.module or self.network)
            self.values.append(value)
            self.sizes.append(draft.size)
            self.lines.append(value.node.line if value.node else "")
            index[value] = len(self.ops) - 1

    def maps_of(self, image: np.ndarray[Any, Any]) -> list[o.Floats]:
        """What torch has for each op on another image."""
        replay = Replay(self.graph, normalised(image[None], self.mean, self.std))
        kept = set(self.values)
        made = []
        for value in self.values:
            made.append(as_map(replay(value)))
            replay.forget_all_but(kept)
        return made

    # --- what rules ask -------------------------------------------------------------------------------------------------

    def is_map(self, value: Value) -> bool:
        """Whether it has to be a map: several operations read it, or something has said so."""
        return value in self.drafts or value in self.maps or sum(reader in self.live for reader in value.readers) > 1

    def step(self, value: Value) -> Step | None:
        if value not in self.steps:
            self.steps[value] = found = find_step(value, self.live)
            if found is not None and found.zeros and value.node is not None:
                many = value.tensor.numel()
                if found.zeros > ACCIDENTS * many + 1:
                    raise self.error(
                        value.node,
                        f"torch.sign gives 0 for {found.zeros} zeros among {many} values, a third value; write where(x >= 0, 1, -1)",
                    )
                zeros = f"{found.zeros} exact zero{'s' if found.zeros > 1 else ''}"
                self.notes.append(
                    f"{value.node.module or self.network}: torch.sign gave 0 for {zeros}, the program gives +1"
                )
        return self.steps[value]

    def ending(self, value: Value) -> Found | None:
        """What `value` is of a value before it, if that can be an ending."""
        rule = rules.ENDINGS.get(value.node.op) if value.node is not None else None
        if rule is None or value.node is None:
            return None
        self.check_keywords(value.node)
        return rule(self, value.node, value)

    def check_map(self, value: Value) -> None:
        """One image's map or vector in float32: what a program can hold."""
        if value.tensor.dtype != torch.float32:
            raise self.error(value.node, f"its values are {str(value.tensor.dtype)[6:]}; only float32 is lowered")
        if value.tensor.dim() not in (2, 4) or value.shape[0] != 1:
            raise self.error(value.node, f"a tensor of {value.shape} is lowered only as N,C,H,W or N,F of one image")

    def check_keywords(self, node: Node) -> None:
        """Arguments that come by name change what an operation does: a rule says which it handles."""
        for name, argument in node.kwargs.items():
            if name not in rules.KEYWORDS.get(node.op, ()) and argument is not None:
                raise self.error(node, f"its argument {name}={argument} is not lowered")

    def virtual(self, like: Value, draft: Draft, function: Callable[..., Tensor], *sources: Value) -> Value:
        """A map that the graph has no value for, made just before `like`: a function of others."""
        tensor = function(*(source.tensor for source in sources))
        value = Value(like.index - 0.5, tensor, False, recipe=(function, sources))  # type: ignore[arg-type]
        while any(other.index == value.index for other in self.drafts):
            value.index -= 2**-20  # type: ignore[assignment]
        self.drafts[value] = draft
        return value

    def replicated(self, value: Value) -> tuple[Value, int]:
        """(source, K): the map to read, and how many channels of it, replicated, `value` is."""
        value = reshaped(value)
        self.check_map(value)
        if value in self.drafts:
            return value, channels(value)
        found = moved(value) if value.node is not None and value.node.op in MOVES else None
        if found is not None:
            source, index = found
            count = channels(source)
            if len(index) >= count and np.array_equal(index, np.arange(len(index)) % count):
                source, inner = self.replicated(source)
                if inner == count:
                    return source, len(index)
        if value.node is not None and (pooled := pool_rules.pool_of_replicas(self, value)):
            return pooled
        return value, channels(value)


def live_nodes(output: Value) -> frozenset[Node]:
    """The operations that the output depends on."""
    seen: set[Node] = set()
    wanted = [output]
    while wanted:
        node = wanted.pop().node
        if node is not None and node not in seen:
            seen.add(node)
            wanted += node.depends
    return frozenset(seen)


def channels(value: Value) -> int:
    return value.shape[1]
