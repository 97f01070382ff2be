"""Torch on the same network: eager and compiled.

The network is given every advantage that keeps it the same network: inference mode, the better of torch's two memory layouts,
and, for the paper's, weights binarized once instead of at every call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from bcnn.base.affine import IMAGENET_MEAN, IMAGENET_STD, scale_offset
from bcnn.base.images import Pixels
from bcnn.bench.rival import Job, Rival
from bcnn.bench.timing import interleave
from bcnn.exports.check import WrongResultError
from bcnn.lowering.compare import compare
from bcnn.lowering.lower import lower, normalised
from bcnn.nets import network_spec
from bcnn.nets.bcnn import Network
from bcnn.nets.latent import latents
from bcnn.nets.network_spec import AnyNetwork
from bcnn.program.program import Program

# Compiled code shows no maps, only logits. Rounding may flip a sign and deeper layers amplify it, so two correct runs need not
# agree closely in all of them; a wrong layer leaves hardly any correlation.
MIN_CORRELATION = 0.99
LAYOUTS = {"NCHW": torch.contiguous_format, "channels last": torch.channels_last}


def sample_network(config: AnyNetwork, seed: int = 0) -> nn.Module:
    """Random weights, and batch norms as after training: each divides by about the deviation that its input has."""
    torch.manual_seed(seed)
    network = network_spec.build(config).eval()
    for name, module in network.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            channels = module.num_features
            deviation = 1.0 if name.endswith("depthwise.norm") else channels**0.5
            module.running_mean = torch.randn(channels) * deviation / 4
            module.running_var = (torch.rand(channels) + 0.5) * deviation**2
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.5)
        elif isinstance(module, nn.PReLU):
            nn.init.uniform_(module.weight, 0.1, 0.4)
    return network


def program_of(network: nn.Module, size: tuple[int, int] | None = None) -> Program:
    return lower(network, IMAGENET_MEAN, IMAGENET_STD, size=size)


class _FromBytes(nn.Module):
    """uint8 1,H,W,3 -> logits: the whole job, as the others do it."""

    scale: Tensor
    offset: Tensor

    def __init__(self, network: nn.Module, layout: torch.memory_format) -> None:
        super().__init__()
        self.layout = layout
        self.network = copy.deepcopy(network).requires_grad_(False)
        if isinstance(self.network, Network):
            for _, module in latents(self.network):
                module.weight.data = module.signs()
            self.network.weights = "real"  # which now are the signs
        for parameter in self.network.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=layout)
        for name, values in zip(("scale", "offset"), scale_offset(IMAGENET_MEAN, IMAGENET_STD), strict=True):
            self.register_buffer(name, torch.from_numpy(values).view(1, 3, 1, 1))

    def forward(self, image: Tensor) -> Tensor:
        x_nchw = image.permute(0, 3, 1, 2).contiguous(memory_format=self.layout)
        out: Tensor = self.network(x_nchw.float() * self.scale + self.offset)
        return out


def eager(job: Job) -> Rival:
    _threads(job)
    runs = {name: _call(_FromBytes(job.network, layout), job.image) for name, layout in LAYOUTS.items()}
    best = _fastest(runs, job.threads)
    differ = compare(job.network, job.program, job.image, IMAGENET_MEAN, IMAGENET_STD).first
    if differ is not None:
        raise WrongResultError(f"torch and program differ at {differ.name} by {differ.error:.1e}")
    _check_logits(job, runs[best]())
    checked = f"interpreter, all {len(job.program.ops)} maps within the rounding that bcnn.lowering.compare derives"
    return Rival("PyTorch, eager", f"the same network, float32, {best}", runs[best], checked)


def compiled(job: Job) -> Rival:
    """Inductor's freezing was tried too: three times the compile time, the same speed."""
    _threads(job)
    runs = {}
    for name, layout in LAYOUTS.items():
        torch._dynamo.reset()  # each layout gets code of its own
        runs[name] = _call(torch.compile(_FromBytes(job.network, layout)), job.image)
        runs[name]()
    best = _fastest(runs, job.threads)
    checked = _check_logits(job, runs[best]())
    return Rival("PyTorch, torch.compile", f"the same network, float32, {best}", runs[best], checked)


def _threads(job: Job) -> None:
    torch.set_num_threads(job.threads)


def _call(model: Callable[[Tensor], Tensor], image: Pixels) -> Callable[[], Tensor]:
    batch = torch.from_numpy(np.ascontiguousarray(image[None]))

    def call() -> Tensor:
        with torch.inference_mode():
            return model(batch)

    return call


def _fastest(runs: dict[str, Callable[[], Tensor]], threads: int) -> str:
    """By processor time, which a busy machine leaves alone, where there is one thread."""
    times = interleave(runs, rounds=3)
    return min(times, key=lambda name: times[name].cpu if threads == 1 else times[name].min)


def _check_logits(job: Job, logits: Tensor) -> str:
    with torch.inference_mode():
        want = job.network(normalised(job.image[None], IMAGENET_MEAN, IMAGENET_STD))
    correlation = float(torch.corrcoef(torch.stack([want[0], logits[0]]))[0, 1])
    if not correlation >= MIN_CORRELATION:
        raise WrongResultError(f"logits correlate by {correlation:.3f} with those of the network")
    error = float((want - logits).abs().max() / want.std())
    return f"torch eager, logits within {error:.0e} of their spread"
