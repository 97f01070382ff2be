"""`bcnn export --to qonnx`: signs by BipolarQuant, and equal to the program in the qonnx package's own executor, where there is one."""

from __future__ import annotations

from pathlib import Path

import programs
import pytest
import samples

from bcnn.exports import export
from bcnn.packed import packfile
from bcnn.program import ops as o

onnx = pytest.importorskip("onnx")


def test_every_binary_convolution_has_two_bipolar_quantisers_a_branch(tmp_path: Path) -> None:
    program = samples.every_op()
    packfile.save(program, tmp_path / "m.bcnn")
    lines = export(tmp_path / "m.bcnn", "qonnx", tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    quantisers = [node for node in model.graph.node if node.op_type == "BipolarQuant"]
    branches = sum(len(op.branches) for op in program.ops if isinstance(op, o.BinaryConv))
    assert len(quantisers) == 2 * branches
    assert {node.domain for node in quantisers} == {"qonnx.custom_op.general"}
    assert {opset.domain for opset in model.opset_import} == {"", "qonnx.custom_op.general"}
    assert "Wrote" in lines[0]
    assert "QONNX's executor" in lines[2] or "Not checked" in lines[2]


def test_the_qonnx_executor_makes_the_stored_logits_of_a_binary_network(tmp_path: Path) -> None:
    pytest.importorskip("qonnx")
    program = programs.random_program(4, ops=4, only=["module", "binary_conv"])
    packfile.save(program, tmp_path / "m.bcnn")
    lines = export(tmp_path / "m.bcnn", "qonnx", tmp_path / "m.onnx")
    assert "the logits equal those of the packed file" in lines[-1]


def test_the_qonnx_executor_runs_every_op(tmp_path: Path) -> None:
    pytest.importorskip("qonnx")
    packfile.save(samples.every_op(), tmp_path / "m.bcnn")
    lines = export(tmp_path / "m.bcnn", "qonnx", tmp_path / "m.onnx")
    assert "QONNX's executor, 2 test vectors" in lines[2]
