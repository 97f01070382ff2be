"""`bcnn export --to onnx`: what is written computes the program, with == wherever ONNX leaves no choice of order."""

from __future__ import annotations

import builtins
import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import programs
import pytest
import samples
from integer_programs import FixedDraw, fixed_of_config, random_fixed_program
from paths import ROOT
from PIL import Image
from typer.testing import CliRunner

from bcnn.base.errors import UserError
from bcnn.base.version import __version__
from bcnn.cli import export as verb  # noqa: F401  (importing it adds the verb)
from bcnn.cli.app import app
from bcnn.exports import TARGETS, check, export, targets
from bcnn.integers import convert
from bcnn.packed import packfile, shipped
from bcnn.program import ops as o
from bcnn.program.bits import pack_bits
from bcnn.program.interpret import interpret_maps
from bcnn.program.program import Program

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")
onnxruntime = pytest.importorskip("onnxruntime")
from bcnn.exports.onnx_forms import onnx_model  # noqa: E402

FORMS = ["bits", "int8"]
# Everything but where a runtime adds in its own order: real convolutions, averages, sigmoids.
EXACT = ["module", "binary_conv", "pointwise", "constant", "concat", "select", "upsample"]


def run(model: Any, images: np.ndarray) -> list[Any]:
    content = model if isinstance(model, bytes) else model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]).run(
        None, {"image": images}
    )


def maps_of(program: Program, form: str, image: np.ndarray) -> list[np.ndarray]:
    model = onnx_model(program, form, maps=True)
    onnx.checker.check_model(model, full_check=True)
    return [value[0] for value in run(model, image[None])[2:]]


def without_sums(program: Program) -> bool:
    sums = (o.Conv, o.Linear, o.AvgPool, o.GlobalAvgPool, o.ChannelAvg, o.AbsMean)
    endings = [ending for op in program.ops for ending in getattr(op, "after", ())]
    return not any(isinstance(op, sums) for op in program.ops) and not any(isinstance(e, o.Sigmoid) for e in endings)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    packfile.save(samples.every_op(), tmp_path / "tiny.bcnn")
    return tmp_path / "tiny.bcnn"


@pytest.mark.parametrize("form", FORMS)
def test_binary_networks_have_equal_maps_and_logits(form: str) -> None:
    """Branches, groups, shifted filters, padding by bits and by nothing, k x k, replication, and the endings: no tolerance."""
    compared = 0
    for seed in range(40):
        program = programs.random_program(seed, ops=5, only=EXACT)
        if not without_sums(program):  # an ending was a sigmoid
            continue
        image = samples.image(9, 7, seed)
        for made, wanted in zip(maps_of(program, form, image), interpret_maps(program, image), strict=True):
            assert np.array_equal(made, wanted), seed
        compared += 1
    assert compared > 20


@pytest.mark.parametrize("form", FORMS)
def test_every_op_is_itself_up_to_the_order_of_sums(form: str) -> None:
    """Op by op with the same input; dilated and wide pools among them."""
    for seed in range(100, 115):
        program = programs.random_program(seed)
        image = samples.image(9, 7, seed)
        found = check.errors(program, image, maps_of(program, form, image))
        for op, error in zip(program.ops, found, strict=True):
            if isinstance(op, o.BinaryConv) and not any(isinstance(ending, o.Sigmoid) for ending in op.after):
                assert error == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pad", [None, 0, (1 << 33) - 1, 0x155555555])
@pytest.mark.parametrize("shift", [(0, 0), (2, -1), (5, 0), (-5, -4)])
def test_paddings_and_shifts_of_a_binary_convolution_are_exact(
    form: str, pad: int | None, shift: tuple[int, int]
) -> None:
    """Nothing, -1, +1 or a bit for each channel outside the map; filters moved by up to the whole map."""
    rng = np.random.default_rng(1)
    bits = None if pad is None else pack_bits(np.array([pad >> c & 1 for c in range(33)], bool))
    branch = dataclasses.replace(samples.branch(rng, 33, 9, taps=9), pad=bits, shift=shift)
    other = dataclasses.replace(samples.branch(rng, 33, 9, taps=9), pad=bits)
    window = o.Window((3, 3), (1, 1), (1, 1, 1, 1))
    program = samples.program(o.BinaryConv(0, 33, (branch, other), window), height=5, width=4)
    image = samples.image(5, 4)
    assert np.array_equal(maps_of(program, form, image)[1], interpret_maps(program, image)[1])


