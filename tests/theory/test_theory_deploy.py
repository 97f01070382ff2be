"""The approximator as a packed program: the same function at 256 values of each coordinate."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bcnn.base.errors import UserError
from bcnn.lowering.compare import compare
from bcnn.packed import packfile
from bcnn.program import ops
from bcnn.program.interpret import interpret
from bcnn.theory import approximate, budget, error_bound, evaluate, levels, lower, pixels
from bcnn.theory.bound import rounding
from bcnn.theory.deploy import normalisation

torch.set_num_threads(1)

CASES = {
    1: (lambda x: np.sin(6 * x), [(0.0, 1.0)], 0.05, 16, 6.0),
    2: (lambda x, y: np.stack([x * y, x - y]), [(-1.0, 1.0), (0.1, 3.1)], (0.25, 0.5), 8, np.hypot(3.1, 1)),
    3: (lambda x, y, z: x * y + z, [(-0.1, 0.7)] * 3, 0.2, 8, 1.5),
}


def build(k: int):
    f, domain, d, q, lipschitz = CASES[k]
    network = approximate(f, domain, d, q, channels=3)
    return f, network, lower(network, "test"), lipschitz


def random_bytes(k: int, count: int = 40):
    """Images N,1,1,3 with coordinate c mod K in channel c, the corners among them."""
    u = np.random.default_rng(0).integers(0, 256, (count, k)).astype(np.uint8)
    u[0], u[1] = 0, 255
    return u[:, None, None, np.arange(3) % k]


@pytest.mark.parametrize("k", CASES)
def test_the_program_is_the_network_at_the_levels_of_its_bytes(k: int) -> None:
    f, network, program, lipschitz = build(k)
    images, known = random_bytes(k), levels(program)
    x = [known[j, images[:, 0, 0, j]] for j in range(k)]
    made = np.stack([interpret(program, image) for image in images], axis=1)
    assert np.abs(made - evaluate(network, *x)).max() <= rounding(network.plan)  # layer 3's float32: proof, step 4
    assert np.abs(made - f(*(axis.astype(float) for axis in x))).max() <= error_bound(network.plan, lipschitz=lipschitz)


@pytest.mark.parametrize("k", CASES)
def test_every_op_makes_what_its_layer_makes(k: int) -> None:
    _, network, program, _ = build(k)
    for image in random_bytes(k, 4):
        differences = compare(network, program, image, *normalisation(network.plan)).differences
        assert [d.name.split(".")[0] for d in differences[1:]] == ["layer1", "layer2", "layer3"]
        assert all(d.equal for d in differences)
        assert differences[1].error == differences[2].error == 0  # whole numbers


@pytest.mark.parametrize("k", CASES)
def test_bytes_reach_both_ends_of_the_domain_and_never_leave_it(k: int) -> None:
    _, network, program, _ = build(k)
    for channel, x in enumerate(levels(program)):
        tiling = network.plan.tilings[channel % k]
        assert x[0] == np.float32(tiling.low)
        assert x[-1] <= tiling.covered[1]
        assert x[-1] == pytest.approx(tiling.high, rel=1e-6)


def test_points_become_their_nearest_pixels() -> None:
    _, _, program, _ = build(2)
    images = random_bytes(2)
    known = levels(program)
    x, y = (known[j, images[:, 0, 0, j]] + 1e-4 for j in range(2))
    assert np.array_equal(pixels(program, x, y), images)


def test_it_is_binary_convolutions_without_identity_and_packs_to_a_bit_a_weight(tmp_path) -> None:
    _, network, program, _ = build(1)
    assert [type(op) for op in program.ops] == [ops.Input] + [ops.BinaryConv] * 3
    weights = sum(counts.binary_params for counts in program.counts())
    assert weights == network.plan.binary_weights == budget(network.plan).counts.binary_params
    sizes = packfile.save(program, tmp_path / "sine.bcnn")
    assert sizes.binary_weights <= network.plan.binary_weights / 8 + 4
    again = packfile.read(tmp_path / "sine.bcnn")
    image = random_bytes(1)[5]
    assert np.array_equal(interpret(again, image), interpret(program, image))
    assert again.provenance["domain"] == [[0, 1]]


def test_verify_passes_on_the_packed_file(tmp_path) -> None:
    from bcnn.verification.verify import verify

    _, _, program, _ = build(2)
    packfile.save(program, tmp_path / "two.bcnn")
    checks = list(verify(tmp_path / "two.bcnn"))
    assert all(check.passed for check in checks), checks
    assert any(check.name.startswith("engine") for check in checks)


def test_the_engine_runs_a_batch_of_points() -> None:
    from bcnn.engine import Engine

    _, _, program, _ = build(3)
    images = random_bytes(3)
    assert np.array_equal(Engine(program).run(images), np.stack([interpret(program, image) for image in images]))


def test_a_network_that_does_not_read_rgb_says_how_to_make_one_that_does() -> None:
    with pytest.raises(
        UserError, match=r"reads 1 channels: a program reads RGB; make it with approximate\(..., channels=3\)"
    ):
        lower(approximate(np.sin, (0, 1), 0.5, 4))
