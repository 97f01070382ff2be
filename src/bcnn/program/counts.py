"""What an op, a module or a network holds and does for one image. No torch."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Counts:
    """What one part of a network holds and does for one image. Sums of parts are counts of the whole."""

    binary_params: int = 0
    real_params: int = 0  # bias, batch norm (2), PReLU, depth wise and fully connected weights
    binary_macs: int = 0
    real_macs: int = 0
    connected_macs: int = 0  # of them, those of fully connected layers
    adds: int = 0
    mults: int = 0
    signs: int = 0
    prelus: int = 0
    weight_bytes: int = 0  # as packed: a bit a binary weight in 32-bit words per output channel, float32 for the rest
    map_bytes: int = (
        0  # written, layer by layer: float32 maps and the bits of every sign. Traffic, not a peak: `peak_map_bytes`
    )

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def elementwise(self) -> int:
        """Operations on single elements, each half a MAC in the paper's "OPs/2" (Table 3)."""
        return self.adds + self.mults + self.signs + self.prelus

    @property
    def real_ops(self) -> float:
        """Table 3, row "Real OPs/2": MACs + element-wise / 2."""
        return self.real_macs + self.elementwise / 2

    @property
    def paper_param_bytes(self) -> float:
        """Table 5, column "Param MB": one byte (int8) a real parameter, one bit a binary one."""
        return self.real_params + self.binary_params / 8


NOTHING = Counts()
