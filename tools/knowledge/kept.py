"""Weights to go on from, small: one safetensors file with a JSON file of facts beside it.

Latent weights lie in [-1, 1] and take one byte each: +-127 sqrt|w|, never 0, so signs are kept and small weights are finest. Other
matrices of 2^17 values or more take a byte a value and a scale a row; all else is half precision. Adam's state is not kept.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bcnn.nets.latent import latents

LARGE = 1 << 17


def save(path: Path, model: nn.Module, facts: dict) -> None:
    latent = {f"{name}.weight" for name, _ in latents(model)}
    out: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if name in latent:
            size = (value.clamp(-1, 1).abs().sqrt() * 127).round().clamp(1, 127)
            out[f"latent:{name}"] = torch.where(value < 0, -size, size).to(torch.int8)
        elif value.dim() == 2 and value.numel() >= LARGE:
            scale = value.abs().amax(1, keepdim=True) / 127
            out[f"rows:{name}"] = (value / scale).round().to(torch.int8)
            out[f"scale:{name}"] = scale
        elif value.is_floating_point():
            out[f"half:{name}"] = value.to(torch.float16)
        # What is left counts batches: no function needs it.
    save_file(out, path)
    path.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{path}: {path.stat().st_size:,} bytes")


def load(path: Path) -> tuple[dict[str, Tensor], dict]:
    """(state of the model, facts)."""
    found, state = load_file(path), {}
    for key, value in found.items():
        kind, _, name = key.partition(":")
        if kind == "latent":
            size = value.float() / 127
            state[name] = size * size.abs()
        elif kind == "rows":
            state[name] = value.float() * found[f"scale:{name}"]
        elif kind == "half":
            state[name] = value.float()
            if name.endswith("running_var"):
                state[name.replace("running_var", "num_batches_tracked")] = torch.tensor(0)
    return state, json.loads(path.with_suffix(".json").read_text())
