"""Pods with other containers beside the task: those of `pod` in the job file, and the proxies of service meshes."""

from __future__ import annotations

from typing import Any

import pytest

from tfk8s.backends.kubernetes.pods import pod_status
from tfk8s.backends.kubernetes.pods.containers import have_ended, log_path, telling_line
from tfk8s.backends.kubernetes.pods.pod_events import PodEvents
from tfk8s.core.status import Phase

Object = dict[str, Any]
RUNNING: Object = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
CRASH: Object = {"terminated": {"exitCode": 3, "reason": "Error"}}


def status(name: str, state: Object, last: Object | None = None, *, ready: bool = False) -> Object:
    return {"name": name, "state": state, "lastState": last or {}, "ready": ready, "image": "tf:1", "restartCount": 0}


def waiting(reason: str, message: str = "") -> Object:
    return {"waiting": {"reason": reason, "message": message}}


def phase_and_reason(*statuses: Object, init: Object | None = None) -> tuple[Phase, str]:
    pod = {
        "metadata": {"uid": "u"},
        "spec": {"containers": [{"name": "proxy"}, {"name": "server", "resources": {}}]},
        "status": {"containerStatuses": list(statuses), "initContainerStatuses": [init] if init else []},
    }
    return pod_status.phase_and_reason("worker", pod, PodEvents())


def test_a_task_is_ready_when_its_server_is() -> None:
    proxy, server = status("proxy", RUNNING), status("server", RUNNING, ready=True)
    assert phase_and_reason(proxy, server) == (Phase.READY, "")


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (status("proxy", CRASH), "ended with exit code 3"),
        (status("proxy", waiting("CrashLoopBackOff", "back-off 10s"), CRASH), "ended with exit code 3"),
        (status("proxy", waiting("ImagePullBackOff", 'no image "p:1"')), 'can\'t start: no image "p:1"'),
    ],
)
def test_another_container_that_does_not_run_is_the_reason(other: Object, reason: str) -> None:
    text = f'its container "proxy" {reason}: change pod or jobs.worker.pod'
    assert phase_and_reason(other, status("server", RUNNING, ready=True)) == (Phase.READY, text)
    server = status("server", waiting("PodInitializing"))
    assert phase_and_reason(server, init=other) == (Phase.PENDING, text)


def test_the_end_of_an_init_container_is_no_reason() -> None:
    done = status("download", {"terminated": {"exitCode": 0}})
    assert phase_and_reason(status("server", waiting("ContainerCreating")), init=done) == (Phase.PENDING, "")


@pytest.mark.parametrize("container", ["server", "script"])
def test_logs_are_those_of_the_task_or_the_script(container: str) -> None:
    name = "a-script-abcdef-12345"  # a script's pod of cluster "a", or a task of cluster "a-script"
    containers = [{"name": "proxy"}, {"name": container}]
    pod = {"metadata": {"namespace": "ns", "name": name}, "spec": {"containers": containers}}
    assert log_path(pod) == f"/api/v1/namespaces/ns/pods/{name}/log?container={container}"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("one\ntwo\n \n", "two"),
        ("unable to retrieve container logs for containerd://93da6822", ""),
        ("one\nunable to retrieve container logs for containerd://93da6822", "one"),
        ("", ""),
    ],
)
def test_the_telling_line_is_the_containers_own(log: str, line: str) -> None:
    assert telling_line(log) == line


DONE: Object = {"terminated": {"exitCode": 0}}


@pytest.mark.parametrize(
    ("pod", "result"),
    [
        ({"containerStatuses": [status("server", DONE)]}, True),
        ({"containerStatuses": [status("server", DONE), status("proxy", RUNNING)]}, False),
        ({"containerStatuses": [status("server", DONE)], "initContainerStatuses": [status("mesh", RUNNING)]}, False),
        ({"containerStatuses": [status("server", DONE)], "initContainerStatuses": [status("mesh", DONE)]}, True),
        ({"containerStatuses": [status("server", DONE)], "ephemeralContainerStatuses": [status("sh", RUNNING)]}, False),
        ({"containerStatuses": [status("server", waiting("ContainerCreating"))]}, False),
        ({"phase": "Failed"}, False),  # kubelet may not have ended the containers of an evicted pod
    ],
)
def test_a_pod_has_ended_when_kubelet_has_seen_all_its_containers_end(pod: Object, result: bool) -> None:
    assert have_ended({"spec": {"restartPolicy": "Never"}, "status": pod}) is result
    assert not have_ended({"spec": {"restartPolicy": "Always"}, "status": pod})  # kubelet may start it again
