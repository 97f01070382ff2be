"""The benchmark's own parts: model builders give the network's maps, statistics are right, a missing rival costs one line."""

from __future__ import annotations

import builtins
import dataclasses
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import samples
from paths import ROOT
from typer.testing import CliRunner

from bcnn.base.errors import UserError
from bcnn.bench import rivals, timing
from bcnn.bench.rival import Job, Rival, SkippedError
from bcnn.bench.sample import sample_image
from bcnn.exports.check import WrongResultError, check_maps
from bcnn.nets.config import Level, NetworkConfig
from bcnn.program import ops as o
from bcnn.program.interpret import interpret_maps


def tiny(**changes: Any) -> Job:
    """Every kind of block: replication, a down and a normal block, a decoder."""
    config = NetworkConfig(name="tiny", image_size=(8, 8), classes=5, levels=(Level(2),)).replace(**changes)
    return rivals.job_of(config)


def drawn(*ops: o.Op) -> Job:
    """Ops on a map of 9 x 11."""
    program = samples.program(*ops, o.GlobalAvgPool(len(ops)), height=9, width=11)
    return Job(program, sample_image(9, 11))


def conv(source: int, k: int, out: int, pad: int | None = None, stride: int = 1, after: tuple[Any, ...] = ()) -> o.Op:
    """A binary 3x3 convolution. Its numbers lie on no grid: where values meet their thresholds exactly, rounding decides."""
    rng = np.random.default_rng(source)
    window = o.Window((3, 3), (stride, stride), (1, 1, 1, 1))
    scale = rng.standard_normal(out).astype(np.float32) / np.float32(3 * k**0.5)
    branch = dataclasses.replace(
        samples.branch(rng, k, out, taps=9),
        threshold=rng.standard_normal(k).astype(np.float32),
        scale=scale,
        offset=scale * np.float32(-4.5 * k) + rng.standard_normal(out).astype(np.float32),
        pad=None if pad is None else np.array([pad], np.uint32),
    )
    return o.BinaryConv(source, k, (branch,), window, after=after)


@pytest.mark.parametrize("products", ["float", "int8"])
@pytest.mark.parametrize("prelu", ["block", "module"])
def test_onnx_model_makes_every_map_of_the_program(products: Any, prelu: str) -> None:
    pytest.importorskip("onnxruntime")
    onnx_runtime = pytest.importorskip("bcnn.bench.onnx_runtime")
    job = tiny(prelu=prelu, branches=2)
    rival = onnx_runtime.binary_network(job, products)
    assert f"{len(job.program.ops)} of {len(job.program.ops)} maps" in rival.checked


