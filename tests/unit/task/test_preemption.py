"""The patch of TensorFlow's PreemptionCheckpointHandler, with a stand-in; the real one is in tests/local."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tfk8s.task.programs import strategies

SHORT = "PreemptionCheckpointHandler has 2 s to save after SIGTERM: set grace: 30s in the job file"
LATE = (
    "PreemptionCheckpointHandler saves 3600 s after SIGTERM, and the program is killed after 30 s: leave grace_period "
    "out of TerminationConfig, or set grace: 7200s in the job file"
)
DEAF = (
    "PreemptionCheckpointHandler does not see SIGTERM, because its TerminationConfig has a termination_watcher_fn: "
    "leave that out to save before the end of a pod"
)


def config(**values: object) -> SimpleNamespace:
    return SimpleNamespace(**{"termination_watcher_fn": None, "grace_period": None, **values})


@pytest.mark.parametrize(
    ("grace", "given", "expected"),
    [
        ({}, None, SHORT), ({"TFK8S_GRACE": "30"}, None, ""), ({"TFK8S_GRACE": "30"}, config(), ""),
        ({"TFK8S_GRACE": "30"}, config(grace_period=10), ""), ({"TFK8S_GRACE": "30"}, config(grace_period=3600), LATE),
        ({"TFK8S_GRACE": "30"}, config(termination_watcher_fn=bool), DEAF),
    ],
)  # fmt: skip
def test_warning_of_a_save_that_comes_too_late(grace: dict[str, str], given: Any, expected: str) -> None:
    assert strategies.preemption_warning(grace, float(grace.get("TFK8S_GRACE", 2)), given) == expected


def test_the_handler_acts_as_off_google_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    class Handler:
        def __init__(self, *arguments: object, **keywords: object) -> None:
            self.given = (arguments, keywords)

    package, _, name = strategies.PREEMPTION_MODULE.rpartition(".")
    module = ModuleType(strategies.PREEMPTION_MODULE)
    module.__dict__.update(PreemptionCheckpointHandler=Handler, failure_handling_util=SimpleNamespace(on_gcp=bool))
    monkeypatch.setitem(sys.modules, package, ModuleType(package))
    setattr(sys.modules[package], name, module)
    monkeypatch.setitem(sys.modules, strategies.PREEMPTION_MODULE, module)
    said: list[str] = []
    strategies.watch_preemption({}, 2.0, said.append)
    assert not module.failure_handling_util.on_gcp()
    late = config(grace_period=3600)
    assert Handler("resolver", "manager", None, late).given == (("resolver", "manager", None, late), {})
    assert Handler("resolver", "checkpoint", checkpoint_dir="a").given[1] == {"checkpoint_dir": "a"}
    assert [text.split()[1] for text in said] == ["saves", "has"]
