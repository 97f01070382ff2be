"""`bcnn export --to c`: the C program equals the interpreter, without undefined behaviour, in the flash and RAM that were announced."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from integer_programs import FixedDraw, fixed_of_config, random_fixed_program
from programs import named, of_config, random_program
from samples import TINY_FIXED
from typer.testing import CliRunner

from bcnn.base.errors import UserError
from bcnn.cli import export as verb  # noqa: F401  (importing it adds the verb)
from bcnn.cli.app import app
from bcnn.exports import c, c_rules, export
from bcnn.exports.c_plan import CONSTANTS, complete, plan, row_size, touched
from bcnn.exports.c_rules import tables
from bcnn.packed import packfile, shipped
from bcnn.program import ops as o
from bcnn.program.program import Program

NETWORK = TINY_FIXED
COMPILER = c.compiler()
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler: cc, gcc or clang")
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZED = (*STRICT, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def written(program: Program, folder: Path, name: str = "net") -> Path:
    """The folder of an export, not yet compiled."""
    packfile.save(program, folder / "packed.bcnn", (0, 1))
    packed = packfile.open_packed(folder / "packed.bcnn")
    for file, text in c.files(packed, tables(packed.program), name).items():
        (folder / file).write_text(text)
    return folder


MAKERS = {"int16": random_fixed_program, "float32": random_program}
of_numbers = pytest.mark.parametrize("numbers", MAKERS)


def says(folder: Path, *options: str) -> str:
    assert COMPILER is not None
    return c.build_and_run(COMPILER, folder, *options)


@pytest.fixture(scope="module")
def digits() -> Path:
    return shipped.find("digits")


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("floats") / "floats.bcnn"
    packfile.save(of_config(NETWORK), path)
    return path


@needs_compiler
@of_numbers
@pytest.mark.parametrize("seed", range(6))
def test_random_programs_equal_the_interpreter_under_both_sanitizers(numbers: str, seed: int, tmp_path: Path) -> None:
    assert says(written(MAKERS[numbers](seed), tmp_path), *SANITIZED) == "equal: 2 test vectors, 0 wrong\n"


@needs_compiler
@of_numbers
@pytest.mark.parametrize("only", ["depthwise", "binary_conv", "pool", "global_avg_pool", "conv"])
def test_every_kind_of_op_alone_equals_the_interpreter(numbers: str, only: str, tmp_path: Path) -> None:
    program = MAKERS[numbers](7, 13, 11, 4, 40, only=[only])
    assert says(written(program, tmp_path), *SANITIZED).startswith("equal")


def of_pixels(width: int, channels: tuple[int, ...]) -> Program:
    """Binary convolutions with filters of one tap, each read by the next."""
    draw = FixedDraw(width)
    made: list[o.Op] = [draw.fixed_input(6, width)]
    reads = 4
    for source, k in enumerate(channels):
        inner = k if k % reads == 0 else reads  # a map of few channels may be read more than once
        made.append(o.FixedBinaryConv(source, inner, (draw.fixed_branch(inner, k),)))
        reads = k
    return named([*made, o.GlobalAvgPool(len(made) - 1)])


PIXELS = {
    8: (48, 96, 33, 264, 65),
    5: (31, 62, 310, 40),
    13: (1, 2, 130, 260, 7),
    4: (64, 40, 600, 30),
    3: (260, 20, 500, 8),
}


def test_pixels_are_looked_up_by_eight_and_by_four_and_counted_where_there_is_no_room() -> None:
    rows = [row for width, channels in PIXELS.items() for row in tables(of_pixels(width, channels)).ops]
    kinds = {(row[c_rules.KIND], row[-2]) for row in rows}  # and the words of an entry
    assert {(c_rules.BINARY_TABLES, 2), (c_rules.BINARY_TABLES, 1), (c_rules.BINARY_PIXELS, 2)} <= kinds


@needs_compiler
@pytest.mark.parametrize("width", PIXELS)
def test_binary_pixels_equal_the_interpreter_however_they_are_counted(width: int, tmp_path: Path) -> None:
    written(of_pixels(width, PIXELS[width]), tmp_path)
    assert says(tmp_path, *SANITIZED) == "equal: 2 test vectors, 0 wrong\n"
    if "popcnt" in Path("/proc/cpuinfo").read_text():
        assert says(tmp_path, *STRICT, "-mpopcnt").startswith("equal")


COMPILERS = {
    "gcc": ["gcc"],
    "gcc, GNU C": ["gcc", "-std=gnu99"],
    "gcc, 32 bits, x87": ["gcc", "-std=gnu99", "-m32", "-mfpmath=387"],
    "clang": ["clang"],
}
FUSED = ("-mfma", "-O3") if "fma" in Path("/proc/cpuinfo").read_text().split() else ()


@of_numbers
@pytest.mark.parametrize("name", COMPILERS)
def test_every_compiler_of_this_machine_gives_the_same(numbers: str, name: str, tmp_path: Path) -> None:
    """Also where it would fuse a product with the sum that follows, or keep floats in 80 bits."""
    command = COMPILERS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{name} is not installed")
    if "-m32" in command and not _links(command, tmp_path):
        pytest.skip("gcc has no 32-bit library here: apt-get install gcc-multilib")
    written(MAKERS[numbers](11), tmp_path)  # one whose outputs change if products are fused
    options = (*STRICT, *command[1:], *(() if "-m32" in command else FUSED))
    assert c.build_and_run(command[:1], tmp_path, *options).startswith("equal")


def _links(command: list[str], folder: Path) -> bool:
    (folder / "empty.c").write_text("#include <stdint.h>\nint main(void) { return 0; }\n")
    done = subprocess.run([*command, str(folder / "empty.c"), "-o", str(folder / "empty")], capture_output=True)
    return done.returncode == 0


@needs_compiler
def test_a_fast_but_wrong_arithmetic_is_refused_by_the_compiler(tmp_path: Path) -> None:
    written(random_program(1), tmp_path)
    assert "compile it without -ffast-math" in says(tmp_path, "-ffast-math")


@needs_compiler
def test_the_portable_popcount_and_the_processors_give_the_same(tmp_path: Path) -> None:
    written(fixed_of_config(NETWORK), tmp_path)
    assert says(tmp_path, "-U__POPCNT__").startswith("equal")
    if "popcnt" in Path("/proc/cpuinfo").read_text():
        assert says(tmp_path, "-mpopcnt").startswith("equal")


@needs_compiler
def test_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    written(random_fixed_program(1), tmp_path)
    test = (tmp_path / "test.c").read_text()
    (tmp_path / "test.c").write_text(test.replace("seeds[VECTORS] = {0u", "seeds[VECTORS] = {5u"))
    assert re.match(r"vector 0, row by row: output \d+ is another one\nvector 0, whole: output", says(tmp_path))


@needs_compiler
def test_missing_rows_are_said_and_further_rows_change_nothing(tmp_path: Path) -> None:
    written(random_fixed_program(3), tmp_path)
    (tmp_path / "test.c").write_text(
        """#include <stdio.h>
        #include "model.h"
        static bcnn_net_arena arena;
        int main(void) {
            static const uint8_t row[BCNN_NET_WIDTH * 3];
            static int16_t first[BCNN_NET_OUTPUTS], out[BCNN_NET_OUTPUTS];
            int y, same = 1;
            bcnn_net_begin(&arena);
            printf("%d ", bcnn_net_end(&arena, out));
            for (y = 0; y < BCNN_NET_HEIGHT; y++) bcnn_net_row(&arena, row);
            printf("%d ", bcnn_net_end(&arena, first));
            bcnn_net_row(&arena, row);
            printf("%d ", bcnn_net_end(&arena, out));
            for (y = 0; y < BCNN_NET_OUTPUTS; y++) same &= out[y] == first[y];
            printf("%d", same);
            return 0;
        }"""
    )
    assert says(tmp_path, *SANITIZED) == "1 0 0 1"


@needs_compiler
def test_digits_in_integers_is_as_small_as_a_device_wants_it(digits: Path, tmp_path: Path) -> None:
    flash, ram = announced(export(digits, "c", tmp_path / "out"))
    assert flash <= 40_000 - 6_000  # of code, docs/devices.md
    assert ram <= 8_000


def announced(lines: list[str]) -> tuple[int, int]:
    flash, ram = (int(n.replace(",", "")) for n in re.findall(r"([\d,]+) bytes", lines[0])[:2])
    return flash, ram


@needs_compiler
@pytest.mark.parametrize("which", ["digits", "floats"])
def test_flash_and_ram_are_what_the_compiler_makes_of_them(
    which: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lines = export(request.getfixturevalue(which), "c", tmp_path / "out")
    assert "every output equals" in lines[-1]
    assert says(tmp_path / "out", *SANITIZED).startswith("equal")
    source = (tmp_path / "out" / "model.c").read_text()
    names = re.findall(r"^static const \w+ (\w+)\[\d+\] = ", source, re.MULTILINE)
    assert {"ops", "numbers", "words"} <= set(names)
    sizes = " + ".join(f"sizeof {name}" for name in names)
    source += f'#include <stdio.h>\nint main(void) {{ printf("%u %u\\n", (unsigned)({sizes}), '
    (tmp_path / "out" / "sizes.c").write_text(source + "(unsigned)BCNN_OUT_ARENA_BYTES); return 0; }\n")
    assert COMPILER is not None
    built = tmp_path / "sizes"
    subprocess.run([*COMPILER, "-std=c99", str(tmp_path / "out" / "sizes.c"), "-o", str(built)], check=True)
    made = subprocess.run([built], capture_output=True, text=True).stdout
    assert made == "{} {}\n".format(*announced(lines))


@needs_compiler
@pytest.mark.parametrize("which", ["digits", "floats"])
def test_it_compiles_with_every_warning(which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    export(request.getfixturevalue(which), "c", tmp_path / "out")
    assert says(tmp_path / "out", *STRICT, "-Wconversion", "-Wno-sign-conversion", "-Wshadow").startswith("equal")


@of_numbers
@pytest.mark.parametrize("seed", range(30))
def test_rows_that_live_at_the_same_time_have_places_of_their_own(numbers: str, seed: int) -> None:
    program = MAKERS[numbers](seed)
    own = plan(program)
    owner = np.full(own.numbers, -1)  # the row that a number of RAM belongs to now
    made = [0] * len(program.ops)
    ids = {(i, y): n for n, (i, y) in enumerate((i, y) for i, rows in enumerate(own.slots) for y in range(len(rows)))}
    for i in own.order:
        for read in own.reads[i]:
            if isinstance(program.ops[read.map], CONSTANTS):
                continue
            begin, end = read.rows(made[i], program.shapes[read.map][0])
            assert end <= complete(program, read.map, made[read.map])
            for y in range(begin, end):
                place = own.slots[read.map][y]
                size = program.shapes[read.map][1] * program.shapes[read.map][2]
                assert (owner[place : place + size] == ids[read.map, y]).all()
        for y in range(*touched(program, i, made[i])):
            owner[own.slots[i][y] : own.slots[i][y] + row_size(program, i)] = ids[i, y]
        made[i] += 1


def test_parameters_that_are_multiples_of_a_step_are_bytes() -> None:
    draw = FixedDraw(0, corners=False)
    channels = np.array([3, 50, 259, 1], np.int16)  # a step for each channel
    weight = draw.rng.integers(-120, 121, (3, 3, 4)).astype(np.int16) * channels
    image = draw.fixed_input(8, 8)
    program = named([image, o.FixedDepthwise(0, 4, weight, np.zeros(4, np.int16), o.Window((3, 3)))])
    made = tables(program)
    assert len(made.bytes) >= 36
    assert len(made.numbers) <= 4 + 3


def test_an_op_without_a_form_in_c_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(c_rules.RULES, o.GlobalAvgPool)
    packfile.save(fixed_of_config(NETWORK), tmp_path / "m.bcnn")
    with pytest.raises(UserError, match=r"op \d+ \(GlobalAvgPool '.*'\): --to c has no form for a GlobalAvgPool"):
        export(tmp_path / "m.bcnn", "c", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_device_with_too_little_ram_gets_one_sentence_and_no_files(tmp_path: Path) -> None:
    packfile.save(fixed_of_config(NETWORK), tmp_path / "m.bcnn")
    with pytest.raises(
        UserError, match=r"this program needs [\d,]+ bytes of RAM, and --ram is 100; nothing was written"
    ):
        export(tmp_path / "m.bcnn", "c", tmp_path / "out", ram="100")
    with pytest.raises(UserError, match=r"--ram is '8k', not a whole number of bytes"):
        export(tmp_path / "m.bcnn", "c", tmp_path / "out", ram="8k")
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_way_of_the_folder_is_left_alone(tmp_path: Path) -> None:
    packfile.save(fixed_of_config(NETWORK), tmp_path / "m.bcnn")
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UserError, match="it is a file; give a folder with -o"):
        export(tmp_path / "m.bcnn", "c", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_somebodys_files_are_not_written_over_but_an_export_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-compiler-here")
    packfile.save(fixed_of_config(NETWORK), tmp_path / "m.bcnn")
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(UserError, match=r"has a README.md that is not of an export; give another folder with -o"):
        export(tmp_path / "m.bcnn", "c", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"m.bcnn", "README.md"}
    (tmp_path / "README.md").unlink()
    export(tmp_path / "m.bcnn", "c", tmp_path)
    (tmp_path / "README.md").write_text("of an export, and changed")
    export(tmp_path / "m.bcnn", "c", tmp_path)
    assert "changed" not in (tmp_path / "README.md").read_text()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_gets_one_sentence(tmp_path: Path) -> None:
    packfile.save(fixed_of_config(NETWORK), tmp_path / "m.bcnn")
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(UserError, match="no permission to write in"):
        export(tmp_path / "m.bcnn", "c", tmp_path / "closed" / "out")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_place_where_nothing_can_be_written_gets_one_sentence(tmp_path: Path) -> None:
    packfile.save(fixed_of_config(NETWORK), tmp_path / "m.bcnn")
    with pytest.raises(UserError, match=r"cannot write /proc/self/out: "):
        export(tmp_path / "m.bcnn", "c", "/proc/self/out")


@needs_compiler
def test_a_compiler_that_fails_is_said_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packfile.save(fixed_of_config(NETWORK), tmp_path / "m.bcnn")
    monkeypatch.setenv("CC", f"{COMPILER[0]} -fno-such-option")
    with pytest.raises(UserError, match=r"nothing was written: .*no-such-option"):
        export(tmp_path / "m.bcnn", "c", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_mean_of_too_many_values_is_one_sentence() -> None:
    program = named([FixedDraw(0).fixed_input(256, 257), o.GlobalAvgPool(0)])
    with pytest.raises(UserError, match=r"op 1 \(GlobalAvgPool .*a mean of 65,792 values"):
        tables(program)


def test_without_a_compiler_it_says_what_was_not_run(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "nothing"))
    lines = export(digits, "c", tmp_path / "out")
    assert lines[-1].startswith("Not run here: there is no C compiler")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "model.c",
        "model.h",
        "test.c",
        "CMakeLists.txt",
        "README.md",
    }


def test_the_command_prints_flash_and_ram(digits: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["export", str(digits), "--to", "c", "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "bytes of flash for constants" in result.output
    assert len((tmp_path / "out" / "README.md").read_text().splitlines()) <= 14


def test_a_title_cannot_leave_its_comment(tmp_path: Path) -> None:
    assert c._comment('*/ #include "x" \\') == '   #include "x"  '
    assert c._labels("n", ('a"b\\', "ü")) == '#define BCNN_N_LABELS {"a\\042b\\134", "\\303\\274"}\n'
