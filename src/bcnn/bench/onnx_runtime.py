"""ONNX Runtime on the same network: float Conv with +-1 weights, and MatMulInteger as the fair baseline."""

from __future__ import annotations

from typing import Any

import onnx
import onnxruntime

from bcnn.bench.rival import Job, Rival
from bcnn.exports.check import check_logits, check_maps
from bcnn.exports.onnx_forms import onnx_model
from bcnn.program.ops import Floats

NAMES = {"float": "ONNX Runtime, float Conv", "int8": "ONNX Runtime, MatMulInteger"}


def session(model: onnx.ModelProto, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    # Worker threads spin for a while after a run, which would be the next contestant's time.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 3  # errors only
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def nhwc_maps(values: list[Any], weights: str) -> list[Floats]:
    """1,C,H,W or 1,H,W,C -> H,W,C."""
    return [value[0] if weights != "float" else value[0].transpose(1, 2, 0) for value in values]


def binary_network(job: Job, weights: str) -> Rival:
    feed = {"image": job.image[None]}
    form = "fused" if weights == "int8" else weights
    values = session(onnx_model(job.program, form, maps=True), job.threads).run(None, feed)
    checked = check_maps(job.program, job.image, nhwc_maps(values[2:], weights))
    timed = session(onnx_model(job.program, form), job.threads)
    check_logits(timed.run(None, feed)[0], values[0])
    computes = "the same network, " + ("float32" if weights == "float" else "uint8 bits x int8 +-1, rest float32")
    return Rival(NAMES[weights], computes, lambda: timed.run(None, feed), checked)
