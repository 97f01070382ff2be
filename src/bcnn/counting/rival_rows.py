"""MeliusNet and ReActNet in Tables 4 and 5: our own networks by the tables' rules, and by the rules that the printed figures follow.

The tables say: real OPs/2 with element-wise work, int8 real parameters. The printed figures of the rivals follow other rules,
found by trying which come out:

    MeliusNet   real MACs of convolutions alone, without the fully connected layer and element-wise work (0.17, 325; 0.25, 532);
                parameters in MiB with real ones in float32 (10.1, 17.4), as its authors publish them
    ReActNet    the tables' own rules on a slightly different network: the biases of RSign are no parameters, bias and sign work on
                both copies of the map where channels double, and two more operations follow each value of the first convolution

No torch: the counts are stored ones, see `count.rivals`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bcnn.counting.rivals import Rival, rivals
from bcnn.program.counts import Counts

# The plan of ReActNet, as of MobileNetV1: 32 channels at 112 x 112, doubled five times while the map halves.
STEM_MAP = 32 * 112**2
DOUBLED_MAP_VALUES = sum(
    32 * 2**k * (112 >> k) ** 2 for k in range(5)
)  # values of the maps whose channels double: 777,728
BLOCK_CHANNELS = (
    32 + 64 + 2 * 128 + 2 * 256 + 6 * 512 + 1024
)  # read by the 13 blocks, each with two RSign of so many biases
DOUBLING_CHANNELS = 32 + 64 + 128 + 256 + 512  # of them, those before a doubling, which C does not sign


@dataclass(frozen=True)
class Values:
    """The cells of a row."""

    table4: tuple[float, ...]  # million binary parameters, binary GMACs, million real parameters, real GOPs/2
    table5: tuple[float, ...]  # parameters in MB, normalised MOPs/2


def values(counts: Counts) -> Values:
    """By the rules that the tables state."""
    c = counts
    return Values(
        (c.binary_params / 1e6, c.binary_macs / 1e9, c.real_params / 1e6, c.real_ops / 1e9),
        (c.paper_param_bytes / 1e6, (c.binary_macs / 64 + c.real_ops) / 1e6),
    )


def as_melius(rival: Rival) -> Values:
    c, conv = rival.counts, rival.conv_macs
    return Values(
        (c.binary_params / 1e6, c.binary_macs / 1e9, c.real_params / 1e6, conv / 1e9),
        (rival.float_bytes / 2**20, (c.binary_macs / 64 + conv) / 1e6),
    )


def as_react_a(rival: Rival) -> Values:
    """Bias and sign of DOUBLED_MAP_VALUES values twice: 2 DOUBLED_MAP_VALUES more. Reading: the two more a stem value may be a PReLU and a 1x1 pool, as in
    the paper's own stem; nothing printed says which."""
    more = Counts(real_params=-2 * BLOCK_CHANNELS, adds=2 * DOUBLED_MAP_VALUES + 2 * STEM_MAP)
    return values(rival.folded + more)


def as_react_c(rival: Rival) -> Values:
    """As A, whose doubling convolutions lose six operations a value read: bias and sign twice, and one each of the two copies made.
    Reading: one of the last is the addition or a multiplication; counted here from A, since C was never released."""
    a = rivals()["reactnet-a"]
    elementwise = a.folded.elementwise + 2 * DOUBLED_MAP_VALUES + 2 * STEM_MAP - 6 * DOUBLED_MAP_VALUES
    c = rival.counts
    real_params = c.real_params - 2 * BLOCK_CHANNELS + DOUBLING_CHANNELS
    return values(Counts(c.binary_params, real_params, c.binary_macs, c.real_macs, adds=elementwise))


# Name in the tables -> our network, and the rule that its printed figures follow.
ROWS: dict[str, tuple[str, Callable[[Rival], Values]]] = {
    "MeliusNet42": ("meliusnet-42", as_melius),
    "ReActNetA": ("reactnet-a", as_react_a),
    "MeliusNet59": ("meliusnet-59", as_melius),
    "ReActNetC": ("reactnet-c", as_react_c),
}


def ours(name: str) -> Values:
    """By the rules that the tables state; the scale of a filter is part of the batch norm behind it."""
    return values(rivals()[ROWS[name][0]].folded)


def printed_rule(name: str) -> Values:
    """By the rule that the printed figures follow."""
    network, rule = ROWS[name]
    return rule(rivals()[network])


# Networks that section 6.3 names at its end and leaves out of its tables: as printed, top-1, ours.
# Reading: which BNN reached 42.2 % is not said; this is the ResNet-18 of its authors' later code.
NAMED = (
    ("BNNs", "42.2", "bnn-r18"),
    ("XNOR-Net", "51.2", "xnornet-r18"),
    ("Bi-RealNet-152", "64.5", "birealnet-152"),
    ("Real-To-Bin Net", "65.4", "real2bin-r18"),
)
