"""Training step (forward, backward, Adam) of one network: plain eager, torch.compile (channels last), fused native kernels.

    python bench/training.py                         # `cifar10` at two thirds of its width, step 2
    python bench/training.py --weights real          # step 1
    python bench/training.py --json bench/results/training.json

Speed is images per CPU-second in one process and one thread, the variants taking turns step by step; min and median step. Memory
is a fresh process each: the peak above what the process held with network and optimizer made, and the bytes autograd keeps for the
backward pass. Scaling is the wall clock of two processes, and of two threads, against one: it means something on idle cores only.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from bcnn.nets import config
from bcnn.nets.bcnn import Network
from bcnn.train import fused

VARIANTS = ("plain", "compile", "fused")


def stepper(variant: str, args: argparse.Namespace) -> Callable[[], float]:
    """A function that trains one step and returns the loss."""
    torch.manual_seed(0)
    shape = config.resolve(args.network).scaled(args.width)
    net = Network(shape, weights=args.weights)
    adam = torch.optim.Adam(net.parameters(), 1e-3, fused=True)
    images, labels = torch.randn(args.batch, 3, *shape.image_size), torch.randint(0, shape.classes, (args.batch,))
    forward: torch.nn.Module = net
    if (
        variant == "compile"
    ):  # channels last gains when compiled (1.8 against 1.55 times plain), and loses in eager mode
        images = images.contiguous(memory_format=torch.channels_last)
        forward = torch.compile(net.to(memory_format=torch.channels_last))  # type: ignore[assignment]

    def step() -> float:
        fused.enabled = variant == "fused"
        adam.zero_grad()
        loss = F.cross_entropy(forward(images), labels)
        loss.backward()
        adam.step()
        return loss.item()

    return step


def speed(args: argparse.Namespace) -> dict[str, Any]:
    """CPU-seconds of each variant's steps, taken in turns."""
    steps = {variant: stepper(variant, args) for variant in args.variants}
    first = {variant: step() for variant, step in steps.items()}  # compiles, and checks before it times
    for variant, loss in first.items():
        if abs(loss - first[args.variants[0]]) > 0.05 * abs(loss):  # signs near zero round either way, no more
            sys.exit(f"{variant} starts at loss {loss:.4f}, {args.variants[0]} at {first[args.variants[0]]:.4f}")
    seconds: dict[str, list[float]] = {variant: [] for variant in steps}
    for _ in range(args.rounds):
        for variant, step in steps.items():
            begin = time.process_time()
            step()
            seconds[variant].append(time.process_time() - begin)
    return {
        variant: {
            "images_per_cpu_second_best": args.batch / min(times),
            "images_per_cpu_second_median": args.batch / statistics.median(times),
            "first_loss": first[variant],
        }
        for variant, times in seconds.items()
    }


