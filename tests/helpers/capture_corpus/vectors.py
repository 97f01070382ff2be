"""A. Norms, scales, biases and curves on vectors, after pooling or flattening."""

import torch
import torch.nn.functional as F
from torch import nn

from capture_corpus.parts import CLASSES, MADE, End, shaken, step

PIXELS = 12 * 10


def vector(function, **parts):
    return lambda: End(lambda x, s: s.head(function(x.mean((2, 3)), s)), **{k: v() for k, v in parts.items()})


def flat(function, **parts):
    def trick(x, s):
        return s.last(function(x.flatten(1), s))

    return lambda: End(trick, last=nn.Linear(MADE * PIXELS, CLASSES), **{k: v() for k, v in parts.items()})


def norm():
    return shaken(nn.BatchNorm1d(MADE))


CASES = {
    "norm": vector(lambda x, s: s.norm(x), norm=norm),
    "prelu": vector(lambda x, s: s.prelu(x), prelu=lambda: nn.PReLU(MADE)),
    "relu": vector(lambda x, s: x.relu()),
    "bias": vector(lambda x, s: x + s.bias[:MADE]),
    "scale": vector(lambda x, s: x * s.bias[:MADE]),
    "sign then linear": vector(lambda x, s: step(x)),
    "norm, sign, linear": vector(lambda x, s: step(s.norm(x)), norm=norm),
    "temperature": vector(lambda x, s: x / 4),
    "layer norm": vector(lambda x, s: F.layer_norm(x, (MADE,))),
    "length one": vector(lambda x, s: F.normalize(x)),
    "hidden layer": vector(lambda x, s: s.hidden(x).relu(), hidden=lambda: nn.Linear(MADE, MADE)),
    "sum of two heads": vector(lambda x, s: x + s.other(x), other=lambda: nn.Linear(MADE, MADE)),
    "softmax over classes": lambda: End(lambda x, s: s.head(x.mean((2, 3))).softmax(1)),
    "softmax over the batch": lambda: End(lambda x, s: s.head(x.mean((2, 3))).softmax(0)),
    "softmax, then a scale": lambda: End(lambda x, s: s.head(x.mean((2, 3))).softmax(1) * 100),
    "softmax of pixels": lambda: End(lambda x, s: s.head((x * x.flatten(2).softmax(2).view_as(x)).sum((2, 3)))),
    "norm of the logits": lambda: End(
        lambda x, s: s.last(s.head(x.mean((2, 3)))), last=shaken(nn.BatchNorm1d(CLASSES))
    ),
    "flattened": flat(lambda x, s: x),
    "flattened, relu": flat(lambda x, s: x.relu()),
    "flattened, sign": flat(lambda x, s: step(x)),
    "flattened, norm": flat(lambda x, s: s.norm(x), norm=lambda: shaken(nn.BatchNorm1d(MADE * PIXELS))),
    "flattened, scale of each pixel": flat(lambda x, s: x * torch.linspace(0.5, 2, MADE * PIXELS)),
    "flattened, bias of each pixel, sign": flat(lambda x, s: step(x + torch.linspace(-1, 1, MADE * PIXELS))),
    "flattened, one prelu": flat(lambda x, s: s.prelu(x), prelu=nn.PReLU),
    "flattened by rows": flat(lambda x, s: x.view(1, MADE, 12, 10).permute(0, 2, 3, 1).flatten(1)),
}
