"""The lines of a recording."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from traced import operation, step, training_step, transfer

from tfk8s.features.timeline import steps
from tfk8s.features.timeline.steps import CallCount, Recording, TracedDevice, TracedStep

NAMES = st.text(max_size=8)
TIMES = st.integers(-(10**9), 10**9)
TASKS = st.sampled_from(["ps/0", "worker/0", "worker/11"])
EVENTS = st.one_of(
    st.builds(operation, TASKS, NAMES, TIMES, TIMES, NAMES, kind=NAMES),
    st.builds(transfer, NAMES, TASKS, TASKS, TIMES, TIMES, st.integers(0, 2**40)),
)
STEPS = st.lists(EVENTS, max_size=4).map(lambda events: step(*events, call="a\u2028b\n", fed={"x": 4}))
COUNTS = CallCount("a\u2028b\n", 12, 10, 0.5)


@given(st.lists(STEPS, max_size=3))
def test_lines_are_read_as_they_were_written(written: list[TracedStep]) -> None:
    text = "".join(map(steps.step_line, written)) + steps.calls_line([COUNTS], is_full=True)
    assert steps.parse(text) == Recording(tuple(written), {COUNTS.call: COUNTS}, is_full=True)


def test_the_last_line_of_a_killed_script_may_be_a_part() -> None:
    written = steps.step_line(training_step())
    text = written + steps.calls_line([], is_full=False) + written[:-20]
    found = steps.parse(text)
    assert found.steps == (training_step(),)
    assert found.calls == {"loss": CallCount("loss", 10, 0, 0.0)}


def test_devices_by_tensorflow_s_names() -> None:
    assert TracedDevice.parse("/job:worker/replica:0/task:12/device:GPU:0") == TracedDevice("worker/12", "GPU:0")
    assert TracedDevice.parse("/host:CPU") == TracedDevice("", "/host:CPU")


def test_span_and_tasks() -> None:
    found = step(operation("worker/10", "a", 5, 90), operation("worker/2", "b", 0, 3), duration=200)
    assert (found.span, found.tasks) == (90, ["worker/2", "worker/10"])
    assert step(duration=200).span == 200


def test_devices_with_those_that_only_send() -> None:
    sent = transfer("a", "worker/2", "ps/0", 0, 3)
    gpu = dataclasses.replace(operation("worker/10", "a", 0, 3), device=TracedDevice("worker/10", "GPU:0"))
    found = step(gpu, operation("worker/10", "b", 0, 3), sent)
    assert found.devices == [
        TracedDevice("ps/0", "CPU:0"), TracedDevice("worker/2", "CPU:0"), TracedDevice("worker/10", "CPU:0"),
        TracedDevice("worker/10", "GPU:0"),
    ]  # fmt: skip
    assert found.tasks == ["ps/0", "worker/2", "worker/10"]
