"""The audit: what lowers to a matrix-matrix product, how wide it is, whose it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn import Level, NetworkConfig
from bcnn.counting.audit import audit, width
from bcnn.counting.counts import count
from bcnn.nets.bcnn import Network
from bcnn.nets.binarize import sign, sign_weight

torch.set_num_threads(1)
SMALL = NetworkConfig(image_size=(8, 8), classes=5, stem=Level(1, 1, 2), levels=(Level(2, 2, 1.5), Level(1, 1, 0.5, 3)))


@pytest.fixture
def image() -> Tensor:
    return torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_a_binary_network_passes_and_every_binary_mac_is_seen(image: Tensor) -> None:
    network = Network(SMALL)
    report = audit(network, image)
    assert report.passes
    assert {op.bits for op in report.matrix} == {(1, 1)}
    assert sum(op.macs for op in report.matrix) == count(SMALL).counts.binary_macs
    # The real MACs are products with a vector: depth wise and decoder. The intensity channel is element-wise to torch.
    assert sum(op.macs for op in report.vector) == count(SMALL).counts.real_macs - 3 * 64


def test_every_product_is_named_after_its_branch(image: Tensor) -> None:
    network = Network(SMALL)
    branches = [name for name, _ in network.named_modules() if name.rpartition(".")[0].endswith("branches")]
    assert sorted(op.module for op in audit(network, image).matrix) == sorted(branches)


def test_step_1_fails_with_real_weights(image: Tensor) -> None:
    report = audit(Network(SMALL, weights="real"), image)
    assert not report.passes
    assert report.failures == report.matrix
    assert {op.bits for op in report.failures} == {(1, 32)}


def test_a_float_stem_put_in_by_hand_is_found_and_named(image: Tensor) -> None:
    class FloatStem(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 8, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.conv(x)
            return out

    network = Network(SMALL)
    network.stem = FloatStem()
    report = audit(network, image)
    assert [(op.module, op.bits, op.m, op.k, op.n) for op in report.failures] == [("stem.conv", (32, 32), 64, 36, 8)]


def test_the_decoder_is_a_vector_product_on_one_image_and_a_matrix_product_on_a_batch(image: Tensor) -> None:
    network = Network(SMALL)
    assert "decoder.linear" in {op.module for op in audit(network, image).vector}
    report = audit(network, torch.cat([image, image]))
    assert [op.module for op in report.failures] == ["decoder.linear"]


def test_nothing_of_the_network_is_changed(image: Tensor) -> None:
    network = Network(SMALL).train()
    network.get_submodule("level1").eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    modes = [part.training for part in network.modules()]
    audit(network, image)
    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in before.items())
    assert [part.training for part in network.modules()] == modes
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in network.modules())


class Signs(nn.Module):
    """sign(x) times a weight that `make` makes of a parameter of ones."""

    def __init__(self, trains: bool = True, binarize: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 3, 1, 1), requires_grad=trains)
        self.binarize = binarize

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(sign(x), sign_weight(self.weight) if self.binarize else self.weight)


def test_a_real_filter_of_ones_is_not_taken_for_a_binary_one(image: Tensor) -> None:
    assert audit(Signs(), image).failures[0].bits == (1, 32)


def test_a_binarized_filter_of_ones_and_stored_signs_pass(image: Tensor) -> None:
    assert audit(Signs(binarize=True), image).passes
    assert audit(Signs(trains=False), image).passes


def test_torch_sign_fails_where_it_yields_zero(image: Tensor) -> None:
    class TorchSign(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(torch.sign(F.relu(x)), torch.ones(4, 3, 1, 1))

    assert audit(TorchSign(), image).failures[0].bits == (32, 1)


def test_zero_padding_makes_signs_two_bits_wide(image: Tensor) -> None:
    class Padded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(sign(x), torch.ones(4, 3, 3, 3), padding=1)

    assert audit(Padded(), image).failures[0].bits == (2, 1)


@pytest.mark.parametrize(
    ("module", "shapes", "sizes"),
    [
        (nn.Linear(4, 5), [(6, 4)], [(6, 4, 5)]),
        (nn.Linear(4, 5, bias=False), [(2, 3, 4)], [(6, 4, 5)]),
        (nn.Conv1d(3, 4, 3), [(1, 3, 9)], [(7, 9, 4)]),
        (nn.Conv2d(4, 8, 3, groups=2), [(1, 4, 5, 6)], [(12, 18, 4)]),
        (nn.Conv3d(2, 4, 2), [(1, 2, 3, 3, 3)], [(8, 16, 4)]),
        (nn.ConvTranspose2d(3, 4, 2, 2), [(1, 3, 4, 4)], [(16, 3, 16)]),
        (nn.GRU(8, 8), [(3, 2, 8)], [(6, 8, 24), (2, 8, 24), (2, 8, 24), (2, 8, 24)]),
    ],
    ids=["linear", "no bias", "conv1d", "grouped", "conv3d", "transposed", "gru"],
)
def test_products_of_other_networks_are_measured(
    module: nn.Module, shapes: list[tuple[int, ...]], sizes: list[tuple[int, int, int]]
) -> None:
    report = audit(module, *(torch.randn(shape) for shape in shapes))
    assert [(op.m, op.k, op.n) for op in report.failures] == sizes


@pytest.mark.parametrize(
    "function",
    [
        torch.matmul,
        lambda a, b: torch.einsum("bij,bjk->bik", a, b),
        lambda a, b: torch.baddbmm(torch.zeros(2, 3, 5), a, b),
    ],
    ids=["matmul", "einsum", "baddbmm"],
)
def test_products_of_functions_are_found(function: object) -> None:
    class Call(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            out: Tensor = function(a, b)  # type: ignore[operator]
            return out

    (op,) = audit(Call(), torch.randn(2, 3, 4), torch.randn(2, 4, 5)).failures
    assert (op.module, op.bits, op.batch, op.m, op.k, op.n, op.macs) == ("Call", (32, 32), 2, 3, 4, 5, 120)


@pytest.mark.parametrize("module", [nn.LSTM(4, 4), nn.TransformerEncoderLayer(8, 2, 16), nn.Bilinear(4, 4, 3)])
def test_fused_operations_are_never_passed_over(module: nn.Module) -> None:
    size = 8 if isinstance(module, nn.TransformerEncoderLayer) else 4
    inputs = [torch.randn(3, 2, size)] * (2 if isinstance(module, nn.Bilinear) else 1)
    assert not audit(module, *inputs).passes


def test_attention_is_two_products_of_which_the_second_is_never_binary() -> None:
    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(sign(x), sign(x), sign(x))

    report = audit(Attention(), torch.randn(1, 2, 5, 8))
    assert [(op.bits, op.m, op.k, op.n, op.batch) for op in report.matrix] == [
        ((1, 1), 5, 8, 5, 2),
        ((32, 1), 5, 5, 8, 2),
    ]


def test_depthwise_convolution_is_a_vector_operation(image: Tensor) -> None:
    for module in (nn.Conv2d(3, 3, 3, groups=3), nn.Conv2d(3, 6, 3, groups=3)):
        report = audit(module, image)
        assert report.passes
        assert not report.matrix


def test_an_error_in_the_network_leaves_it_as_it_was() -> None:
    network = Network(SMALL).train()
    with pytest.raises(ValueError, match="images must be"):
        audit(network, torch.randn(1, 3, 7, 7))
    assert network.training
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in network.modules())


def test_width_is_of_the_values() -> None:
    assert width(torch.tensor([1.0, -1.0])) == 1
    assert width(torch.tensor([1, -1], dtype=torch.int8)) == 1
    assert width(torch.tensor([True, False])) == 1
    assert width(torch.tensor([1.0, 0.0])) == 32
    assert width(torch.tensor([0.5], dtype=torch.bfloat16)) == 16
    assert width(torch.tensor([3], dtype=torch.int8)) == 8
    assert width(torch.tensor([])) == 32


class Of(nn.Module):
    """A function of the image, with a parameter of eight by eight to use."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x[0], self.weight)


