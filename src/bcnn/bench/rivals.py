"""Every contestant in one table: made, checked, timed in turns. One that is missing here becomes a line that says so.

A maker takes a `Job` and returns a `Rival` that has passed its check. It imports its framework itself, so that a framework
that is not installed costs one line of the table and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bcnn.base.errors import UserError
from bcnn.base.machine import facts
from bcnn.bench.rival import Job, Rival, SkippedError
from bcnn.bench.sample import sample_image
from bcnn.bench.timing import Times, interleave
from bcnn.exports.check import WrongResultError
from bcnn.nets.network_spec import AnyNetwork, from_plain
from bcnn.packed import shipped
from bcnn.program.program import Program

Maker = Callable[[Job], Rival]
ENGINE = "this engine"
INTEGERS = "this engine, int16"
CALIBRATION_IMAGES = 4  # that a program is calibrated on here: time does not depend on them


def engine(job: Job, isa: str | None = None, name: str = ENGINE) -> Rival:
    from bcnn.engine import Engine
    from bcnn.program.interpret import interpret

    batch = np.ascontiguousarray(job.image[None])
    made = Engine(job.program, isa=isa, threads=job.threads)
    if not np.array_equal(np.asarray(made.run(batch)).reshape(-1), interpret(job.program, job.image)):
        raise WrongResultError("logits are not the interpreter's")
    threads = f", {job.threads} threads" if job.threads > 1 else ""
    computes = f"the same network, {job.program.numbers}, {made.isa}{threads}"
    return Rival(name, computes, lambda: made.run(batch), "interpreter, logits ==", job.threads)


def in_integers(job: Job) -> Job:
    """The same network in integers, see integers/quantize.py; a program in integers as it is."""
    from bcnn.integers.quantize import fixed
    from bcnn.integers.synthetic_images import pictures

    if job.program.numbers != "float32":
        return job
    try:
        made = fixed(job.program, pictures(*job.program.shapes[0][:2], CALIBRATION_IMAGES))
    except UserError as error:
        raise SkippedError(str(error)) from None
    return dataclasses.replace(job, program=made.program)


def in_floats(job: Job) -> Job:
    """The same network in float32, see integers/dequantize.py."""
    from bcnn.integers.dequantize import reals

    return dataclasses.replace(job, program=reals(job.program))


def floats(job: Job) -> Rival:
    return engine(in_floats(job))


def integers(job: Job) -> Rival:
    return engine(in_integers(job), name=INTEGERS)


def _torch_eager(job: Job) -> Rival:
    from bcnn.bench import pytorch

    return pytorch.eager(_with_network(job))


def _torch_compiled(job: Job) -> Rival:
    from bcnn.bench import pytorch

    return pytorch.compiled(_with_network(job))


def _with_network(job: Job) -> Job:
    """A packed file holds no torch network, but where it says of which config it is, one with random parameters takes as long."""
    if job.network is not None:
        return job
    config = job.program.provenance.get("config")
    if not isinstance(config, dict) or "network" not in config:
        raise SkippedError("this packed file does not say of which config it is; time a preset instead")
    return job_of(from_plain(config["network"]), job.threads)


def _onnx_float(job: Job) -> Rival:
    from bcnn.bench import onnx_runtime

    return onnx_runtime.binary_network(in_floats(job), "float")


def _onnx_integer(job: Job) -> Rival:
    from bcnn.bench import onnx_runtime

    return onnx_runtime.binary_network(in_floats(job), "int8")


def _openvino(job: Job) -> Rival:
    from bcnn.bench import openvino_runtime

    return openvino_runtime.binary_network(in_floats(job))


def _onnx_mobilenet(job: Job) -> Rival:
    from bcnn.bench import mobilenet

    return mobilenet.on_onnx_runtime(_fits_mobilenet(job))


def _openvino_mobilenet(job: Job) -> Rival:
    from bcnn.bench import mobilenet

    return mobilenet.on_openvino(_fits_mobilenet(job))


def _fits_mobilenet(job: Job) -> Job:
    height, width = job.image.shape[:2]
    if height != width or height % 32:
        raise SkippedError("it halves a square image five times: its side must be a multiple of 32")
    return job


MAKERS: dict[str, Maker] = {
    ENGINE: floats,
    INTEGERS: integers,
    "PyTorch, eager": _torch_eager,
    "PyTorch, torch.compile": _torch_compiled,
    "ONNX Runtime, float Conv": _onnx_float,
    "ONNX Runtime, MatMulInteger": _onnx_integer,
    "OpenVINO, BinaryConvolution": _openvino,
    "ONNX Runtime, MobileNetV1 int8": _onnx_mobilenet,
    "OpenVINO, MobileNetV1 int8": _openvino_mobilenet,
}


def job_of_program(program: Program, threads: int = 1) -> Job:
    return Job(program, sample_image(*program.shapes[0][:2]), threads)


def job_of_module(network: Any, size: tuple[int, int], threads: int = 1) -> Job:
    from bcnn.bench.pytorch import program_of

    return Job(program_of(network, size), sample_image(*size), threads, network)


def job_of(config: AnyNetwork, threads: int = 1) -> Job:
    """A config as a torch network with random parameters, and the program that it lowers to."""
    try:
        from bcnn.bench.pytorch import sample_network
    except ModuleNotFoundError as error:
        shown = ", ".join(shipped.names())
        raise UserError(
            f"to time a preset or config: {missing(error)}; or time a packed file, such as {shown}"
        ) from None
    return job_of_module(sample_network(config), config.image_size, threads)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    computes: str
    checked: str
    times: Times
    threads: int = 1
    ratio: float | None = None  # see `Contest.ratio`


@dataclass(frozen=True)
class Contest:
    """The measured table and all that belongs beside it."""

    facts: dict[str, str]
    rows: list[Row]
    skipped: dict[str, str] = field(default_factory=dict)

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.name == name), None)

    def ratio(self, slow: str, fast: str) -> float | None:
        """Time of one over time of the other; None if one was skipped.

        Of processor times where both have one thread: on a free machine those are the min times, on a busy one they still
        compare the work, while a long run is never undisturbed. With more threads, of min times.
        """
        a, b = self.row(slow), self.row(fast)
        if a is None or b is None:
            return None
        return a.times.cpu / b.times.cpu if a.threads == b.threads == 1 else a.times.min / b.times.min

    def json(self, **more: Any) -> str:
        return json.dumps({**dataclasses.asdict(self), **more}, indent=2) + "\n"

    def text(self) -> str:
        lines = [f"{key:>9}  {value}" for key, value in self.facts.items()]
        wide = max((len(row.name) for row in self.rows), default=0)
        lines += ["", f"{'':{wide}}  {'min ms':>9}  {'median ms':>9}  {'cpu ms':>9}  {'x this engine':>13}"]
        for row in self.rows:
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            times = f"{row.times.min:9.2f}  {row.times.median:9.2f}  {row.times.cpu:9.2f}"
            lines.append(f"{row.name:{wide}}  {times}  {ratio:>13}".rstrip())
            lines.append(f"    computes  {row.computes}")
            lines.append(f"    checked   {row.checked}")
        lines += [f"{name}: skipped, {why}" for name, why in self.skipped.items()]
        lines.append("x this engine: of processor times where both have one thread, else of min times")
        return "\n".join(lines) + "\n"


def make(job: Job, makers: Mapping[str, Maker], on_made: Callable[[str], None]) -> tuple[list[Rival], dict[str, str]]:
    """The rivals that are here and right, and why each of the others is not."""
    rivals, skipped = [], {}
    for name, maker in makers.items():
        on_made(name)
        try:
            rivals.append(maker(job))
        except ImportError as error:
            skipped[name] = missing(error)
        except SkippedError as why:
            skipped[name] = str(why)
        except WrongResultError as why:
            skipped[name] = f"its result is WRONG: {why}"
    return rivals, skipped


def missing(error: ImportError) -> str:
    package = (error.name or "").split(".")[0]
    if package == "bcnn":
        return "the native engine is not built"
    extra = "train" if package == "torch" else "bench"
    return f"{package or error} is not installed; pip install 'bcnn[{extra}]'"


def contest(
    job: Job,
    rounds: int,
    makers: Mapping[str, Maker] = MAKERS,
    on_made: Callable[[str], None] = lambda name: None,
    on_round: Callable[[int], None] = lambda done: None,
) -> Contest:
    """Make, check, time, compare."""
    rivals, skipped = make(job, makers, on_made)
    times = interleave({rival.name: rival.run for rival in rivals}, rounds, on_round)
    rows = [Row(r.name, r.computes, r.checked, times[r.name], r.threads or job.threads) for r in rivals]
    result = Contest(facts(job.threads), rows, skipped)
    rows = [dataclasses.replace(row, ratio=result.ratio(row.name, ENGINE)) for row in rows]
    return dataclasses.replace(result, rows=rows)
