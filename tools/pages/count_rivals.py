"""Counts and audits every registered network of other papers at 224 x 224 -> src/bcnn/counting/rivals.json. For maintainers.

    python -m tools.pages.count_rivals                      all of them, minutes
    python -m tools.pages.count_rivals reactnet-a           these alone, the others stay as they are
    python -m tools.pages.count_rivals --check [NAMES]      write nothing, say what differs

Every number comes from recorded passes with random weights, on which counts and widths do not depend.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time

import torch

from bcnn.base.files import write_atomic
from bcnn.capture.capture import Graph, capture
from bcnn.counting import rivals
from bcnn.counting.audit import AuditReport, audit
from bcnn.counting.captured import NORMS, count_graph
from bcnn.counting.rivals import Products, Rival
from bcnn.models.networks import network
from bcnn.models.resolve import resolve
from bcnn.nets.latent import latents
from bcnn.nets.registry import ARCHITECTURES
from bcnn.program.counts import Counts

NAMES = tuple(name for name, each in ARCHITECTURES.items() if each.size == (224, 224) and each.network_config is None)


def counted(name: str) -> Rival:
    found = network(resolve(name, "summary"))
    image = torch.randn(1, 3, *found.size, generator=torch.Generator().manual_seed(0))
    graph = capture(found.module, image)
    # Bits that are stored: ABC-Net has several bases of each latent tensor.
    more = sum(layer.signs().numel() - layer.weight.numel() for _, layer in latents(found.module))
    counts = count_graph(graph, name).counts + Counts(binary_params=more)
    report = audit(found.module, image)
    vector = sum(op.macs for op in report.vector if op.bits != (1, 1))
    return Rival(name, counts, absorbed(graph), products(report), vector)


def absorbed(graph: Graph) -> int:
    """Multiplications of a map by a constant, right in front of a batch norm."""
    fronts = (node.args[0].node for node in graph.nodes if node.op in NORMS and node.depends)
    scales = (node for node in fronts if node is not None and node.op == "mul" and len(node.depends) == 1)
    return sum(node.outputs[0].tensor.numel() for node in scales)


def products(report: AuditReport) -> tuple[Products, ...]:
    """The matrix products, by the widths of their operands."""
    made = []
    for bits in sorted({op.bits for op in report.matrix}, reverse=True):
        same = [op for op in report.matrix if op.bits == bits]
        modules = tuple(dict.fromkeys(op.module for op in same)) if bits[1] > 1 or bits[0] > 2 else ()
        made.append(Products(bits, len(same), sum(op.macs for op in same), modules))
    return tuple(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all if none is given")
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    arguments = parser.parse_args()
    different = []
    for name in arguments.names or NAMES:
        began = time.monotonic()
        made = rivals.to_plain(counted(name))
        gc.collect()  # recorded passes hold gigabytes, and hold each other
        stored = json.loads(rivals.FILE.read_text(encoding="utf-8")) if rivals.FILE.exists() else {}
        if json.loads(json.dumps(made)) != stored.get(name):
            different.append(name)
        stored[name] = made
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if not arguments.check:
            lines = (f' "{name}": {json.dumps(stored[name])}' for name in NAMES if name in stored)
            write_atomic(rivals.FILE, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    if arguments.check and different:
        raise SystemExit(f"not as stored: {', '.join(different)}; run: python -m tools.pages.count_rivals")


if __name__ == "__main__":
    main()