@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (lambda x, w: (x[0][:, None] * w).sum(2), [(8, 8, 8)]),
        (lambda x, w: (w * x[0].unsqueeze(1)).mean(-1), [(8, 8, 8)]),
        (lambda x, w: (x[:, :, None] * w).sum(3), [(24, 8, 8)]),
        (lambda x, w: torch.stack([F.linear(row, w) for row in x[0]]), [(8, 8, 8)]),
        (lambda x, w: torch.stack([torch.mv(w, row) for row in x[0]]), [(8, 8, 8)]),
        (lambda x, w: torch.stack([(row * w).sum(1) for row in x[0]]), [(8, 8, 8)]),
    ],
)
def test_products_without_the_name_of_one_are_found(
    image: Tensor, function: Callable[[Tensor, Tensor], Tensor], sizes: list[tuple[int, int, int]]
) -> None:
    report = audit(Of(function), image)
    assert [tuple(sorted((op.m, op.k, op.n))) for op in report.failures] == [tuple(sorted(size)) for size in sizes]
    assert sum(op.macs for op in report.failures) == sum(m * k * n for m, k, n in sizes)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (x * w).sum(2),  # each pixel has its own weight: no axis is shared by several
        lambda x, w: (x[0] * w[:1]).sum(1),  # a matrix times one vector
        lambda x, w: x.mean((1, 2)),
        lambda x, w: (x * x.mean((1, 2), keepdim=True)).mean((1, 2)),
    ],
)
def test_scales_gates_and_sums_are_no_matrix_products(
    image: Tensor, function: Callable[[Tensor, Tensor], Tensor]
) -> None:
    report = audit(Of(function), image)
    assert report.passes
    assert not report.matrix


def test_an_operator_that_is_not_known_is_named_and_nothing_is_certified(image: Tensor) -> None:
    report = audit(Of(lambda x, w: torch.cdist(x[0], w)), image)
    assert not report.passes
    assert str(report.unknown[0]).startswith("_cdist_forward in Of, line ")


def test_heads_of_attention_are_counted_one_by_one() -> None:
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()

    class Self(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.attention(x, x, x)[0]
            return made

    report = audit(Self(), torch.randn(1, 16, 16))
    assert sum(op.macs for op in report.matrix) == 4 * 16 * 16 * 16 + 2 * 4 * 16 * 16 * 4
