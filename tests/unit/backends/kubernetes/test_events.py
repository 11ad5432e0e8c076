"""Kubernetes' events in both of their forms, and their subjects."""

from tfk8s.backends.kubernetes import events
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
