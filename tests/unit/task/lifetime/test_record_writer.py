"""The record that the pod of a cluster's own Job writes, with a pretended API server and clock."""

from __future__ import annotations

import errno
import gzip
import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.task.lifetime.test_observed import ended, pod, program
from tfk8s.core.history.entry import fold
from tfk8s.core.history.facts import LOST_RIGHTS, REMOVED, REMOVED_BY_OTHERS
from tfk8s.core.history.shared import FOLDER, NO_REQUESTS, record_name, to_notes
from tfk8s.core.lifetime import RemovableObject, removable_objects
from tfk8s.core.naming import SCRIPT_MARK
from tfk8s.polling import wait_until
from tfk8s.task.lifetime.object_server import Answer, ApiFailure, NoAnswer, TokenRefused
from tfk8s.task.lifetime.record.record_writer import RecordWriter

OBJECTS = removable_objects("demo", ["My_ps"], ["worker"])
UID = "936a4aea-3460-487c-acd5-2d70b56c3030"
CREATED = 1795843794.0


class RecordedCluster:
    """A cluster whose API server the writer asks."""

    def __init__(self, volume: Path) -> None:
        self.volume, self.now, self.said = volume, CREATED + 1, list[str]()
        self.config_map: dict[str, Any] | None = {
            "metadata": {"uid": UID, "namespace": "ns", "creationTimestamp": "2026-11-28T05:29:54Z"}
        }
        self.notes: dict[str, str] = {}
        self.job: dict[str, Any] = {"metadata": {}}
        self.pods: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.logs: dict[str, list[str]] = {}
        self.is_token_refused, self.gets = False, 0
        self.silent, self.cut = set[str](), b""  # pods whose node does not answer; the begin of a line
        self.before_log: Callable[[], object] = lambda: None

    def get(self, item: RemovableObject) -> Answer:
        self.gets += 1
        if self.is_token_refused:
            raise TokenRefused("Unauthorized")
        bodies = {
            "configmaps": self.config_map, "serviceaccounts": {"metadata": {"annotations": self.notes}},
            "jobs": self.job,
        }  # fmt: skip
        return Answer(bodies[item.resource], self.now)

    def items(self, resource: str, selector: str = "") -> Iterator[dict[str, Any]]:
        assert selector == {"pods": "app.kubernetes.io/instance=demo", "events": ""}[resource]
        yield from self.pods if resource == "pods" else self.events

    def log(self, name: str, container: str, options: Mapping[str, Any]) -> bytes:
        self.before_log()
        key = f"previous {name}" if "previous" in options else name
        if key not in self.logs:
            raise ApiFailure("there is no log")
        since = options.get("sinceTime", "")
        if key in self.silent:
            raise NoAnswer("timed out")
        return "".join(f"{line}\n" for line in self.logs[key] if line[:19] >= since[:19]).encode() + self.cut

    def writer(self, *, with_logs: bool = True) -> RecordWriter:
        """Return a writer, as each pod of the Job has one."""
        clock = lambda: self.now  # noqa: E731
        return RecordWriter(self, OBJECTS, self.volume, with_logs, self.said.append, clock)  # type: ignore[arg-type]

    @property
    def path(self) -> Path:
        return self.volume / FOLDER / record_name("demo", UID)

    def facts(self, kind: str = "") -> list[dict[str, Any]]:
        lines = (self.path / "facts.jsonl").read_text().splitlines()
        return [fact for fact in map(json.loads, lines) if fact["kind"] == kind or not kind]

    def kept_log(self, name: str) -> list[str]:
        return gzip.decompress((self.path / "logs" / f"{name}.gz").read_bytes()).decode().splitlines()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedCluster:
    monkeypatch.setattr("tfk8s.task.lifetime.record.record_writer.GONE_TIMEOUT", 0.0)
    return RecordedCluster(tmp_path)


def verb(**parts: Any) -> dict[str, Any]:
    return {"kind": "verb", "time": CREATED + 2, "verb": "up", "token": "0a0a0a0a", "who": "ada", **parts}


