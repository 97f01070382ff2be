"""Training step (forward, backward, Adam) of one network: plain eager, torch.compile (channels last), fused native kernels.

    python benchmarks/training.py                         # `cifar10` at two thirds of its width, step 2
    python benchmarks/training.py --weights real          # step 1
    python benchmarks/training.py --network imagenette --size 64 --batch 32 --variants fused    # one thread against two
    python benchmarks/training.py --json benchmarks/results/training.json
    python benchmarks/training.py --network imagenette --size 64 --width 1 --builds old.so new.so new.so:avx2    # two builds of the kernels

Speed is images per CPU-second in one process and one thread, the variants taking turns step by step; min and median step. Memory
is a fresh process each: the peak above what the process held with network and optimizer made, and the bytes autograd keeps for the
backward pass. Scaling is the wall clock: of two threads against one in one process, step by step in turns, and of two processes. It
means something on idle cores only.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F

from bcnn.base.machine import cpu_name, utc
from bcnn.base.provenance import commit
from bcnn.nets import config, fused, fused_autograd
from bcnn.nets.bcnn import Network
from bcnn.nets.fused_autograd import native

VARIANTS = ("plain", "compile", "fused")


def network(args: argparse.Namespace) -> Network:
    torch.manual_seed(0)
    shape = config.resolve(args.network).scaled(args.width)
    return Network(shape.replace(image_size=(args.size, args.size)) if args.size else shape, weights=args.weights)


def stepper(variant: str, args: argparse.Namespace, net: Network | None = None) -> Callable[[], float]:
    """A function that trains one step and returns the loss."""
    net = net or network(args)
    shape = net.config
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
    step = stepper("fused", args)
    step()
    time.sleep(max(0.0, args.start - time.time()))
    begin = time.perf_counter()
    for _ in range(args.rounds):
        step()
    return args.rounds * args.batch / (time.perf_counter() - begin)


def threads_of(args: argparse.Namespace) -> dict[str, Any]:
    """In this process: wall-seconds of fused steps of one network, with one thread and with `args.threads`, taking turns of a few steps."""
    net = network(args)
    step = stepper("fused", args, net)
    seconds: dict[int, list[float]] = {1: [], args.threads: []}
    for _ in range(args.rounds):
        for count, times in seconds.items():
            torch.set_num_threads(count)
            with fused.cores(net):
                step()  # makes threads and memory, and moves the maps to where they will be read
                for _ in range(4):
                    begin = time.perf_counter()
                    step()
                    times.append(time.perf_counter() - begin)
    one, many = seconds[1], seconds[args.threads]
    return {
        "threads": args.threads,
        "images_per_second": {
            str(n): [args.batch / min(t), args.batch / statistics.median(t)] for n, t in seconds.items()
        },
        "ratio_best": min(one) / min(many),
        "ratio_median": statistics.median(one) / statistics.median(many),
    }


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
    command += ["--rounds", str(args.rounds), "--size", str(args.size), *extra]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    texts = [process.communicate()[0] for process in processes]
    return [json.loads(text) for text in texts]


def scaling(args: argparse.Namespace) -> dict[str, Any]:
    """Threads against one in a process; two processes against one, the best of three."""
    threads = children(args, 1, "--part", "threads", "--threads", str(args.threads))[0]
    if args.no_processes:
        return threads
    found: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3):
        for count, rates in found.items():
            start = str(time.time() + 12)  # later than imports and a first step take
            rates.append(sum(children(args, count, "--part", "wall", "--start", start)))
    return {**threads, "processes_ratio": max(found[2]) / max(found[1])}


def build_of(name: str) -> Any:
    """The kernels in PATH or PATH:ISA, a copy of their own: a module chooses its instruction set once."""
    path, _, isa = name.partition(":")
    with (
        tempfile.NamedTemporaryFile(suffix=".so") as copy,
        mock.patch.dict(os.environ, {"BCNN_ISA": isa} if isa else {}),
    ):
        shutil.copy(path, copy.name)
        loader = importlib.machinery.ExtensionFileLoader("_training", copy.name)
        spec = importlib.util.spec_from_loader("_training", loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        module.isa()
    return module


def compare_builds(args: argparse.Namespace) -> None:
    """Print the images per CPU-second of several builds of the kernels, which take turns step by step of one network."""
    builds = {name: build_of(name) for name in args.builds}
    step = stepper("fused", args)
    seconds: dict[str, list[float]] = {name: [] for name in builds}
    for _ in range(args.rounds + 1):
        for name, build in builds.items():
            fused_autograd.native = build
            begin = time.process_time()
            step()
            seconds[name].append(time.process_time() - begin)
    first = seconds[args.builds[0]][1:]  # without the step that makes memory
    print(
        f"{'':40}{'images per CPU-second':>24}{'times the first':>16}\n{'':40}"
        + f"{'best':>12}{'median':>12}{'best':>8}{'median':>8}"
    )
    for name, build in builds.items():
        times = seconds[name][1:]
        best, median = args.batch / min(times), args.batch / statistics.median(times)
        over = min(first) / min(times), statistics.median(first) / statistics.median(times)
        print(f"{name + ' ' + build.isa():40}{best:12.1f}{median:12.1f}{over[0]:8.2f}{over[1]:8.2f}")


def conditions(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "cpu": f"{cpu_name()} ({platform.machine()}, {os.cpu_count()} cores, {native.isa()})",
        "load_average": os.getloadavg()[0],
        "network": args.network + (f" at {args.width:g} of its width" if args.width != 1 else ""),
        "size": args.size or "its own",
        "weights": args.weights,
        "batch": args.batch,
        "rounds": args.rounds,
        "torch": torch.__version__,
        "commit": commit(digits=9) or "?",
        "date": utc(),
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
    parser.add_argument("--size", type=int, default=0, help="of the images, if not the network's own")
    parser.add_argument("--threads", type=int, default=2, help="to compare with one")
    parser.add_argument("--no-processes", action="store_true", help="leave out two processes")
    parser.add_argument("--json", type=Path, help="write the results here too")
    parser.add_argument(
        "--builds", nargs="+", help="compare kernels in these modules and nothing else: PATH or PATH:ISA"
    )
    for name, kind in (("part", str), ("variant", str), ("start", float)):  # for `children`
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.part == "memory":
        print(json.dumps(memory_of(args.variant, args)))
    elif args.part == "wall":
        print(json.dumps(wall_of(args)))
    elif args.part == "threads":
        print(json.dumps(threads_of(args)))
    elif args.builds:
        compare_builds(args)
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
        found = result["scaling"]
        print(f"\n{'fused':10}{'images per wall-second':>24}\n{'threads':10}{'best':>12}{'median':>12}")
        for count, (best, median) in found["images_per_second"].items():
            print(f"{count:10}{best:12.1f}{median:12.1f}")
        print(f"{'ratio':10}{found['ratio_best']:12.2f}{found['ratio_median']:12.2f}")
        if not args.no_processes:
            print(f"two processes: {found['processes_ratio']:.2f} times one")
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
