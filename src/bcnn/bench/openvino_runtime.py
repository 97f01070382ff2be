"""OpenVINO on the same network, on its own BinaryConvolution: until now the fastest way to run it on x86."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np
import openvino

from bcnn.bench.openvino_graph import openvino_model
from bcnn.bench.rival import Job, Rival
from bcnn.exports.check import WrongResultError, check_logits, check_maps

ISA_VARIABLE = "ONEDNN_MAX_CPU_ISA"  # oneDNN's own variable: what it may use


def compile_model(model: Any, threads: int, precision: str = "f32") -> Any:
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
    }
    return openvino.Core().compile_model(model, "CPU", settings)


def has_bf16() -> bool:
    if os.environ.get(ISA_VARIABLE, "").startswith("AVX2"):
        return False  # it names what the processor has, and then cannot compile
    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def primitives(compiled: Any, *kinds: str) -> Counter[str]:
    """How many layers of each of the `kinds` run on which primitive, e.g. {"BinaryConvolution jit_avx2_u1": 38}."""
    count: Counter[str] = Counter()
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = node.get_rt_info()
        kind = info["layerType"].astype(str)
        if kind in kinds:
            count[f"{kind} {info['primitiveType'].astype(str)}"] += 1
    return count


def runner(compiled: Any, image: Any) -> Any:
    """A call that runs the image; inputs and outputs are not copied."""
    request = compiled.create_infer_request()
    request.set_input_tensor(openvino.Tensor(image, shared_memory=True))
    return request.infer


def binary_network(job: Job) -> Rival:
    # The check runs in float32: bfloat16 maps round at 2^-8, beyond any tolerance that could still tell one wrong sign.
    image = np.ascontiguousarray(job.image[None])
    values = list(compile_model(openvino_model(job.program, maps=True), job.threads)([image]).values())
    checked = check_maps(job.program, job.image, [value[0].transpose(1, 2, 0) for value in values[1:]])
    bf16 = has_bf16()
    timed = compile_model(openvino_model(job.program), job.threads, "bf16" if bf16 else "f32")
    ran = primitives(timed, "BinaryConvolution")
    if any("_u1" not in name or "ref" in name for name in ran) or not ran:
        raise WrongResultError(f"binary convolutions did not run as binary primitives: {dict(ran)}")
    if not bf16:
        check_logits(timed([image])[0], values[0])
    kernels = ", ".join(f"{count} x {name.split()[1]}" for name, count in ran.items())
    rest = "bfloat16" if bf16 else "float32 (no bf16 on this CPU)"
    computes = f"the same network, {kernels}, rest {rest}"
    return Rival("OpenVINO, BinaryConvolution", computes, runner(timed, image), checked)
