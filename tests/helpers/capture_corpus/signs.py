"""D, I. Two-valued maps: of values of one sign, steep ramps that are no steps, zeros, levels of all kinds, three values."""

import torch
import torch.nn.functional as F

from capture_corpus.parts import Between, Signs, step


def signs(function):
    return lambda: Signs(function)


def between(function):
    return lambda: Between(function)


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign().clamp(min=0) * 2 - 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def by_data(x, s):
    y = x.clone()
    y.data = torch.where(x.data >= 0, 1.0, -1.0)
    return y


def in_place(x, s):
    return x.clone().sign_().add_(0.5).sign_()


def out_argument(x, s):
    y = torch.empty_like(x)
    torch.sign(x, out=y)
    return y


CASES = {
    "sign of a relu": signs(lambda x, s: torch.sign(x.relu())),
    "step of a relu": signs(lambda x, s: step(x.relu())),
    "step of a relu that is a map": signs(lambda x, s: step(x.relu()) * x.relu().mean((2, 3), keepdim=True)),
    "sign of a sigmoid": signs(lambda x, s: torch.sign(x.sigmoid() - 0.5)),
    "sign of a clip": signs(lambda x, s: torch.sign(x.clamp(-1, 1))),
    "sign of a square": signs(lambda x, s: torch.sign(x * x - 0.2)),
    "sign of an absolute value": signs(lambda x, s: torch.sign(x.abs() - 0.3)),
    "window": signs(lambda x, s: ((x > -0.4) & (x < 0.4)).float() * 2 - 1),
    "steep ramp": signs(lambda x, s: F.hardsigmoid(20 * (x - 0.3))),
    "very steep ramp": signs(lambda x, s: F.hardtanh(1e4 * x)),
    "steep tanh": signs(lambda x, s: torch.tanh(1000 * x)),
    "steep sigmoid": signs(lambda x, s: torch.sigmoid(5000 * x) * 2 - 1),
    "three values": signs(lambda x, s: torch.where(x.abs() < 0.2, 0.0, x.sign())),
    "rounded": signs(lambda x, s: torch.round(x.clamp(-1, 1))),
    "two bits": signs(lambda x, s: torch.round(x.clamp(0, 1) * 3) / 3),
    "zero and one": signs(lambda x, s: (x > 0.1).float()),
    "two levels": signs(lambda x, s: torch.where(x > 0.1, 1.7, -0.4)),
    "levels of channels": signs(lambda x, s: torch.where(x > 0, s.bias.view(1, -1, 1, 1), -0.5)),
    "scaled by channels": signs(lambda x, s: step(x) * s.bias.abs().view(1, -1, 1, 1)),
    "scaled by the map": signs(lambda x, s: step(x) * x.abs().mean()),
    "scaled by pixels": signs(lambda x, s: step(x) * x.abs().mean(1, keepdim=True)),
    "of both maps": signs(lambda x, s: step(x) * step(x - 0.5)),
    "maximum of signs": signs(lambda x, s: torch.maximum(step(x), step(x - 1))),
    "minimum with itself shifted": signs(lambda x, s: torch.minimum(x.sign(), (x + 0.1).sign())),
    "by data": signs(by_data),
    "in place": signs(in_place),
    "out argument": signs(out_argument),
    "by a function": signs(lambda x, s: Clipped.apply(x)),
    "threshold": signs(lambda x, s: F.threshold(x, 0.2, -1.0).clamp(max=0.2).sign()),
    "of NaN": signs(lambda x, s: torch.nan_to_num(x / x.abs(), nan=1.0)),
    "argmax of two": signs(lambda x, s: torch.stack([-x, x], 0).argmax(0).float() * 2 - 1),
    "bool map": signs(lambda x, s: (x > 0).to(torch.float32)),
    "half precision": signs(lambda x, s: step(x.half()).float()),
    "double precision": signs(lambda x, s: step(x.double() - 1e-12).float()),
    "bfloat16": signs(lambda x, s: (x.bfloat16() >= 0).float() * 2 - 1),
    "mean over channels": between(lambda x, s: x - x.mean(1, keepdim=True)),
    "mean over pixels": between(lambda x, s: x - x.mean((2, 3), keepdim=True)),
    "by its largest": between(lambda x, s: x / x.abs().amax()),
    "max pool of signs": signs(lambda x, s: F.max_pool2d(step(x), 2)),
    "max pool of zero and one": signs(lambda x, s: F.max_pool2d((x > 0).float(), 3, 1, 1)),
    "average of signs": signs(lambda x, s: step(F.avg_pool2d(step(x), 2) - 0.1)),
}
