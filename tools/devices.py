"""`make devices`: exported C on machines that are not this one, all emulated by qemu; the table of docs/devices.md.

Cortex-M0, M3, M4, M7 and M33 with semihosting (Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm), and big-endian
32-bit PowerPC in qemu-user (gcc-powerpc-linux-gnu libc6-dev-powerpc-cross qemu-user). On each, every test vector must be equal.
Flash is the text of model.o, constants and code; RAM is the arena. Instructions are counted by -icount; nobody measured milliseconds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bcnn.export import export

HERE = Path(__file__).parent / "device"
MODELS = ("digits", "cifar10")


@dataclass(frozen=True)
class Board:
    core: str
    machine: str
    flash_at: int = 0
    ram_at: int = 0x20000000
    ram: int = 0x400000


BOARDS = (
    Board("cortex-m0", "microbit", ram=0x4000),
    Board("cortex-m3", "mps2-an385"),
    Board("cortex-m4", "mps2-an386"),
    Board("cortex-m7", "mps2-an500"),
    Board("cortex-m33", "mps2-an505", 0x10000000, 0x38000000, 0x200000),
)
SPARE = 0x1800  # RAM of the C library's printing, and the stack


def main() -> None:
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm", "powerpc-linux-gnu-gcc", "qemu-ppc"):
        if not shutil.which(tool):
            sys.exit(f"{tool} is missing; the first lines of tools/devices.py say what to install")
    print("| model | core | flash, with code | RAM | instructions an image |\n|---|---|---:|---:|---:|")
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            written = exported(name, Path(folder))
            ram = int(re.findall(r"ARENA_BYTES.*/\* (\d+)", (written / "model.h").read_text())[0])
            for board in BOARDS:
                flash = compiled(written, board)
                said = f"{instructions(name, written, board):,}" if ram + SPARE <= board.ram else "no room in 16 KB"
                print(f"| {name} | {board.core} | {flash:,} | {ram:,} | {said} |", flush=True)
            foreign(written)
            print(f"| {name} | PowerPC, big-endian | | {ram:,} | test vectors equal |", flush=True)


def exported(name: str, folder: Path) -> Path:
    export(name, "c", folder / name)
    return folder / name


def compiled(folder: Path, board: Board) -> int:
    """Bytes of flash that a model takes, code and constants."""
    made = folder / "model.o"
    run("arm-none-eabi-gcc", *options(board), "-c", str(folder / "model.c"), "-o", str(made))
    text, data, bss = (int(n) for n in run("arm-none-eabi-size", str(made)).splitlines()[1].split()[:3])
    assert data == bss == 0, "a model has no memory but the caller's"
    return text


def instructions(name: str, folder: Path, board: Board) -> int:
    header = (folder / "model.h").read_text()
    sizes = {key: int(re.findall(rf"_{key} (\d+)", header)[0]) for key in ("HEIGHT", "WIDTH")}
    shared = [*options(board), f"-DNAME={name}", f"-I{folder}", f"-DROW_BYTES={3 * sizes['WIDTH']}"]
    shared += [f"-DHEIGHT={sizes['HEIGHT']}", "-DBCNN_ROWS_ONLY"]
    built = folder / "board.elf"
    places = {"FLASH_AT": board.flash_at, "RAM_AT": board.ram_at, "RAM_SIZE": board.ram}
    symbols = [f"-Wl,--defsym={key}={value:#x}" for key, value in places.items()]
    parts = [str(HERE / "board.c"), str(folder / "model.o")]
    script = f"-T{HERE / 'board.ld'}"
    run("arm-none-eabi-gcc", *shared, "-std=gnu99", "--specs=rdimon.specs", script, *symbols, *parts, "-o", str(built))
    emulated = ["-M", board.machine, "-icount", "shift=0", "-nographic", "-monitor", "none", "-serial", "null"]
    said = run("qemu-system-arm", *emulated, "-semihosting-config", "enable=on,target=native", "-kernel", str(built))
    if "equal" not in said:
        sys.exit(f"{name} on {board.core}: {said}")
    return int(re.findall(r"instructions (\d+)", said)[0])


def foreign(folder: Path) -> None:
    built = str(folder / "ppc")
    sources = [str(folder / "model.c"), str(folder / "test.c")]
    run("powerpc-linux-gnu-gcc", "-std=c99", "-O2", "-static", *sources, "-o", built)
    if not (said := run("qemu-ppc", built)).startswith("equal"):
        sys.exit(f"{folder.name} on PowerPC: {said}")


def options(board: Board) -> tuple[str, ...]:
    return f"-mcpu={board.core}", "-mthumb", "-O2", "-std=c99"


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


if __name__ == "__main__":
    main()
