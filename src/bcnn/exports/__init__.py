"""A packed file -> what other machines run. `targets` has the table; a target is one module with one function. No torch.

    targets.py     the table, and what every export has in common: options, path, numbers, missing packages
    onnx.py        an ONNX model: `onnx_graph` has the model, `onnx_ops` what each op becomes
    qonnx.py       the same with QONNX's BipolarQuant
    c.py           C99 for microcontrollers: `c_plan` has the rows in RAM, `c_tables` the constants, device/ the code that reads them
    check.py       another executor's maps against the definition, op by op

Every export proves itself against the test vectors in the packed file before it is written.
"""

from bcnn.exports.targets import TARGETS, Target, export

__all__ = ["TARGETS", "Target", "export"]
