"""The approximator of Fig. 1: rectangles, the paper's lifted restrictions, the bound, the budget, the audit."""

from __future__ import annotations

import copy
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from bcnn.base.errors import UserError
from bcnn.counting.audit import audit
from bcnn.theory import approximate, budget, error_bound, estimate_lipschitz, evaluate, make_plan, sup_error
from bcnn.theory.bound import probes, rounding
from bcnn.theory.examples import EXAMPLES, boat, picture
from bcnn.theory.plan import sample

torch.set_num_threads(1)


def sine(x):
    return np.sin(6 * x)


def layer_maps(network, *coordinates):
    """What the three layers make, [channels, points] each."""
    points = np.stack([np.asarray(c, np.float32) for c in coordinates])
    x = torch.from_numpy(points)[None, :, None, :]
    maps = []
    with torch.no_grad():
        for layer in (network.layer1, network.layer2, network.layer3):
            x = layer(x)
            maps.append(x[0, :, 0, :].numpy())
    return maps


# --- layer 1: rectangles -----------------------------------------------------------------------------------------------


def test_without_ends_there_are_the_papers_branches_and_rectangles() -> None:
    network = approximate(sine, (0, 1), 0.1, 8, ends=False)
    (tiling,) = network.plan.tilings
    assert tiling.cells == 9  # 1/d - 1
    assert budget(network.plan).input_branches == 18  # 2 (1/d - 1)
    assert tiling.samples == pytest.approx(np.arange(1, 10) / 10)  # centred at d, 2d, ..., 1 - d
    assert np.diff(tiling.edges) == pytest.approx(np.full(9, 0.1), abs=1e-6)


@pytest.mark.parametrize("ends", [True, False])
def test_layer1_makes_rectangles_of_height_1_that_are_exactly_0_outside(ends: bool) -> None:
    network = approximate(sine, (-1, 2), 0.25, 8, ends=ends)
    (tiling,) = network.plan.tilings
    x = np.concatenate([np.linspace(-2, 3, 999), tiling.edges, np.nextafter(tiling.edges, np.float32(-9))]).astype(
        np.float32
    )
    rectangles, _, _ = layer_maps(network, x)
    wanted = (tiling.edges[:-1, None] <= x) & (x < tiling.edges[1:, None])
    assert np.array_equal(rectangles, wanted.astype(np.float32))


def test_layer2_repeats_each_rectangle_round_Q_f_times() -> None:  # noqa: N802
    network = approximate(lambda x: 3 * x, (0, 1), 0.25, 4, ends=False)
    heights = [0, 3, 6]  # 4 * (3 x - 3/4) at 1/4, 1/2, 3/4
    assert network.plan.levels.tolist() == [heights]
    assert network.plan.subs.tolist() == heights
    _, subs, _ = layer_maps(network, network.plan.tilings[0].samples)
    assert subs.sum(axis=0).tolist() == heights


def test_without_ends_the_half_cells_next_to_the_ends_give_f_min() -> None:
    network = approximate(lambda x: 2 + x, (0, 1), 0.25, 4, ends=False)
    assert evaluate(network, np.array([0.0, 0.1, 0.9, 1.0]))[0].tolist() == [2.25] * 4


@pytest.mark.parametrize("k", [1, 2, 3])
def test_outside_the_domain_the_output_is_f_min(k: int) -> None:
    network = approximate(lambda *x: sum(x), [(0.0, 1.0)] * k, 0.5, 4)
    f_min = network.plan.f_min[0]
    for j in range(k):
        for outside in (-0.01, 1.01, -50, 50):
            point = [np.array([0.7])] * k
            point[j] = np.array([outside])
            assert evaluate(network, *point)[0, 0] == pytest.approx(f_min, abs=rounding(network.plan))


# --- the restrictions that the paper lifts -------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", [(0, 1), (-3, -1), (-0.3, 0.6), (1000, 1001), (0, 1e-3)])
def test_any_interval(domain: tuple[float, float]) -> None:
    low, high = domain
    slope = 2 / (high - low)
    network = approximate(lambda x: slope * (x - low), domain, (high - low) / 20, 50)
    assert sup_error(network, lambda x: slope * (x - low)) <= error_bound(network.plan, lipschitz=slope)


