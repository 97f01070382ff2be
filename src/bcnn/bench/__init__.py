"""Side by side: this engine, and other ways to run the same network, checked before they are timed. Needs `bcnn[bench]`.

sample.py      a preset -> a random Program of its shapes
timing.py      interleaved runs -> min and median; what machine this is
check.py       a rival's maps against the interpreter, op by op
onnx_graph.py  Program -> ONNX model        onnx_runtime.py    its rivals: float Conv, MatMulInteger
openvino_graph.py  Program -> OpenVINO model    openvino_runtime.py    its rival: BinaryConvolution
pytorch.py     eager and compiled           mobilenet.py       int8 MobileNetV1, the rival at the same accuracy
rivals.py      all of them in one table
"""
