"""The critical path of steps, and its causes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced import MIB, operation, step, training_step, transfer

from tfk8s.features.timeline.critical_path import Cause, Wait, causes, critical_path, tensor_name
from tfk8s.features.timeline.steps import SCRIPT, TracedStep


def told(found: TracedStep) -> list[tuple[str, int, int]]:
    """Return the critical path: the kind, the start and the end of each segment."""
    return [(segment.wait.value, segment.start, segment.end) for segment in critical_path(found)]


def test_the_path_goes_through_the_tensor_that_came_last() -> None:
    assert told(training_step()) == [
        ("start", 0, 78), ("compute", 78, 80), ("transfer", 80, 700), ("thread", 700, 710), ("compute", 710, 760),
        ("transfer", 760, 780), ("thread", 780, 790), ("compute", 790, 1000),
    ]  # fmt: skip
    assert causes(critical_path(training_step()))[:2] == [
        Cause(Wait.TRANSFER, "ps/0", "worker/1", "w1", size=16 * MIB),
        Cause(Wait.COMPUTE, "ps/0", name="loss", kind="AddN"),
    ]


def test_runs_in_a_loop_are_one_cause() -> None:
    looped = step(*[operation("a/0", "x", 10 * n, 10 * n + 10, *["x"] * bool(n)) for n in range(3)])
    (cause,) = causes(critical_path(looped))
    assert (cause.count, cause.time) == (3, 30)


def test_an_operation_that_waited_for_a_thread_follows_the_one_before() -> None:
    waited = step(operation("a/0", "x", 10, 50), operation("a/0", "constant", 50, 60, ready=10))
    assert told(waited) == [("start", 0, 10), ("compute", 10, 50), ("compute", 50, 60)]


def test_an_operation_without_inputs_that_is_ready_late_starts_with_the_step() -> None:
    ready = step(operation("a/0", "x", 10, 20), operation("a/0", "constant", 50, 60, ready=49))
    assert told(ready) == [("start", 0, 50), ("compute", 50, 60)]


def test_an_operation_in_a_function_follows_the_one_before() -> None:
    body = step(operation("a/0", "x", 10, 20), operation("a/0", "y", 30, 60, "unknown"))
    assert told(body) == [("start", 0, 10), ("compute", 10, 20), ("thread", 20, 30), ("compute", 30, 60)]


def test_a_feed_that_goes_on_to_another_task() -> None:
    fed = step(
        transfer("_recv_x_0", "worker/0", "worker/1", 20, 50), operation("worker/1", "y", 50, 90, "_recv_x_0_S3")
    )
    assert causes(critical_path(fed)) == [
        Cause(Wait.COMPUTE, "worker/1", name="y"), Cause(Wait.TRANSFER, "worker/0", "worker/1", "x", size=4),
        Cause(Wait.START, SCRIPT),
    ]  # fmt: skip


def test_no_operation() -> None:
    assert critical_path(step()) == []


NAMES = st.sampled_from(["x", "y", "y_S1", "z/read", "z/read_S2"])
TASKS = st.sampled_from(["ps/0", "worker/0"])
TIMES = st.integers(0, 30)
EVENTS = st.one_of(
    st.builds(
        lambda task, name, start, more, inputs: operation(task, name, start, start + more, *inputs),
        TASKS, NAMES, TIMES, TIMES, st.lists(NAMES, max_size=2),
    ),
    st.builds(
        lambda name, source, target, start, more: transfer(name, source, target, start, start + more),
        NAMES, TASKS, TASKS, TIMES, TIMES,
    ),
)  # fmt: skip


@given(st.lists(EVENTS, max_size=12).map(lambda events: step(*events)))
def test_the_path_covers_the_step_without_gaps(found: TracedStep) -> None:
    path = told(found)
    if found.operations or found.transfers:
        assert sum(end - start for _, start, end in path) == found.span
        assert [start for _, start, _ in path] == [0, *[end for _, _, end in path]][: len(path)]
    assert sum(cause.time for cause in causes(critical_path(found))) == sum(end - start for _, start, end in path)


@pytest.mark.parametrize(
    ("name", "words"),
    [("w1/read", "w1"), ("w1/Read/ReadVariableOp", "w1"), ("dense/MatMul/ReadVariableOp_1", "dense/MatMul"),
     ("_recv_x_0", "x"), ("_recv_in/x_12", "in/x"), ("read", "read"), ("/read", "/read")],
)  # fmt: skip
def test_tensors_have_the_names_of_users(name: str, words: str) -> None:
    assert tensor_name(name) == words
