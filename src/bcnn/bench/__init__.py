"""Side by side: this engine, and other ways to run the same network, checked before they are timed.

    rivals.py            all contestants in one table; a missing one becomes a line
    rival.py             what a contestant is
    sample.py            an image
    timing.py            interleaved runs -> min and median
    ops.py               where the engine's own time goes
    pytorch.py           eager and compiled
    onnx_runtime.py      float Conv, MatMulInteger, on the model of `bcnn.exports.onnx_forms`
    openvino_graph.py    Program -> OpenVINO model      openvino_runtime.py  BinaryConvolution
    mobilenet.py         int8 MobileNetV1, the rival at the same accuracy

The rivals need `pip install 'bcnn[bench]'`, and torch; timing the engine on a packed file needs neither.
"""
