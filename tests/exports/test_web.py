"""`--to web` without a browser: the page's script in node against Python, and the page as a text."""

from __future__ import annotations

import base64
import copy
import functools
import json
import re
import zlib
from pathlib import Path

import corpus
import numpy as np
import pytest
import samples
import tampered_files
from integer_programs import random_fixed_program
from node import answers, encoded, floats, needs_node
from PIL import Image
from programs import named, random_program
from tools.release import wasm

from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.exports import web
from bcnn.packed import packfile, shipped
from bcnn.program import ops
from bcnn.program.interpret import as_real, interpret_maps
from bcnn.program.program import Program

SIZES = [(1, 1), (3, 5), (9, 7), (12, 12), (8, 65), (5, 1)]


def saved(program: Program, path: Path, seeds: tuple[int, ...] = (0, 1)) -> bytes:
    packfile.save(program, path, seeds)
    return path.read_bytes()


# --- the engine -----------------------------------------------------------------------------------------------------------


def test_the_engine_is_built_from_these_sources():
    assert wasm.built_from(web.ENGINE.read_bytes()) == wasm.sources_digest(), (
        "build it again: python -m tools.release.wasm"
    )


def test_the_engine_is_small():
    assert len(zlib.compress(web.ENGINE.read_bytes(), 9)) < 200_000  # as it is in a page


@needs_node
def test_every_shipped_model_is_verified_by_the_page():
    jobs = [{"file": encoded(shipped.find(name).read_bytes()), "run": True} for name in shipped.names()]
    for answer in answers(jobs):
        assert answer["equal"] == answer["seeds"] > 0


@needs_node
@pytest.mark.parametrize(("numbers", "draw"), [("float32", random_program), ("int16", random_fixed_program)])
def test_every_map_of_random_programs_is_the_interpreters(numbers, draw, tmp_path):
    programs = [draw(seed, *SIZES[seed % len(SIZES)], ops=3 + seed % 8) for seed in range(60)]
    kinds = {cls.__name__ for cls in ops.Op.kinds(numbers).values()}
    assert kinds == {type(op).__name__ for program in programs for op in program.ops}
    jobs, wanted = [], []
    for program in programs:
        height, width, _ = program.shapes[0]
        image = np.random.default_rng(height * width).integers(0, 256, (height, width, 3), dtype=np.uint8)
        file = saved(program, tmp_path / "a.bcnn")
        jobs.append({"file": encoded(file), "run": True, "maps": encoded(image), "pixels": encoded(image)})
        wanted.append(interpret_maps(program, image))
    for number, (program, answer, maps) in enumerate(zip(programs, answers(jobs), wanted, strict=True)):
        assert "error" not in answer, (number, answer)
        assert answer["shapes"] == [list(shape) for shape in program.shapes]
        assert answer["equal"] == 2
        for index, (made, want) in enumerate(zip(answer["maps"], maps, strict=True)):
            values = np.frombuffer(base64.b64decode(made), want.dtype)
            same = np.array_equal(values, want.reshape(-1), equal_nan=numbers == "float32")
            assert same, f"program {number}, op {index}, {type(program.ops[index]).__name__}"
        logits = as_real(program, maps[-1]).reshape(-1)
        assert np.array_equal(floats(answer["logits"]), logits, equal_nan=True)


@needs_node
def test_another_logit_in_the_file_is_a_vector_that_differs(tmp_path):
    raw = saved(random_program(1, 4, 4, ops=3), tmp_path / "a.bcnn")
    header, program, data = tampered_files.parts(raw)
    data["test"] = bytes([data["test"][0] ^ 1, *data["test"][1:]])
    wrong = tampered_files.forged(header, program, data)
    assert [answer["equal"] for answer in answers([{"file": encoded(wrong), "run": True}])] == [1]


# --- hostile files --------------------------------------------------------------------------------------------------------

WRONG = [
    -1,
    0,
    1,
    2,
    3,
    1 << 20,
    1 << 31,
    1 << 40,
    1 << 62,
    1.0,
    2.5,
    "x",
    "",
    None,
    True,
    [],
    [1],
    [0, 0],
    [3, 3],
    [[]],
    {},
]


def places(value, path=()):
    """Where something stands in the lists of a program."""
    yield path
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def changed(program, path, value):
    made = copy.deepcopy(program)
    at = made["ops"]
    for index in path[:-1]:
        at = at[index]
    at[path[-1]] = value
    return made


def refused(raw: bytes, path: Path) -> str | None:
    path.write_bytes(raw)
    try:
        packfile.open_packed(path)
    except UserError as error:
        return str(error)
    return None