@pytest.mark.parametrize("pad", [0, 1, 4])
def test_the_largest_value_is_exact(pad: int) -> None:
    """Also padded by more than its kernel, which ONNX Runtime would refuse."""
    window = o.Window((2, 3), (1, 2), (1, pad, 0, min(pad, 2)), (1, 3))
    program = samples.program(o.MaxPool(0, window), height=5, width=9)
    image = samples.image(5, 9)
    assert np.array_equal(maps_of(program, "bits", image)[1], interpret_maps(program, image)[1])


@pytest.mark.parametrize("form", FORMS)
def test_integer_programs_have_equal_maps_whatever_their_ops(form: str) -> None:
    """No tolerance: integers leave a runtime no choice."""
    for seed in range(FORMS.index(form), 16, 2):
        program = random_fixed_program(seed, ops=6)
        image = samples.image(9, 7, seed)
        for made, wanted in zip(maps_of(program, form, image), interpret_maps(program, image), strict=True):
            assert np.array_equal(made, wanted), seed


@pytest.mark.parametrize("after", ["", "p", "pb", "pbs", "pbS", "wb"])
def test_a_module_of_bytes_is_equal_whatever_follows_it(after: str) -> None:
    """Parameters that fit bytes, as converters make them: PReLU, bounds and shifts read rows that the function hands on, but for wide ones."""
    rng = np.random.default_rng(2)

    def rows(step: int) -> np.ndarray:
        return (rng.integers(-127, 127, 16, endpoint=True) * step).astype(np.int16)

    endings = {
        "p": o.FixedPReLU(rows(200), 1),
        "w": o.FixedPReLU(rng.integers(-32768, 32767, 16).astype(np.int16)),
        "b": o.Bound(np.abs(rows(64))),
        "s": o.Shift(2),
        "S": o.Shift(3),  # more than the bound leaves room for
    }
    for up in (0, 3):
        branch = o.FixedBranch(rows(3), pack_bits(rng.random((16, 1, 16)) < 0.5), rows(250), rows(5), up)
        follows = (o.FixedAdd(0, 16), *(endings[letter] for letter in after))
        module = o.FixedBinaryConv(0, 16, (branch,), after=follows)
        program = programs.named([FixedDraw(0).fixed_input(6, 5), module])
        model = onnx_model(program, "bits", maps=True)
        assert "Module" in {function.name for function in model.functions}
        image = samples.image(6, 5, up)
        assert np.array_equal(run(model, image[None])[3][0], interpret_maps(program, image)[1])


def test_an_integer_program_is_written_with_equal_logits(tmp_path: Path) -> None:
    packfile.save(fixed_of_config(samples.TINY_FIXED), tmp_path / "a.bcnn")
    for form in FORMS:
        lines = export(tmp_path / "a.bcnn", "onnx", tmp_path / "a.onnx", weights=form)
        assert "2 test vectors: the logits equal those of the packed file." in lines[-1]
        made = onnx.load(tmp_path / "a.onnx")
        assert {function.name for function in made.functions} >= {"Taps", "Bent", "BinaryConv1"}


