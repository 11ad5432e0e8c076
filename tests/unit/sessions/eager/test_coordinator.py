"""A session script as the coordinator of TensorFlow 2's strategies."""

from __future__ import annotations

import json
import logging
import os
import socket

import pytest

from tfk8s.errors import InvalidInput
from tfk8s.sessions.eager import coordinator
from tfk8s.sessions.forward import Forward

CLUSTER = {"master": ["m:2222"], "chief": ["c:2222"], "ps": ["p:2222"], "worker": ["w:2222", "w:2223"], "x": ["x:1"]}


@pytest.fixture(autouse=True)
def _no_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the environment after a test: what sets the variables is no `monkeypatch`."""
    for name in ("TF_CONFIG", "TF_GRPC_REUSE_PORT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def become(cluster: dict[str, list[str]]) -> object:
    coordinator.become_coordinator(cluster, coordinator.own_address("", in_pod=False))
    return json.loads(os.environ.get("TF_CONFIG", "null"))


def test_script_is_the_chief_of_the_jobs_that_strategies_know() -> None:
    first, second = become(CLUSTER), become(CLUSTER)
    (chief,) = first["cluster"].pop("chief")
    assert first == {
        "cluster": {"ps": ["p:2222"], "worker": ["w:2222", "w:2223"]},
        "task": {"type": "chief", "index": 0},
    }
    assert coordinator.own_chief() == second["cluster"]["chief"] != [chief]


def test_tasks_can_connect_to_a_pod_at_the_port_of_the_master() -> None:
    with Forward(socket.socket, shared=True) as master:
        assert coordinator.own_address(master.target, in_pod=True) == f"127.0.0.1:{master.port}"
        assert os.environ["TF_GRPC_REUSE_PORT"] == "true"


def test_the_scripts_own_address_without_a_server_is_named() -> None:
    def refuse(target: object) -> None:
        raise InvalidInput(f"no TensorFlow server answers at {target}", help="the tasks are …")

    become(CLUSTER)
    (own,) = coordinator.own_chief()
    with pytest.raises(InvalidInput, match=f"answers at {own}: the address is this script's own, as chief") as caught:
        coordinator.require_answer(own, refuse)
    assert 'job_name="chief", task_index=0' in str(caught.value.help)
    with pytest.raises(InvalidInput, match=r"answers at grpc://w:2222\nhelp: the tasks"):
        coordinator.require_answer("w:2222", refuse)
    coordinator.require_answer(own, lambda target: None)  # the script has started its server


def test_without_a_master_a_pod_is_its_own_coordinator() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        target = f"grpc://127.0.0.1:{unused.getsockname()[1]}"
        assert coordinator.own_address(target, in_pod=True).startswith("localhost:")


def test_a_reserved_port_is_for_a_server_of_this_process() -> None:
    port = coordinator.reserve_port()
    with socket.socket() as server:  # as gRPC binds a port
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
        server.listen()


def test_a_tf_config_of_the_environment_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    with caplog.at_level(logging.WARNING):
        assert become({"worker": ["w:2222"]})["cluster"]["worker"] == ["w:2222"]
    assert caplog.messages == ["the environment's TF_CONFIG is not used: in a session script, tfk8s sets TF_CONFIG"]


@pytest.mark.parametrize(("tasks", "fits"), [(4500, True), (10_000, False)])
def test_a_large_cluster_has_no_tf_config(tasks: int, fits: bool) -> None:
    assert (become({"worker": [f"worker-{i:05}.a.svc:2222" for i in range(tasks)]}) is not None) == fits


@pytest.mark.parametrize("value", ["", "[]", "{", '{"cluster": 1}', '{"task": {}}'])
def test_a_tf_config_of_the_script_may_be_anything(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", value)
    assert coordinator.own_chief() == []


@pytest.mark.parametrize("jobs", [{"worker": ["w:2222"]}, {"local": ["l:2222", "l:2223"]}, {"local": ["l:2222"]}, None])
def test_a_strategy_of_one_process_is_refused_for_each_cluster(jobs: dict[str, list[str]] | None) -> None:
    cluster = {} if jobs is None else become(jobs)["cluster"]
    with pytest.raises(InvalidInput) as caught:
        coordinator.check_multi_worker(cluster)
    assert str(caught.value) == (
        "MultiWorkerMirroredStrategy needs this program in every task, and a session script is one process"
    )
    coordinator.check_multi_worker({"worker": ["localhost:1"]})


def test_parameter_server_strategy_of_tensorflow_1_without_a_cluster_is_refused() -> None:
    coordinator.check_parameter_server_v1({"ps": ["localhost:1"]})
    with pytest.raises(InvalidInput, match="TensorFlow 1 needs a TF_CONFIG, and this session script has none"):
        coordinator.check_parameter_server_v1({})
