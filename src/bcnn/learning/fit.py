"""Features and classes -> a linear decoder: multinomial logistic regression with a penalty, in NumPy. No torch.

    loss(W, b) = mean over photos of cross entropy(softmax(x W + b)) + penalty / 2 * |W - W0|^2

x are the features with mean 0 and deviation 1; W0 is 0, or a decoder that is to be kept where the photos say nothing else. The loss is
convex, so L-BFGS (Nocedal and Wright, Numerical Optimization, algorithm 7.5) ends at one place whatever the start: the same photos give
the same decoder, and a path from strong to weak penalties can begin each fit at the last one's end.

N photos, D features, C classes. X and X' run in float32 through BLAS, sums and steps in float64.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Labels = NDArray[np.int64]

# Sets of 100 to 3,500 photos had their best between 3 and 0.03, and lost a point or two at 0.01.
PENALTIES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
MAX_STEPS = 200  # of L-BFGS at most
MIN_RELATIVE_GAIN = 3e-5  # relative gain of a step that is not worth another one
REMEMBERED_PAIRS = 10  # pairs of steps and gradients that L-BFGS remembers


@dataclass(frozen=True, eq=False)
class Scale:
    """What makes features comparable, x * scale + offset: mean 0 and deviation 1. A feature that never changes becomes 0."""

    scale: Floats  # [D]
    offset: Floats  # [D]
    most: float = math.inf  # deviations that the op in a packed file keeps

    @staticmethod
    def of(x: Floats, least: float = 0.0, most: float = math.inf) -> Scale:
        """`least`: the deviation of what is not worth counting as a change, see `features.limits`."""
        mean, deviation = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
        changes = deviation > np.maximum(least, 1e-6 * (1 + np.abs(mean)))
        scale = np.where(changes, 1 / np.where(changes, deviation, 1), 0).astype(np.float32)
        return Scale(scale, (-mean * scale + 0.0).astype(np.float32), most)

    def __call__(self, x: Floats) -> Floats:
        """In the order and rounding of the op that does it in a packed file, `Affine`; in integers it rounds, and saturates."""
        scaled = x * self.scale + self.offset
        return scaled if self.most == math.inf else np.clip(scaled, -self.most, self.most)


@dataclass(frozen=True, eq=False)
class Decoder:
    """Logits x W + b."""

    weight: Doubles  # [D, C]
    bias: Doubles  # [C]

    @staticmethod
    def zero(features: int, classes: int) -> Decoder:
        return Decoder(np.zeros((features, classes)), np.zeros(classes))

    def __call__(self, x: Floats) -> Doubles:
        logits: Doubles = x @ self.weight.astype(np.float32) + self.bias
        return logits


def fit(
    x: Floats,
    y: Labels,
    penalty: float,
    start: Decoder,
    kept: Decoder | None = None,
    weights: Doubles | None = None,
) -> Decoder:
    """The decoder of least loss for scaled features. `kept` is W0, 0 if not given; `weights` say how much each photo counts."""
    d, c = start.weight.shape
    one_hot = np.zeros((len(y), c), np.float32)
    one_hot[np.arange(len(y)), y] = 1
    share = np.full(len(y), 1 / len(y)) if weights is None else weights / weights.sum()
    column = share[:, None].astype(np.float32)
    anchor = np.zeros((d, c)) if kept is None else kept.weight

    def loss(parameters: Doubles) -> tuple[float, Doubles]:
        weight, bias = parameters[: d * c].reshape(d, c), parameters[d * c :]
        logits = x @ weight.astype(np.float32) + bias
        high = logits.max(axis=1, keepdims=True)
        exp = np.exp(logits - high)
        total = exp.sum(axis=1, keepdims=True)
        entropy = (high + np.log(total))[:, 0] - logits[np.arange(len(y)), y]
        wrong = ((exp / total) - one_hot).astype(np.float32) * column
        away = weight - anchor
        gradient = np.concatenate([(x.T @ wrong + penalty * away).ravel(), wrong.sum(axis=0, dtype=np.float64)])
        return float(entropy @ share + penalty / 2 * (away * away).sum()), gradient

    found = minimise(loss, np.concatenate([start.weight.ravel(), start.bias]))
    return Decoder(found[: d * c].reshape(d, c), found[d * c :])


def path(x: Floats, y: Labels, penalty: float, classes: int) -> Decoder:
    """The decoder of that penalty by way of the stronger ones, as it was chosen."""
    decoder = Decoder.zero(x.shape[1], classes)
    for strength in PENALTIES[: PENALTIES.index(penalty) + 1]:
        decoder = fit(x, y, strength, decoder)
    return decoder


def minimise(loss: Callable[[Doubles], tuple[float, Doubles]], at: Doubles) -> Doubles:
    """L-BFGS with halved steps (Armijo); ends when steps gain nothing any more."""
    value, gradient = loss(at)
    pairs: deque[tuple[Doubles, Doubles, float]] = deque(maxlen=REMEMBERED_PAIRS)
    for _ in range(MAX_STEPS):
        direction = -_times_inverse_hessian(gradient, pairs)
        slope = float(gradient @ direction)
        if not slope < 0:  # rounding has the last word: at the minimum
            break
        step = 1.0 if pairs else min(1.0, 1.0 / max(1e-12, float(np.abs(gradient).sum())))
        for _ in range(30):
            there, (new, slopes) = (moved := at + step * direction), loss(moved)
            if new <= value + 1e-4 * step * slope:
                break
            step /= 2
        else:
            break
        s, t = there - at, slopes - gradient
        if (curvature := float(s @ t)) > 1e-12 * float(t @ t):
            pairs.append((s, t, 1 / curvature))
        gained, at, value, gradient = value - new, there, new, slopes
        if gained <= MIN_RELATIVE_GAIN * max(1e-3, abs(value)):
            break
    return at


def _times_inverse_hessian(gradient: Doubles, pairs: deque[tuple[Doubles, Doubles, float]]) -> Doubles:
    """Algorithm 7.4: two loops over the remembered pairs."""
    q, factors = gradient.copy(), []
    for s, t, inverse in reversed(pairs):
        factors.append(factor := inverse * float(s @ q))
        q -= factor * t
    if pairs:
        s, t, inverse = pairs[-1]
        q *= 1 / (inverse * float(t @ t))
    for (s, t, inverse), factor in zip(pairs, reversed(factors), strict=True):
        q += (factor - inverse * float(t @ q)) * s
    return q
