"""The modules of a building block (Fig. 3, Fig. 4).

    x -> Replicate -> conv1 (binary 1x1) -> depthwise (real 3x3/S) -> conv3 (binary 1x1) -> + -> out
                 \\-> itself, or average pool SxS/S -> identity (binary 1x1) ---------------/

Maps are NCHW, as everywhere in torch. Legend: N images, C channels, RC after replication, P branches, F filter size.
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.nets import config, fused
from bcnn.nets.binarize import WEIGHTS, hard_tanh, magnitude, sign_activation
from bcnn.nets.latent import Latent


class Replicate(nn.Module):
    """C -> RC channels (sec. 4.2.2). Output channel c is input channel c mod C, so it is bookkeeping, not work.

    Reading: with a non-integer R > 1 the same rule replicates the first channels once more than the others. With R < 1 the
    rule is read backwards: output channel j is the mean of all input channels c with c mod RC = j.
    """

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.channels_in, self.channels = channels_in, channels

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] != self.channels_in:
            raise ValueError(f"replication of {self.channels_in} channels got a map of {x.shape[1]}")
        return replicated(x, self.channels)

    @property
    def fusible(self) -> bool:
        """Whether a convolution that reads the result can replicate by itself: where channel k is channel k mod C."""
        return type(self) is Replicate and self.channels >= self.channels_in

    def extra_repr(self) -> str:
        return f"{self.channels_in} -> {self.channels}"


def replicated(x: Tensor, channels: int) -> Tensor:
    """The rule of `Replicate`: N,C,H,W -> N,channels,H,W."""
    found = x.shape[1]
    if channels == found:
        return x
    if channels > found:
        return torch.cat([x] * -(-channels // found), dim=1)[:, :channels]
    parts = torch.split(x, channels, dim=1)  # the last may be shorter: its absent channels are not averaged
    total: Tensor = parts[0]
    for part in parts[1:]:
        total = total + F.pad(part, (0, 0, 0, 0, 0, channels - part.shape[1]))
    full, rest = divmod(found, channels)
    size = torch.full((channels, 1, 1), full, dtype=x.dtype, device=x.device)
    size[:rest] += 1
    return total / size


class Branch(Latent):
    """One residual of a convolution module (Fig. 4): bias, sign, binary 1x1 convolution, batch norm.

    `shift` = (dy, dx) makes it one tap of an FxF convolution: it reads pixel (y + dy, x + dx), zero outside the map. The
    shift and pad come before the bias (sec. 4.2.1), so a padded pixel becomes sign(bias): +1 or -1 like any other.
    """

    def __init__(
        self, channels: int, bias: Tensor, shift: tuple[int, int] = (0, 0), channels_out: int | None = None
    ) -> None:
        super().__init__()
        out = channels if channels_out is None else channels_out  # O != K only where there is no identity path
        self.shift = shift
        self.bias = nn.Parameter(bias.reshape(1, channels, 1, 1).clone())
        self.weight = nn.Parameter(nn.init.kaiming_normal_(torch.empty(out, channels, 1, 1)))
        self.norm = nn.BatchNorm2d(out)

    @property
    def fusible(self) -> bool:
        """Whether the native kernels have what this branch computes: one pixel, signs or step 1's real weights."""
        return type(self) is Branch and not any(self.shift) and self.weights in ("real", "binary")

    def forward(self, x: Tensor) -> Tensor:
        made, read = self.weight.shape[:2]
        if pixels(x, read) > 1 and self.fusible and fused.ready(x, made, self.norm):
            branch = self.bias, self.weight, self.norm
            return fused.binary_conv(x, [branch], binary=self.weights == "binary", identity=False)
        x = shifted(x, *self.shift)
        signs = hard_tanh(x + self.bias) if self.weights == "float" else sign_activation(x, self.bias)
        dot: Tensor = F.conv2d(signs, WEIGHTS[self.weights](self.weight, self.temperature).to(signs.dtype))
        if self.weights == "scaled":
            dot = dot * magnitude(self.weight)
        out: Tensor = self.norm(dot)
        return out

    def summed(self, x: Tensor) -> Tensor:
        return shifted(x, *self.shift) + self.bias

    @torch.no_grad()
    def fold_scale(self) -> None:
        """From "scaled" to "binary": the scale a moves into batch norm, (a dot - mean)^2 / (var + eps) =
        (dot - mean / a)^2 / (var / a^2 + eps / a^2). A channel of zero weights has a = 0 and keeps only its offset."""
        scale = magnitude(self.weight).flatten()
        mean, var = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert var is not None
        dead = scale == 0
        self.norm.bias[dead] -= (mean * self.norm.weight / (var + self.norm.eps).sqrt())[dead]
        self.norm.weight[dead] = 0
        scale = torch.where(dead, 1.0, scale)
        # The fraction of eps that var takes over may leave it below 0 where the scale is large; the sum with eps never is.
        var.copy_((var + self.norm.eps) / scale**2 - self.norm.eps)
        mean.copy_(torch.where(dead, 0.0, mean / scale))
        self.weights = "binary"

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, weights={self.weights}" + (f", shift={self.shift}" if any(self.shift) else "")