def test_commands_tasks_and_the_end_make_an_entry(cluster: RecordedCluster) -> None:
    start = {"kind": "start", "time": CREATED + 1, "who": "ada", "job_file": {"name": "demo"}, "digest": "d"}
    cluster.notes = to_notes([start, verb()])
    cluster.pods = [pod()]
    writer = cluster.writer()
    writer.look()
    cluster.now += 100
    cluster.pods = []
    cluster.notes |= to_notes(
        [{"kind": "end", "time": cluster.now, "reason": "removed 1h after its first `up` (max_duration)"}]
    )
    writer.end()
    entry = fold(cluster.facts(), "demo", 1)
    assert entry.row.ended == CREATED + 101
    assert entry.row.reason == "removed 1h after its first `up` (max_duration)"
    assert [(task.task, task.phase) for task in entry.tasks] == [("My_ps/2", "Ready")]
    assert [command.who for command in entry.verbs] == ["ada"]
    assert cluster.said == []


def test_another_pod_goes_on_with_the_record(cluster: RecordedCluster) -> None:
    cluster.notes, cluster.pods = to_notes([verb()]), [pod()]
    cluster.logs = {"demo-my-ps-1234-2": ["2026-11-28T05:30:00.1Z one", "2026-11-28T05:30:00.2Z two"]}
    cluster.writer().look()
    cluster.logs["demo-my-ps-1234-2"].append("2026-11-28T05:30:00.3Z three")
    cluster.writer().look()
    assert [fact["kind"] for fact in cluster.facts()] == ["start", "verb", "tasks", "tasks"]
    assert [line.split(" ", 1)[1] for line in cluster.kept_log("My_ps-2")] == ["0 one", "0 two", "0 three"]


def test_logs_of_restarts_follow_each_other(cluster: RecordedCluster) -> None:
    cluster.pods, name = [pod()], "demo-my-ps-1234-2"
    cluster.logs = {name: ["2026-11-28T05:30:01Z one"]}
    writer = cluster.writer()
    writer.look()
    cluster.logs = {
        f"previous {name}": ["2026-11-28T05:30:01Z one", "2026-11-28T05:30:02Z two"],
        name: ["2026-11-28T05:30:03Z three"],
    }
    cluster.pods[0]["status"]["containerStatuses"][0] |= {"restartCount": 1}
    writer.look()
    assert [line.split(" ", 1)[1] for line in cluster.kept_log("My_ps-2")] == ["0 one", "0 two", "1 three"]


def test_a_look_reads_a_few_of_many_logs_and_the_last_look_all(cluster: RecordedCluster) -> None:
    for number in range(100):
        made = pod()
        made["metadata"] |= {"name": f"a-{number}", "labels": {"apps.kubernetes.io/pod-index": str(number)}}
        cluster.pods.append(made)
        cluster.logs[f"a-{number}"] = ["2026-11-28T05:30:01Z one"]
    writer = cluster.writer()
    writer.look()
    assert len(list((cluster.path / "logs").iterdir())) == 32
    writer.look()
    assert len(list((cluster.path / "logs").iterdir())) == 64
    writer.end()
    assert len(list((cluster.path / "logs").iterdir())) == 100


def test_a_node_that_does_not_answer_costs_its_own_logs_alone(cluster: RecordedCluster) -> None:
    script = pod(**ended(0, phase="Succeeded"))
    script["metadata"] = {
        **script["metadata"],
        "name": "s",
        "labels": {"batch.kubernetes.io/job-name": "a-script-4e9c21"},
    }
    other = pod()
    other["metadata"] = {**other["metadata"], "name": "o", "labels": {"apps.kubernetes.io/pod-index": "1"}}
    cluster.pods, cluster.silent = [pod(), other, script], {"demo-my-ps-1234-2"}
    cluster.logs = {name: ["2026-11-28T05:30:01Z one"] for name in ("demo-my-ps-1234-2", "o", "s")}
    writer = cluster.writer()
    writer.look()
    assert len(cluster.facts("tasks")) == len(cluster.facts("script")) == 1
    assert len(cluster.kept_log("My_ps-1")) == 1
    cluster.silent = set()
    writer.look()
    assert len(cluster.kept_log("My_ps-2")) == 1


