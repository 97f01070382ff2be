"""native/ -> src/bcnn/exports/page/engine.wasm, the engine of `bcnn export --to web`. For maintainers, after a change under native/.

    python -m tools.release.wasm            build it (needs ziglang from PyPI, in the version below: pip install -e '.[wasm]')
    python -m tools.release.wasm --check    build it somewhere else and compare the bytes

The built module is part of the repository, so that neither users nor tests need a compiler. The same zig gives the same bytes; the
module carries a digest of the sources it was built from, by which a test without zig sees that it is not the current one.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "src" / "bcnn" / "exports" / "page" / "engine.wasm"
ZIG = "0.17.0"
SECTION = b"bcnn.sources"  # a custom section: browsers skip it
COMMENT = re.compile(rb"//[^\n]*")  # the sources have no other comments, and no // in a string
TARGET = ["-target", "wasm32-wasi", "-mexec-model=reactor"]
# Exceptions are thrown but never caught, see native/web/bind.cpp. No contraction: every float operation is rounded once.
FLAGS = ["-std=c++17", "-msimd128", "-ffp-contract=off", "-fexceptions", "-fvisibility=hidden", "-Wall", "-Wextra"]
# 1 GiB of memory at most: what a page may take before it says so. The engine plans without recursion, so its stack is small.
LINK = ["-s", "-Wl,--max-memory=1073741824", "-Wl,-z,stack-size=262144"]
FAST = ("native/kernels/wasm.cpp",)  # for speed; all the rest runs once a row, and is made small


def units() -> list[str]:
    """What is compiled, in a fixed order: the linker keeps it."""
    names = ["native/web/bind.cpp", "native/engine.cpp", "native/isa.cpp", "native/memory.cpp", *FAST]
    for folder in ("ops", "plan"):
        names += sorted(str(path.relative_to(ROOT)) for path in (ROOT / "native" / folder).glob("*.cpp"))
    return names


def sources_digest() -> str:
    """Of everything that the module is made of, and of how."""
    headers = [path for pattern in ("*.h", "*/*.h", "kernels/*.inl") for path in (ROOT / "native").glob(pattern)]
    headers = [path for path in headers if path.parent.name not in ("training", "test")]
    headers = [path for path in headers if path.parent.name != "simd" or path.stem.startswith("wasm")]
    names = sorted({*units(), *(str(path.relative_to(ROOT)) for path in headers)})
    made = hashlib.sha256(repr((ZIG, TARGET, FLAGS, LINK, FAST)).encode())
    for name in names:
        code = COMMENT.sub(b"", (ROOT / name).read_bytes()).split()  # neither comments nor layout reach the module
        made.update(name.encode() + b"\0" + b" ".join(code) + b"\0")
    return made.hexdigest()


def built_from(module: bytes) -> str:
    """The digest in a module, "" if it has none."""
    at = module.rfind(SECTION)
    return module[at + len(SECTION) :].decode() if at >= 0 else ""


def build() -> bytes:
    zig = [sys.executable, "-m", "ziglang"]
    found = subprocess.run([*zig, "version"], capture_output=True, text=True)
    if found.stdout.strip() != ZIG:
        got = f"zig {found.stdout.strip()}" if found.returncode == 0 else "no zig"
        sys.exit(f"the engine is built with zig {ZIG}, here is {got}: pip install ziglang=={ZIG}")
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for name in units():
            objects.append(str(Path(folder) / (name.replace("/", "-") + ".o")))
            level = "-O2" if name in FAST else "-Os"
            compiled = [*zig, "c++", *TARGET, *FLAGS, level, "-Inative", "-c", name, "-o", objects[-1]]
            subprocess.run(compiled, cwd=ROOT, check=True)
        out = Path(folder) / "engine.wasm"
        subprocess.run([*zig, "c++", *TARGET, *LINK, "-O2", *objects, "-o", str(out)], cwd=ROOT, check=True)
        return out.read_bytes() + _custom(sources_digest().encode())


def _custom(content: bytes) -> bytes:
    body = bytes([len(SECTION)]) + SECTION + content
    assert len(body) < 128  # its length is one byte
    return bytes([0, len(body)]) + body


def main() -> None:
    module = build()
    if sys.argv[1:] == ["--check"]:
        if module != ENGINE.read_bytes():
            sys.exit(f"{ENGINE.name} is not what its sources give: python -m tools.release.wasm")
        print(f"{ENGINE.name}: the same {len(module):,} bytes")
        return
    ENGINE.write_bytes(module)
    print(f"wrote {ENGINE.name}: {len(module):,} bytes")


if __name__ == "__main__":
    main()
