"""Which tasks a call needs, from a graph of stand-ins."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfk8s import calls


class Operation(SimpleNamespace):
    __hash__ = object.__hash__


def operation(device: str = "", *inputs: object, kind: str = "Add", after: tuple[object, ...] = ()) -> Operation:
    own = [SimpleNamespace(op=one) for one in inputs]
    return Operation(device=device, type=kind, control_inputs=list(after), inputs=own)


@pytest.mark.parametrize(
    ("device", "needed"),
    [
        ("/job:worker/task:1", True),
        ("/job:worker/replica:0/task:1/device:CPU:0", True),
        ("/job:worker", True),
        ("/job:worker/task:0", False),
        ("/job:worker/task:10", False),
        ("/job:worker_/task:1", False),
        ("/device:CPU:0", False),
        ("", False),
    ],
)
def test_a_task_is_needed_by_what_runs_on_it(device: str, needed: bool) -> None:
    behind = operation(device)
    assert calls._depend_on([operation("", operation("", behind))], set(), "worker/1") == needed
    assert calls._depend_on([operation("", after=(behind,))], set(), "worker/1") == needed


def test_what_is_fed_needs_nothing() -> None:
    fed = operation("/job:ps/task:0", operation("/job:worker/task:1"))
    assert not calls._depend_on([operation("", fed)], {fed}, "worker/1")


def test_a_loop_is_walked_once_and_functions_may_do_anything() -> None:
    first, second = operation(), operation()
    first.inputs, second.inputs = [SimpleNamespace(op=second)], [SimpleNamespace(op=first)]
    assert not calls._depend_on([first], set(), "worker/1")
    assert calls._depend_on([operation("", operation(kind="StatefulPartitionedCall"))], set(), "worker/1")
