"""The words of a step, and the times of tasks."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from traced import operation, scans, step, training_step, transfer

from tfk8s.features.timeline import summary
from tfk8s.features.timeline.critical_path import Cause, Wait, causes, critical_path
from tfk8s.features.timeline.steps import CallCount, Recording, TracedStep
from tfk8s.features.timeline.summary import TaskTimes


def words(found: TracedStep) -> list[str]:
    return [text for _, text in summary.sentences(causes(critical_path(found)), found)]


def test_the_words_name_the_tensor_the_tasks_and_the_bytes() -> None:
    assert words(training_step()) == [
        "62 % of the step waits for ps/0 to send w1 to worker/1 (16 MiB)",
        "21 % of the step waits for ps/0 to compute loss (AddN)",
        "8 % of the step waits for the script's call to reach the tasks, with 64 KiB of feeds",
        "5 % of the step waits for worker/1 to compute mm1 (MatMul)",
        "2 % of the step waits for worker/1 to send mm1 to ps/0 (4 B)",
        "1 % of the step waits for worker/1 to start operations that are ready",
        "1 % of the step waits for ps/0 to start operations that are ready",
    ]


def test_many_short_operations_share_a_sentence() -> None:
    short = [operation("a/0", f"x{n}", 4 * n, 4 * n + 4, f"x{n - 1}", kind="Add") for n in range(250)]
    assert words(step(*short)) == ["100 % of the step waits for a/0 to compute 250 short operations"]


def test_runs_of_one_operation_are_counted() -> None:
    looped = [operation("a/0", "x", 10 * n, 10 * n + 10, *["x"] * bool(n), kind="Add") for n in range(3)]
    assert words(step(*looped)) == ["100 % of the step waits for a/0 to compute x (Add, 3 times)"]


def test_a_large_step_is_scanned_as_often_as_a_small_one() -> None:
    def of(count: int) -> tuple[int, int]:
        found = step(*[operation(f"a/{n}", f"x{n}", 4 * n, 4 * n + 4) for n in range(count)])
        reasons = [Cause(Wait.COMPUTE, f"a/{n}", name=f"x{n}", time=4) for n in range(count)]
        in_words = scans(lambda counted: summary.sentences(reasons, counted), found)
        return in_words, scans(summary.task_times, found)

    assert of(300) == of(1)


def test_times_of_tasks() -> None:
    found = step(
        operation("a/0", "x", 10, 30), operation("a/0", "y", 20, 40), transfer("z", "b/0", "a/0", 35, 60),
        operation("b/0", "z", 90, 100),
    )  # fmt: skip
    assert summary.task_times(found) == [
        TaskTimes("a/0", busy=30, receiving=20, idle=50, gaps=((0, 10), (60, 100))),
        TaskTimes("b/0", busy=10, receiving=0, idle=90, gaps=((0, 90),)),
    ]


INTERVALS = st.tuples(st.integers(-5, 50), st.integers(0, 30)).map(lambda pair: (pair[0], sum(pair)))


@example([(-1, -1)], [])
@given(st.lists(INTERVALS, min_size=1), st.lists(INTERVALS))
def test_the_times_of_a_task_add_up_to_the_step(running: list[tuple[int, int]], coming: list[tuple[int, int]]) -> None:
    found = step(
        *[operation("a/0", "x", *times) for times in running],
        *[transfer("y", "b/0", "a/0", *times) for times in coming],
    )
    for times in summary.task_times(found):
        assert times.busy + times.receiving + times.idle == max(found.span, 0)
        assert min(times.busy, times.receiving, times.idle) >= 0


def test_typical_steps_are_the_median_without_the_first_call() -> None:
    def of(call: str, number: int, duration: int) -> TracedStep:
        return step(call=call, number=number, duration=duration)

    train = [of("train", 1, 9000), of("train", 2, 30), of("train", 100, 10), of("train", 200, 20)]
    recording = Recording(
        (of("init", 1, 5000), *train, of("save", 1, 10)),
        {
            "init": CallCount("init", 1, 0, 0),
            "train": CallCount("train", 250, 246, 0.01),
            "save": CallCount("save", 1, 0, 0),
        },
    )
    assert summary.typical_steps(recording, 2) == [train[3], recording.steps[0]]


def test_a_step_that_lacks_transfers_is_not_typical() -> None:
    sent = [transfer("w1", "ps/0", worker, 0, 10) for worker in ("worker/0", "worker/1")]
    steps = [step(*sent[:count], number=number, duration=number) for number, count in ((2, 2), (10, 1), (20, 2))]
    assert summary.typical_steps(Recording(tuple(steps), {"loss": CallCount("loss")}), 1) == [steps[0]]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (16 << 20, "16 MiB"), (1_500_000, "1.43 MiB"), (3 << 50, "3072 TiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert summary.size_text(size) == text


@pytest.mark.parametrize(
    ("micros", "text"), [(0, "0 µs"), (999, "999 µs"), (999.9, "1 ms"), (4210, "4.21 ms"), (2.5e6, "2.5 s")]
)
def test_durations(micros: float, text: str) -> None:
    assert summary.time_text(micros) == text
