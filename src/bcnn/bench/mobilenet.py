"""int8 MobileNetV1 1.0: at 224x224 the real-valued rival at the paper's accuracy (70.6 %), on ONNX Runtime and on OpenVINO.

Both read one ONNX model in QDQ form (quantize and dequantize around float operators), which each turns into its own int8
kernels; that they did is checked. Batch norms are folded, so a layer is a convolution, a bias and ReLU6, and that is the
saturation of uint8 with scale 6 / 255. Weights are random: time does not depend on them. Other input sizes and numbers of
classes give the same layers on smaller maps.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bcnn.bench.onnx_runtime import session
from bcnn.bench.rival import Job, Rival
from bcnn.exports.check import WrongResultError

# Channels made and stride of the 13 pairs of a depth wise 3x3 and a pointwise 1x1 convolution.
PAIRS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
MACS = 568_740_352  # the 569 M of its paper (224, 1000 classes), checked against the model built here
RELU6 = np.float32(6 / 255)
# 7 bits: without VNNI, AVX2 adds pairs of uint8 x int8 products in 16 bits, and 2 * 255 * 63 is below 2^15.
MAX_WEIGHT = 63
# Of the spread of the logits. The kernels requantize with their own rounding, so a value may land one step of 1/255 aside.
TOLERANCE = 0.1


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(0)
        self.macs = 0

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def constant(self, array: NDArray[Any]) -> str:
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return f"c{len(self.constants) - 1}"

    def activation(self, x: str) -> str:
        """ReLU6 and quantization to uint8 in one: QuantizeLinear saturates at 0 and 255."""
        scale, zero = self.constant(np.array(RELU6)), self.constant(np.array(0, np.uint8))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, scale, zero), scale, zero)

    def weight(self, *shape: int, input_scale: np.float32) -> tuple[str, str]:
        """int8 weights with a scale per output channel, and int32 biases with the scale of the products."""
        fan_in = int(np.prod(shape[1:]))
        real = self.rng.normal(0, (2 / fan_in) ** 0.5, shape)
        scale = (np.abs(real).max(tuple(range(1, len(shape)))) / MAX_WEIGHT).astype(np.float32)
        whole = np.round(real / scale.reshape(-1, *[1] * (len(shape) - 1))).astype(np.int8)
        bias = np.round(self.rng.normal(0, 0.5, shape[0]) / (scale * input_scale)).astype(np.int32)
        bias_scale = (scale * input_scale).astype(np.float32)
        made = []
        for values, factors in ((whole, scale), (bias, bias_scale)):
            zero = self.constant(np.zeros(shape[0], values.dtype))
            inputs = self.constant(values), self.constant(factors), zero
            made.append(self.node("DequantizeLinear", *inputs, axis=0))
        return made[0], made[1]

    def conv(self, x: str, size: int, kernel: int, channels: int, out: int, stride: int, scale: np.float32) -> str:
        depthwise = channels == out and kernel == 3
        weight, bias = self.weight(out, 1 if depthwise else channels, kernel, kernel, input_scale=scale)
        after = -(-size // stride)
        self.macs += after * after * out * kernel * kernel * (1 if depthwise else channels)
        # TensorFlow's padding, as in the original: none above a stride of 2 on an even size.
        low, high = (0, 1) if stride == 2 else (1, 1)
        pads = [low, low, high, high] if kernel == 3 else [0] * 4
        group = out if depthwise else 1
        y = self.node("Conv", x, weight, bias, group=group, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)
        return self.activation(y)


def mobilenet_model(side: int = 224, classes: int = 1000) -> tuple[onnx.ModelProto, int]:
    """uint8 image 1,side,side,3 -> logits 1,classes; and its MACs."""
    b = _Builder()
    image_scale = np.float32(1 / 64)  # (u - 128) / 64 lies in [-2, 2)
    zero = b.constant(np.array(128, np.uint8))
    x = b.node("Transpose", "image", perm=[0, 3, 1, 2])
    x = b.node("DequantizeLinear", x, b.constant(np.array(image_scale)), zero)
    x = b.conv(x, side, 3, 3, 32, 2, image_scale)
    size, channels = side // 2, 32
    for out, stride in PAIRS:
        x = b.conv(x, size, 3, channels, channels, stride, RELU6)
        size //= stride
        x = b.conv(x, size, 1, channels, out, 1, RELU6)
        channels = out
    x = b.activation(b.node("GlobalAveragePool", x))
    x = b.node("Reshape", x, b.constant(np.array([1, -1])))
    weight, bias = b.weight(classes, channels, input_scale=RELU6)
    b.macs += classes * channels
    logits = b.node("Gemm", x, weight, bias, transB=1)
    if (side, classes) == (224, 1000) and b.macs != MACS:
        raise WrongResultError(f"MobileNetV1 has {b.macs} MACs, not {MACS}")
    image = helper.make_tensor_value_info("image", TensorProto.UINT8, [1, side, side, 3])
    output = helper.make_tensor_value_info(logits, TensorProto.FLOAT, [1, classes])
    graph = helper.make_graph(b.nodes, "mobilenet", [image], [output], b.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), b.macs


def mobilenet_image(side: int = 224) -> NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, (1, side, side, 3), dtype=np.uint8)


def _check(model: onnx.ModelProto, image: NDArray[np.uint8], logits: NDArray[np.float32]) -> str:
    """Against the literal meaning of the model: every quantize, float operator and dequantize computed as it stands."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    literal = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    want = literal.run(None, {"image": image})[0]
    error = float(np.abs(logits - want).max() / want.std())
    if not error <= TOLERANCE:
        raise WrongResultError(f"MobileNetV1's logits are off by {error:.2f} of their spread")
    return f"float run of the QDQ model, logits within {error:.0e} of their spread"


