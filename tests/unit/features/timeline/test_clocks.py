"""Clocks of tasks are aligned by what can't have happened."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from traced import operation, step, training_step, transfer

from tfk8s.features.timeline import clocks
from tfk8s.features.timeline.steps import TracedStep


def with_clocks(true: TracedStep, ahead: dict[str, int]) -> TracedStep:
    """Return a step as tasks measure it whose clocks are ahead of the script's by so many microseconds."""
    operations = [
        dataclasses.replace(one, ready=one.ready + by, start=one.start + by, end=one.end + by)
        for one, by in ((one, ahead.get(one.device.task, 0)) for one in true.operations)
    ]
    transfers = [
        dataclasses.replace(one, start=min(one.start + ahead.get(one.source.task, 0), end - 1), end=end)
        for one, end in ((one, one.end + ahead.get(one.target.task, 0)) for one in true.transfers)
    ]
    return dataclasses.replace(true, operations=tuple(operations), transfers=tuple(transfers))


def broken_rules(found: TracedStep) -> list[object]:
    """Return the events that break a rule: before the call, after its end, or received before they were made."""
    ends = {(one.device.task, one.name): one.end for one in found.operations}
    slack = clocks.TOLERANCE
    return [
        event
        for event in (*found.operations, *found.transfers)
        if event.start < -slack or event.end > found.duration + slack
    ] + [
        event
        for event in found.transfers
        if event.end < ends.get((event.source.task, event.tensor), event.end) - slack
    ]  # fmt: skip


def test_clocks_that_agree_are_left_alone() -> None:
    true = training_step()
    assert clocks.align(true) == (true, {"ps/0": 0, "worker/0": 0, "worker/1": 0})


def test_a_clock_that_is_ahead_is_shifted_into_the_range_that_is_possible() -> None:
    """mm1 arrives 15 µs after its end, and 700 µs pass before w1 arrives."""
    aligned, shifts = clocks.align(with_clocks(training_step(), {"worker/1": 5000}))
    assert (shifts["ps/0"], shifts["worker/0"]) == (0, 0)
    assert -5000 - 620 <= shifts["worker/1"] <= -5000 + 20
    assert broken_rules(aligned) == []


def test_a_transfer_of_a_shifted_clock_begins_with_the_end_of_its_operation() -> None:
    aligned, _ = clocks.align(with_clocks(training_step(), {"ps/0": -(10**6), "worker/0": -(10**6), "worker/1": 0}))
    ends = {one.name: one.end for one in aligned.operations}
    assert [one.start for one in aligned.transfers] == [ends[one.tensor] for one in aligned.transfers]


def test_a_feed_has_no_operation() -> None:
    true = step(transfer("_recv_x_0", "worker/0", "worker/1", 10, 50), operation("worker/1", "y", 60, 80))
    aligned, shifts = clocks.align(with_clocks(true, {"worker/1": 9000}))
    assert broken_rules(aligned) == []
    assert shifts["worker/0"] == 0


def test_the_second_run_of_an_operation_in_a_loop_bounds_the_second_arrival() -> None:
    looped = step(
        operation("a/0", "x", 0, 10), operation("a/0", "x", 500, 510),
        transfer("x", "a/0", "b/0", 10, 20), transfer("x", "a/0", "b/0", 510, 520), duration=1000,
    )  # fmt: skip
    _, shifts = clocks.align(with_clocks(looped, {"b/0": -100}))
    assert shifts["b/0"] >= 90 - clocks.TOLERANCE


def test_a_clock_that_was_set_during_the_step_can_not_be_aligned() -> None:
    impossible = step(operation("a/0", "x", -500, -400), operation("a/0", "y", 5000, 6000), duration=1000)
    assert clocks.align(impossible) == (impossible, {"a/0": 0})


TASKS = ["ps/0", "ps/1", "worker/0", "worker/1"]


@st.composite
def true_steps(draw: st.DrawFn) -> TracedStep:
    """Return a possible step: operations one after another, each sent to a task that uses it later."""
    events: list[object] = []
    now = 0
    for number in range(draw(st.integers(1, 8))):
        source, target = draw(st.sampled_from(TASKS)), draw(st.sampled_from(TASKS))
        start = now + draw(st.integers(0, 50))
        end = start + draw(st.integers(0, 50))
        arrival = end + draw(st.integers(1, 50))
        now = draw(st.sampled_from([start, end, arrival]))
        events.append(operation(source, f"op{number}", start, end))
        if target != source:
            events.append(transfer(f"op{number}", source, target, end, arrival))
    return step(*events, duration=now + draw(st.integers(150, 200)))


@given(true_steps(), st.fixed_dictionaries({task: st.integers(-(10**7), 10**7) for task in TASKS}))
def test_every_possible_step_is_aligned(true: TracedStep, ahead: dict[str, int]) -> None:
    aligned, shifts = clocks.align(with_clocks(true, ahead))
    assert broken_rules(aligned) == []
    assert set(shifts) == set(true.tasks)


@given(true_steps())
def test_steps_by_one_clock_stay_as_they_are(true: TracedStep) -> None:
    assert clocks.align(true)[0] == true