def test_a_jump_is_exact_from_both_sides_and_at_the_jump_itself() -> None:
    c = np.float32(1 / 3)

    def f(x):
        return np.where(x < c, x, np.where(x == c, 7.0, x - 2))

    network = approximate(f, (0, 1), 0.1, 100, jumps=[1 / 3])
    sides = np.array([np.nextafter(c, np.float32(0)), c, np.nextafter(c, np.float32(1))])
    bound = error_bound(network.plan, lipschitz=1)
    assert np.abs(evaluate(network, sides)[0] - f(sides)).max() <= bound < 0.06
    assert sup_error(network, f) <= bound
    assert network.plan.tilings[0].cells == 11 + 2  # a branch at the jump, which cuts its cell in two


def test_without_the_extra_branch_a_jump_is_missed() -> None:
    f = EXAMPLES["step"].f
    blunt = approximate(f, (0, 1), 0.1, 32)
    assert sup_error(blunt, f) > 0.5


def test_jumps_on_an_edge_or_at_the_ends_or_twice_are_harmless() -> None:
    def f(x):
        return np.floor(4 * x)

    network = approximate(f, (0, 1), 0.5, 4, jumps=[0, 0.25, 0.5, 0.5, 0.75, 1])
    x = probes(network.plan)
    assert np.array_equal(evaluate(network, *x), sample(f, x))


@pytest.mark.parametrize("shift", [-5.0, -0.5, 0.0, 3.0])
def test_negative_values_come_through_the_final_bias(shift: float) -> None:
    network = approximate(lambda x: sine(x) + shift, (0, 1), 0.05, 32)
    assert (network.plan.levels >= 0).all()
    assert sup_error(network, lambda x: sine(x) + shift) <= error_bound(network.plan, lipschitz=6)


def test_two_inputs() -> None:
    def f(x, y):
        return x * y - y

    network = approximate(f, [(0, 1), (-1, 2)], (0.1, 0.25), 16)
    assert sup_error(network, f, 60) <= error_bound(network.plan, lipschitz=math.hypot(2, 1))


def test_three_inputs_with_a_jump_in_one_of_them() -> None:
    def f(x, y, z):
        return x + y * z + np.where(y < 0.3, 0.0, 2.0)

    network = approximate(f, [(0, 1)] * 3, 0.25, 8, jumps=[[], [0.3], []])
    assert sup_error(network, f, 12) <= error_bound(network.plan, lipschitz=math.sqrt(3))


@pytest.mark.parametrize("channels", [2, 3, 5])
def test_coordinates_repeat_over_the_channels_of_the_input_map(channels: int) -> None:
    def f(x, y):
        return x - 2 * y

    small = approximate(f, [(0, 1), (0, 2)], (0.25, 0.25), 8)
    wide = approximate(f, [(0, 1), (0, 2)], (0.25, 0.25), 8, channels=channels)
    x = probes(small.plan, 20)
    assert np.array_equal(evaluate(small, *x), evaluate(wide, *x))


def test_heads_share_sub_branches_and_do_not_disturb_each_other() -> None:
    def f(x, y):
        return np.stack([x + y, 3 * x - 1, 0 * x + 0.5])

    network = approximate(f, [(0, 1), (0, 1)], 0.25, 9)
    x = probes(network.plan, 20)
    made = evaluate(network, *x)
    for m in range(3):
        alone = approximate(lambda *c, m=m: f(*c)[m], [(0, 1), (0, 1)], 0.25, 9)
        tolerance = rounding(network.plan) + rounding(alone.plan)
        assert np.abs(made[m] - evaluate(alone, *x)[0]).max() <= tolerance
    assert network.plan.subs.tolist() == (2 * network.plan.levels.max(axis=0)).tolist()


def test_a_constant_is_exact() -> None:
    for f in (lambda x: 3.0, lambda x: np.stack([0 * x - 1, 0 * x + 2])):
        network = approximate(f, (0, 1), 0.5, 4)
        x = np.linspace(0, 1, 11)
        assert np.array_equal(evaluate(network, x), sample(f, [x]))


def test_the_picture_comes_out_pixel_by_pixel() -> None:
    example = EXAMPLES["picture"]
    network = approximate(example.f, example.domain, example.d, 24, ends=example.ends)
    x, y = (axis.ravel().astype(float) for axis in np.meshgrid(np.arange(1, 25), np.arange(1, 25)))
    made = evaluate(network, x, y).reshape(3, 24, 24)
    assert np.abs(np.moveaxis(made, 0, -1) - picture()).max() <= 1 / 48 + rounding(network.plan)
    assert np.array_equal(boat(x, y).reshape(3, 24, 24), np.moveaxis(picture(), -1, 0))


