"""Strategies in notebooks and Python sessions: each way into a cluster refuses those that have none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfk8s import api
from tfk8s.errors import InvalidInput, NoSuchCluster
from tfk8s.features.notebook import kernel
from tfk8s.sessions import session
from tfk8s.task.programs import imports, strategies


def _prepare() -> None:
    def lacks() -> None:
        raise NoSuchCluster("there is no cluster")

    class Gone:
        session = None
        target = property(lambda self: lacks())

    kernel.prepare(Gone(), tf1=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "enter",
    [
        lambda: api.up(Path("/none.yaml")), lambda: api.connect(Path("/none.yaml")), _prepare,
        lambda: session.session("grpc://"),
    ],
    ids=["up", "connect", "notebook", "session"],
)  # fmt: skip
def test_each_way_into_a_cluster_from_python_refuses_them(
    enter: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[str] = []
    monkeypatch.setattr(imports, "when_imported", lambda name, then: watched.append(name))
    monkeypatch.setattr(imports, "while_imported", lambda name, context: None)
    monkeypatch.setattr(kernel, "session", SimpleNamespace(use_cluster=lambda function: None))
    monkeypatch.setattr(strategies, "refuse_without_cluster", strategies.refuse_without_cluster.__wrapped__)
    with contextlib.suppress(InvalidInput):  # there is no such file
        enter()
    assert {
        strategies.MULTI_WORKER_MODULE, strategies.PARAMETER_SERVER_MODULE, strategies.PARAMETER_SERVER_V1_MODULE,
    } <= {*watched}  # fmt: skip


def test_scripts_and_programs_keep_their_own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFK8S_CLUSTER", "{}")
    monkeypatch.setattr(strategies, "refuse_without_cluster", lambda: pytest.fail("a script has a TF_CONFIG"))
    with pytest.raises(InvalidInput, match="grpc://"):
        session.session("grpc://")
