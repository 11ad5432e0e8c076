"""Kubernetes' events in both of their forms, and their subjects."""

from tfk8s.backends.kubernetes import events
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core.compact import JobSize
from tfk8s.core.events import Event

JOBS = {"master": "master", "my-ps-1234": "my_ps"}


SUBJECTS = [
    ("Pod", "a-master-0", "master/0"),
    ("Pod", "a-my-ps-1234-12", "my_ps/12"),
    ("Pod", "a-worker-0", ""),
    ("Pod", "a-master-b-0", ""),
    ("Pod", "b-master-0", ""),
    ("StatefulSet", "a-master", "StatefulSet a-master"),
    ("StatefulSet", "a-worker", ""),
    ("Service", "a-master", "Service a-master"),
    ("Service", "a", "Service a"),
    ("ConfigMap", "a-master", ""),
    ("PodDisruptionBudget", "a-my-ps-1234", "PodDisruptionBudget a-my-ps-1234"),
    ("Job", "a-script-0123ab", "script-0123ab"),
    ("Pod", "a-script-0123ab-x7k2p", "script-0123ab"),
    ("Job", "a-script-script-0123ab", ""),
    ("Job", "b-script-0123ab", ""),
    ("Job", "a-lifetime-0123abcd", "Job a-lifetime-0123abcd"),
    ("Pod", "a-lifetime-0123abcd-x7k2p", "Pod a-lifetime-0123abcd-x7k2p"),
]


def test_the_subject_of_an_event():
    for kind, name, about in SUBJECTS:
        assert events.find_subject(kind, name, "a", JOBS) == about, kind


def test_a_repeated_event():
    event = {
        "metadata": {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}, "type": "Warning", "reason": "BackOff",
        "message": "Back-off restarting ", "count": 7, "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:09Z", "eventTime": None,
    }  # fmt: skip
    assert events.parse_event(event, "worker/1") == Event(
        id="u", time=1767225609, about="worker/1", warning=True, reason="BackOff", message="Back-off restarting",
        count=7,
    )  # fmt: skip


def test_an_event_of_events_k8s_io():
    event = {
        "metadata": {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}, "type": "Normal", "reason": "Scheduled",
        "message": "assigned", "eventTime": "2026-01-01T00:00:01.500000Z", "lastTimestamp": None,
    }  # fmt: skip
    parsed = events.parse_event(event, "worker/1")
    assert (parsed.time, parsed.warning, parsed.count) == (1767225601.5, False, 1)
    series = {"count": 3, "lastObservedTime": "2026-01-01T00:00:05.000000Z"}
    repeated = events.parse_event({**event, "series": series}, "worker/1")
    assert (repeated.time, repeated.count) == (1767225605, 3)


CREATED = {"creationTimestamp": "2026-01-01T00:10:00Z"}
CONTAINER = {"name": "server", "env": [{"name": "TFK8S_JOB", "value": "worker"}]}
STATEFUL_SET = {"metadata": CREATED, "spec": {"template": {"spec": {"containers": [CONTAINER]}}}}
CLUSTER = DeployedCluster(
    name="a", namespace="ns", workloads={"worker": STATEFUL_SET}, jobs={"worker": JobSize(1, 2222)}
)


def event_of(minute: int, reason: str, message: str = "") -> dict:
    moment = f"2026-01-01T00:{minute:02}:00Z"
    return {
        "metadata": {"uid": reason, "creationTimestamp": moment}, "type": "Normal", "reason": reason,
        "message": message, "lastTimestamp": moment, "involvedObject": {"kind": "Pod", "name": "a-worker-0"},
    }  # fmt: skip


class PretendedServer:
    def __init__(self, config_map):
        self.config_map = config_map

    def get(self, path):
        return {"items": [
            event_of(9, "Killing"), event_of(10, "Scheduled"), event_of(11, "Started"),
            event_of(12, "Unhealthy", "Startup probe failed: dial tcp: connection refused"),
            event_of(13, "Unhealthy", "Readiness probe failed: timeout"),
        ]}  # fmt: skip

    def find(self, path):
        if isinstance(self.config_map, Exception):
            raise self.config_map
        return self.config_map


def test_events_begin_with_the_cluster_and_leave_its_start_probes_out():
    forbidden = ApiError(403, "forbidden")
    for config_map, first in (
        ({"metadata": CREATED}, "Scheduled"),
        ({"metadata": {"creationTimestamp": "2026-01-01T00:11:00Z"}}, "Started"),
        (forbidden, "Scheduled"),
        (None, "Scheduled"),
    ):
        found = [event.reason for event in events.read(PretendedServer(config_map), CLUSTER, follow=False)]
        assert found[0] == first
        assert found[-1] == "Unhealthy"
        assert found.count("Unhealthy") == 1