# --- the bound, on random functions --------------------------------------------------------------------------------------


def wave(seed: int, k: int, heads: int):
    """A random smooth function and its Lipschitz constant: waves a sin(w . x + p), of slope at most a |w|."""
    rng = np.random.default_rng(seed)
    a, w, p = rng.normal(size=(heads, 4)), rng.normal(size=(heads, 4, k)) * 3, rng.uniform(0, 7, (heads, 4))

    def f(*x):
        phase = np.einsum("mwk,kn->mwn", w, np.stack(x)) + p[:, :, None]
        return (a[:, :, None] * np.sin(phase)).sum(axis=1)

    return f, float((np.abs(a) * np.linalg.norm(w, axis=2)).sum(axis=1).max())


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 3),
    heads=st.integers(1, 3),
    cells=st.integers(1, 4),
    q=st.floats(0.3, 12),
    low=st.floats(-50, 50),
    width=st.floats(0.01, 20),
    adaptive=st.booleans(),
)
def test_the_error_never_exceeds_the_bound(seed, k, heads, cells, q, low, width, adaptive) -> None:
    f, lipschitz = wave(seed, k, heads)
    n = cells * (8 if k == 1 else 1)
    jumps = [[low + width * 0.37]] * k if seed % 3 == 0 else []

    def jumping(*x):
        steps = sum(np.where(c < np.float32(low + width * 0.37), 0.0, 5.0) for c in x) if jumps else 0.0
        return f(*x) + steps

    network = approximate(jumping, [(low, low + width)] * k, width / n, q, jumps=jumps, adaptive=adaptive)
    error = sup_error(network, jumping, {1: 400, 2: 24, 3: 7}[k])
    assert error <= error_bound(network.plan, lipschitz=lipschitz * (1 + 1e-12))
    assert error <= error_bound(network.plan, modulus=lambda h: lipschitz * (1 + 1e-12) * h)


def test_at_its_samples_the_network_is_within_half_a_step() -> None:
    network = approximate(sine, (0, 1), 0.01, 64)
    samples = network.plan.tilings[0].samples
    assert np.abs(evaluate(network, samples)[0] - sine(samples.astype(float))).max() <= 1 / 128 + rounding(network.plan)


def test_the_error_converges_with_d_and_Q() -> None:  # noqa: N802
    found = [sup_error(approximate(sine, (0, 1), 1 / n, n), sine, 3000) for n in (4, 16, 64)]
    assert found[0] > 3 * found[1] > 9 * found[2]


def test_the_bound_is_what_the_proof_says() -> None:
    plan = make_plan(sine, (0, 1), 0.1, 8)
    assert error_bound(plan, lipschitz=6) == pytest.approx(6 * 0.05 + 1 / 16, abs=1e-4)
    assert error_bound(plan, modulus=math.sqrt) == pytest.approx(math.sqrt(0.05) + 1 / 16, abs=1e-4)
    square = make_plan(lambda x, y: x + y, [(0, 1), (0, 1)], 0.1, 8)
    assert error_bound(square, lipschitz=1) == pytest.approx(math.sqrt(2) * 0.05 + 1 / 16, abs=1e-3)


def test_a_constant_per_cell_gives_a_bound_that_follows_f() -> None:
    def chirp(x):
        return np.sin(1 / (x + 0.05))

    plan = make_plan(chirp, (0, 1), 0.005, 64, adaptive=True)
    local, whole = error_bound(plan, lipschitz=estimate_lipschitz(chirp, plan)), error_bound(plan, lipschitz=400)
    assert local < whole / 5
    assert estimate_lipschitz(chirp, plan).max() <= 400  # |f'| = |cos| / (x + 0.05)^2


def test_slopes_are_estimated_for_each_cell_of_two_coordinates() -> None:
    plan = make_plan(lambda x, y: 3 * x + 4 * np.abs(y), [(0, 1), (-1, 1)], 0.5, 1, jumps=[[], [0.0]])
    found = estimate_lipschitz(lambda x, y: 3 * x + 4 * np.abs(y), plan).reshape([t.cells for t in plan.tilings])
    point = int(np.flatnonzero(plan.tilings[1].samples == 0)[0])  # the cell that holds the jump alone has no slope in y
    assert found[:, point] == pytest.approx(3)
    assert np.delete(found, point, axis=1) == pytest.approx(5, rel=1e-6)


