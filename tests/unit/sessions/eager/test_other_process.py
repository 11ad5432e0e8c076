"""Strategies in notebooks and Python sessions."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tfk8s import api
from tfk8s.cluster.notebook import kernel
from tfk8s.errors import InvalidInput, NoSuchCluster
from tfk8s.sessions.eager import other_process
from tfk8s.task.programs import imports, strategies


@pytest.mark.parametrize(("module", "who"), [("ipykernel", "a notebook"), ("", "this Python session")])
def test_strategies_without_a_cluster_are_refused(module: str, who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    if module:
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    with pytest.raises(InvalidInput) as caught:
        other_process.check_multi_worker({})
    assert caught.value.args[0] == (
        f"MultiWorkerMirroredStrategy needs this program in every task, and {who} is one process"
    )
    with pytest.raises(InvalidInput) as caught:
        other_process.check_parameter_server({})
    assert caught.value.args[0] == (
        f"ParameterServerStrategy needs a session script, which has a TF_CONFIG, and {who} has none"
    )
    for check in (other_process.check_multi_worker, other_process.check_parameter_server):
        check({"worker": ["localhost:1"]})  # a cluster of the process' own


def _prepare() -> None:
    def lacks() -> None:
        raise NoSuchCluster("there is no cluster")

    class Gone:
        session = None
        target = property(lambda self: lacks())

    kernel.prepare(Gone(), tf1=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "enter", [lambda: api.up(Path("/none.yaml")), lambda: api.connect(Path("/none.yaml")), _prepare],
    ids=["up", "connect", "notebook"],
)  # fmt: skip
def test_each_way_into_a_cluster_from_python_refuses_them(
    enter: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[str] = []
    monkeypatch.setattr(imports, "when_imported", lambda name, then: watched.append(name))
    monkeypatch.setattr(imports, "while_imported", lambda name, context: None)
    monkeypatch.setattr(kernel, "session", SimpleNamespace(use_cluster=lambda function: None))
    monkeypatch.setattr(other_process, "refuse_strategies", other_process.refuse_strategies.__wrapped__)
    with contextlib.suppress(InvalidInput):  # there is no such file
        enter()
    assert {strategies.MULTI_WORKER_MODULE, strategies.PARAMETER_SERVER_MODULE} <= {*watched}
