"""The engine before against the engine now: the paper's network, one and two threads, two builds in one interleaved run.

    python -m benchmarks.compare_builds OTHER_PYTHON [--path OTHER/src] [--rounds 40]
    python -m benchmarks.compare_builds OTHER_PYTHON [--path OTHER/src] --training        the training step instead

OTHER_PYTHON runs the other build (a virtual environment that has it installed, or with --path a worktree that was built in place). Each build
sits in a process of its own and is asked in turns for a block of images; the least and the median over all rounds count. "steps" is the sum of
the fastest run of each of the engine's short steps, one thread: on a busy machine that is what the code can do. Both make
the network of the preset `imagenet` with random parameters, so the work is the same and the values are not.

A training step is one of the network `imagenette` on 32 images of 64 x 64, one thread, as the trainer runs it; processor time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bcnn.base.machine import facts

CHILD = """
import sys, time
import numpy as np
from bcnn.bench.sample import sample_image
try:
    from bcnn.engine import Engine
    from bcnn.nets.bcnn import Network
    from bcnn.nets.config import preset
    from bcnn.lowering.lower import lower
    program = lower(Network(preset("imagenet")), (0.5,) * 3, (0.25,) * 3)
except ImportError:  # 0.1.0
    from bcnn.bench.sample import sample_program
    from bcnn.config import preset
    from bcnn.engine import Engine
    program = sample_program(preset("imagenet"))
image = sample_image(*program.shapes[0][:2])[None]
engines = {threads: Engine(program, threads=threads) for threads in (1, 2)}
from bcnn import _core
print("ready", _core.__file__, flush=True)
for line in sys.stdin:
    if int(line) == 0:
        print(sum(cost.seconds for cost in engines[1].profile(image[0], repeats=20)), flush=True)
        continue
    engine = engines[int(line)]
    engine.run(image)
    times = []
    for _ in range(8):
        begin = time.perf_counter()
        engine.run(image)
        times.append(time.perf_counter() - begin)
    print(*times, flush=True)
"""

TRAINING = """
import contextlib, sys, time
import torch
torch.set_num_threads(1)
try:
    from bcnn.nets.bcnn import Network
    from bcnn.nets.config import preset
    from bcnn.nets.fused import cores
except ImportError:  # 0.1.0
    from bcnn.config import preset
    from bcnn.network import Network
    cores = lambda network: contextlib.nullcontext()
images, labels = torch.randn(32, 3, 64, 64), torch.randint(0, 10, (32,))
def stepper(weights):
    torch.manual_seed(0)
    network = Network(preset("imagenette").replace(image_size=(64, 64)), weights=weights)
    adam = torch.optim.Adam(network.parameters(), 1e-3, fused=True)
    def step():
        adam.zero_grad()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        adam.step()
    return network, step
steps = {1: stepper("real"), 2: stepper("binary")}
from bcnn import _core
print("ready", _core.__file__, flush=True)
for line in sys.stdin:
    network, step = steps[int(line)]
    with cores(network):
        step()
        times = []
        for _ in range(2):
            begin = time.process_time()
            step()
            times.append(time.process_time() - begin)
    print(*times, flush=True)
"""


def start(python: str, path: str | None, child: str) -> tuple[subprocess.Popen[str], str]:
    """The process, and the native core that it has loaded."""
    env = {**os.environ, "PYTHONPATH": path} if path else {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    made = subprocess.Popen([python, "-c", child], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    ready, _, core = made.stdout.readline().partition(" ")
    if ready != "ready":
        raise SystemExit(f"{python} could not make the network")
    return made, core.strip()


def ask(child: subprocess.Popen[str], question: int) -> list[float]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{question}\n")
    child.stdin.flush()
    return [float(word) * 1e3 for word in child.stdout.readline().split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("--path")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--training", action="store_true")
    given = parser.parse_args()
    child = TRAINING if given.training else CHILD
    questions = {1: "step 1", 2: "step 2"} if given.training else {0: "steps", 1: "1 thread", 2: "2 threads"}
    for key, value in facts(threads=1 if given.training else 2).items():
        print(f"{key:9} {value}")
    root = Path(__file__).resolve().parents[1]
    started = {
        "before": start(given.python, given.path, child),
        "now": start(sys.executable, str(root / "src"), child),
    }
    if len({core for _, core in started.values()}) == 1:  # an editable install comes before PYTHONPATH
        raise SystemExit(f"both builds are {started['now'][1]}: give the other one a virtual environment of its own")
    builds = {name: process for name, (process, _) in started.items()}
    times: dict[tuple[str, int], list[float]] = {(name, question): [] for name in builds for question in questions}
    for turn in range(given.rounds):
        for question in questions:
            for name in sorted(builds, reverse=bool(turn % 2)):
                times[name, question] += ask(builds[name], question)
    for question, what in questions.items():
        rows = {name: times[name, question] for name in builds}
        for name, row in rows.items():
            print(f"{what:9} {name:7} min {min(row):7.3f} ms  median {statistics.median(row):7.3f} ms")
        low = {
            name: statistics.median(sorted(row)[: max(1, len(row) // 4)]) for name, row in rows.items()
        }  # of the quiet quarter
        print(
            f"  now / before: min {min(rows['now']) / min(rows['before']):.3f}, quiet {low['now'] / low['before']:.3f}"
        )
    for build in builds.values():
        assert build.stdin is not None
        build.stdin.close()


if __name__ == "__main__":
    main()
