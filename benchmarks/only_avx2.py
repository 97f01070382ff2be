"""Everyone held to AVX2 on a processor that has more: by settings, and who has none, by answers to its cpuid.

    hold()                  before torch, openvino and onnxruntime are imported; x86-64 Linux with gcc and objdump

ONNX Runtime and OpenVINO's BinaryConvolution ask the processor when they are loaded, and from then on take kernels by the answer.
Copies of their libraries are loaded in which cpuid is an instruction that does not exist, and only_avx2.c answers it without AVX-512
and VNNI. That happens a few times, before anything is timed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
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
# Of copies, kept as long as the process: OpenVINO loads some late.
_folders: list[tempfile.TemporaryDirectory[str]] = []


def hold() -> str:
    """What a table of results says about it."""
    os.environ |= SETTINGS
    answer_cpuid()
    hold_onnxruntime()
    hold_openvino()
    return "AVX2 for all (benchmarks/only_avx2.py)"


def answer_cpuid() -> None:
    helper = new_folder() / "only_avx2.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", helper, Path(__file__).with_suffix(".c")], check=True)
    if ctypes.CDLL(str(helper)).ready():
        raise RuntimeError("SIGILL cannot be handled")


def hold_onnxruntime() -> None:
    (library,) = (package("onnxruntime") / "capi").glob("onnxruntime_pybind11_state*.so")
    copy = new_folder() / library.name
    copy.write_bytes(without_cpuid(library))
    spec = importlib.util.spec_from_file_location(NAME, copy)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[NAME])


def hold_openvino() -> None:
    """The whole package, since its libraries find each other by where they lie."""
    copy = new_folder()
    shutil.copytree(package("openvino"), copy / "openvino", ignore=shutil.ignore_patterns("*_gpu_*", "*_npu_*"))
    libraries = copy / "openvino" / "libs"
    for library in [*libraries.glob("libopenvino.so.*"), *libraries.glob("libopenvino_intel_cpu_plugin.so")]:
        library.write_bytes(without_cpuid(library))
    sys.path.insert(0, str(copy))


def package(name: str) -> Path:
    if name in sys.modules:
        raise RuntimeError(f"{name} is loaded already, and knows the processor")
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"{name} is not installed")
    return Path(found.origin).parent


def new_folder() -> Path:
    _folders.append(tempfile.TemporaryDirectory())
    return Path(_folders[-1].name)


def without_cpuid(library: Path) -> bytes:
    code = bytearray(library.read_bytes())
    for place in cpuid_places(library):
        if code[place : place + 2] != CPUID:
            raise RuntimeError(f"{library.name}: no cpuid at {place:x}")
        code[place : place + 2] = UD2
    return bytes(code)


def cpuid_places(library: Path) -> list[int]:
    """Where in the file, by its disassembly: the two bytes alone may be part of other instructions."""

    def objdump(*options: str) -> list[list[str]]:
        ran = subprocess.run(["objdump", *options, library], capture_output=True, text=True, check=True)
        return [line.split() for line in ran.stdout.splitlines()]

    (text,) = (line for line in objdump("-h") if line[1:2] == [".text"])  # index, name, size, address, ..., offset
    shift = int(text[5], 16) - int(text[3], 16)
    listing = objdump("-d", "-j", ".text", "--no-show-raw-insn")
    return [int(line[0].rstrip(":"), 16) + shift for line in listing if line[-1:] == ["cpuid"]]
