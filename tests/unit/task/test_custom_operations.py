"""The hint about operations of other libraries that a task's server does not know."""

from __future__ import annotations

import sys
import types

import pytest

from tfk8s.sessions.eager import hints
from tfk8s.task.programs import custom_operations
from tfk8s.task.programs import hints as program_hints

UNKNOWN = "Op type not registered '{}' in binary running on gpu-1.lab. Make sure the Op and Kernel are registered"
FUNCTION = "'{}' is neither a type of a primitive operation nor a name of a function registered in binary"
DEVICE = "/job:worker/replica:0/task:3/device:CPU:0"


class OpError(Exception):
    def __init__(self, message: str, device: str = "") -> None:
        super().__init__(message)
        self.op = types.SimpleNamespace(device=device)


def chained(error: Exception) -> Exception:
    last = RecursionError("maximum recursion depth exceeded")
    last.__context__ = AssertionError()
    last.__context__.__cause__ = error
    return last


CASES = [
    (OpError(UNKNOWN.format("TFText>Tokenize")), "a task at gpu-1.lab", "TFText>Tokenize", "tensorflow_text"),
    (OpError(UNKNOWN.format("IO>AudioResample"), DEVICE), "worker/3", "IO>AudioResample", "tensorflow_io"),
    (
        chained(OpError(FUNCTION.format("SimpleMLCreate") + f" [from remote target {DEVICE}]")), "worker/3",
        "SimpleMLCreate", "tensorflow_decision_forests",
    ),
    (OpError(FUNCTION.format("Own>ZeroOut")), "a task", "Own>ZeroOut", "own_operations"),
    (OpError(FUNCTION.format("Unheard")), "a task", "Unheard", "MODULE"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "task", "operation", "module"), CASES)
@pytest.mark.parametrize("hint", [custom_operations.hint, hints.hint, program_hints.hint])
def test_an_unknown_operation_names_the_task_and_the_line_of_the_job_file(
    monkeypatch: pytest.MonkeyPatch, hint, error: Exception, task: str, operation: str, module: str
) -> None:
    loaded = types.ModuleType("loaded")
    loaded.own_zero_out, loaded._IS_TENSORFLOW_PLUGIN = lambda: None, True
    inner = types.ModuleType("own_operations.python.ops")
    inner.library = loaded
    monkeypatch.setitem(sys.modules, inner.__name__, inner)
    assert hint(error) == (
        f"{task} has not loaded the library of {operation}; write into its job in the job file: "
        f"preload: [{module}], and start the cluster again (tfk8s down, tfk8s up)"
    )


def test_other_errors_have_no_such_hint() -> None:
    assert custom_operations.hint(OpError("Op type not found")) is None
