"""Every registered network at its own size, with random weights, the whole way: lower, pack, verify, engine. For maintainers.

    python -m tools.release.every_network                     what has no result yet, one after the other
    python -m tools.release.every_network --again NAME ...    these again

Each network has a process of its own, so that memory is given back and one that fails stops no other. `verify` compares the packed
file's maps in every instruction set with the interpreter's, with ==, and torch op by op. Results are kept in
benchmarks/results/every-network.json, a line a network; `tools.pages.rivals_page` makes a table of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bcnn.base.files import write_atomic
from bcnn.counting.rivals import rivals
from bcnn.nets.registry import ARCHITECTURES

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "every-network.json"
LAST = "torch"  # the check that comes last
# Threads of a matrix product wait for each other: on a busy machine that takes ten times as long as one thread.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


def whole_way(name: str) -> dict[str, Any]:
    """What happened to one network; runs in a process of its own."""
    import torch

    from bcnn.base.affine import IMAGENET_MEAN, IMAGENET_STD
    from bcnn.bench.pytorch import sample_network
    from bcnn.lowering.lower import lower
    from bcnn.models.networks import Found
    from bcnn.nets.network_spec import resolve
    from bcnn.packed import packfile
    from bcnn.verification import verify, verify_torch

    torch.set_num_threads(1)
    config = resolve(name)
    network = sample_network(config)
    found = Found(name, network, config.image_size, IMAGENET_MEAN, IMAGENET_STD)
    began = time.process_time()
    program = lower(network, found.mean, found.std, size=found.size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bcnn"
        sizes = packfile.save(program, path, test_seeds=())  # stored logits would be one interpretation more
        checks = list(verify.verify(path))
        again = packfile.read(path)
    image = packfile.vector_image(0, *found.size)
    checks.append(verify_torch.check_modules(network, found, again, [image]))
    return {
        "size": list(found.size),
        "ops": len(program.ops),
        "bytes": sizes.total,
        "cpu_seconds": round(time.process_time() - began, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "checks": {check.name: "ok" if check.passed else check.detail for check in checks},
    }


def cost(name: str) -> tuple[int, int, str]:
    """Small images first, few MACs first: what is wrong everywhere shows soon."""
    size, counted = ARCHITECTURES[name].size, rivals().get(name.removesuffix("-cifar"))
    macs = counted.counts.binary_macs + 8 * counted.counts.real_macs if counted else 0  # the interpreter's own prices
    return size[0] * size[1], macs, name


def passed(result: dict[str, Any]) -> bool:
    checks = result.get("checks", {})
    return LAST in checks and all(detail == "ok" for detail in checks.values())


def store(results: dict[str, dict[str, Any]]) -> None:
    lines = (f' "{name}": {json.dumps(results[name])}' for name in ARCHITECTURES if name in results)
    write_atomic(RESULTS, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", nargs="+", default=[], metavar="NAME", help="run these although they have a result")
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(whole_way(arguments.one)))
        return
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name in arguments.again or sorted(ARCHITECTURES.keys() - results.keys(), key=cost):
        command = [sys.executable, "-m", "tools.release.every_network", "--one", name]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | ONE_THREAD)
        if done.returncode:
            results[name] = {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
        else:
            results[name] = json.loads(done.stdout.splitlines()[-1])
        print(name, results[name].get("error") or results[name]["checks"], file=sys.stderr, flush=True)
        store(results)
    failed = [name for name, result in results.items() if not passed(result)]
    print(f"{len(results) - len(failed)} of {len(ARCHITECTURES)} networks pass every check")
    if failed:
        raise SystemExit(f"these do not: {', '.join(failed)}")


if __name__ == "__main__":
    main()