def _like(job: Job) -> tuple[onnx.ModelProto, NDArray[np.uint8], str]:
    """The model for the job's input size and classes, an image for it, and what it computes."""
    side, classes = job.image.shape[0], job.program.shapes[-1][2]
    model, macs = mobilenet_model(side, classes)
    return model, mobilenet_image(side), f"MobileNetV1 1.0 int8 at {side} x {side}, {macs / 1e6:.0f} M MACs"


def on_onnx_runtime(job: Job) -> Rival:
    model, image, computes = _like(job)
    timed = session(model, job.threads)
    checked = _check(model, image, timed.run(None, {"image": image})[0])
    integer = _integer_convolutions(model)
    if integer != 1 + 2 * len(PAIRS):
        raise WrongResultError(f"only {integer} convolutions run in int8")
    return Rival(
        "ONNX Runtime, MobileNetV1 int8",
        f"{computes}, {integer} x QLinearConv",
        lambda: timed.run(None, {"image": image}),
        checked,
    )


def _integer_convolutions(model: onnx.ModelProto) -> int:
    """How many convolutions ONNX Runtime runs as QLinearConv, from the graph it optimised."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(path)
        options.log_severity_level = 3  # it warns that such a file belongs to this machine
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return sum(node.op_type == "QLinearConv" for node in onnx.load(path).graph.node)


def on_openvino(job: Job) -> Rival:
    import openvino

    from bcnn.bench.openvino_runtime import compile_model, has_bf16, primitives, runner

    model, image, computes = _like(job)
    read = openvino.Core().read_model(model.SerializeToString())
    timed = compile_model(read, job.threads, "bf16" if has_bf16() else "f32")
    checked = _check(model, image, timed([image])[0])
    ran = primitives(timed, "Convolution")
    integer = sum(count for name, count in ran.items() if name.endswith("_I8"))
    if integer < 2 * len(PAIRS):  # it prefers float32 for the first layer, 2 % of the MACs, on some processors
        raise WrongResultError(f"only {integer} convolutions run in int8: {dict(ran)}")
    kernels = ", ".join(f"{count} x {name.split()[1]}" for name, count in ran.items())
    return Rival("OpenVINO, MobileNetV1 int8", f"{computes}, {kernels}", runner(timed, image), checked)