# --- section 3.2 ---------------------------------------------------------------------------------------------------------


def test_an_adaptive_tiling_has_as_many_cells_and_a_smaller_error_where_f_varies_unevenly() -> None:
    def chirp(x):
        return np.sin(1 / (x + 0.1))

    uniform = approximate(chirp, (0, 1), 0.02, 64)
    adaptive = approximate(chirp, (0, 1), 0.02, 64, adaptive=True)
    assert uniform.plan.tilings[0].cells == adaptive.plan.tilings[0].cells
    assert np.diff(adaptive.plan.tilings[0].edges).max() <= 10.01 * 0.02
    assert sup_error(adaptive, chirp, 2000) < sup_error(uniform, chirp, 2000) / 2


def test_an_adaptive_tiling_spends_no_cells_on_a_jump_that_has_its_own_branch() -> None:
    def f(x):
        return np.sin(3 * x) + np.where(x < 4.0043, 0.0, 5.0)

    named = make_plan(f, (4, 4.01), 0.00125, 8, adaptive=True, jumps=[4.0043]).tilings[0]
    assert np.diff(named.edges).max() < 2 * 0.00125
    unnamed = make_plan(f, (4, 4.01), 0.00125, 8, adaptive=True).tilings[0]
    assert (np.diff(unnamed.edges) > 0).all()


def test_sub_branches_grow_with_the_range_of_f() -> None:
    subs = [budget(make_plan(lambda x, a=a: a * sine(x), (0, 1), 0.05, 64)).sub_branches for a in (1, 2, 4)]
    assert subs[1] == pytest.approx(2 * subs[0], rel=0.02)
    assert subs[2] == pytest.approx(4 * subs[0], rel=0.02)


@pytest.mark.parametrize("k", [1, 2])
def test_the_budget_is_that_of_the_torch_network(k: int) -> None:
    network = approximate(lambda *x: np.stack([sum(x), x[0]]), [(0.0, 1.0)] * k, 0.25, 8)
    cost = budget(network.plan)
    branches = [b for layer in (network.layer1, network.layer2, network.layer3) for b in layer.branches]
    binary = sum(b.weight.numel() for b in branches)
    assert cost.counts.binary_params == binary == cost.counts.binary_macs
    assert cost.counts.real_params == sum(p.numel() for p in network.parameters()) - binary
    assert cost.counts.signs == sum(b.bias.numel() for b in branches)
    assert cost.counts.binary_macs == sum(op.macs for op in audit(network, torch.rand(1, k, 1, 1)).operations)
    assert cost.sub_branches == len(network.layer2.branches[0].weight)


def test_the_budget_grows_as_its_formulas_say() -> None:
    def weights(k: int, n: int, q: float) -> int:
        return make_plan(lambda *x: sum(x) / len(x), [(0.0, 1.0)] * k, 1 / n, q, memory_limit=1 << 50).binary_weights

    assert weights(1, 512, 256) / weights(1, 256, 256) == pytest.approx(4, rel=0.02)  # Q / d^2
    assert weights(2, 64, 64) / weights(2, 32, 64) == pytest.approx(8, rel=0.06)  # Q / d^3
    assert weights(2, 32, 256) / weights(2, 32, 64) == pytest.approx(4, rel=0.02)


# --- a network of the package ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3])
def test_every_product_is_one_bit_by_one_bit(k: int) -> None:
    network = approximate(lambda *x: np.stack([sum(x), x[0]]), [(0.0, 1.0)] * k, 0.25, 4)
    report = audit(network, torch.rand(1, k, 3, 3))
    assert len(report.matrix) == 4  # two branches of layer 1, layer 2, layer 3
    assert all(op.bits == (1, 1) for op in report.operations)


def test_it_maps_every_pixel_and_ignores_training_mode() -> None:
    network = approximate(sine, (0, 1), 0.1, 8)
    x = torch.rand(2, 1, 3, 5)
    wanted = network(x)
    assert wanted.shape == (2, 1, 3, 5)
    assert torch.equal(copy.deepcopy(network).train()(x), wanted)
    assert np.array_equal(wanted.detach().numpy().ravel(), evaluate(network, x.numpy().ravel())[0])


def test_building_one_leaves_the_random_state_alone() -> None:
    state = torch.get_rng_state()
    approximate(sine, (0, 1), 0.1, 8)
    assert torch.equal(torch.get_rng_state(), state)


