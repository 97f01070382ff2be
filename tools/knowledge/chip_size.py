"""Print binary MACs, flash and RAM of a network exported to C in integers, for choosing a structure before it is trained.

    python tools/knowledge/chip_size.py person person-small cifar10 cifar10-small

Weights are random. Flash is that of constants; the code comes on top, some 10 KB.
"""

from __future__ import annotations

import sys

import torch
from networks import NETWORKS

from bcnn.exports.c import code
from bcnn.exports.c_rules import tables
from bcnn.integers.convert import in_integers
from bcnn.lowering.lower import lower
from bcnn.nets.bcnn import Network


def main() -> None:
    for name in sys.argv[1:] or NETWORKS:
        config = NETWORKS[name]
        torch.manual_seed(0)
        network = Network(config)
        with torch.no_grad():
            network(torch.randn(8, 3, *config.image_size))  # batch norm gets statistics
        program = in_integers(lower(network.eval(), (0.5,) * 3, (0.25,) * 3), "int8", None).program
        made = tables(program)
        # Down sampling stands between a block's two convolutions; blocks that are not normal have a third, on the identity path.
        macs = sum(
            b.channels**2 * (b.height_in * b.width_in + b.height * b.width * (1 if b.normal else 2))
            for b in config.plan()
        )
        print(
            f"{name}: {config.channels_out} features, about {macs / 1e6:.1f} M binary MACs at {config.image_size[0]} x "
            f"{config.image_size[1]}, {made.flash(code(made)):,} bytes of flash, {made.ram:,} of RAM",
            flush=True,
        )


if __name__ == "__main__":
    main()
