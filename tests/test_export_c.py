"""`bcnn export --to c`: the C program equals the interpreter, without undefined behaviour, in the flash and RAM that were announced."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import samples
from bcnn.cli import export as verb  # noqa: F401  (importing it adds the verb)
from bcnn.cli.app import app
from bcnn.deploy import packfile, shipped
from bcnn.errors import UserError
from bcnn.export import c, export
from bcnn.export.c_plan import complete, plan, row_size, touched
from bcnn.export.c_tables import tables
from bcnn.nets.config import Level, NetworkConfig
from bcnn.program import ops as o
from bcnn.program.program import Program
from fixed_programs import FixedDraw, fixed_of_config, random_fixed_program
from programs import named

NETWORK = NetworkConfig(name="tiny", image_size=(8, 8), classes=10, stem=Level(1, 1, 2), levels=(Level(1, 2, 2),))
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


def says(folder: Path, *options: str) -> str:
    assert COMPILER is not None
    return c.build_and_run(COMPILER, folder, *options)


@pytest.fixture(scope="module")
def digits() -> Path:
    return shipped.find("digits")


@needs_compiler
@pytest.mark.parametrize("seed", range(24))
def test_random_programs_equal_the_interpreter_under_both_sanitizers(seed: int, tmp_path: Path) -> None:
    assert says(written(random_fixed_program(seed), tmp_path), *SANITIZED) == "equal: 2 test vectors, 0 wrong\n"


@needs_compiler
@pytest.mark.parametrize("only", ["depthwise", "binary_conv", "pool", "global_avg_pool", "conv"])
def test_every_kind_of_op_alone_equals_the_interpreter(only: str, tmp_path: Path) -> None:
    program = random_fixed_program(7, 13, 11, 4, 40, only=[only])
    assert says(written(program, tmp_path), *SANITIZED).startswith("equal")


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
    assert "is" in says(tmp_path)
    assert not says(tmp_path).startswith("equal")


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
def test_digits_in_integers_needs_the_flash_and_ram_it_says(digits: Path, tmp_path: Path) -> None:
    lines = export(digits, "c", tmp_path / "out")
    flash, ram = (int(n.replace(",", "")) for n in re.findall(r"([\d,]+) bytes", lines[0])[:2])
    assert flash <= 40_000
    assert ram <= 8_000
    assert "every output equals" in lines[-1]
    assert says(tmp_path / "out", *SANITIZED).startswith("equal")
    names = ("words", "wide", "slots", "numbers", "bytes", "needs", "branches", "endings", "ops")
    source = (
        tmp_path / "out" / "model.c"
    ).read_text() + '#include <stdio.h>\nint main(void) { printf("%u %u\\n", (unsigned)('
    source += " + ".join(f"sizeof {name}" for name in names) + "), (unsigned)BCNN_OUT_ARENA_BYTES); return 0; }\n"
    (tmp_path / "out" / "sizes.c").write_text(source)
    built = tmp_path / "sizes"
    subprocess.run([str(COMPILER), "-std=c99", str(tmp_path / "out" / "sizes.c"), "-o", str(built)], check=True)
    assert subprocess.run([built], capture_output=True, text=True).stdout == f"{flash} {ram}\n"


@needs_compiler
def test_it_compiles_with_every_warning_and_as_cpp_header(digits: Path, tmp_path: Path) -> None:
    export(digits, "c", tmp_path / "out")
    assert says(tmp_path / "out", *STRICT, "-Wconversion", "-Wno-sign-conversion", "-Wshadow").startswith("equal")


@pytest.mark.parametrize("seed", range(40))
def test_rows_that_live_at_the_same_time_have_places_of_their_own(seed: int) -> None:
    program = random_fixed_program(seed)
    own = plan(program)
    owner = np.full(own.numbers, -1)  # the row that a number of RAM belongs to now
    made = [0] * len(program.ops)
    ids = {(i, y): n for n, (i, y) in enumerate((i, y) for i, rows in enumerate(own.slots) for y in range(len(rows)))}
    for i in own.order:
        for read in own.reads[i]:
            if isinstance(program.ops[read.map], o.FixedConstant):
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


def test_a_program_in_floats_is_sent_to_convert(tmp_path: Path) -> None:
    packfile.save(samples.in_floats("digits"), tmp_path / "float.bcnn")
    with pytest.raises(UserError, match=r"--to c knows int16 only; .* bcnn convert"):
        export(tmp_path / "float.bcnn", "c", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_mean_of_too_many_values_is_one_sentence() -> None:
    program = named([FixedDraw(0).fixed_input(256, 257), o.FixedGlobalAvgPool(0)])
    with pytest.raises(UserError, match=r"op 1 \(FixedGlobalAvgPool .*a mean of 65,792 values"):
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
