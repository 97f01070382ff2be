"""Where size counts: the parameters of an op that have a value for each channel, as rows of one tensor, `real`.

Every tensor of a file costs its name twice and a head, some 50 bytes, which is as much as a parameter of 32 channels. Rows of integers are bytes, times
a number for each row, `by`. They are attributes of the node that reads them, which need no names of their own: of a call of `Rows`, for a Split into
parameters, or of a function that reads its own parameters and hands on the others (`Module`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from bcnn.exports.onnx_fold import stored

if TYPE_CHECKING:
    from bcnn.exports.onnx_graph import Graph


class Rows:
    """Those of one op; a parameter may be several rows."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.parameters: list[tuple[str, NDArray[Any]]] = []
        self.reader: onnx.NodeProto | None = None  # the op's first step, if it reads the rows
        self.own = 0  # how many parameters it reads itself

    def add(self, name: str, values: NDArray[Any]) -> str:
        self.parameters.append((name, values))
        return name

    def read_by(self, reader: onnx.NodeProto) -> None:
        """All so far are its own; its second output has those to come."""
        self.reader, self.own = reader, len(self.parameters)

    def store(self, steps: list[onnx.NodeProto]) -> None:
        """What gives the rows their names, before the op's steps or, if a reader hands them on, after it. One tensor for each length and type."""
        alike: dict[tuple[int, str], list[tuple[str, NDArray[Any], int]]] = defaultdict(list)
        for name, values in self.parameters:
            small, step = in_steps(values) if self.graph.integers else (values, 1)
            alike[small.shape[-1], small.dtype.str].append((name, np.atleast_2d(small), step))
        for (_, dtype), rows in alike.items():
            names, arrays, factors = map(list, zip(*rows, strict=True))
            together, sizes = np.concatenate(arrays), [len(array) for array in arrays]
            if not self.graph.integers:
                self._floats(names, together)
            elif dtype != np.dtype(np.int8).str:
                wide = self.graph.node("Cast", self.graph.constant(together, "real"), to=TensorProto.INT32)
                self.graph.nodes.append(self._split(wide, names, sizes))
            else:
                real = {"real": stored(together), "by": stored(np.repeat(factors, sizes).astype(np.int32)[:, None])}
                if self.reader is None:
                    self.graph.nodes.append(self._split(self.graph.call("Rows", **real), names, sizes))
                else:
                    self._handed_on(self.reader, real, names, sizes, steps)

    def _floats(self, names: list[str], values: NDArray[Any]) -> None:
        if len(names) == 1:
            self.graph.constants.append(stored(values[0], names[0]))
        else:
            self.graph.nodes.append(self._split(self.graph.constant(values, "real"), names, [1]))

    def _handed_on(
        self,
        reader: onnx.NodeProto,
        real: dict[str, Any],
        names: list[str],
        sizes: list[int],
        steps: list[onnx.NodeProto],
    ) -> None:
        reader.attribute.extend(helper.make_attribute(*given) for given in real.items())
        reader.input.append(self.graph.shape_of([*sizes[: self.own], sum(sizes[self.own :])]))
        others = names[self.own :]
        if len(others) == 1:
            reader.output[1] = others[0]
        elif others:
            steps.insert(1, self._split(reader.output[1], others, sizes[self.own :]))

    def _split(self, real: str, names: list[str], sizes: list[int]) -> onnx.NodeProto:
        uneven = [self.graph.shape_of(sizes)] if max(sizes) > 1 else []
        return helper.make_node("Split", [real, *uneven], names)


def in_steps(values: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Integers as multiples of a step: bytes, where 127 steps are enough, else two or four bytes and a step of 1."""
    wide = values.astype(np.int64)
    step = int(np.gcd.reduce(wide, axis=None)) or 1
    if np.abs(wide // step).max() <= 127:
        return (wide // step).astype(np.int8), step
    return wide.astype(np.int16 if np.abs(wide).max() < 1 << 15 else np.int32), 1
