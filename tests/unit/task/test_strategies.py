"""Checks of TensorFlow's strategies, with stand-ins for TensorFlow's classes; real ones are in tests/local."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tfk8s.errors import InvalidInput
from tfk8s.task.programs import strategies

TWO = {"worker": ["a:1", "b:1"]}
ALONE = (
    "MultiWorkerMirroredStrategy finds no TF_CONFIG: this process trains alone, and the cluster has 2 tasks; leave "
    "TF_CONFIG as tfk8s sets it"
)
FOREIGN = (
    "MultiWorkerMirroredStrategy waits for localhost:12345, which is no task of this cluster: the program has its own "
    "TF_CONFIG; leave TF_CONFIG as tfk8s sets it"
)


class Resolver(SimpleNamespace):
    """As TensorFlow's resolver of a cluster."""

    def __init__(self, cluster: Mapping[str, list[str]], job: str = "", index: int = 0) -> None:
        super().__init__(task_type=job, task_id=index)
        self._cluster = cluster

    def cluster_spec(self) -> SimpleNamespace:
        return SimpleNamespace(as_dict=lambda: self._cluster)


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Put modules with TensorFlow's classes in the place of TensorFlow; return the classes."""

    class Extended:
        def _initialize_strategy(self, resolver: Resolver, devices: object = None) -> None:
            self.calls = (resolver, devices)

    class Strategy:
        def __init__(self, resolver: Resolver, variable_partitioner: object = None) -> None:
            self.calls = (resolver, variable_partitioner)

    class OldStrategy:
        def __init__(self, resolver: Resolver | None = None) -> None:
            self.calls = resolver

    from_variable = SimpleNamespace(TFConfigClusterResolver=lambda: Resolver({}))
    for name in ("tensorflow", "tensorflow.python", "tensorflow.python.distribute"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    distribute = sys.modules["tensorflow.python.distribute"]
    for name, contents in (
        (strategies.MULTI_WORKER_MODULE, {"CollectiveAllReduceExtended": Extended}),
        (strategies.PARAMETER_SERVER_MODULE, {"ParameterServerStrategyV2": Strategy}),
        (
            strategies.PARAMETER_SERVER_V1_MODULE,
            {"ParameterServerStrategyV1": OldStrategy, "tfconfig_cluster_resolver": from_variable},
        ),
    ):
        module = ModuleType(name)
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, module)
        setattr(distribute, name.rpartition(".")[2], module)
    return {"extended": Extended, "strategy": Strategy, "old": OldStrategy}


@pytest.mark.parametrize(
    ("own", "job", "cluster", "warnings"),
    [
        (TWO, "worker", TWO, []),
        (TWO, "worker", {"worker": ["b:1"]}, []),
        (TWO, "worker", {}, [ALONE]),
        (TWO, "worker", {"worker": ["localhost:12345", "localhost:23456"]}, [FOREIGN]),
        (TWO, "evaluator", {}, []),
        ({"worker": ["a:1"]}, "worker", {}, []),
        ({}, "worker", {}, []),
    ],
)
def test_a_worker_that_trains_alone_or_waits_for_others(
    modules: dict[str, Any], own: object, job: str, cluster: dict[str, list[str]], warnings: list[str]
) -> None:
    said: list[str] = []
    config = json.dumps({"cluster": own, "task": {"type": job, "index": 0}}) if own else "{}"
    strategies.watch({"TF_CONFIG": config}, said.append)
    made, resolver = modules["extended"](), Resolver(cluster)
    made._initialize_strategy(resolver, devices="cpu")
    assert (said, made.calls) == (warnings, (resolver, "cpu"))


@pytest.mark.parametrize(("job", "source"), [("worker", "TF_CONFIG"), ("ps", "its cluster resolver")])
def test_parameter_server_strategy_in_a_task_is_refused(
    modules: dict[str, Any], job: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"task": {"type": "worker", "index": 1}}')
    strategies.watch({}, print)
    with pytest.raises(ValueError, match="belongs") as caught:
        modules["strategy"](Resolver(TWO, job, 1))
    assert str(caught.value) == (
        f"ParameterServerStrategy belongs in one process, the coordinator, and by {source} this is {job}/1: give the "
        "tasks servers, without `program:`, and submit the program; or give the program to a job `chief`"
    )


@pytest.mark.parametrize("job", ["chief", "", None])
def test_parameter_server_strategy_in_the_coordinator(modules: dict[str, Any], job: str) -> None:
    strategies.watch({}, print)
    resolver = Resolver(TWO, job)
    assert modules["strategy"](resolver, variable_partitioner=1).calls == (resolver, 1)


def test_parameter_server_strategy_asks_about_its_cluster_first(modules: dict[str, Any]) -> None:
    asked: list[object] = []
    strategies.patch_parameter_server(asked.append)
    modules["strategy"](Resolver({}))
    assert asked == [{}]


@pytest.mark.parametrize(("module", "who"), [("ipykernel", "a notebook"), ("", "this Python session")])
def test_strategies_without_a_cluster_are_refused(
    modules: dict[str, Any], module: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    if module:
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    strategies.refuse_without_cluster.__wrapped__()
    with pytest.raises(InvalidInput) as caught:
        modules["extended"]()._initialize_strategy(Resolver({}))
    assert caught.value.args[0] == (
        f"MultiWorkerMirroredStrategy needs this program in every task, and {who} is one process"
    )
    for make in (lambda: modules["strategy"](Resolver({})), lambda: modules["old"](Resolver({})), modules["old"]):
        with pytest.raises(InvalidInput) as caught:
            make()
        assert caught.value.args[0] == (
            f"ParameterServerStrategy needs a session script, which has a TF_CONFIG, and {who} has none"
        )
    own = Resolver({"worker": ["localhost:1"]})  # a cluster of the process' own
    modules["extended"]()._initialize_strategy(own)
    assert modules["strategy"](own).calls == (own, None)
    assert modules["old"](own).calls == own
