"""`--to onnx`: a standard ONNX model, from uint8 image to probabilities, checked by the ONNX checker and in ONNX Runtime.

    --weights bits   one bit a weight in the file, expanded when the model is loaded: as small as the packed file
    --weights int8   -1 and +1 as bytes

Equal logits where the arithmetic allows. A runtime adds the terms of a real convolution in its own order, so a network that has
one is compared op by op, each op with the runtime's own inputs: `check`.
"""

from __future__ import annotations

from pathlib import Path

import onnx

from bcnn.deploy.packfile import Packed
from bcnn.export.onnx_graph import onnx_model
from bcnn.files import write_atomic


def export(packed: Packed, path: Path, weights: str) -> list[str]:
    model = onnx_model(packed.program, "integer")
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    write_atomic(path, content)
    return [f"Wrote {path}: {len(content):,} bytes."]
