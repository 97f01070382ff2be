"""`make devices`: exported C on machines that are not this one, all emulated by qemu; the table of docs/devices.md.

Cortex-M0, M3, M4, M7 and M33 with semihosting (Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm), 32-bit RISC-V
(gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc), big-endian 32-bit PowerPC and 32-bit ARM in qemu-user
(gcc-powerpc-linux-gnu libc6-dev-powerpc-cross gcc-arm-linux-gnueabi libc6-dev-armel-cross qemu-user), and zig's clang from PyPI for
32-bit x86 and for RISC-V. On each, every test vector must be equal.

Flash is the text of model.o, constants and code; RAM is the arena: both must hold what the export announced, as the linker's table of
symbols has it. Instructions are counted by -icount; nobody measured milliseconds. `python -m tools.release.devices digits` runs one
model; `--only Cortex-M4` one core, and then says which functions the instructions are in, by a plugin for qemu (device/count.c). A run
of everything is written to benchmarks/results/devices.json.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from bcnn.bench.rivals import job_of
from bcnn.exports import export
from bcnn.nets.config import preset
from bcnn.packed import packfile, shipped
from bcnn.program.program import Program

HERE = Path(__file__).parent / "device"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "devices.json"
FLOATS = "digits in float32"
MODELS = ("digits", "cifar10", FLOATS)
ZIG = (sys.executable, "-m", "ziglang", "cc")


@dataclass(frozen=True)
class Board:
    core: str
    options: tuple[str, ...]  # of the compiler
    machine: str
    prefix: str = "arm-none-eabi-"
    flash_at: int = 0
    ram_at: int = 0x20000000
    ram: int = 0x400000
    more: tuple[str, ...] = ()  # of the compiler, for the model only

    @property
    def riscv(self) -> bool:
        return "riscv" in self.prefix


def cortex(name: str, machine: str, *more: str, **places: int) -> Board:
    core = name.replace("Cortex-", "cortex-").split(",")[0].lower()
    return Board(name, (f"-mcpu={core}", "-mthumb", *more), machine, **places)


def riscv(name: str, abi: str) -> Board:
    options = (f"-march={name.lower()}", f"-mabi={abi}", "-misa-spec=2.2", "--specs=picolibc.specs")
    return Board(f"RISC-V {name}", options, "virt", "riscv64-unknown-elf-", 0x80000000, 0x80800000)


BOARDS = (
    cortex("Cortex-M0", "microbit", ram=0x4000),
    cortex("Cortex-M3", "mps2-an385"),
    cortex("Cortex-M4", "mps2-an386"),
    cortex("Cortex-M7", "mps2-an500"),
    cortex("Cortex-M33", "mps2-an505", flash_at=0x10000000, ram_at=0x38000000, ram=0x200000),
    riscv("RV32IMAC", "ilp32"),
    replace(riscv("RV32IMAC", "ilp32"), core="RISC-V RV32IMAC, Zbb", more=("-march=rv32imac_zbb",)),
)
FLOAT_BOARDS = (
    BOARDS[0],
    cortex("Cortex-M4, with its FPU", "mps2-an386", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    riscv("RV32IMAC", "ilp32"),
    riscv("RV32IMAFC", "ilp32f"),
)
SPARE = 0x1800  # RAM of the C library's printing, and the stack
# What a system with an operating system runs: the compiler, and qemu where this machine cannot run it.
SYSTEMS = {
    "PowerPC, 32 bits, big-endian": (("powerpc-linux-gnu-gcc",), ("qemu-ppc",)),
    "ARM, 32 bits": (("arm-linux-gnueabi-gcc",), ("qemu-arm",)),
    "x86, 32 bits, zig": ((*ZIG, "-target", "x86-linux-musl"), ()),
    "RISC-V, 64 bits, zig": ((*ZIG, "-target", "riscv64-linux-musl"), ("qemu-riscv64",)),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--only", help="a core, such as Cortex-M4")
    given = parser.parse_args()
    compilers = [f"{board.prefix}gcc" for board in BOARDS]
    needed = [*compilers, "qemu-system-arm", "qemu-system-riscv32", *(run[0] for _, run in SYSTEMS.values() if run)]
    for tool in dict.fromkeys([*needed, *(words[0] for words, _ in SYSTEMS.values())]):
        if not shutil.which(tool):
            sys.exit(f"{tool} is missing; the first lines of tools/release/devices.py say what to install")
    print(f"{HEAD}\n|---|---|---:|---:|---:|---:|")
    rows = []
    for name in given.models:
        packed = program(name)
        with tempfile.TemporaryDirectory() as folder:
            written = exported(packed, Path(folder))
            for board in FLOAT_BOARDS if name == FLOATS else BOARDS:
                if given.only in (None, board.core):
                    rows.append(measured(name, packed, written, board))
                    print("| " + " | ".join(map(str, rows[-1].values())) + " |", flush=True)
            if given.only:
                print(where(written, next(board for board in BOARDS if board.core == given.only)))
                continue
            for system, (compiler, emulator) in SYSTEMS.items():
                hosted(written, compiler, emulator, system)
                print(f"| {name} | {system} | | | test vectors equal | |", flush=True)
    if given.models == MODELS and not given.only:
        found = {
            "date": date.today().isoformat(),
            "compiler": run(compilers[0], "--version").splitlines()[0],
            "rows": rows,
        }
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


HEAD = "| model | core | flash, with code | RAM | instructions an image | a binary MAC |"


def measured(name: str, packed: Program, folder: Path, board: Board) -> dict[str, str]:
    flash, ram = announced(folder)
    if ram + SPARE > board.ram:  # a board with more RAM runs the code of this core, too
        board = replace(board, machine="mps2-an385", ram=0x400000)
    text, count = compiled(folder, board, flash), instructions(folder, board, ram)
    each = count / sum(counts.binary_macs for counts in packed.counts())
    return dict(zip(KEYS, (name, board.core, f"{text:,}", f"{ram:,}", f"{count:,}", f"{each:.2f}"), strict=True))


KEYS = ("model", "core", "flash", "ram", "instructions", "a_binary_mac")


def where(folder: Path, board: Board) -> str:
    """Instructions of each function, of the test vectors and one image."""
    plugin = folder / "count.so"
    run("cc", "-O2", "-shared", "-fPIC", str(HERE / "count.c"), "-o", str(plugin))
    return run(*emulated(folder, board), "-plugin", str(plugin))


def exported(packed: Program, folder: Path) -> Path:
    packfile.save(packed, folder / "model.bcnn")
    export(folder / "model.bcnn", "c", folder / "net")
    return folder / "net"


def program(name: str) -> Program:
    if name == FLOATS:
        return job_of(preset("digits")).program  # random parameters: neither size nor work depends on them
    return packfile.read(shipped.find(name))


def announced(folder: Path) -> tuple[int, int]:
    header = (folder / "model.h").read_text()
    return int(re.findall(r"FLASH_BYTES (\d+)", header)[0]), int(re.findall(r"ARENA_BYTES.*/\* (\d+)", header)[0])


def compiled(folder: Path, board: Board, flash: int) -> int:
    """Bytes of flash that a model takes, code and constants; the constants are those that were announced."""
    made = folder / "model.o"
    run(
        f"{board.prefix}gcc",
        *board.options,
        *board.more,
        "-O2",
        "-std=c99",
        "-c",
        str(folder / "model.c"),
        "-o",
        str(made),
    )
    text, data, bss = (int(n) for n in run(f"{board.prefix}size", str(made)).splitlines()[1].split()[:3])
    assert data == bss == 0, "a model has no memory but the caller's"
    tables = re.findall(r"^static const \w+ (\w+)\[\d+\] = ", (folder / "model.c").read_text(), re.MULTILINE)
    sizes = symbols(board, made)
    if (found := sum(sizes[table] for table in tables)) != flash:
        sys.exit(f"{board.core}: constants of {found} bytes, {flash} were announced")
    return text


def symbols(board: Board, file: Path) -> dict[str, int]:
    found = re.findall(r"^\w+ (\w+) \w (\w+)$", run(f"{board.prefix}nm", "-S", str(file)), re.MULTILINE)
    return {name: int(size, 16) for size, name in found}


def instructions(folder: Path, board: Board, ram: int) -> int:
    header = (folder / "model.h").read_text()
    height, width = (int(re.findall(rf"_{key} (\d+)", header)[0]) for key in ("HEIGHT", "WIDTH"))
    given = ["-DNAME=net", f"-I{folder}", f"-DROW_BYTES={3 * width}", f"-DHEIGHT={height}", "-DBCNN_ROWS_ONLY"]
    built = folder / "board.elf"
    parts = [str(HERE / "board.c"), str(folder / "model.o"), "-o", str(built)]
    linked = picolibc(board) if board.riscv else rdimon(board)
    run(f"{board.prefix}gcc", *board.options, "-O2", "-std=gnu99", *given, *linked, *parts)
    if (found := symbols(board, built)["arena"]) != ram:
        sys.exit(f"{board.core}: an arena of {found} bytes, {ram} were announced")
    said = run(*emulated(folder, board))
    if "equal" not in said:
        sys.exit(f"{board.core}: {said}")
    return int(re.findall(r"instructions (\d+)", said)[0])


def emulated(folder: Path, board: Board) -> list[str]:
    emulator = ["qemu-system-riscv32", "-bios", "none"] if board.riscv else ["qemu-system-arm"]
    quiet = ["-icount", "shift=0", "-nographic", "-monitor", "none", "-serial", "null"]
    semihosting = ["-semihosting-config", "enable=on,target=native"]
    return [*emulator, "-M", board.machine, *quiet, *semihosting, "-kernel", str(folder / "board.elf")]


def rdimon(board: Board) -> list[str]:
    places = {"FLASH_AT": board.flash_at, "RAM_AT": board.ram_at, "RAM_SIZE": board.ram}
    return ["--specs=rdimon.specs", f"-T{HERE / 'board.ld'}", *(f"-Wl,--defsym={k}={v:#x}" for k, v in places.items())]


def picolibc(board: Board) -> list[str]:
    places = {"__flash": board.flash_at, "__flash_size": 0x800000, "__ram": board.ram_at, "__ram_size": board.ram}
    given = [f"-Wl,--defsym={key}={value:#x}" for key, value in places.items()]
    return ["--oslib=semihost", "--crt0=hosted", "-Tpicolibc.ld", *given]


def hosted(folder: Path, compiler: tuple[str, ...], emulator: tuple[str, ...], system: str) -> None:
    built = str(folder / "test")
    run(*compiler, "-std=c99", "-O2", "-static", str(folder / "model.c"), str(folder / "test.c"), "-o", built)
    if not (said := run(*emulator, built)).startswith("equal"):
        sys.exit(f"{system}: {said}")


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


if __name__ == "__main__":
    main()