@needs_node
@pytest.mark.parametrize(
    "make", [samples.every_op, *(functools.partial(random_fixed_program, seed, 6, 6, ops=12) for seed in range(3))]
)
def test_the_page_refuses_what_python_refuses_whatever_field_is_changed(make, tmp_path):
    """Hashes are made right, so that every change reaches the checks of fields and shapes."""
    raw = saved(make(), tmp_path / "a.bcnn", ())
    header, program, data = tampered_files.parts(raw)
    rng = np.random.default_rng(0)
    files = []
    for path in list(places(program["ops"]))[1:]:
        for value in rng.choice(len(WRONG), 3, replace=False):
            files.append(tampered_files.forged(copy.deepcopy(header), changed(program, path, WRONG[value]), dict(data)))
    assert len(files) > 200
    agree(files, tmp_path)


@needs_node
def test_the_page_refuses_what_python_refuses_of_damaged_files(tmp_path):
    raw = saved(random_program(4, 3, 3, ops=5), tmp_path / "a.bcnn")
    rng = np.random.default_rng(1)
    files = [raw[:length] for length in (0, 1, 8, 9, 100, len(raw) - 1)] + [raw + b"\0"]
    for _ in range(200):
        flipped = bytearray(raw)
        flipped[rng.integers(len(raw))] ^= 1 << rng.integers(8)
        files.append(bytes(flipped))
    files += corpus.containers().values()
    agree([*files, *corpus.packed().values()], tmp_path)


@needs_node
@pytest.mark.parametrize(
    ("key", "value"),
    [("crop", v) for v in ("0.5", "1", "1.0", "0", "2", "0.01", "null", "true", "[1]", "1e400", "NaN", "-0.5")]
    + [("test_seeds", v) for v in ("[0.0]", "[-1]", "[2147483648]", "0", "[null]", "[9]")]
    + [("labels", v) for v in ('["a"]', '["a\\u0000"]', '["\\ud800"]', "[1]", '"ab"', '["a\\u00a0b"]', '["\\u200b"]')]
    + [("names", v) for v in ("[]", "null", '{"a": 1, "a": 2}')],
)
def test_the_page_refuses_what_python_refuses_beside_the_ops(key, value, tmp_path):
    header, program, data = tampered_files.parts(
        saved(named((*random_program(1, 4, 4, ops=1).ops,)), tmp_path / "a.bcnn", (5,))
    )
    text = re.sub(rf'("{key}": )', r"\1 @", json.dumps({**program, key: 0})).replace("@0", value)
    assert value in text
    agree([tampered_files.forged(header, program, data, text=text)], tmp_path)


def agree(files: list[bytes], folder: Path) -> None:
    """Page and Python open the same files; what the page refuses is said in a sentence."""
    for number, (raw, answer) in enumerate(zip(files, answers([{"file": encoded(raw)} for raw in files]), strict=True)):
        sentence = refused(raw, folder / "x.bcnn")
        assert (sentence is None) == ("error" not in answer), (number, sentence, answer)
        assert answer.get("sentence", True), answer


@needs_node
def test_an_op_that_the_engine_lacks_is_a_sentence(tmp_path, monkeypatch):
    header, program, data = tampered_files.parts(saved(random_program(1, 4, 4, ops=1), tmp_path / "a.bcnn"))
    program["ops"].append(["Teleport", 0])
    [answer] = answers([{"file": encoded(tampered_files.forged(header, program, data))}])
    assert answer["sentence"]
    program["names"].append("last")
    [answer] = answers([{"file": encoded(tampered_files.forged(header, program, data))}])
    assert 'is "Teleport", which this page does not know' in answer["error"]


@needs_node
def test_a_small_file_that_asks_for_hours_is_refused(tmp_path):
    raw = saved(named((ops.Input(8, 8, np.ones(3, np.float32), np.zeros(3, np.float32)),)), tmp_path / "a.bcnn", ())
    header, program, data = tampered_files.parts(raw)
    program["ops"] += [["Upsample", 0, [1024, 1024]], ["MaxPool", 1, [[512, 512], [1, 1]]]]
    program["names"] += ["big", "slow"]
    [answer] = answers([{"file": encoded(tampered_files.forged(header, program, data)), "run": True}])
    assert answer["sentence"]
    assert "operations, the limit of this page" in answer["error"] or "too large" in answer["error"]


# --- photos ---------------------------------------------------------------------------------------------------------------


