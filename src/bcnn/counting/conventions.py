"""Counts -> one number, by a named convention. No torch.

"OPs" has many meanings: with or without the fully connected layer, with or without element-wise work, 8-bit work divided by 8,
bits times bits. A convention here is a function of one module, summed over modules, so it is additive like the counts. All are
in units of MACs (the paper's "OPs/2"). The docstrings are what `bcnn summary --help` shows.
"""

from __future__ import annotations

from collections.abc import Callable

from bcnn.base.errors import UserError, nearest
from bcnn.counting.counts import CountNode


def paper(module: CountNode) -> float:
    """binary MACs / 64 + real MACs + (adds + mults + signs + PReLUs) / 2: Table 5 of the paper."""
    return module.counts.binary_macs / 64 + module.counts.real_ops


def reactnet(module: CountNode) -> float:
    """binary MACs / 64 + real MACs, the fully connected layer included; no element-wise work."""
    return module.counts.binary_macs / 64 + module.counts.real_macs


def bireal(module: CountNode) -> float:
    """as reactnet, without the fully connected layer (Bi-Real Net, MeliusNet)."""
    return reactnet(module) - module.counts.connected_macs


def bnext(module: CountNode) -> float:
    """binary MACs / 64 + real MACs / 8: every real MAC (depth wise, fully connected, intensity) taken as 8-bit; no element-wise work."""
    return module.counts.binary_macs / 64 + module.counts.real_macs / 8


def ace(module: CountNode) -> float:
    """MACs x bits x bits: binary MACs + 32 x 32 x real MACs, as float32; no element-wise work."""
    return module.counts.binary_macs + 32 * 32 * module.counts.real_macs


CONVENTIONS: dict[str, Callable[[CountNode], float]] = {f.__name__: f for f in (paper, reactnet, bireal, bnext, ace)}


def convention(name: str) -> Callable[[CountNode], float]:
    """The rule of that name; an unknown one is a `UserError`."""
    if name not in CONVENTIONS:
        raise UserError(f"unknown convention {name!r}; {nearest(name, CONVENTIONS)}")
    return CONVENTIONS[name]


def operations(node: CountNode, name: str = "paper") -> float:
    """Normalised operations of a part of the network, by the convention of that name."""
    return sum(map(convention(name), node.leaves()))