def test_onnx_model_on_standard_operators_reads_shifted_pixels_and_slopes_above_one() -> None:
    """The parts that the timed models of the paper's network do not have: filters of 3x3, PReLU slopes > 1, part replicas."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    from bcnn.bench.onnx_runtime import nhwc_maps, session
    from bcnn.bench.pytorch import program_of, sample_network
    from bcnn.exports.onnx_forms import onnx_model

    config = NetworkConfig(name="tiny", image_size=(8, 8), classes=5, levels=(Level(1, 2, 1.5, filter=3),))
    network = sample_network(config)
    for parameter in network.parameters():
        if parameter.dim() == 1:  # biases, slopes, norms: also beyond 1
            parameter.data *= 4
    program, image = program_of(network), sample_image(8, 8)
    for products in ("float", "int8", "bits"):
        values = session(onnx_model(program, products, maps=True), 1).run(None, {"image": image[None]})
        check_maps(program, image, nhwc_maps(values[2:], products))


@pytest.mark.parametrize("products", ["float", "int8", "bits"])
def test_onnx_model_makes_every_map_of_every_kind_of_op(products: Any) -> None:
    pytest.importorskip("onnxruntime")
    from bcnn.bench.onnx_runtime import nhwc_maps, session
    from bcnn.exports.onnx_forms import onnx_model

    program, image = samples.every_op(), sample_image(8, 8)
    values = session(onnx_model(program, products, maps=True), 1).run(None, {"image": image[None]})
    assert f"{len(program.ops)} of {len(program.ops)} maps" in check_maps(
        program, image, nhwc_maps(values[2:], products)
    )


WIDE = (
    conv(0, 16, 16, after=(o.PReLU(np.full(16, 0.25, np.float32)),)),
    conv(1, 16, 24, stride=2),
    conv(2, 24, 24, pad=0),  # -1 outside the map
    conv(3, 24, 24, pad=(1 << 24) - 1),  # +1
    o.MaxPool(4, o.Window((3, 3), (1, 1), (1, 1, 1, 1))),
    o.AvgPool(5, o.Window((3, 3), (2, 2), (1, 1, 1, 1)), True),
)


@pytest.mark.parametrize(
    "runtime", ["ONNX Runtime, float Conv", "ONNX Runtime, MatMulInteger", "OpenVINO, BinaryConvolution"]
)
def test_rivals_compute_binary_convolutions_of_nine_taps_with_every_padding(runtime: str) -> None:
    pytest.importorskip("onnxruntime" if "ONNX" in runtime else "openvino")
    assert "8 of 8 maps" in rivals.MAKERS[runtime](drawn(*WIDE)).checked


def test_openvino_skips_what_it_cannot_say_with_a_reason() -> None:
    pytest.importorskip("openvino")
    makers = {"OpenVINO, BinaryConvolution": rivals.MAKERS["OpenVINO, BinaryConvolution"]}
    for op, reason in (
        (conv(0, 16, 16, pad=5), "pads all channels with one value"),
        (o.Upsample(0, (2, 2)), "Upsample is not built for OpenVINO"),
        (o.BinaryConv(0, 9, (samples.branch(np.random.default_rng(0), 9, 8),)), "divisible by 8"),
    ):
        assert reason in rivals.contest(drawn(op), 1, makers).skipped["OpenVINO, BinaryConvolution"]


def test_openvino_model_makes_every_map_on_binary_primitives() -> None:
    openvino_runtime = pytest.importorskip("bcnn.bench.openvino_runtime")
    job = tiny(branches=2)
    rival = openvino_runtime.binary_network(job)
    assert f"{len(job.program.ops)} of {len(job.program.ops)} maps" in rival.checked
    assert "_u1" in rival.computes


def test_torch_eager_is_checked_against_the_program() -> None:
    pytorch = pytest.importorskip("bcnn.bench.pytorch")
    job = rivals.job_of(NetworkConfig(name="tiny", image_size=(8, 8), classes=5, levels=(Level(2),)))
    assert "maps" in pytorch.eager(job).checked


def test_mobilenet_has_the_macs_of_its_paper() -> None:
    mobilenet = pytest.importorskip("bcnn.bench.mobilenet")
    assert mobilenet.mobilenet_model()[1] == 568_740_352


def test_check_names_the_op_with_one_wrong_sign() -> None:
    job = tiny()
    maps = interpret_maps(job.program, job.image)
    check_maps(job.program, job.image, maps)
    op = job.program.ops[1]
    maps[1] = maps[1].copy()
    maps[1][3, 4, 5] += abs(op.branches[0].scale[5])  # n off by one
    with pytest.raises(WrongResultError, match=r"op 1 \(stem.0.conv1"):
        check_maps(job.program, job.image, maps)


def test_check_fails_on_nan() -> None:
    job = tiny()
    maps = interpret_maps(job.program, job.image)
    maps[2] = np.full_like(maps[2], np.nan)
    with pytest.raises(WrongResultError, match="op 2"):
        check_maps(job.program, job.image, maps)


def test_interleave_takes_turns_and_keeps_min_and_median() -> None:
    order: list[str] = []
    ticks = iter([0, 3, 10, 11, 20, 21, 30, 35, 40, 42, 50, 59])  # a: 3 1 2, b: 1 5 9
    times = timing.interleave(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=3, clock=lambda: float(next(ticks))
    )
    assert order == ["a", "a", "b", "b"] * 3  # one call to warm up, one timed
    assert (times["a"].min, times["a"].median, times["a"].samples) == (1000, 2000, 3)
    assert (times["b"].min, times["b"].median) == (1000, 5000)


def test_missing_and_wrong_rivals_become_lines_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without_openvino(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("openvino"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    def absent(job: Job) -> Rival:
        import openvino  # noqa: F401

        raise AssertionError

    def unfit(job: Job) -> Rival:
        raise SkippedError("one core")

    def wrong(job: Job) -> Rival:
        raise WrongResultError("op 3")

    def ours(job: Job) -> Rival:
        return Rival(rivals.ENGINE, "nothing", lambda: None, "nothing")

    monkeypatch.setattr(builtins, "__import__", without_openvino)
    makers = {rivals.ENGINE: ours, "absent": absent, "unfit": unfit, "wrong": wrong}
    result = rivals.contest(drawn(*WIDE), 2, makers)
    text = result.text()
    assert "absent: skipped, openvino is not installed; pip install 'bcnn[bench]'" in text
    assert "unfit: skipped, one core" in text
    assert "wrong: skipped, its result is WRONG: op 3" in text
    assert [row.ratio for row in result.rows] == [1.0]
    assert json.loads(result.json())["rows"][0]["times"]["samples"] == 2


def test_a_preset_without_torch_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from bcnn.models import bench as bench_model

    monkeypatch.setitem(sys.modules, "bcnn.bench.pytorch", None)  # importing it fails
    with pytest.raises(
        UserError, match=r"to time a preset or config: .*; or time a packed file, such as cifar10, digits"
    ):
        bench_model.job("imagenet-p2")


def test_a_packed_file_without_its_config_skips_torch_with_a_reason() -> None:
    pytest.importorskip("torch")
    result = rivals.contest(drawn(*WIDE), 1, {"PyTorch, eager": rivals.MAKERS["PyTorch, eager"]})
    assert "does not say of which config it is" in result.skipped["PyTorch, eager"]


def test_verb_times_the_engine_and_writes_json(tmp_path: Path) -> None:
    pytest.importorskip("bcnn._core")
    from bcnn.cli import bench  # noqa: F401  (adds the verb)
    from bcnn.cli.app import app

    file = tmp_path / "result.json"
    done = CliRunner().invoke(app, ["bench", "digits", "--rounds", "2", "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert "images/s" in done.stdout
    assert "depth wise" in done.stdout
    result = json.loads(file.read_text())
    assert [row["name"] for row in result["rows"]] == [rivals.ENGINE, rivals.INTEGERS]
    assert {row["name"] for row in result["ops"]["classes"]} >= {"binary conv", "depth wise", "avg pool", "conv"}


def test_targets_are_judged_by_the_fastest_rival_and_missing_ones_are_not_judged() -> None:
    spec = importlib.util.spec_from_file_location("targets", ROOT / "benchmarks" / "rivals.py")
    assert spec is not None
    assert spec.loader is not None
    targets = importlib.util.module_from_spec(spec)
    sys.modules["targets"] = targets  # where its dataclasses look themselves up
    spec.loader.exec_module(targets)

    def row(name: str, ms: float) -> rivals.Row:
        return rivals.Row(name, "", "", timing.Times(ms, ms, ms, 1))

    rows = [
        row(rivals.ENGINE, 2),
        row("PyTorch, eager", 70),
        row("ONNX Runtime, float Conv", 100),
        row("ONNX Runtime, MatMulInteger", 39),
        row("OpenVINO, MobileNetV1 int8", 1.5),
    ]
    found = {v.target: v for v in targets.verdicts(rivals.Contest({}, rows), None, 20.0, None)}
    assert found["35x faster than torch eager"].verdict == "reached"
    assert found["20x faster than torch.compile"].verdict == "not measurable here"
    assert found["20x faster than ONNX Runtime, the faster of its two forms"].measured == "19.50"
    assert found["20x faster than ONNX Runtime, the faster of its two forms"].verdict == "not reached"
    assert found["within 1.35x of the fastest int8 MobileNetV1"].verdict == "reached"  # 1.33
    assert found["a packed file loads in 20 ms"].verdict == "reached"


def test_profile_holds_late_levels_against_the_peak_of_xor_and_popcount() -> None:
    engine = pytest.importorskip("bcnn.engine")
    from bcnn.bench import ops

    wide = NetworkConfig(name="wide", image_size=(4, 4), classes=4, stem=Level(1, 1, 64), levels=())
    profile = ops.profile(engine.Engine(rivals.job_of(wide).program, threads=1), sample_image(4, 4), repeats=2)
    assert profile.late_gmacs > 0
    assert profile.popcount_peak > 0
    assert f"{profile.late_gmacs / profile.popcount_peak:.0%} of the first peak" in profile.text()
    assert f"peak of xor, popcount and add in registers on this core: {profile.popcount_peak:.0f}" in profile.text()