def test_integer_logits_that_differ_by_one_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    from bcnn.exports import onnx_fixed

    packfile.save(fixed_of_config(samples.TINY_FIXED), tmp_path / "a.bcnn")
    right = onnx_fixed.OPS[o.FixedConv]
    monkeypatch.setitem(
        onnx_fixed.OPS, o.FixedConv, lambda graph, op: graph.node("Add", right(graph, op), onnx_fixed.whole(graph, 1))
    )
    with pytest.raises(UserError, match=r"nothing was written: op \d+ \(.*\) differs"):
        export(tmp_path / "a.bcnn", "onnx", tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()


def test_a_mean_of_too_many_values_is_one_sentence() -> None:
    draw = FixedDraw(0)
    window = o.Window((129, 128), (1, 1))
    program = programs.named([draw.fixed_input(129, 128), o.AvgPool(0, window)])
    with pytest.raises(UserError, match=r"op 1 \(.*\): is a mean of 16,512 values"):
        onnx_model(program, "bits")


def test_a_batch_gives_what_its_images_give() -> None:
    constant = o.Constant(samples.floats(np.random.default_rng(0), 4, 4, 5))
    convolution = o.BinaryConv(2, 8, (samples.branch(np.random.default_rng(0), 8, 3),))
    program = samples.program(constant, o.Concat((0, 1)), convolution)
    images = np.stack([samples.image(4, 4, seed) for seed in range(3)])
    model = onnx_model(program, "bits", batch="N")
    assert np.array_equal(run(model, images)[0], np.concatenate([run(model, image[None])[0] for image in images]))


def test_probabilities_are_those_of_the_logits(packed: Path) -> None:
    logits, probabilities = run(onnx_model(packfile.read(packed), "int8", batch="N"), samples.image(8, 8)[None])
    wanted = np.exp(logits.astype(np.float64))
    assert probabilities == pytest.approx(wanted / wanted.sum(), rel=1e-5)  # of a float32 e^x that is not ours


def test_a_program_that_ends_in_a_map_keeps_its_pixels() -> None:
    program = programs.random_program(3, ops=3, only=["module"])
    logits, probabilities = run(onnx_model(program, "bits"), samples.image(9, 7)[None])
    assert logits.shape == probabilities.shape == (1, *program.shapes[-1])


@pytest.mark.parametrize("name", shipped.names())
def test_a_model_of_bits_is_hardly_larger_than_the_packed_file(name: str, tmp_path: Path) -> None:
    lines = export(name, "onnx", tmp_path / "model.onnx")
    size = (tmp_path / "model.onnx").stat().st_size
    assert size <= 1.1 * shipped.find(name).stat().st_size
    assert f"{size:,} bytes" in lines[0]
    page = ROOT / "docs" / "devices.md"
    size -= len(__version__) - len(__version__.partition(".dev")[0])  # the page has the sizes of a release
    assert re.search(rf"^\| {name} .*\| {size:,} \(", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert "same first choice for 2 of 2" in lines[-1] or "equal those of the packed file" in lines[-1]


def test_the_reference_of_onnx_computes_the_stored_logits(tmp_path: Path) -> None:
    """A second runtime, the living definition of the operators: functions, loops and splits mean to it what they mean to ONNX Runtime."""
    export("digits", "onnx", tmp_path / "m.onnx")
    reference = onnx.reference.ReferenceEvaluator(str(tmp_path / "m.onnx"))
    packed = packfile.open_packed(shipped.find("digits"))
    for seed, wanted in zip(packed.test_seeds, packed.test_logits, strict=True):
        assert np.array_equal(reference.run(None, {"image": packfile.vector_image(seed, 8, 8)[None]})[0][0], wanted)


def test_a_float_model_of_bits_is_hardly_larger_than_the_packed_file(tmp_path: Path) -> None:
    """Of the smallest, which is the hardest."""
    packed = convert.packed_in_floats(packfile.open_packed(shipped.find("digits")))
    packfile.save(packed.program, tmp_path / "floats.bcnn")
    export(tmp_path / "floats.bcnn", "onnx", tmp_path / "floats.onnx")
    assert (tmp_path / "floats.onnx").stat().st_size <= 1.1 * (tmp_path / "floats.bcnn").stat().st_size


def test_ops_that_are_alike_are_calls_of_one_function(tmp_path: Path) -> None:
    export("digits", "onnx", tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    made = {node.name: node for node in model.graph.node if node.name}
    kinds = {name: node.op_type for name, node in made.items()}
    assert kinds["level1.0.conv3"] == kinds["level2.1.conv3"] != kinds["level1.0.conv1"] == kinds["stem.0.conv1"]
    assert kinds["level1.0.identity"] == kinds["stem.0.identity"] == "Module"
    assert {kinds["level1.0.conv3"], "Module"} <= {function.name for function in model.functions}
    shapes = {given.name: list(given.t.dims) for given in made["level1.0.conv1"].attribute}
    assert shapes == {"bits": [64, 64 // 8, 1], "real": [5, 64], "by": [5, 1]}  # above, scale, offset, bend, limit
    assert not onnx_model(
        convert.packed_in_floats(packfile.open_packed(shipped.find("digits"))).program, "int8"
    ).functions


def test_equal_logits_are_said_to_be_equal(tmp_path: Path) -> None:
    program = programs.random_program(4, ops=4, only=["module", "binary_conv"])
    assert without_sums(program)
    packfile.save(program, tmp_path / "a.bcnn")
    lines = export(tmp_path / "a.bcnn", "onnx", tmp_path / "a.onnx", weights="int8")
    assert "2 test vectors: the logits equal those of the packed file." in lines[-1]


def test_maps_and_parameters_have_the_names_of_their_ops(packed: Path, tmp_path: Path) -> None:
    export(packed, "onnx", tmp_path / "m.onnx")
    names = list(packfile.read(packed).names)
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert [node.name for node in graph.node if node.name] == names  # a node has its op's name, a map is a letter
    constants = {constant.name for constant in graph.initializer}
    assert {"layer2.binaryconv.real", "layer3.conv.weight"} <= constants
    assert [value.name for value in (*graph.input, *graph.output)] == ["image", "logits", "probabilities"]
    export(packed, "onnx", tmp_path / "m.onnx", weights="int8")
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert set(names) <= {name for node in graph.node for name in node.output}
    constants = {constant.name for constant in graph.initializer}
    assert {"layer2.binaryconv.branch0.threshold", "layer2.binaryconv.branch1.weight"} <= constants
    named = [node.name for node in graph.node if node.name]
    assert len(named) == len(set(named))


def test_names_that_meet_stay_apart() -> None:
    made = samples.every_op()
    for names in (
        ("image",) * len(made.ops),
        ("logits",) * len(made.ops),
        tuple(map(str, range(len(made.ops)))),
        ("",) * len(made.ops),
    ):
        program = dataclasses.replace(made, names=names)
        image = samples.image(8, 8)
        assert len(check.errors(program, image, maps_of(program, "bits", image))) == len(made.ops)


def test_labels_and_card_travel_in_the_metadata(tmp_path: Path) -> None:
    export("digits", "onnx", tmp_path / "m.onnx")
    facts = {prop.key: json.loads(prop.value) for prop in onnx.load(tmp_path / "m.onnx").metadata_props}
    program = packfile.read(shipped.find("digits"))
    assert facts["labels"] == list(program.labels)
    assert facts["crop"] == program.crop
    card = program.provenance["card"]
    assert facts["card"] == {
        name: card[name] for name in ("title", "about", "limits", "data", "licence", "images", "top1")
    }


def test_the_page_about_devices_runs(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    page = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    export("imagenette", "onnx", "imagenette.onnx")
    Image.fromarray(samples.image(90, 120)).save("photo.jpg")
    exec(code, {})
    assert capsys.readouterr().out.strip() in packfile.read(shipped.find("imagenette")).labels


def test_a_model_that_computes_something_else_is_not_written(packed: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from bcnn.exports import onnx_ops

    right = onnx_ops.OPS[o.BinaryConv]
    monkeypatch.setitem(onnx_ops.OPS, o.BinaryConv, lambda graph, op: graph.node("Neg", right(graph, op)))
    with pytest.raises(UserError, match=r"nothing was written: op 1 \(layer2.binaryconv\) differs"):
        export(packed, "onnx", tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_without_onnxruntime_it_says_what_was_not_checked(packed: Path, tmp_path: Path, monkeypatch: Any) -> None:
    _hide(monkeypatch, "onnxruntime")
    lines = export(packed, "onnx", tmp_path / "m.onnx")
    assert "Not checked: what it computes" in lines[-1]
    assert (tmp_path / "m.onnx").exists()


def test_without_onnx_it_says_what_to_install(packed: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delitem(__import__("sys").modules, "bcnn.exports.onnx", raising=False)
    _hide(monkeypatch, "onnx")
    with pytest.raises(UserError, match=r"--to onnx needs onnx; install it with: pip install 'bcnn\[onnx\]'"):
        export(packed, "onnx", tmp_path / "m.onnx")


def _hide(monkeypatch: Any, package: str) -> None:
    real = builtins.__import__

    def importing(name: str, *rest: Any, **more: Any) -> Any:
        if name == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", importing)


# --- the frame ----------------------------------------------------------------------------------------------------------


def test_bad_input_gets_one_sentence(packed: Path, tmp_path: Path) -> None:
    for words, sentence in (
        (("onx", tmp_path / "m.onnx"), "cannot export to 'onx'; did you mean 'onnx'?"),
        (("onnx", tmp_path / "none" / "m.onnx"), f"there is no folder {tmp_path / 'none'}"),
        (("onnx", tmp_path), "it is a folder; give a file with -o"),
        (("onnx", packed), "is the packed file itself"),
    ):
        with pytest.raises(UserError) as error:
            export(packed, *words)
        assert sentence in str(error.value)
    with pytest.raises(UserError, match="--weights is 'int4'; --to onnx knows bits, int8"):
        export(packed, "onnx", tmp_path / "m.onnx", weights="int4")
    with pytest.raises(UserError, match="--colour is no option of --to onnx"):
        export(packed, "onnx", tmp_path / "m.onnx", colour="red")
    assert packfile.open_packed(packed)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_gets_one_sentence(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(UserError, match="no permission to write in"):
        export(packed, "onnx", tmp_path / "closed" / "m.onnx")


def test_a_disk_that_refuses_gets_one_sentence(packed: Path, tmp_path: Path, monkeypatch: Any) -> None:
    import bcnn.exports.onnx as target

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(target, "write_atomic", full)
    with pytest.raises(UserError, match=r"cannot write .*m\.onnx: No space left on device"):
        export(packed, "onnx", tmp_path / "m.onnx")


def test_an_op_that_a_target_cannot_say_is_named(packed: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from bcnn.exports import onnx_ops

    monkeypatch.delitem(onnx_ops.OPS, o.MaxPool)
    with pytest.raises(UserError, match=r"op 4 \(layer5.maxpool\): a MaxPool has no ONNX form"):
        export(packed, "onnx", tmp_path / "m.onnx")


def test_a_target_that_knows_floats_only_says_what_it_makes_of_integers(tmp_path: Path) -> None:
    lines = export("digits", "qonnx", tmp_path / "m.onnx")
    assert lines[0].startswith(
        "digits.bcnn computes in integers, --to qonnx in float32: written is the float32 network"
    )


def test_the_verb_prints_what_it_wrote_and_checked(packed: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["export", str(packed), "--to", "onnx", "-o", str(tmp_path / "m.onnx"), "--weights", "int8"]
    )
    assert result.exit_code == 0, result.output
    assert "Wrote" in result.output
    assert "ONNX Runtime" in result.output
    assert (tmp_path / "m.onnx").exists()


def test_without_a_path_the_file_has_the_name_of_the_model(packed: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    export(packed, "onnx")
    assert (tmp_path / "tiny.onnx").exists()


def test_without_a_target_every_target_is_listed_and_has_a_module() -> None:
    result = CliRunner().invoke(app, ["export", "digits"])
    assert result.exit_code == 2
    for name, target in TARGETS.items():
        assert (Path(targets.__file__).parent / f"{target.module}.py").exists()
        assert re.search(rf"^--to {name} +{re.escape(target.about)}$", result.output, re.MULTILINE)
