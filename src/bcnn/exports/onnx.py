"""`--to onnx`: a standard ONNX model, from uint8 image to probabilities, checked by the ONNX checker and in ONNX Runtime.

    --weights bits   one bit a weight in the file, expanded when the model is loaded: about as small as the packed file
    --weights int8   -1 and +1 as bytes, and nothing to expand

Class names and card are in its metadata (`metadata_props`), as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx

from bcnn.base.errors import UserError
from bcnn.base.files import write_atomic
from bcnn.base.version import __version__
from bcnn.exports.check import TOLERANCE, WrongResultError, errors
from bcnn.exports.onnx_forms import onnx_model
from bcnn.packed.card import KEY
from bcnn.packed.packfile import Packed, vector_image
from bcnn.program.interpret import interpret
from bcnn.program.program import Program

# what of the card somebody needs who has the model only: what it can, what it cannot, what it learned from, and how good it is
CARD = ("title", "about", "limits", "data", "licence", "images", "top1")


def export(packed: Packed, path: Path, weights: Literal["bits", "int8"]) -> list[str]:
    model = onnx_model(packed.program, weights, batch="N")
    shown = onnx_model(packed.program, weights, maps=True)
    return write(packed, path, model, in_onnx_runtime(packed, model, shown))


def write(packed: Packed, path: Path, model: onnx.ModelProto, proof: list[str]) -> list[str]:
    describe(model, packed.program)
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    write_atomic(path, content)
    share = len(content) / packed.sizes.total
    return [
        f"Wrote {path}: {len(content):,} bytes, {share:.2f} of the packed file; opset {model.opset_import[0].version}.",
        "The ONNX checker finds nothing wrong.",
        *proof,
    ]


def describe(model: onnx.ModelProto, program: Program) -> None:
    """What the packed file says about itself, but for how it was trained, which stays there."""
    model.producer_name, model.producer_version = "bcnn", __version__
    model.doc_string = "image: RGB"
    facts: dict[str, Any] = {"labels": list(program.labels), "crop": program.crop}
    card = program.provenance.get(KEY)
    if isinstance(card, dict):
        facts[KEY] = {name: card[name] for name in CARD if name in card}
    onnx.helper.set_model_props(
        model, {name: json.dumps(value, ensure_ascii=False, separators=(",", ":")) for name, value in facts.items()}
    )


def in_onnx_runtime(packed: Packed, model: onnx.ModelProto, shown: onnx.ModelProto) -> list[str]:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return [
            "Not checked: what it computes, since onnxruntime is missing; pip install 'bcnn[onnx]', then export again."
        ]

    def run(model: onnx.ModelProto, images: Any) -> list[Any]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors only
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        values: list[Any] = session.run(None, {"image": images})
        return values

    return prove(packed, model, shown, run, f"ONNX Runtime {onnxruntime.__version__}")


def prove(
    packed: Packed,
    model: onnx.ModelProto,
    shown: onnx.ModelProto,
    run: Callable[[onnx.ModelProto, Any], list[Any]],
    who: str,
    nchw: bool = False,
) -> list[str]:
    """The model in another executor against the test vectors of the packed file; `shown` is the model that shows its maps."""
    program = packed.program
    seeds = packed.test_seeds or (0,)
    images = [vector_image(seed, *program.shapes[0][:2])[None] for seed in seeds]
    wanted = packed.test_logits if packed.test_seeds else interpret(program, images[0][0])[None]
    which = f"{who}, {len(images)} test vector{'s' * (len(images) > 1)}"
    found: list[float] = []
    try:
        logits = np.concatenate([run(model, image)[0] for image in images]).reshape(wanted.shape)
        if np.array_equal(logits, wanted, equal_nan=True):
            return [f"{which}: the logits equal those of the packed file."]
        for image in images:
            maps = [value[0].transpose(1, 2, 0) if nchw else value[0] for value in run(shown, image)[2:]]
            found += errors(program, image[0], maps)
    except WrongResultError as error:
        raise UserError(f"{who} does not compute this program, nothing was written: {error}") from None
    except Exception as error:  # of the executor, whose classes share no other base
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{who} does not run this model, nothing was written: {first}") from None
    equal = sum(error == 0 for error in found)
    apart = np.abs(logits - wanted).max() / (np.abs(wanted).max() or 1)
    same = int((logits.argmax(1) == wanted.argmax(1)).sum())
    return [
        f"{which}, op by op with the same input: {equal} of {len(found)} maps are equal, the others within {max(found):.0e} of their "
        f"largest value (allowed: {TOLERANCE:.0e}; a runtime adds in its own order).",
        f"From image to logits: within {apart:.0e} of the largest, the same first choice for {same} of {len(images)}.",
    ]