def test_a_line_that_the_limit_has_cut_comes_with_the_next_look(cluster: RecordedCluster) -> None:
    cluster.pods, cluster.cut = [pod()], b"2026-11-28T05"
    cluster.logs = {"demo-my-ps-1234-2": ["2026-11-28T05:30:01.5+02:00 one"]}
    writer = cluster.writer()
    writer.look()
    cluster.logs["demo-my-ps-1234-2"].append("2026-11-28T05:35:01.5+02:00 two")
    writer.look()
    assert [line.split(" ", 1)[1] for line in cluster.kept_log("My_ps-2")] == ["0 one", "0 two"]


def test_an_end_that_a_down_has_told_long_ago_is_none(cluster: RecordedCluster) -> None:
    cluster.notes = to_notes([{"kind": "end", "time": CREATED, "reason": REMOVED}])
    writer = cluster.writer()
    cluster.now += 86400
    writer.end()
    assert cluster.facts("end") == []


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_cluster_that_goes_on_after_an_end_has_none(cluster: RecordedCluster, is_removed: bool) -> None:
    """The first pod ends by a `down` that is killed then; another pod sees whether the cluster goes on."""
    cluster.notes = to_notes([verb(), {"kind": "end", "time": cluster.now, "reason": REMOVED}])
    cluster.writer().end()
    assert fold(cluster.facts(), "demo", 1).row.reason == REMOVED
    cluster.now += 3600
    assert cluster.config_map
    if is_removed:
        cluster.config_map["metadata"]["deletionTimestamp"] = "2026-11-28T05:40:00Z"
    successor = cluster.writer()
    successor.look()
    assert fold(cluster.facts(), "demo", 1).row.state == ("ended" if is_removed else "open")
    assert [fact["kind"] for fact in cluster.facts()][:2] == ["start", "verb"]
    cluster.notes |= to_notes([{"kind": "end", "time": cluster.now, "reason": "removed, idle for 1h"}])
    if not is_removed:
        successor.end()
        row = fold(cluster.facts(), "demo", 1).row
        assert (row.ended, row.reason) == (cluster.now, "removed, idle for 1h")