def pixels(x: Tensor, channels: int, stride: int = 1) -> int:
    """Of the map made from x: batch norm in training needs two. None where x is no map of so many channels."""
    if x.dim() != 4 or x.shape[1] != channels:
        return 0
    return x.shape[0] * -(-x.shape[2] // stride) * -(-x.shape[3] // stride)


def shifted(x: Tensor, dy: int, dx: int) -> Tensor:
    """x read at (y + dy, x + dx), zeros outside: F.pad crops where a pad is negative, at most the whole map."""
    height, width = x.shape[-2:]
    dy, dx = max(-height, min(height, dy)), max(-width, min(width, dx))
    return x if dy == dx == 0 else F.pad(x, (-dx, dx, -dy, dy))


def shifts(filter: int) -> list[tuple[int, int]]:
    """The F*F taps of an FxF filter in raster order, the centre at (0, 0)."""
    half = filter // 2
    return [(dy, dx) for dy in range(-half, half + 1) for dx in range(-half, half + 1)]


class BinaryConv(nn.Module):
    """Convolution module (Fig. 4): x + sum over branches, then PReLU if the block gives it one.

    P branches for 1x1; with a filter of F, P branches for each of the F*F shifts. `replicas` is how many copies of each
    channel its input holds: their initial biases are spread over the quantiles of a normal distribution, since equal biases
    would make the copies binarize alike and learn alike.
    """

    def __init__(
        self, channels: int, branches: int = 1, filter: int = 1, prelu: bool = True, replicas: int = 1
    ) -> None:
        super().__init__()
        self.channels = channels
        replica = torch.arange(channels) * replicas // channels
        steps = replicas * branches
        quantiles = torch.tensor([NormalDist().inv_cdf((i + 0.5) / steps) for i in range(steps)])
        self.branches = nn.ModuleList(
            Branch(channels, quantiles[replica * branches + p], shift)
            for shift in shifts(filter)
            for p in range(branches)
        )
        self.prelu = nn.PReLU(channels) if prelu else None

    def forward(self, x: Tensor, add: Tensor | None = None, prelu_after: nn.PReLU | None = None) -> Tensor:
        """A map with fewer channels is replicated (sec. 4.2.2). The map of another path may be added, and a PReLU follow that:
        then all of it is one operator."""
        branches: list[Branch] = list(self.branches)  # type: ignore[arg-type]
        if self.one_operator(branches, x, add, prelu_after):
            return fused.binary_conv(
                x,
                [(b.bias, b.weight, b.norm) for b in branches],
                binary=branches[0].weights == "binary",
                prelu=None if self.prelu is None else self.prelu.weight,
                add=add,
                prelu_after=None if prelu_after is None else prelu_after.weight,
            )
        out = x = replicated(x, self.channels)
        for branch in branches:
            out = out + branch(x)
        out = out if self.prelu is None else self.prelu(out)
        out = out if add is None else add + out
        return out if prelu_after is None else prelu_after(out)

    def one_operator(self, branches: list[Branch], x: Tensor, add: Tensor | None, prelu_after: nn.PReLU | None) -> bool:
        """Whether the native kernels may compute all of it at once."""
        return (
            len({b.weights for b in branches}) == 1
            and (self.prelu is None or prelu_after is None)
            and pixels(x, x.shape[1]) > 1
            and x.shape[1] <= self.channels
            and (add is None or add.shape == (x.shape[0], self.channels, *x.shape[2:]))
            and fused.ready(x, self.channels, self.prelu, prelu_after, *branches, *(b.norm for b in branches))
        )


class DepthwiseConv(nn.Module):
    """The 3x3 convolution module: real depth wise 3x3/S, batch norm, PReLU (sec. 4.2.1). A vector operation, so it stays real."""

    def __init__(self, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride, padding=1, groups=channels, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.prelu = nn.PReLU(channels)

    def forward(self, x: Tensor) -> Tensor:
        channels = x.shape[1]
        if fused.ready(x, channels, self.conv, self.norm, self.prelu) and pixels(x, channels, self.conv.stride[0]) > 1:
            return fused.depthwise_conv(x, self.conv, self.norm, self.prelu)
        out: Tensor = self.prelu(self.norm(self.conv(x)))
        return out


class Block(nn.Module):
    """The building block (Fig. 3).

    Reading: Table 2 counts exactly three PReLUs a block, and two placements give that count. `prelu="module"`: every module
    of the residual path has one, the identity module has none (sec. 4.2.1). `prelu="block"`: conv1 and the depth wise module
    have theirs and one follows the addition, as in RegNetX (sec. 4.2.4).
    """

    def __init__(self, shape: config.BlockShape) -> None:
        super().__init__()
        channels, branches, filter = shape.channels, shape.branches, shape.filter
        replicas = -(-channels // shape.channels_in)
        in_module = shape.prelu == "module"
        self.replicate = Replicate(shape.channels_in, channels)
        self.conv1 = BinaryConv(channels, branches, filter, replicas=replicas)
        self.depthwise = DepthwiseConv(channels, shape.stride)
        self.conv3 = BinaryConv(channels, branches, filter, prelu=in_module)
        self.pool = None if shape.normal else nn.AvgPool2d(shape.stride)
        self.identity = None if shape.normal else BinaryConv(channels, branches, filter, prelu=False, replicas=replicas)
        self.prelu = None if in_module else nn.PReLU(channels)

    def forward(self, x: Tensor) -> Tensor:
        replicate = self.replicate
        narrow = x.dim() == 4 and x.shape[1] == replicate.channels_in and fused.ready(x, replicate.channels, replicate)
        x, other = fused.fork(x) if narrow else (replicate(x),) * 2  # a `BinaryConv` replicates as it reads
        inner = self.depthwise(self.conv1(x))
        if self.identity is not None and self.pool is not None:
            other = self.identity(pooled(self.pool, other))
        out: Tensor = self.conv3(inner, other, self.prelu)
        return out


def pooled(pool: nn.AvgPool2d, x: Tensor) -> Tensor:
    size = pool.kernel_size
    if (
        isinstance(size, int)
        and x.dim() == 4
        and x.shape[2] % size == x.shape[3] % size == 0
        and fused.ready(x, 0, pool)
    ):
        return fused.avg_pool(x, size)
    out: Tensor = pool(x)
    return out
