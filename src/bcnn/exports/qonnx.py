"""`--to qonnx`: an ONNX model in which QONNX's BipolarQuant makes the signs of activations and weights, for FINN and hls4ml.

The compilers that read QONNX take quantisers from the graph; weights are stored as float32, as they expect. Checked by the qonnx
package's own executor, where that is installed (pip install qonnx), node by node and so slowly: a large network takes minutes.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import onnx

from bcnn.exports.onnx import prove, write
from bcnn.exports.onnx_forms import IR, onnx_model
from bcnn.packed.packfile import Packed


def export(packed: Packed, path: Path) -> list[str]:
    model = onnx_model(packed.program, "qonnx")
    return write(packed, path, model, in_qonnx(packed, model, onnx_model(packed.program, "qonnx", maps=True)))


def in_qonnx(packed: Packed, model: onnx.ModelProto, shown: onnx.ModelProto) -> list[str]:
    try:
        from qonnx.core import onnx_exec
        from qonnx.core.modelwrapper import ModelWrapper
        from qonnx.transformation.infer_shapes import InferShapes
    except ModuleNotFoundError as error:
        return [
            f"Not checked: what it computes, since {error.name} is missing; pip install qonnx onnxruntime, then export again."
        ]

    def run(model: onnx.ModelProto, images: Any) -> list[Any]:
        wrapped = ModelWrapper(model, make_deepcopy=True).transform(InferShapes())
        values = onnx_exec.execute_onnx(wrapped, {"image": images})
        return [values[output.name] for output in model.graph.output]

    # It gives ONNX Runtime a model for each node, of the newest format that onnx can write, and onnx is often ahead of ONNX Runtime. Ours will do.
    make_model = onnx_exec.qonnx_make_model
    onnx_exec.qonnx_make_model = partial(make_model, ir_version=IR)
    try:
        return prove(packed, model, shown, run, "QONNX's executor", nchw=True)
    finally:
        onnx_exec.qonnx_make_model = make_model
