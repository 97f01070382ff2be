"""The universal approximator of Fig. 1 (sec. 3.1): f -> a network of three binary layers that is within any error of it.

    x: N,K,H,W -> layer1: rectangles in each coordinate -> layer2: sub branches -> layer3: sums -> N,M,H,W

All matrix products are +-1 times +-1, and a +-1 matrix has no zeros: every row reads every channel, wanted or not. The
steps below say how unwanted channels cancel. [A] is 1 where A holds, else 0; s(x) = sign(x), sign(0) = +1.

Layer 1, P = 2 branches on R-fold replicated input: the "2 (1/d - 1) input branches". Cell k of coordinate j is a_k <= x_j < b_k.
 1. Channel k of branch 0 is s(x_j - a_k), of branch 1 s(x_j - b_k). Where x_j is in cell m, pair k is (+,+) for k < m,
    (+,-) for k = m, (-,-) for k > m.
 2. The row of cell k has just these weights for m = k. Pairs that differ from it cost 2 a sign: their dot is 2 N_j - 4 |k - m|
    where x_j is in cell m, and at most 2 N_j - 2 where it is in none.
 3. The same row reads every pair of another coordinate i with weights (+,-). s(x_i - a) - s(x_i - b) = 2 [a <= x_i < b], and x_i is in one
    cell: together they give 2. An unused channel has the same threshold twice and gives 0.
 4. Batch norm subtracts what 2 and 3 reach at most, halves, and adds 1: v = 1 - 2 |k - m|, or v <= 0 where some coordinate is in no cell.
 5. PReLU with slope 0: max(v, 0), the rectangle of height 1 and width b_k - a_k, and exactly 0 outside.

Layer 2, the K-dimensional rectangles. Its bias of -1/2 makes the rectangles +-1; exactly one cell of each coordinate is +.
 6. The row of a combination of K cells is + for these, - for all others. T = N_1 + ... + N_K is its dot where all K match; a
    coordinate in another cell costs 4, one in no cell 2. As in 4 and 5, max((dot - T) / 2 + 1, 0) is 1 there and 0 elsewhere.
 7. The row stands there as often as the cell has sub branches: round(Q (f - f_min)) times for one output.

Layer 3, one row for each of the M outputs. Its bias of -1/2 makes sub branches +-1: + for those of the active cell c, - for all others.
 8. With weights w the dot is sum_c w - (sum_all w - sum_c w) = 2 p_c - sum of all p, where p_c is the sum of the weights of cell c.
 9. One output: all w = +1, p_c = round(Q (f - f_min)). Batch norm: (dot + sum p) / (2 Q) + f_min.
10. M outputs share the sub branches (the paper replicates only layer 3). A sum of n signs has the parity of n, and heights of
    different outputs have different parities: so each level counts 2. p_c = 2 round(Q (f - f_min)) is made of n = max over outputs of it,
    (n + p_c) / 2 weights + and the others -; batch norm divides by 4 Q.

Reading: Fig. 1 is missing from the text at hand. The convolution module's identity path (Fig. 4) is left out of these layers: it would
add the real x to rectangles, and it cannot exist where a layer makes more channels than it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcnn.base.errors import UserError
from bcnn.nets.layers import Branch, Replicate
from bcnn.theory.plan import MEMORY_LIMIT, Function, Interval, Plan, make_plan
from bcnn.theory.tiling import Floats32

MAX_EXACT_SUM = (
    1 << 24
)  # whole numbers up to here are float32 numbers: the proof of the bound wants sums of signs to be exact
CHUNK_VALUES = 1 << 24  # values of the largest map made at once by `evaluate`: 64 MiB


class BinaryLayer(nn.Module):
    """A convolution module (Fig. 4) without the identity path: C -> K by replication, K -> O by P binary branches, maybe PReLU."""

    def __init__(self, channels_in: int, biases: Sequence[Tensor], weights: Sequence[Tensor], rectify: bool) -> None:
        super().__init__()
        out, channels = weights[0].shape
        self.replicate = Replicate(channels_in, channels)
        with torch.random.fork_rng(devices=[]):  # a Branch draws initial weights; these are replaced
            branches = [Branch(channels, bias, channels_out=out) for bias in biases]
        with torch.no_grad():
            for branch, weight in zip(branches, weights, strict=True):
                branch.weight.copy_(weight[:, :, None, None])
        self.branches = nn.ModuleList(branches)
        self.prelu = nn.PReLU(out, init=0.0) if rectify else None

    def normalise(self, index: int, scale: float, offset: Tensor) -> None:
        """Batch norm of a branch as scale * dot + offset, exactly: mean 0, variance 1, eps 0."""
        branch = self.branches[index]
        assert isinstance(branch, Branch)  # a ModuleList forgets the type
        branch.norm.eps = 0.0
        with torch.no_grad():
            branch.norm.weight.fill_(scale)
            branch.norm.bias.copy_(offset)

    def forward(self, x: Tensor) -> Tensor:
        x = self.replicate(x)
        out: Tensor = self.branches[0](x)
        for branch in self.branches[1:]:
            out = out + branch(x)
        return out if self.prelu is None else self.prelu(out)


class Approximator(nn.Module):
    """Fig. 1. Reads maps N,channels,H,W, coordinate c mod K in channel c, and makes N,M,H,W: a function of every pixel."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        if plan.subs.sum() >= MAX_EXACT_SUM:
            raise UserError(
                f"{int(plan.subs.sum()):,} sub branches are too many: float32 adds signs exactly below 2^24; choose a smaller Q"
            )
        self.plan = plan
        self.layer1 = _layer1(plan)
        self.layer2 = _layer2(plan)
        self.layer3 = _layer3(plan)
        self.train(False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer3(self.layer2(self.layer1(x)))
        return out

    def train(self, mode: bool = True) -> Approximator:
        """Always in evaluation mode: its batch norms are part of the construction, not statistics of a batch."""
        return super().train(False)


def approximate(
    f: Function,
    domain: Interval | Sequence[Interval],
    d: float | Sequence[float],
    Q: float,  # noqa: N803  (the paper's letter)
    *,
    ends: bool = True,
    jumps: Sequence[float] | Sequence[Sequence[float]] = (),
    adaptive: bool = False,
    channels: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Approximator:
    """The network of Fig. 1 for f.

    f            f(x), f(x, y) or f(x, y, z) of arrays -> one value a point, or M x points for a vector function
    domain       (x_min, x_max), or one such pair for each coordinate
    d            width of the rectangles; must divide each interval; one number or one for each coordinate
    Q            sub branches for a height of 1: the output's steps are 1 / Q
    ends         with the half-width rectangles at both ends that the paper omits for convenience
    jumps        where f is discontinuous: positions, or one list of positions for each coordinate
    adaptive     as many cells, but narrow where f varies much (sec. 3.2); covers the whole interval
    channels     of the input map, K unless given; 3 makes a network that lowers to a program on RGB pixels
    memory_limit bytes; a network that needs more is refused
    """
    plan = make_plan(
        f, domain, d, Q, ends=ends, jumps=jumps, adaptive=adaptive, channels=channels, memory_limit=memory_limit
    )
    return Approximator(plan)


def evaluate(network: Approximator, *coordinates: NDArray[Any]) -> Floats32:
    """[M, points] float32: the network at points, each a 1 x 1 map, in chunks that bound the memory."""
    points = np.stack([np.asarray(axis, np.float32).ravel() for axis in coordinates], axis=1)
    x = torch.from_numpy(points[:, np.arange(network.plan.channels) % len(coordinates)])
    step = max(1, CHUNK_VALUES // max(o for _, o, _ in network.plan.sizes))
    with torch.no_grad():
        # Points lie along a row of one map: a convolution is far faster over pixels than over a batch of 1 x 1 maps.
        parts = [network(part.T[None, :, None, :])[0, :, 0, :] for part in torch.split(x, step)]
    made: Floats32 = torch.cat(parts, dim=1).numpy()
    return made


# --- the layers, in the numbered steps above ------------------------------------------------------------------------


def _layer1(plan: Plan) -> BinaryLayer:
    k = len(plan.tilings)
    slot = torch.tensor(plan.slots)
    row = torch.tensor([(j, cell) for j, tiling in enumerate(plan.tilings) for cell in range(tiling.cells)])
    own = row[:, :1] == slot[:, 0]
    before, at = slot[:, 1] < row[:, 1:], slot[:, 1] == row[:, 1:]
    weights = (
        torch.where(~own | before | at, 1.0, -1.0),  # steps 2 and 3; branch 0
        torch.where(own & before, 1.0, -1.0),  # branch 1
    )
    edges = [torch.from_numpy(tiling.edges) for tiling in plan.tilings]
    lower, upper = (
        torch.stack([-edges[j][cell + side] if j >= 0 else torch.tensor(0.0) for j, cell in plan.slots])
        for side in (0, 1)
    )
    layer = BinaryLayer(plan.channels, (lower, upper), weights, rectify=True)
    cells = torch.tensor([plan.tilings[j].cells for j in row[:, 0]])
    layer.normalise(0, 0.5, 1.0 - cells - (k - 1))  # step 4: the most is 2 N_j + 2 (K - 1)
    layer.normalise(1, 0.5, torch.zeros(len(row)))
    return layer


def _layer2(plan: Plan) -> BinaryLayer:
    cells = [tiling.cells for tiling in plan.tilings]
    total = sum(cells)
    places = np.unravel_index(np.repeat(np.arange(len(plan.subs)), plan.subs), cells)  # step 7: K arrays of S
    starts = np.cumsum([0, *cells[:-1]])
    weight = torch.full((len(places[0]), total), -1.0)
    for place, start in zip(places, starts, strict=True):
        weight[torch.arange(len(weight)), torch.from_numpy(place + start)] = 1.0  # step 6
    layer = BinaryLayer(total, (torch.full((total,), -0.5),), (weight,), rectify=True)
    layer.normalise(0, 0.5, torch.full((len(weight),), 1.0 - total / 2))
    return layer


def _layer3(plan: Plan) -> BinaryLayer:
    subs, sums = plan.subs, plan.step * plan.levels  # n and p of step 10, which is step 9 for one output
    s = int(subs.sum())
    index = np.arange(s) - np.repeat(np.cumsum(subs) - subs, subs)  # of each sub branch within its cell
    plus = np.repeat((subs + sums) // 2, subs, axis=1)
    weight = torch.from_numpy(np.where(index < plus, 1.0, -1.0).astype(np.float32))
    layer = BinaryLayer(s, (torch.full((s,), -0.5),), (weight,), rectify=False)
    unit = 2 * plan.step * plan.Q
    layer.normalise(0, 1 / unit, torch.from_numpy(sums.sum(axis=1) / unit + plan.f_min))
    return layer