def test_a_record_that_somebody_has_removed_begins_again(
    cluster: RecordedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfk8s.task.lifetime.record.record_writer.INTERVAL", 0.01)
    writer = cluster.writer()
    writer.look()
    shutil.rmtree(cluster.path)
    cluster.pods = [pod()]
    writer.start()
    wait_until(lambda: (cluster.path / "facts.jsonl").exists() and cluster.facts("tasks"), "the record", 30)
    writer.end()


def test_a_change_each_second_does_not_fill_the_record_in_a_day(cluster: RecordedCluster) -> None:
    cluster.pods = [program()]
    writer = cluster.writer(with_logs=False)
    for number in range(8640):
        cluster.logs = {
            "demo-my-ps-1234-2": [
                f"2026-11-28T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z tfk8s: step {number}"
            ]
        }
        writer.look()
        cluster.now += 10
    assert len(cluster.facts("tasks")) < 400


def test_log_of_a_script_has_no_marks(cluster: RecordedCluster) -> None:
    script = pod(**ended(0, phase="Succeeded"))
    script["metadata"]["labels"] = {"batch.kubernetes.io/job-name": "demo-script-4e9c21"}
    texts = ["said", f"{SCRIPT_MARK}tfk8s: step 4/4 (100%)", f"{SCRIPT_MARK}{SCRIPT_MARK}tfk8s: exit code 0"]
    cluster.pods = [script]
    cluster.logs = {"demo-my-ps-1234-2": [f"2026-11-28T05:30:0{number}Z {text}" for number, text in enumerate(texts)]}
    cluster.writer().look()
    assert [line.split(" ", 1)[1] for line in cluster.kept_log("script-4e9c21")] == [
        "0 said",
        "0 tfk8s: step 4/4 (100%)",
    ]
    assert cluster.facts("script")[0]["progress"] == "4/4 (100%)"


def test_without_logs_the_progress_stays(cluster: RecordedCluster) -> None:
    cluster.pods, cluster.job = [program()], {"metadata": {}}
    cluster.logs = {"demo-my-ps-1234-2": ["2026-11-28T05:30:01Z tfk8s: step 3/9 (33%), loss=0.5"]}
    cluster.writer(with_logs=False).look()
    assert fold(cluster.facts(), "demo", 1).row.progress == "3/9 (33%), loss=0.5"
    assert list((cluster.path / "logs").iterdir()) == []


def test_result_of_programs(cluster: RecordedCluster) -> None:
    cluster.pods = [program(**ended(1, "exit code 3, restarts 1"))]
    cluster.job = {"metadata": {}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    cluster.writer().look()
    row = fold(cluster.facts(), "demo", 1).row
    assert (row.exit_code, row.reason) == (3, "My_ps/2 Error: exit code 3, restarts 1")


def test_end_of_a_detached_script_is_written_once(cluster: RecordedCluster) -> None:
    script = pod(**ended(2))
    script["metadata"]["labels"] = {"batch.kubernetes.io/job-name": "demo-script-4e9c21"}
    writer = cluster.writer()
    writer.look()
    cluster.pods = [script]
    writer.look()
    writer.look()
    assert [(fact["command"], fact["exit_code"]) for fact in cluster.facts("script")] == [("script-4e9c21", 2)]


def test_end_that_a_command_tells_comes_after_the_last_of_the_tasks(cluster: RecordedCluster) -> None:
    cluster.pods = [pod()]
    writer = cluster.writer()
    writer.look()
    cluster.notes = to_notes([{"kind": "end", "time": CREATED + 3, "reason": REMOVED}])
    writer.look()
    assert cluster.facts("end") == []
    cluster.pods[0]["status"]["containerStatuses"][0] |= {"ready": False}
    writer.end()
    assert [fact["kind"] for fact in cluster.facts()][-2:] == ["tasks", "end"]
    assert cluster.facts("end") == [{"kind": "end", "time": CREATED + 1, "reason": REMOVED, "lost": False}]
    writer.end()
    assert len(cluster.facts("end")) == 1


@pytest.mark.parametrize("way", ["gone", "deleting", "token refused", "only this pod"])
def test_end_by_others(cluster: RecordedCluster, way: str) -> None:
    writer = cluster.writer()
    writer.look()
    assert cluster.config_map
    if way == "gone":
        cluster.config_map = None
    elif way == "deleting":
        cluster.config_map["metadata"]["deletionTimestamp"] = "2026-11-28T05:40:00Z"
    cluster.is_token_refused = way == "token refused"
    writer.end()
    ends = [(fact["reason"], fact["lost"]) for fact in cluster.facts("end")]
    known = {"only this pod": [], "token refused": [(LOST_RIGHTS, True)]}
    assert ends == known.get(way, [(REMOVED_BY_OTHERS, False)])


def test_suspension_by_the_limit_ends_the_requests(cluster: RecordedCluster) -> None:
    start = {"kind": "start", "time": CREATED, "requests": {"cpu": 2.0}}
    cluster.notes = to_notes([start])
    writer = cluster.writer()
    writer.look()
    cluster.now = CREATED + 3600
    cluster.notes |= to_notes([{"kind": "requests", "time": cluster.now, "requests": NO_REQUESTS}])
    writer.look()
    cluster.now = CREATED + 7200
    cluster.notes |= to_notes([{"kind": "end", "time": cluster.now, "reason": "removed"}])
    writer.end()
    assert fold(cluster.facts(), "demo", 1).row.cpu == pytest.approx(2.0)


def requesting(cpu: str, **more: str) -> dict[str, Any]:
    made = pod()
    made["spec"]["containers"][1]["resources"] = {"requests": {"cpu": cpu, "memory": "1Gi", **more}}
    return made


def test_hours_of_a_cluster_of_helm_are_those_of_its_pods(cluster: RecordedCluster) -> None:
    assert cluster.config_map
    cluster.config_map["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    cluster.pods, cluster.now = [requesting("500m", **{"nvidia.com/gpu": "2", "ephemeral-storage": "1Gi"})], CREATED
    writer = cluster.writer()
    writer.look()
    cluster.now += 3600
    writer.look()
    cluster.pods = [requesting("2")]
    cluster.writer().look()  # of another pod
    cluster.now += 3600
    cluster.notes = to_notes([{"kind": "end", "time": cluster.now, "reason": REMOVED}])
    writer.end()
    row = fold(cluster.facts(), "demo", 1).row
    assert (row.who, row.cpu, row.memory, row.gpus) == ("helm", pytest.approx(2.5), pytest.approx(2), pytest.approx(2))
    assert len(cluster.facts("requests")) == 2


@pytest.mark.parametrize("label", ["Helm", "tfk8s"])
def test_requests_that_commands_tell_are_theirs(cluster: RecordedCluster, label: str) -> None:
    assert cluster.config_map
    cluster.config_map["metadata"]["labels"] = {"app.kubernetes.io/managed-by": label}
    told = {"kind": "requests", "time": CREATED, "requests": {"cpu": 4.0, "price": 1.0, "currency": "EUR"}}
    cluster.notes, cluster.pods = to_notes([told]), [requesting("2")]
    cluster.writer().look()
    cluster.writer().look()
    assert cluster.facts("requests") == [told]


def test_end_of_a_script_is_written_once_by_two_pods(cluster: RecordedCluster) -> None:
    script = pod(**ended(2))
    script["metadata"]["labels"] = {"batch.kubernetes.io/job-name": "demo-script-4e9c21"}
    cluster.pods = [script]
    cluster.writer().look()
    cluster.writer().look()
    assert len(cluster.facts("script")) == 1


def test_events_are_written_once_and_again_with_another_count(cluster: RecordedCluster) -> None:
    cluster.pods = [pod()]
    happened = {
        "metadata": {"uid": "u", "creationTimestamp": "2026-11-28T05:29:54Z"}, "reason": "Killing", "count": 1,
        "involvedObject": {"kind": "Pod", "name": "demo-my-ps-1234-2"},
    }  # fmt: skip
    cluster.events = [happened]
    writer = cluster.writer()
    for count in (1, 1, 2):
        happened["count"] = count
        writer.look()
        cluster.now += 100
    cluster.writer().look()  # of another pod
    lines = (cluster.path / "events.jsonl").read_text().splitlines()
    assert [(event["about"], event["count"]) for event in map(json.loads, lines)] == [("My_ps/2", 1), ("My_ps/2", 2)]


def test_volume_that_can_not_be_written_is_told_once(cluster: RecordedCluster) -> None:
    (cluster.volume / FOLDER).write_text("")  # no folder
    writer = cluster.writer()
    writer.start()
    wait_until(lambda: cluster.said, "the failure", 10)
    writer.end()
    assert len(cluster.said) == 1
    assert cluster.said[0].startswith("error: the history is not written: ")


def test_volume_that_can_not_be_written_ends_the_pod(cluster: RecordedCluster) -> None:
    (cluster.volume / FOLDER).write_text("")  # no folder
    writer = cluster.writer()
    writer.start()
    assert writer.wait() == "Not a directory"


def test_volume_that_could_be_written_is_tried_for_a_minute(
    cluster: RecordedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> None:
        cluster.now += 30
        looks.pop()
        raise OSError(errno.ENOSPC, "No space left on device")

    looks = [1, 2, 3]
    monkeypatch.setattr("tfk8s.task.lifetime.record.record_writer.INTERVAL", 0.0)
    writer = cluster.writer()
    begun = writer.look
    monkeypatch.setattr(writer, "look", lambda: look() if cluster.path.exists() else begun())
    writer.start()
    assert writer.wait() == "No space left on device"
    assert looks == []


def test_an_api_server_that_is_away_ends_no_pod(cluster: RecordedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, failing = cluster.get, [True] * 3

    def get(item: RemovableObject) -> Answer:
        if failing:
            failing.pop()
            raise NoAnswer("timed out")
        return answers(item)

    monkeypatch.setattr(cluster, "get", get)
    monkeypatch.setattr("tfk8s.task.lifetime.record.record_writer.INTERVAL", 0.0)
    writer = cluster.writer()
    writer.start()
    wait_until(lambda: cluster.said[-1:] == ["the history is written again"], "an answer", 10)
    cluster.notes = to_notes([{"kind": "end", "time": cluster.now, "reason": REMOVED}])
    writer.end()
    assert [fact["kind"] for fact in cluster.facts()] == ["start", "end"]


def test_without_a_cluster_the_pod_ends_with_success(cluster: RecordedCluster) -> None:
    cluster.config_map = None
    writer = cluster.writer()
    writer.start()
    assert writer.wait() == ""


def test_volume_that_hangs_delays_nobody(cluster: RecordedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr("tfk8s.task.lifetime.record.record_writer.LAST_LOOK", 0.1)
    writer = cluster.writer()
    monkeypatch.setattr(writer, "look", lambda: released.wait(10))
    writer.start()
    writer.end()  # returns
    released.set()


def in_signal(cluster: RecordedCluster, stopper: threading.Thread) -> Callable[[], object]:
    """Return what the next log waits for: the signal of the end."""

    def stop() -> None:
        cluster.before_log = lambda: None
        stopper.start()
        wait_until(lambda: any(one.name == "tfk8s-last-record" for one in threading.enumerate()), "the signal", 10)

    return stop


def test_signal_in_a_look_tells_no_requests_of_the_pods_that_helm_has_left(cluster: RecordedCluster) -> None:
    assert cluster.config_map
    cluster.config_map["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    second = requesting("2")
    second["metadata"] |= {"name": "demo-my-ps-1234-3", "labels": {"apps.kubernetes.io/pod-index": "3"}}
    cluster.pods = [requesting("2"), second]
    writer = cluster.writer()
    writer.look()
    told, cluster.pods, stopper = cluster.facts("requests"), [second], threading.Thread(target=writer.end)
    cluster.before_log = in_signal(cluster, stopper)
    writer.start()
    wait_until(lambda: stopper.ident is not None, "the look", 10)
    stopper.join()
    assert [fact["requests"]["cpu"] for fact in told] == [4.0]
    assert cluster.facts("requests") == told


def test_signal_in_a_look_loses_no_log(cluster: RecordedCluster) -> None:
    """The look in which the signal comes leaves the end, and the logs that it has not read, to the last one."""
    second = pod()
    second["metadata"] |= {"name": "demo-my-ps-1234-3", "labels": {"apps.kubernetes.io/pod-index": "3"}}
    cluster.pods = [pod(), second]
    cluster.logs = {item["metadata"]["name"]: ["2026-11-28T05:30:00.1Z one"] for item in cluster.pods}
    cluster.notes = to_notes([{"kind": "end", "time": cluster.now, "reason": REMOVED}])
    writer = cluster.writer()
    stopper = threading.Thread(target=writer.end)
    cluster.before_log = in_signal(cluster, stopper)
    writer.start()
    wait_until(lambda: stopper.ident is not None, "the look", 10)
    stopper.join()
    assert [end["reason"] for end in cluster.facts("end")] == [REMOVED]
    assert cluster.kept_log("My_ps-2") == cluster.kept_log("My_ps-3") == ["2026-11-28T05:30:00.1Z 0 one"]


@pytest.mark.parametrize("failing", ["pods", "events"])
def test_a_last_look_that_fails_tells_the_end(
    cluster: RecordedCluster, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, items = cluster.writer(), cluster.items
    writer.look()

    def fail(resource: str, selector: str = "") -> Iterator[dict[str, Any]]:
        if resource == failing:
            raise NoAnswer("timed out")
        yield from items(resource, selector)

    monkeypatch.setattr(cluster, "items", fail)
    cluster.notes = to_notes([{"kind": "end", "time": cluster.now, "reason": REMOVED}])
    writer.end()
    assert [end["reason"] for end in cluster.facts("end")] == [REMOVED]
    assert cluster.said == ["error: the history is not written: timed out"]
