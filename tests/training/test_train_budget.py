from dataclasses import replace

import pytest
import tiny_runs

from bcnn.base import progress_log
from bcnn.training.budget import TimeBudget, scaled, with_total
from bcnn.training.config import Step
from bcnn.training.terminal import COLUMNS, LEGEND, Terminal
from bcnn.training.time_estimate import TimeEstimate, duration

A = Step(name="a", warmup=1, epochs=9, size=0.5)
B = Step(name="b", warmup=0, epochs=10)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def simulate(steps, seconds, cost, closing=5.0, evaluation=0.0, between=0.0, batches=20, every=5):
    """The run's end when an update of a step at full size takes cost(now) seconds: what a trainer does with a `TimeBudget`. What
    else it does becomes slower with it."""
    clock = Clock()
    budget = TimeBudget(seconds, 0.0, clock)
    config = tiny_runs.config(steps=steps, evaluate_every=every, evaluate_with="engine")
    eta = TimeEstimate(config, 10, batches, 100, budget.half_life)
    first = cost(0)

    def takes(what):
        clock.now += what * cost(clock.now) / first

    at = 0
    while at < len(steps):
        epoch = 0
        while epoch < steps[at].total_epochs:
            for batch in range(1, batches + 1):
                before = clock.now
                clock.now += cost(clock.now) * steps[at].size ** 2
                eta.trained(steps[at], clock.now - before)
                if budget.behind(steps, at, epoch, batch, eta):
                    steps = budget.refit(steps, at, epoch, batch, eta)
                if budget.over(eta):
                    break
            steps = budget.refit(steps, at, epoch, batches, eta)
            epoch += 1
            evaluated = epoch % every == 0 or epoch == steps[at].total_epochs
            if evaluated:
                before = clock.now
                takes(evaluation)
                eta.evaluation(clock.now - before)
            before = clock.now
            takes(between)
            eta.between = clock.now - before
            if evaluated and budget.closing < 0:
                before = clock.now
                takes(closing)
                budget.closed(clock.now - before, eta)
        at += 1
    takes(closing)
    return clock.now, steps


@pytest.mark.parametrize("speed", [0.3, 0.8, 1.0, 1.3, 3.0])
@pytest.mark.parametrize("evaluation", [0.0, 12.0])
def test_a_run_keeps_to_its_minutes_within_a_tenth_whatever_the_speed_turns_out_to_be(speed, evaluation):
    steps = (replace(A, epochs=11), replace(B, epochs=16))
    end, _ = simulate(steps, 600, lambda now: 1.5 / speed, evaluation=evaluation, between=1.0)
    assert 0.9 * 600 <= end <= 1.1 * 600


@pytest.mark.parametrize("slower", [2, 5, 10])
@pytest.mark.parametrize("since", [0.15, 0.5, 0.8])
def test_a_machine_that_becomes_slower_on_the_way_costs_epochs_not_time(slower, since):
    def cost(now):
        return 1.2 if now < since * 600 else 1.2 * slower

    end, steps = simulate((replace(B, epochs=24),), 600, cost, evaluation=2.0, between=0.5)
    assert 0.9 * 600 <= end <= 1.1 * 600
    assert steps[0].total_epochs < 24


def test_a_machine_that_becomes_faster_gets_more_epochs():
    end, steps = simulate((replace(B, epochs=24),), 600, lambda now: 1.2 if now < 100 else 0.4)
    assert 0.9 * 600 <= end <= 1.1 * 600
    assert steps[0].total_epochs > 24


def test_a_slow_report_is_noticed_in_time():
    end, _ = simulate((replace(B, epochs=24),), 600, lambda now: 1.0, closing=60.0)
    assert 0.9 * 600 <= end <= 1.1 * 600


def test_an_epoch_that_does_not_fit_is_ended_where_it_is():
    end, steps = simulate((replace(B, epochs=1),), 600, lambda now: 100.0, batches=20)
    assert steps[0].total_epochs == 1
    assert end <= 600 + 100 + 2 * 5


