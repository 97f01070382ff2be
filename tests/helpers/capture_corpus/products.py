"""J. Linear layers and convolutions written as other products, and answers in other containers."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from capture_corpus.parts import CLASSES, MADE, After, End, step


def end(function):
    return lambda: End(function)


def after(function):
    return lambda: After(function)


def pooled(x):
    return x.mean((2, 3))


class Answer(NamedTuple):
    logits: torch.Tensor


def unfolded(x, s):
    columns = F.unfold(step(x), 3, padding=1)
    weight = step(s.weight[:, :MADE]).reshape(MADE, -1)
    return (weight @ columns).view(1, MADE, *x.shape[2:])


def pixels_last(x, s):
    return F.linear(x.permute(0, 2, 3, 1), s.weight[:, :MADE, 0, 0]).permute(0, 3, 1, 2)


CASES = {
    "matmul": end(lambda x, s: pooled(x) @ s.head.weight.t() + s.head.bias),
    "einsum": end(lambda x, s: torch.einsum("nc,oc->no", pooled(x), s.head.weight)),
    "multiplied and summed": end(lambda x, s: (pooled(x)[:, None] * s.head.weight).sum(2)),
    "addmm": end(lambda x, s: torch.addmm(s.head.bias, pooled(x), s.head.weight.t())),
    "addmm with alpha": end(lambda x, s: torch.addmm(s.head.bias, pooled(x), s.head.weight.t(), alpha=2)),
    "1 x 1 convolution": end(lambda x, s: F.conv2d(x, s.head.weight[..., None, None]).mean((2, 3))),
    "1 x 1 convolution of one pixel": end(
        lambda x, s: F.conv2d(x.mean((2, 3), keepdim=True), s.head.weight[..., None, None]).flatten(1)
    ),
    "loop over classes": end(lambda x, s: torch.stack([(pooled(x) * w).sum(1) for w in s.head.weight], 1)),
    "unfold": after(unfolded),
    "pixels last": after(pixels_last),
    "einsum over channels": after(lambda x, s: torch.einsum("nchw,oc->nohw", x, s.weight[:, :MADE, 0, 0])),
    "weights of the image": end(lambda x, s: pooled(x) @ pooled(x).t() * s.head.bias),
    "attention of pixels": end(lambda x, s: s.head(F.softmax(x.flatten(2) @ x.flatten(2).transpose(1, 2), -1).mean(2))),
    "bilinear": end(lambda x, s: F.bilinear(pooled(x), pooled(x), torch.ones(CLASSES, MADE, MADE))),
    "distances": end(lambda x, s: -torch.cdist(pooled(x), s.head.weight)),
    "cosine": end(lambda x, s: F.cosine_similarity(pooled(x), s.head.weight)[None]),
    "tuple": end(lambda x, s: (s.head(pooled(x)),)),
    "dict": end(lambda x, s: {"logits": s.head(pooled(x))}),
    "named tuple": end(lambda x, s: Answer(s.head(pooled(x)))),
    "two answers": end(lambda x, s: (s.head(pooled(x)), x)),
    "class": end(lambda x, s: s.head(pooled(x)).argmax(1)),
    "without the batch": end(lambda x, s: s.head(pooled(x))[0]),
    "image without its batch": end(lambda x, s: s.head(x.squeeze(0).mean((1, 2)))[None]),
    "one dimensional convolution": end(lambda x, s: F.conv1d(x.flatten(2), s.weight[:CLASSES, :MADE, 0, :]).mean(2)),
    "recurrent": lambda: End(
        lambda x, s: s.head(s.cell(x.mean(3).transpose(1, 2))[0][:, -1]), cell=nn.GRU(MADE, MADE, batch_first=True)
    ),
}
