"""Training step (forward, backward, Adam) of the field's networks: the native k x k convolution against plain torch, in turns.

    python -m benchmarks.training_field                                     # four networks, batch 64, one thread and two
    python -m benchmarks.training_field birealnet-18-cifar --batch 128 --rounds 5 --weights real
    python -m benchmarks.training_field --threads 1 --json benchmarks/results/training-field.json

One thread is measured in CPU-seconds, which a busy machine changes little, several in wall-seconds, which mean something on idle
cores only; least and median of all rounds. Both variants are the same network; the losses of their first steps are compared first.

Measured on one core of an AMD EPYC (family 25 model 17, AVX2; a busy machine), batch 64, binary weights, torch 2.13, CPU-seconds a step:
birealnet-18-cifar 3.52 plain, 1.19 fused; reactnet-a-cifar 3.75, 1.23; bnn-vgg 3.92, 1.30: 2.9 to 3.1 times.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from bcnn.base.machine import facts
from bcnn.nets import fused
from bcnn.nets.latent import set_weights
from bcnn.nets.registry import architecture

NETWORKS = ("birealnet-18-cifar", "reactnet-a-cifar", "bnn-vgg", "meliusnet-22-cifar")
VARIANTS = ("plain", "fused")


def stepper(network: nn.Module, variant: str, batch: int, size: tuple[int, int], classes: int) -> Callable[[], float]:
    """A function that trains one step and returns the loss."""
    adam = torch.optim.Adam(network.parameters(), 1e-3, fused=True)
    torch.manual_seed(1)
    images, labels = torch.randn(batch, 3, *size), torch.randint(0, classes, (batch,))

    def step() -> float:
        fused.enabled = variant == "fused"
        with fused.cores(network):
            adam.zero_grad()
            loss = F.cross_entropy(network(images), labels)
            loss.backward()
            adam.step()
        return loss.item()

    return step


def measure(name: str, threads: int, args: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of every step of each variant."""
    made = architecture(name)
    torch.manual_seed(0)
    network = made.build().train()
    set_weights(network, args.weights)
    steps = {v: stepper(copy.deepcopy(network), v, args.batch, made.size, made.classes) for v in VARIANTS}
    torch.set_num_threads(threads)
    first = {variant: step() for variant, step in steps.items()}
    if abs(first["fused"] - first["plain"]) > 0.05 * abs(first["plain"]):  # signs near zero round either way, no more
        sys.exit(f"{name}: fused starts at loss {first['fused']:.4f}, plain at {first['plain']:.4f}")
    clock = time.process_time if threads == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(args.rounds):
        for variant, step in steps.items():
            begin = clock()
            step()
            seconds[variant].append(clock() - begin)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--weights", default="binary", choices=("binary", "real"), help="step 2 or step 1")
    parser.add_argument("--json", type=Path, help="write the results here too")
    args = parser.parse_args()
    if not fused.available():
        sys.exit("the native training kernels are not built: cmake -S . -B build/dev && cmake --build build/dev")
    conditions = {
        **facts(threads=max(args.threads)),
        "batch": args.batch,
        "rounds": args.rounds,
        "weights": args.weights,
    }
    for key, value in conditions.items():
        print(f"{key:9} {value}")
    print(f"\n{'seconds a step':22}{'threads':>8}{'plain':>16}{'fused':>16}{'times faster':>16}")
    results: list[dict[str, Any]] = []
    for name in args.networks:
        for threads in args.threads:
            found = measure(name, threads, args)
            low = {v: (min(s), statistics.median(s)) for v, s in found.items()}
            ratio = [a / b for a, b in zip(low["plain"], low["fused"], strict=True)]
            text = "".join(f"{a:9.3f}{b:7.3f}" for a, b in (low["plain"], low["fused"], ratio))
            print(f"{name:22}{threads:8}{text}", flush=True)
            results.append({"network": name, "threads": threads, "seconds": found, "ratio": ratio})
    if args.json:
        args.json.write_text(json.dumps({"conditions": conditions, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
