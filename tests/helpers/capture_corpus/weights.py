"""F. Binary weights: two levels, scales of filters, taps, rows and inputs, zeros, weight norms, weights made of weights."""

import torch

from capture_corpus.parts import Weights, step


def made(function):
    return lambda: Weights(function)


def data_written(w, s):
    w.data = torch.where(w >= 0, 1.0, -1.0)
    return w


def with_zeros(w, s):
    w = w.clone()
    w[:, 0, 0, 0] = 0
    return torch.sign(w)


def scaled_columns(w, s):
    return step(w) * w.abs().mean((0, 2, 3), keepdim=True)


CASES = {
    "plain": made(lambda w, s: step(w)),
    "mean of the filter": made(lambda w, s: step(w) * w.abs().mean((1, 2, 3), keepdim=True)),
    "mean of all": made(lambda w, s: step(w) * w.abs().mean()),
    "median": made(lambda w, s: step(w) * w.abs().flatten(1).median(1)[0].view(-1, 1, 1, 1)),
    "inputs": made(scaled_columns),
    "taps": made(lambda w, s: step(w) * w.abs().mean((0, 1), keepdim=True)),
    "rows": made(lambda w, s: step(w) * torch.tensor([1.0, 0.5, 2.0]).view(1, 1, 3, 1)),
    "two levels": made(lambda w, s: torch.where(w > 0, 0.8, -0.3)),
    "alpha and beta": made(
        lambda w, s: step(w - w.mean((1, 2, 3), keepdim=True)) * 0.5 + w.mean((1, 2, 3), keepdim=True)
    ),
    "zero and one": made(lambda w, s: (w > 0).float()),
    "three values": made(lambda w, s: torch.where(w.abs() < 0.3, 0.0, step(w))),
    "zeros": made(with_zeros),
    "written by data": made(data_written),
    "clipped first": made(lambda w, s: w.clamp(-1, 1).sign()),
    "standardized": made(lambda w, s: step((w - w.mean()) / w.std())),
    "straight through": made(lambda w, s: (step(w) - w).detach() + w),
    "tanh": made(lambda w, s: torch.tanh(1e6 * w)),
    "double": made(lambda w, s: step(w.double()).float()),
    "power of two": made(lambda w, s: step(w) * 2 ** torch.round(torch.log2(w.abs().mean((1, 2, 3), keepdim=True)))),
    "flipped": made(lambda w, s: step(w).flip(2)),
    "sum of bases": made(lambda w, s: step(w) + 0.5 * step(w - step(w))),
    "of one filter": made(lambda w, s: step(w[:1]).expand_as(w)),
    "masked": made(lambda w, s: step(w) * torch.ones(3, 3).triu()),
    "real": made(lambda w, s: w),
    "quantized": made(lambda w, s: torch.round(w * 7) / 7),
}