@needs_node
def test_photos_are_resized_and_cropped_to_pythons_bytes():
    rng = np.random.default_rng(0)
    cases = [(int(w), int(h), size, crop) for (w, h), size, crop in (
        ((32, 32), (32, 32), 1.0), ((64, 48), (32, 32), 0.875), ((48, 64), (32, 24), 0.875), ((7, 3), (32, 32), 1.0),
        ((640, 480), (180, 240), 0.9), ((1, 1), (8, 8), 0.05), ((33, 32), (32, 32), 1.0), ((32, 33), (32, 32), 1.0),
        ((1000, 3), (224, 224), 0.875), ((2, 1500), (224, 224), 0.875), ((30000, 1), (64, 64), 0.875), ((500, 375), (224, 224), 0.875),
    )]  # fmt: skip
    cases += [
        (int(rng.integers(1, 300)), int(rng.integers(1, 300)), (int(rng.integers(1, 70)), int(rng.integers(1, 70))), float(rng.uniform(0.05, 1)))
        for _ in range(60)
    ]  # fmt: skip
    jobs, wanted = [], []
    for width, height, size, crop in cases:
        pixels = rng.integers(0, 256, (height, width, 4), dtype=np.uint8)
        jobs.append(
            {"resize": {"width": width, "height": height, "size": size, "crop": crop}, "pixels": encoded(pixels)}
        )
        wanted.append(images.fit(Image.fromarray(np.ascontiguousarray(pixels[..., :3])), size, crop))
    for case, answer, want in zip(cases, answers(jobs), wanted, strict=True):
        made = np.frombuffer(base64.b64decode(answer["pixels"]), np.uint8)
        assert (made == want.reshape(-1)).all(), case


# --- the page -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("web") / "digits.html"
    lines = web.export(packfile.open_packed(shipped.find("digits")), path)
    assert f"{path.stat().st_size:,} bytes" in lines[0]
    return path.read_text(encoding="utf-8")


def test_the_page_asks_nobody_for_anything(page):
    text = re.sub(r'<script type="text/plain".*?</script>', "", page, flags=re.DOTALL)
    assert not re.search(r"https?://|@import|url\(|\bsrc=|\bhref=|fetch\(|XMLHttpRequest|import\(", text)
    assert "default-src 'none'" in page


def test_the_policy_names_the_script_and_the_style_that_are_there(page):
    for tag in ("style", "script"):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
        assert web._hash(content) in page


def test_the_page_holds_the_packed_file_to_the_byte(page):
    [model] = re.findall(r'id="model"[^>]*>([^<]*)</script>', page)
    assert model == encoded(shipped.find("digits").read_bytes())


def test_the_page_is_as_large_as_what_it_holds(page):
    engine = len(zlib.compress(web.ENGINE.read_bytes(), 9))
    assert len(page) < 4 / 3 * (shipped.find("digits").stat().st_size + engine) + 80_000


def test_every_op_and_ending_has_a_rule_in_the_page():
    """A new op needs one in shapes.js or shapes_fixed.js, or pages refuse the networks that have it."""
    rules = "".join((web.PARTS / name).read_text(encoding="utf-8") for name in ("shapes.js", "shapes_fixed.js"))
    for kind in (*ops.Op.KINDS, *ops.Ending.KINDS):
        assert re.search(rf"^  {kind}(\(|: )", rules, flags=re.MULTILINE), kind


def test_a_name_is_a_text_in_the_page_and_nothing_else(tmp_path):
    program = random_program(1, 4, 4, ops=1)
    path = tmp_path / "a.bcnn"
    packfile.save(program, path)
    made = web.page(packfile.open_packed(path), "<script>{{model}}")
    assert "<script>{{model}}" not in made
    assert "&lt;script&gt;" in made


def test_a_network_that_no_browser_could_run_is_refused_before_anything_is_written(tmp_path):
    slow = [ops.Input(512, 512, np.ones(3, np.float32), np.zeros(3, np.float32))]
    window = ops.Window((255, 255), (1, 1), (127, 127, 127, 127))
    slow += [ops.MaxPool(0, window)]
    packfile.save(named(slow), tmp_path / "slow.bcnn", ())
    with pytest.raises(UserError, match="a page"):
        web.export(packfile.open_packed(tmp_path / "slow.bcnn"), tmp_path / "slow.html")
    assert not (tmp_path / "slow.html").exists()


def test_test_vectors_that_are_not_the_programs_are_refused(tmp_path):
    raw = saved(random_program(1, 4, 4, ops=3), tmp_path / "a.bcnn")
    header, program, data = tampered_files.parts(raw)
    data["test"] = bytes([data["test"][0] ^ 1, *data["test"][1:]])
    (tmp_path / "b.bcnn").write_bytes(tampered_files.forged(header, program, data))
    with pytest.raises(UserError, match="bcnn verify"):
        web.export(packfile.open_packed(tmp_path / "b.bcnn"), tmp_path / "b.html")
