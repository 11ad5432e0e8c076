"""Pulls of images: pods and events as kubelet writes them."""

from __future__ import annotations

from typing import Any

import pytest

from tfk8s.backends.kubernetes.pods import image_pull, pod_events, pod_status
from tfk8s.core.status import Phase

Object = dict[str, Any]
IMAGE = "tensorflow/tensorflow:2.21.0"
BEGIN = 1_767_225_600.0  # 2026-01-01T00:00:00Z
CREATING = {"waiting": {"reason": "ContainerCreating"}}
PULLING = f'pulling image "{IMAGE}" on node-1 for 3 min'


def event(reason: str, message: str, second: int = 0, container: str = "containers{server}") -> Object:
    return {
        "involvedObject": {"kind": "Pod", "name": "mnist-worker-0", "uid": "u", "fieldPath": f"spec.{container}"},
        "reason": reason, "message": message, "type": "Warning" if reason == "Failed" else "Normal",
        "lastTimestamp": f"2026-01-01T00:00:{second:02}Z", "source": {"component": "kubelet"},
    }  # fmt: skip


def pod(state: Object, **others: Object) -> Object:
    server = {"name": "server", "image": IMAGE, "ready": False, "restartCount": 0, "state": state}
    init = [{"name": name, "image": "busybox", "ready": False, "state": other} for name, other in others.items()]
    return {
        "metadata": {"uid": "u", "name": "mnist-worker-0", "labels": {}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "server", "resources": {}}]},
        "status": {
            "conditions": [{"type": "PodScheduled", "status": "True"}], "containerStatuses": [server],
            "initContainerStatuses": init,
        },
    }  # fmt: skip


BEGUN = event("Pulling", f'Pulling image "{IMAGE}"')
INIT = event("Pulling", 'Pulling image "busybox"', container="initContainers{prepare}")
FAILED = event("Failed", f'Failed to pull image "{IMAGE}": dial tcp: connection refused')
REFUSED = {"waiting": {"reason": "ErrImagePull", "message": "dial tcp: connection refused"}}
BACK_OFF = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
CASES = [
    ("a node pulls", pod(CREATING), [BEGUN], PULLING),
    ("no event yet", pod(CREATING), [], ""),
    ("an init container's image", pod({"waiting": {"reason": "PodInitializing"}}, prepare=CREATING), [INIT],
     'pulling image "busybox" on node-1 for 3 min'),
    ("an init container runs", pod({"waiting": {"reason": "PodInitializing"}}, prepare={"running": {}}), [INIT], ""),
    ("kubelet reports the failure late", pod(CREATING), [FAILED, BEGUN], None),
    ("the pull failed", pod(REFUSED), [BEGUN, FAILED], None),
    ("kubelet tries again", pod(BACK_OFF), [BEGUN, FAILED, event("Pulling", f'Pulling image "{IMAGE}"', 30)], None),
    ("the name is wrong", pod({"waiting": {"reason": "InvalidImageName"}}), [BEGUN], None),
    ("the server runs", pod({"running": {"startedAt": "2026-01-01T00:01:00Z"}}), [BEGUN], ""),
    ("another form of the text", pod(CREATING), [event("Pulling", "Pulling")], ""),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "events", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_pull(pod: Object, events: list[Object], text: str | None) -> None:
    found = pod_events.of(pod, pod_events.group(events, "kind-test"))
    assert image_pull.describe(pod, found.pull, lambda: BEGIN + 200) == (text or "")
    assert image_pull.is_under_way(pod, found.pull) == bool(text)
    reason = pod_status.phase_and_reason("worker", pod, found)[1]
    if text is None:  # the reason of a failure is that of before
        assert not reason.startswith("pulling image")
        assert IMAGE in reason
    else:
        assert reason.startswith(text.partition(" for ")[0])


def test_the_first_minute_is_not_counted() -> None:
    pull = pod_events.group([BEGUN], "kind-test")["u"].pull
    assert image_pull.describe(pod(CREATING), pull, lambda: BEGIN + 59) == PULLING.removesuffix(" for 3 min")
    assert image_pull.describe(pod(CREATING), pull, lambda: BEGIN - 30) == PULLING.removesuffix(" for 3 min")


def test_a_pull_is_pending() -> None:
    found = pod_events.of(pod(CREATING), pod_events.group([BEGUN], "kind-test"))
    assert pod_status.phase_and_reason("worker", pod(CREATING), found)[0] is Phase.PENDING