def test_a_later_step_keeps_at_least_one_epoch():
    _, steps = simulate((A, B), 60, lambda now: 2.0)
    assert steps[1].total_epochs >= 1


def test_epochs_scale_every_step_alike_and_add_up():
    steps = (
        replace(A, warmup=5, epochs=20),
        replace(B, warmup=5, epochs=100),
        replace(B, name="c", warmup=5, epochs=100),
    )
    for total in (3, 10, 47, 235):
        made = scaled(steps, total)
        assert sum(step.total_epochs for step in made) == total
        assert all(step.total_epochs >= 1 for step in made)
        assert all(step.warmup <= step.total_epochs / 3 for step in made)
    assert scaled(steps, 235)[1].total_epochs == 105
    assert len(scaled(steps, 1)) == 3


def test_a_step_cut_below_its_warm_up_is_all_warm_up():
    assert with_total(replace(A, warmup=5), 3).total_epochs == 3


def test_the_time_left_knows_that_a_later_step_at_full_size_is_slower():
    config = tiny_runs.config(network=tiny_runs.NETWORK.replace(image_size=(16, 16)), steps=(A, B), evaluate_every=1000)
    eta = TimeEstimate(config, batch=10, batches=10, evaluated=0)
    assert eta.left(config.steps, 0, 0, 0) is None
    for _ in range(50):
        eta.trained(A, 0.1)  # at half the size: four times as long at full size
    left = eta.left(config.steps, 0, 5, 0)
    assert left == pytest.approx(5 * 10 * 0.1 + 10 * 10 * 0.4)


def test_evaluations_to_come_are_part_of_the_time_left():
    config = tiny_runs.config(steps=(B,), evaluate_every=5)
    eta = TimeEstimate(config, batch=10, batches=10, evaluated=100)
    eta.trained(B, 1.0)  # 0.1 s a unit
    eta.evaluation(20.0)
    assert eta.left(config.steps, 0, 9, 0) == pytest.approx(10 + 20)
    assert eta.left(config.steps, 0, 4, 0) == pytest.approx(60 + 40)


@pytest.mark.parametrize(("seconds", "text"), [(45, "45 s"), (600, "10 min"), (11100, "3 h 05 min")])
def test_durations_are_said_as_people_say_them(seconds, text):
    assert duration(seconds) == text


def test_without_a_terminal_there_is_a_line_every_half_minute(capsys, monkeypatch):
    now = Clock()
    monkeypatch.setattr(progress_log.time, "monotonic", now)
    log = progress_log.ProgressLog()
    for now.now in (10.0, 29.0, 31.0, 45.0, 62.0):
        log.line(lambda: f"at {now.now:.0f} s")
    assert capsys.readouterr().err.splitlines() == ["at 31 s", "at 62 s"]


def test_decoding_says_how_far_it_is(capsys, monkeypatch):
    monkeypatch.setattr(progress_log, "LINE_SECONDS", 0.0)
    assert list(progress_log.watched("abc", "decode images", 3)) == ["a", "b", "c"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("decode images: 1 of 3, ")
    assert len(lines) == 3


def test_training_without_a_terminal_says_update_and_time_left(capsys, monkeypatch):
    monkeypatch.setattr(progress_log, "LINE_SECONDS", 0.0)
    with Terminal(10, 0) as terminal:
        terminal.advance("step1 epoch 1/2", 600.0)
        with terminal.side_tasks() as progress:
            progress("evaluate", 40, 100)
    assert capsys.readouterr().err.splitlines() == [
        "step1 epoch 1/2: 1 of 10 updates, 10 min left",
        "evaluate: 40 of 100 images",
    ]


def test_the_table_explains_its_columns_once(capsys):
    terminal = Terminal(10, 0)
    terminal.start_step("step1", "", "")
    terminal.start_step("step2", "", "")
    said = capsys.readouterr().err
    assert said.count(LEGEND.splitlines()[0]) == 1
    for title in ("train", "top-1", "flips", "outside", "balance", "surviving"):
        assert title in LEGEND
        assert title in [column[0] for column in COLUMNS]