def memory_of(variant: str, args: argparse.Namespace) -> dict[str, float]:
    """In this process: peak above the start in MB, and MB that autograd saves."""
    step = stepper(variant, args)
    if variant == "compile":
        step()  # the compiler's own memory is not the step's
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    for _ in range(3):
        step()
    peak = next(int(x.split()[1]) for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    kept: dict[int, int] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    if variant != "compile":  # it would be compiled anew under hooks
        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            step()
    return {"peak_mb": (peak * 1024 - resident) / 1e6, "saved_mb": sum(kept.values()) / 1e6}


def wall_of(args: argparse.Namespace) -> float:
    """In this process: images per wall-second of fused steps after a start at a common time."""
    torch.set_num_threads(args.threads)
    step = stepper("fused", args)
    step()
    time.sleep(max(0.0, args.start - time.time()))
    begin = time.perf_counter()
    for _ in range(args.rounds):
        step()
    return args.rounds * args.batch / (time.perf_counter() - begin)


def children(args: argparse.Namespace, count: int, *extra: str) -> list[Any]:
    """The JSON that `count` fresh processes of this file print, run at the same time."""
    command = [
        sys.executable,
        __file__,
        "--network",
        args.network,
        "--batch",
        str(args.batch),
        "--weights",
        args.weights,
    ]
    command += ["--rounds", str(args.rounds), *extra]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    texts = [process.communicate()[0] for process in processes]
    return [json.loads(text) for text in texts]


def scaling(args: argparse.Namespace) -> dict[str, float]:
    """Two processes, two threads and one, in turns; the best of three each."""
    found: dict[str, list[float]] = {"one": [], "two processes": [], "two threads": []}
    for _ in range(3):
        for name, count, threads in (("one", 1, 1), ("two processes", 2, 1), ("two threads", 1, 2)):
            start = str(time.time() + 12)  # later than imports and a first step take
            found[name].append(
                sum(children(args, count, "--part", "wall", "--threads", str(threads), "--start", start))
            )
    return {name: max(rates) for name, rates in found.items()}


def conditions(args: argparse.Namespace) -> dict[str, Any]:
    root = Path(__file__).parent
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True
    ).stdout.strip()
    cpu = next(
        (x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), "?"
    )
    from bcnn import _training

    return {
        "cpu": f"{cpu} ({platform.machine()}, {os.cpu_count()} cores, {_training.isa()})",
        "load_average": os.getloadavg()[0],
        "network": args.network + (f" at {args.width:g} of its width" if args.width != 1 else ""),
        "weights": args.weights,
        "batch": args.batch,
        "rounds": args.rounds,
        "torch": torch.__version__,
        "commit": commit or "?",
        "date": datetime.date.today().isoformat(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="cifar10", help="a preset or a config file")
    parser.add_argument("--width", type=float, default=2 / 3, help="of its channels")
    parser.add_argument("--weights", default="binary", choices=("binary", "real"), help="step 2 or step 1")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--no-scaling", action="store_true", help="leave out two processes and two threads")
    parser.add_argument("--json", type=Path, help="write the results here too")
    for name, kind in (("part", str), ("variant", str), ("threads", int), ("start", float)):  # for `children`
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.part == "memory":
        print(json.dumps(memory_of(args.variant, args)))
    elif args.part == "wall":
        print(json.dumps(wall_of(args)))
    else:
        report(args)


def report(args: argparse.Namespace) -> None:
    if not fused.available():
        sys.exit("the native training kernels are not built: cmake -S . -B build/dev && cmake --build build/dev")
    result: dict[str, Any] = {"conditions": conditions(args), "speed": speed(args)}
    for name, value in result["conditions"].items():
        print(f"{name:14} {value}", flush=True)
    base = result["speed"][args.variants[0]]
    print(f"\n{'':10}{'images per CPU-second':>24}{'times plain':>16}")
    print(f"{'':10}{'best':>12}{'median':>12}{'best':>8}{'median':>8}")
    for variant, s in result["speed"].items():
        best, median = s["images_per_cpu_second_best"], s["images_per_cpu_second_median"]
        over = best / base["images_per_cpu_second_best"], median / base["images_per_cpu_second_median"]
        print(f"{variant:10}{best:12.1f}{median:12.1f}{over[0]:8.2f}{over[1]:8.2f}", flush=True)
    print(f"\n{'':10}{'peak MB':>12}{'saved MB':>12}")
    result["memory"] = {}
    for variant in args.variants:
        m = result["memory"][variant] = children(args, 1, "--part", "memory", "--variant", variant)[0]
        print(f"{variant:10}{m['peak_mb']:12.0f}{m['saved_mb'] or float('nan'):12.0f}", flush=True)
    if not args.no_scaling:
        result["scaling"] = scaling(args)
        print("\nfused, images per wall-second")
        for name, rate in result["scaling"].items():
            print(f"{name:14}{rate:10.1f}{rate / result['scaling']['one']:8.2f}")
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
