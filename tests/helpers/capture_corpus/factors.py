"""E. Factors in front of a sign, and means and deviations of the image."""

import torch

from capture_corpus.parts import After, Between

EPS = 1e-5

CASES = {
    name: (lambda function=function, kind=kind: kind(function))
    for name, kind, function in [
        ("deviation", Between, lambda x, s: x / (x.std() + EPS)),
        ("deviation of channels", Between, lambda x, s: x / (x.std((2, 3), keepdim=True) + EPS)),
        ("variance", Between, lambda x, s: x * torch.rsqrt(x.var() + EPS)),
        ("length", Between, lambda x, s: x / x.norm()),
        ("length of pixels", Between, lambda x, s: x / x.norm(dim=1, keepdim=True)),
        ("positive parameter", Between, lambda x, s: x * s.bias[0].exp()),
        ("squared parameter", Between, lambda x, s: x * s.bias[1].square()),
        ("softplus of parameters", Between, lambda x, s: x * torch.nn.functional.softplus(s.bias).view(1, -1, 1, 1)),
        ("mean and deviation", Between, lambda x, s: (x - x.mean()) / (x.std() + EPS)),
        ("mean of magnitudes", After, lambda x, s: x * x.abs().mean(1, keepdim=True)),
        ("mean of magnitudes of all", After, lambda x, s: x * x.abs().mean()),
        ("maximum of all", After, lambda x, s: x / x.amax((1, 2, 3), keepdim=True)),
        ("square root", After, lambda x, s: x.abs().sqrt()),
        ("power", After, lambda x, s: x**3),
        ("exponential", After, lambda x, s: (x / 20).exp()),
        ("logarithm", After, lambda x, s: (x.abs() + 1).log()),
    ]
}
