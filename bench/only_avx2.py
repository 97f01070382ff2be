"""Everyone held to AVX2 on a processor that has more: by settings, and ONNX Runtime, which has none, by answers to its cpuid.

    hold()                  before torch, openvino and onnxruntime are imported; x86-64 Linux with gcc and objdump

ONNX Runtime asks the processor when it is loaded, and from then on takes kernels by the answer. A copy of its library is loaded in
which cpuid is an instruction that does not exist, and only_avx2.c answers it without AVX-512 and VNNI. That happens a few times,
before anything is timed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = "onnxruntime.capi.onnxruntime_pybind11_state"
CPUID, UD2 = b"\x0f\xa2", b"\x0f\x0b"
SETTINGS = {
    "BCNN_ISA": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
}  # this engine, oneDNN, torch


def hold() -> str:
    """What a table of results says about it."""
    os.environ |= SETTINGS
    hold_onnxruntime()
    return "AVX2 for all (bench/only_avx2.py)"


def hold_onnxruntime() -> int:
    """How many cpuid instructions are answered from now on."""
    if NAME in sys.modules:
        raise RuntimeError("onnxruntime is loaded already, and knows the processor")
    package = importlib.util.find_spec("onnxruntime")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("onnxruntime is not installed")
    (library,) = (Path(package.origin).parent / "capi").glob("onnxruntime_pybind11_state*.so")
    code = bytearray(library.read_bytes())
    places = cpuid_places(library)
    for place in places:
        if code[place : place + 2] != CPUID:
            raise RuntimeError(f"{library.name}: no cpuid at {place:x}")
        code[place : place + 2] = UD2
    with tempfile.TemporaryDirectory() as folder:
        helper = Path(folder) / "only_avx2.so"
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", helper, Path(__file__).with_suffix(".c")], check=True)
        if ctypes.CDLL(str(helper)).ready():
            raise RuntimeError("SIGILL cannot be handled")
        copy = Path(folder) / library.name
        copy.write_bytes(code)
        spec = importlib.util.spec_from_file_location(NAME, copy)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[NAME])
    return len(places)


def cpuid_places(library: Path) -> list[int]:
    """Where in the file, by its disassembly: the two bytes alone may be part of other instructions."""

    def objdump(*options: str) -> list[list[str]]:
        ran = subprocess.run(["objdump", *options, library], capture_output=True, text=True, check=True)
        return [line.split() for line in ran.stdout.splitlines()]

    (text,) = (line for line in objdump("-h") if line[1:2] == [".text"])  # index, name, size, address, ..., offset
    shift = int(text[5], 16) - int(text[3], 16)
    listing = objdump("-d", "-j", ".text", "--no-show-raw-insn")
    return [int(line[0].rstrip(":"), 16) + shift for line in listing if line[-1:] == ["cpuid"]]