# --- bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ((lambda x: 1 / x, (0, 1), 0.5, 4), {"jumps": [0]}, "f is not finite at (0): output 0 is inf"),
        ((np.log, (-1, 1), 0.5, 4), {}, "f is not finite at (-0.875): output 0 is nan"),
        ((sine, (0, 1), 0.03, 4), {}, "33.3333 cells; the nearest that do are 0.0303030303 (33) and 0.0294117647 (34)"),
        ((sine, (0, 1), 2, 4), {}, "d = 2 does not divide the interval [0, 1]"),
        ((sine, (0, 1), 0, 4), {}, "must be a finite number > 0"),
        ((sine, (0, 1), float("nan"), 4), {}, "must be a finite number > 0"),
        ((sine, (0, 1), 0.1, 0), {}, "Q is the number of sub branches for a height of 1 and must be a finite number > 0, got 0"),
        ((sine, (0, 1), 0.1, -3), {}, "got -3"),
        ((sine, (0, 1), 0.1, float("inf")), {}, "got inf"),
        ((sine, (0, 1), 0.1, 1e300), {}, "Q = 1e+300 asks for about"),
        ((sine, (1, 0), 0.1, 4), {}, "the domain [1, 0] must be two finite numbers"),
        ((sine, (0, float("inf")), 0.1, 4), {}, "must be two finite numbers"),
        ((sine, (0, 1, 2), 0.1, 4), {}, "domain is (x_min, x_max) or one such pair a coordinate"),
        ((sine, (0, 1), "wide", 4), {}, "d and jumps are numbers"),
        ((sine, (0, 1), 1, 4), {"ends": False}, "no cell is left"),
        ((sine, (1e9, 1e9 + 1), 0.25, 4), {}, "narrower than float32 can tell apart"),
        ((sine, (0, 1), 0.1, 4), {"jumps": [2]}, "the jump at 2 lies outside the domain [0, 1]"),
        ((sine, (0, 1), 0.1, 4), {"jumps": [float("nan")], "adaptive": True}, "the jump at nan lies outside"),
        ((sine, (0, 1), 1e-5, 4), {}, "MiB, more than the limit of 1,024 MiB"),
        ((sine, (0, 1), 1e-3, 10**6), {}, "more than the limit of 1,024 MiB"),
        ((sine, (0, 1), 0.01, 64), {"memory_limit": 1 << 20}, "682,790 binary weights would need 5 MiB, more than the limit of 1 MiB"),
        ((lambda x: x, (0, 1), 1, 5e7), {}, "25,000,003 sub branches are too many: float32 adds signs exactly below 2^24"),
        ((lambda x, y, z: x, [(0, 1)] * 3, 0.001, 1), {}, "sampling f in 1,003,003,001 cells would need"),
        ((lambda x: x, [(0, 1)] * 2, 0.5, 1), {}, "f must take 2 arrays and return one"),
        ((lambda x: math.sin(x), (0, 1), 0.5, 1), {}, "f must take 1 arrays and return one"),
        ((lambda x: x[:2], (0, 1), 0.1, 1), {}, "f returned an array of shape (1, 2) for 11 points"),
        ((lambda x, y: x, [(0, 1)] * 2, (0.5,) * 3, 1), {}, "the domain has 2 coordinates, but d has 3"),
        ((lambda x, y: x, [(0, 1)] * 2, 0.5, 1), {"channels": 1}, "the input map has 1 channels, but the function 2 coordinates"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(arguments, options, says: str) -> None:
    with pytest.raises(UserError) as caught:
        approximate(*arguments, **options)
    assert says in str(caught.value)


def test_the_bound_wants_exactly_one_kind_of_smoothness() -> None:
    plan = make_plan(sine, (0, 1), 0.5, 4)
    with pytest.raises(UserError, match="either a Lipschitz constant or a modulus"):
        error_bound(plan)
    with pytest.raises(UserError, match="one per cell"):
        error_bound(plan, lipschitz=[1.0, 2.0])


# --- the page --------------------------------------------------------------------------------------------------------------


def test_the_code_of_the_page_runs_and_its_pictures_exist() -> None:
    docs = ROOT / "docs"
    page = (docs / "theory.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(block, "docs/theory.md", "exec"), {})
    pictures = re.findall(r"\((images/\w+\.png)\)", page)
    assert len(pictures) == 7
    assert all((docs / picture).is_file() and picture in page.partition(f"({picture})")[2] for picture in pictures)
