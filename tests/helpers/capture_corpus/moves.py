"""C. Maps whose values move: strides by slices, crops, flips, shuffles, paddings of all modes, writes into parts."""

import torch
import torch.nn.functional as F
from torch import nn

from capture_corpus.parts import After, Between


def between(function, **parts):
    return lambda: Between(function, **{k: v() for k, v in parts.items()})


def after(function, **parts):
    return lambda: After(function, **{k: v() for k, v in parts.items()})


def written(x, s):
    y = x.clone()
    y[:, 0] = 0.5
    return y


def added_to_a_part(x, s):
    y = x.clone()
    y[:, :2] += 0.7
    return y


def border_cleared(x, s):
    y = x.clone()
    y[:, :, 0] = 0
    return y


CASES = {
    "every other pixel": after(lambda x, s: x[:, :, ::2, ::2]),
    "cropped": after(lambda x, s: x[:, :, 1:-1, 1:-1]),
    "cropped before a sign": between(lambda x, s: x[:, :, 1:-1, 2:-2]),
    "flipped left to right": after(lambda x, s: x.flip(3)),
    "flipped, not all alike": between(lambda x, s: x + 0.5 * x.flip(3)),
    "flipped channels": between(lambda x, s: x.flip(1)),
    "rows for columns": between(lambda x, s: x.transpose(2, 3)),
    "channels by index": between(lambda x, s: x[:, [2, 1, 0, 3, 7, 6, 5, 4]]),
    "channels by tensor": between(lambda x, s: x[:, torch.tensor([7, 0, 1, 2, 3, 4, 5, 6])]),
    "channels twice": between(lambda x, s: x[:, [0, 0, 1, 1, 2, 2, 3, 3]]),
    "shuffle": between(lambda x, s: s.shuffle(x), shuffle=lambda: nn.ChannelShuffle(4)),
    "shuffle by view": between(lambda x, s: x.view(1, 2, 4, *x.shape[2:]).transpose(1, 2).flatten(1, 2)),
    "rolled channels": between(lambda x, s: x.roll(3, 1)),
    "rolled pixels": between(lambda x, s: x.roll((1, 2), (2, 3))),
    "chunks swapped": between(lambda x, s: torch.cat(x.chunk(2, 1)[::-1], 1)),
    "split and added": after(lambda x, s: torch.cat([x.split([2, 4], 1)[0] + 1, x.split([2, 4], 1)[1]], 1)),
    "circular padding": between(lambda x, s: F.pad(x, (1, 1, 1, 1), mode="circular")),
    "reflected": between(lambda x, s: F.pad(x, (1, 1, 1, 1), mode="reflect")),
    "replicated": between(lambda x, s: F.pad(x, (1, 1, 1, 1), mode="replicate")),
    "padded with a number": between(lambda x, s: F.pad(x, (1, 0, 0, 1), value=0.5)),
    "padded with less than none": between(lambda x, s: F.pad(x, (-1, -1, -1, -1))),
    "a channel overwritten": between(written),
    "a part added to": between(added_to_a_part),
    "a border cleared": after(border_cleared),
    "pixel shuffle": between(lambda x, s: F.pixel_shuffle(x, 2).repeat(1, 4, 1, 1)),
    "pixel unshuffle": between(lambda x, s: F.pixel_unshuffle(x, 2)[:, ::4]),
    "stacked and unbound": between(lambda x, s: torch.stack([x, -x], 1).unbind(1)[1]),
    "sorted pixels": after(lambda x, s: x.sort(3)[0]),
    "largest pixels": after(lambda x, s: x.flatten(2).topk(5)[0][..., None]),
    "accumulated": after(lambda x, s: x.cumsum(2)),
    "diagonal": after(lambda x, s: x.diagonal(dim1=2, dim2=3)[..., None]),
}
