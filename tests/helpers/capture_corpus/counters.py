"""What differs from pass to pass, or leaves torch: always refused, with the line."""

import random

import numpy as np
import torch
import torch.nn.functional as F

from capture_corpus.parts import After, Between, step


class Counting(After):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls


class Caching(After):
    last = None

    def forward(self, x):
        made = super().forward(x)
        self.last = made if self.last is None else 0.9 * self.last + 0.1 * made
        return self.last


class Averaging(After):
    def __init__(self, trick):
        super().__init__(trick)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen += x.mean()
        return super().forward(x) + self.seen


def branch(x, s):
    if x.mean() > 0:
        return x
    return -x


def loop(x, s):
    while x.abs().mean() > 0.5:
        x = x / 2
    return x


def debugging(x, s):
    if x.data.max() > 1e9:
        print("too large")
    return x


def of_parameters(x, s):
    return -x if s.bias.sum() > 1e9 else x


def through_numpy(x, s):
    return torch.from_numpy(np.sign(x.detach().numpy()))


def same(x, s):
    return x


CASES = {
    "counter": lambda: Counting(same),
    "cache": lambda: Caching(same),
    "average of images": lambda: Averaging(same),
    **{
        name: (lambda function=function: Between(function))
        for name, function in {
            "branch": branch,
            "loop": loop,
            "branch for debugging": debugging,
            "branch on parameters": of_parameters,
            "NumPy": through_numpy,
            "item": lambda x, s: x * x.abs().mean().item(),
            "float": lambda x, s: x / float(x.std()),
            "list": lambda x, s: x + torch.tensor(x.mean((0, 2, 3)).tolist()).view(1, -1, 1, 1),
            "index of the image": lambda x, s: x[:, int(x.sum((0, 2, 3)).argmax())][:, None].expand_as(x),
            "gathered": lambda x, s: x.index_select(1, x.sum((0, 2, 3)).argsort()),
            "mask": lambda x, s: x[x > 0].mean() + x,
            "positions": lambda x, s: x + len((x > 0).nonzero()),
            "dropout": lambda x, s: F.dropout(x),
            "dropout in evaluation": lambda x, s: F.dropout(x, 0.3, s.training),
            "feature dropout": lambda x, s: F.dropout2d(x),
            "random relu": lambda x, s: F.rrelu(x, training=True),
            "noise": lambda x, s: x + torch.randn_like(x),
            "stochastic sign": lambda x, s: step(x.sigmoid() - torch.rand(x.shape)),
            "bernoulli": lambda x, s: torch.bernoulli(x.sigmoid()),
            "Python's random": lambda x, s: x * random.random(),
            "NumPy's random": lambda x, s: x * float(np.random.rand()),
            "gumbel": lambda x, s: F.gumbel_softmax(x, dim=1),
            "batch norm in training": lambda x, s: F.batch_norm(x, None, None, training=True),
        }.items()
    },
}
