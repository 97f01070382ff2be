"""Sign and its gradients, Eq. 1 to 4."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bcnn.nets.binarize import WEIGHTS, hard_tanh, sign, sign_activation, sign_weight, soft_sign

torch.set_num_threads(1)
EDGES = [-1.5, -1.0, -0.75, -0.25, 0.0, 0.25, 0.75, 1.0, 1.5]


def gradient(function: object, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(function(x).sum(), x)  # type: ignore[operator]
    return g


def activation(x: Tensor) -> Tensor:
    return sign_activation(x, torch.zeros([1] * x.dim()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_sign_of_zero_and_negative_zero_is_plus_one(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, 1e-30, -1e-30, float("inf"), -float("inf")], dtype=torch.float64)
    expected = torch.tensor([1.0, 1.0, 1.0, -1.0, 1.0, -1.0], dtype=dtype)
    if dtype in (torch.float16,):
        expected[3] = 1.0  # -1e-30 is -0.0 there
    out = sign(x.to(dtype))
    assert out.dtype == dtype
    assert torch.equal(out, expected)


def test_activation_and_weight_sign_are_sign_forward() -> None:
    x = torch.randn(4, 3, 5, 5)
    bias = torch.randn(1, 3, 1, 1)
    assert torch.equal(sign_activation(x, bias), sign(x + bias))
    assert torch.equal(sign_weight(x), sign(x))
    assert torch.equal(WEIGHTS["binary"](x), sign(x))
    assert WEIGHTS["real"](x) is x


def test_activation_gradient_is_eq_1_at_the_edges() -> None:
    g = gradient(activation, torch.tensor(EDGES))
    assert g.tolist() == [0.0, 0.0, 0.5, 1.5, 2.0, 1.5, 0.5, 0.0, 0.0]


def test_weight_gradient_is_eq_3_at_the_edges() -> None:
    g = gradient(sign_weight, torch.tensor(EDGES))
    assert g.tolist() == [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]  # [-1, 1] is closed


def test_eq_1_is_the_derivative_of_eq_2() -> None:
    x = torch.cat([torch.linspace(-2, 2, 1001, dtype=torch.float64), torch.tensor(EDGES, dtype=torch.float64)])
    assert torch.allclose(gradient(activation, x), gradient(soft_sign, x), atol=1e-14, rtol=0)


def test_eq_3_is_the_derivative_of_eq_4() -> None:
    # At x = 1 Eq. 4 has left its slope already while Eq. 3 still counts it: the one point where they differ.
    x = torch.linspace(-2, 2, 1001, dtype=torch.float64)
    x = x[x != 1]
    assert torch.equal(gradient(sign_weight, x), gradient(hard_tanh, x))


def test_eq_2_and_eq_4_are_continuous_and_reach_plus_and_minus_one() -> None:
    for function in (soft_sign, hard_tanh):
        y = function(torch.tensor([-1.0 - 1e-6, -1.0, 0.0, 1.0 - 1e-6, 1.0, 7.0]))
        assert torch.allclose(y, torch.tensor([-1.0, -1.0, 0.0, 1.0, 1.0, 1.0]), atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3, 1, 1), (1, 1, 4, 4), (2, 3, 1, 1)])
def test_bias_gradient_is_the_sum_of_the_activation_gradient(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, requires_grad=True)
    bias = torch.randn(1, shape[1], 1, 1, requires_grad=True)
    upstream = torch.randn(shape)
    (sign_activation(x, bias) * upstream).sum().backward()
    inside = upstream * (2 - 2 * (x + bias).detach().abs()).clamp_min(0)
    assert x.grad is not None
    assert bias.grad is not None
    assert torch.equal(x.grad, inside)
    assert bias.grad.shape == bias.shape
    assert torch.allclose(bias.grad, inside.sum((0, 2, 3), keepdim=True), atol=1e-5)


def test_gradients_pass_where_only_one_operand_wants_them() -> None:
    x, bias = torch.randn(2, 3, 4, 4), torch.zeros(1, 3, 1, 1, requires_grad=True)
    sign_activation(x, bias).sum().backward()
    assert bias.grad is not None
    x = x.requires_grad_()
    sign_activation(x, bias.detach()).sum().backward()
    assert x.grad is not None


def test_p_signs_of_one_map_save_that_map_and_no_copy() -> None:
    x = torch.randn(1, 8, 16, 16, requires_grad=True) * 1.0
    saved: list[int] = []

    def pack(t: Tensor) -> Tensor:
        saved.append(t.untyped_storage().data_ptr())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        biases = [torch.randn(1, 8, 1, 1, requires_grad=True) for _ in range(3)]
        for bias in biases:
            sign_activation(x, bias)
    assert set(saved) == {x.untyped_storage().data_ptr(), *(b.untyped_storage().data_ptr() for b in biases)}


def test_weight_sign_saves_one_byte_a_weight() -> None:
    saved: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        saved.append(t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        sign_weight(torch.randn(8, 8, 1, 1, requires_grad=True))
    assert [(t.dtype, t.numel()) for t in saved] == [(torch.bool, 64)]
