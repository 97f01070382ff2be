"""The other papers' networks, counted and audited at 224 x 224: a stored table, so that it can be read without torch.

`rivals.json` is written by `python -m tools.pages.count_rivals` from one recorded pass of each registered network (`count.captured`,
`count.audit`). The paper's own networks need no file: `count.counts` counts them from their configs.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

from bcnn.program.counts import Counts

FILE = Path(__file__).with_name("rivals.json")


@dataclass(frozen=True)
class Products:
    """Matrix-matrix products whose operands have these widths: activations, weights."""

    bits: tuple[int, int]
    products: int
    macs: int
    modules: tuple[
        str, ...
    ]  # that issued them, in order; not listed where weights are 1 bit and activations 1 or, with zeros around them, 2


@dataclass(frozen=True)
class Rival:
    """What one network holds and does for one image, as built."""

    name: str
    counts: Counts
    scales: int  # multiplications by a constant per channel that the batch norm right after them absorbs
    products: tuple[Products, ...]  # widest operands first
    vector_macs: (
        int  # of real products with a vector (depth wise, fully connected on one image), which the paper leaves real
    )

    @property
    def folded(self) -> Counts:
        """As deployed: the scale of a filter is part of the batch norm behind it."""
        return self.counts + Counts(mults=-self.scales)

    @property
    def conv_macs(self) -> int:
        """Real MACs without those of the fully connected layers."""
        return self.counts.real_macs - self.counts.connected_macs

    @property
    def float_bytes(self) -> float:
        """A bit a binary parameter and float32 for every other one, as MeliusNet's authors count."""
        return self.counts.binary_params / 8 + 4 * self.counts.real_params


@functools.cache
def rivals() -> dict[str, Rival]:
    """Every network of `rivals.json` by name."""
    return {name: from_plain(name, data) for name, data in json.loads(FILE.read_text(encoding="utf-8")).items()}


def to_plain(rival: Rival) -> dict[str, object]:
    known = {field: value for field, value in vars(rival.counts).items() if value}
    products = [
        {"bits": list(p.bits), "products": p.products, "macs": p.macs, "modules": list(p.modules)}
        for p in rival.products
    ]
    return {"counts": known, "scales": rival.scales, "products": products, "vector_macs": rival.vector_macs}


def from_plain(name: str, data: dict[str, object]) -> Rival:
    """The inverse of `to_plain`. The file is part of the package: it is not checked."""
    plain = json.loads(json.dumps(data))
    products = tuple(
        Products((p["bits"][0], p["bits"][1]), p["products"], p["macs"], tuple(p["modules"])) for p in plain["products"]
    )
    return Rival(name, Counts(**plain["counts"]), plain["scales"], products, plain["vector_macs"])
