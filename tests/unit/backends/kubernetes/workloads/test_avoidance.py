"""Starts away from nodes, with a StatefulSet's and a Job's controller that do what Kubernetes' do."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.errors import ApiError, from_response
from tfk8s.backends.kubernetes.pods import pod_status
from tfk8s.backends.kubernetes.workloads import avoidance
from tfk8s.backends.kubernetes.workloads.bad_nodes import Fault
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job
from tfk8s.render import manifests, placement
from tfk8s.render.pods import Object

ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}


class Killed(BaseException):
    """The process of a command gets SIGKILL."""


class Controllers:
    """An API server with one workload and its pods; the client dies before its writes are used up."""

    def __init__(self, program: bool = False, free: tuple[str, ...] = ("bad", "good"), forbidden: str = "") -> None:
        job = Job(name="worker", tasks=3, program=Program(("a",)) if program else None)
        (made,) = filter(manifests.has_tasks, render.objects(job_file("demo", job, image="tf:1", namespace="ns")))
        made["metadata"] |= {"namespace": "ns", "generation": 1}
        self.path, self.item, self.pods = paths.path(made, "ns"), made, dict[str, Object]()
        self.free, self.forbidden, self.writes_left, self.created = free, forbidden, 1000, 0
        self.writes, self.meanwhile = 0, dict[int, Callable[[], object]]()  # what others do before a write
        self.late: tuple[int, Object] | None = None  # a pod that the controller makes of an outdated StatefulSet
        made["metadata"]["resourceVersion"] = "0"
        if not program:
            self.item["spec"]["updateStrategy"] = ROLLING
            self._act()

    def get(self, path: str) -> Object:
        assert path == self.path
        if self.late:
            (index, item), self.late = self.late, None
            self._create(index, item)
        return copy.deepcopy(self.item)

    def find(self, path: str) -> Object:
        return self.get(path)

    def apply(self, path: str, item: Object, *, dry_run: bool = False) -> Object:
        """Apply, by the one manager that owns the template."""
        if dry_run:
            return item if "statefulsets" not in self.forbidden else self._refuse("statefulsets")
        self._write("statefulsets", item)
        metadata = copy.deepcopy(self.item["metadata"])
        strategy = {key: value for key, value in self.item["spec"].items() if key == "updateStrategy"}
        self.item = {**copy.deepcopy(item), "metadata": metadata, "status": self.item.get("status", {})}
        self.item["spec"] |= strategy
        self.change()
        return self.item

    def send(self, method: str, path: str, query: Any = None, body: Any = None, *_: object) -> Object:
        if query and "dryRun" in query:
            return {} if "pods" not in self.forbidden else self._refuse("pods")
        self._write("pods" if "/pods/" in path else "statefulsets", body)
        name = path.rpartition("/")[2]
        if method == "DELETE":
            del self.pods[name]
        elif path == self.path:
            self.item = _merged(self.item, body)
        elif name not in self.pods:
            raise from_response(404, b"{}", "test")
        else:
            self.pods[name] = _merged(self.pods[name], body)
        self.change()
        return self.item

    def change(self, **spec: Any) -> None:
        """Change the spec of the workload; the controllers act."""
        metadata = self.item["metadata"]
        metadata |= {
            "generation": metadata["generation"] + 1,
            "resourceVersion": str(int(metadata["resourceVersion"]) + 1),
        }
        self.item["spec"] |= spec
        self._act()

    def set_image(self, image: str) -> None:
        template = copy.deepcopy(self.item["spec"]["template"])
        template["spec"]["containers"][0]["image"] = image
        self.change(template=template)

    def list_pods(self) -> list[Object]:
        return list(self.pods.values())

    def delete(self, *indexes: int) -> Callable[[], None]:
        def delete() -> None:
            self._write("pods")
            for index in indexes:
                self.pods.pop(f"demo-worker-{index}", None)
            self._act()

        return delete

    def _write(self, resource: str, body: Object | None = None) -> None:
        if self.writes in self.meanwhile:
            self.meanwhile.pop(self.writes)()
        self.writes += 1
        version = (body or {}).get("metadata", {}).get("resourceVersion")
        if version not in (None, self.item["metadata"]["resourceVersion"]):
            raise from_response(409, b'{"reason": "Conflict"}', "test")
        if resource in self.forbidden:
            self._refuse(resource)
        self.writes_left -= 1
        if self.writes_left < 0:
            raise Killed

    def _refuse(self, resource: str) -> Object:
        message = f'User "jo" cannot patch resource "{resource}" in API group "" in the namespace "ns"'
        raise from_response(403, json.dumps({"message": message}).encode(), "test")

    def _act(self) -> None:
        """Act as the controllers."""
        spec = self.item["spec"]
        revision = self.revision(self.item)
        if self.item["kind"] == "StatefulSet":
            self.item["status"] = {
                "observedGeneration": self.item["metadata"]["generation"], "updateRevision": revision,
            }  # fmt: skip
            if spec["updateStrategy"]["type"] == "RollingUpdate":
                labels = {name: pod["metadata"]["labels"] for name, pod in self.pods.items()}
                self.pods = {
                    name: pod for name, pod in self.pods.items() if labels[name]["controller-revision-hash"] == revision
                }
        count = 0 if spec.get("suspend") else spec.get("replicas", 3)
        for name in list(self.pods)[count:]:
            del self.pods[name]
        for index in range(count):
            if f"demo-worker-{index}" not in self.pods and not (self.late and self.late[0] == index):
                self._create(index, self.item)

    @staticmethod
    def revision(item: Object) -> str:
        return str(hash(json.dumps(item["spec"]["template"], sort_keys=True)))

    def _create(self, index: int, item: Object) -> None:
        self.created += 1
        template, revision = copy.deepcopy(item["spec"]["template"]), self.revision(item)
        allowed = [node for node in self.free if node not in placement.avoided(template["spec"])]
        template["metadata"] |= {"name": f"demo-worker-{index}", "namespace": "ns", "uid": str(self.created)}
        template["metadata"]["labels"]["controller-revision-hash"] = revision
        template["spec"] |= {"nodeName": allowed[0]} if allowed else {}
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        self.pods[f"demo-worker-{index}"] = {**template, "status": {"conditions": [] if allowed else [unscheduled]}}

    @property
    def nodes(self) -> list[str]:
        """The nodes of the pods, by index."""
        return [self.pods[name]["spec"]["nodeName"] for name in sorted(self.pods)]

    @property
    def uids(self) -> list[str]:
        return [self.pods[name]["metadata"]["uid"] for name in sorted(self.pods)]


def _merged(old: Any, change: Any) -> Any:
    """Return the result of a JSON merge patch."""
    if not isinstance(change, dict) or not isinstance(old, dict):
        return copy.deepcopy(change)
    made = {key: value for key, value in old.items() if change.get(key, "") is not None}
    return made | {key: _merged(made.get(key, {}), value) for key, value in change.items() if value is not None}


def test_one_pod_of_a_stateful_set_starts_away_from_a_node() -> None:
    server: Any = Controllers()
    before = copy.deepcopy(server.item["spec"])
    assert (server.nodes, server.uids) == (["bad"] * 3, ["1", "2", "3"])
    avoidance.replace(server, server.item, ["bad"], server.list_pods, server.delete(1))
    assert (server.nodes, server.uids) == (["bad", "good", "bad"], ["1", "4", "3"])
    assert server.item["spec"] == before  # for `diff`, and for each later start
    assert placement.avoided_once(server.pods["demo-worker-1"]) == ["bad"]
    server.delete(1)()
    assert server.nodes == ["bad"] * 3


def test_all_pods_of_a_stateful_set_start_away_from_a_node() -> None:
    server: Any = Controllers()
    avoidance.replace(server, server.item, ["bad"], server.list_pods, server.delete(0, 1, 2))
    assert (server.nodes, server.uids) == (["good"] * 3, ["4", "5", "6"])


def test_a_pod_starts_anywhere_if_no_other_node_takes_it(caplog: pytest.LogCaptureFixture) -> None:
    server: Any = Controllers(free=("bad",))
    avoidance.replace(server, server.item, ["bad"], server.list_pods, server.delete(1))
    assert (server.nodes, server.uids) == (["bad"] * 3, ["1", "5", "3"])
    assert "demo-worker-1: no other node takes it now, so it may start on any" in caplog.text


@pytest.mark.parametrize("forbidden", ["pods", "statefulsets"])
def test_a_user_who_may_not_change_a_template_restarts_as_before(
    forbidden: str, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    server: Any = Controllers(forbidden=forbidden)
    server.item["spec"]["updateStrategy"] = ROLLING
    avoidance.replace(server, server.item, ["bad"], server.list_pods, lambda: server.pods.pop("demo-worker-1"))
    assert [*server.pods] == ["demo-worker-0", "demo-worker-2"]
    assert "the node can't be avoided: " in caplog.text


@pytest.mark.parametrize("writes", range(8))
def test_a_command_that_is_killed_costs_no_other_pod(writes: int) -> None:
    server: Any = Controllers()
    own = manifests.scaled(server.item, {})
    own["spec"].pop("updateStrategy")
    server.writes_left = writes
    try:
        avoidance.replace(server, server.item, ["bad"], server.list_pods, server.delete(1))
    except Killed:
        server.writes_left = 1000
        server.apply(server.path, own)  # the next `up`
        if avoidance.is_open(server.item):
            avoidance.recover(server, server.item, server.list_pods)
    assert (server.uids[0], server.uids[2], len(server.uids)) == ("1", "3", 3)
    assert placement.anywhere(server.item["spec"]["template"]) == server.item["spec"]["template"]
    assert server.item["spec"]["updateStrategy"] == ROLLING
    assert not avoidance.is_open(server.item)


def scaled(server: Controllers) -> None:
    server.change(replicas=5)


def suspended(server: Controllers) -> None:
    server.change(replicas=0)


def updated(server: Controllers) -> None:
    server.set_image("tf:2")


@pytest.mark.parametrize("change", [scaled, suspended, updated])
@pytest.mark.parametrize("write", range(6))
def test_a_change_of_others_meanwhile_stays(write: int, change: Callable[[Controllers], None]) -> None:
    other: Any = Controllers()
    change(other)
    server: Any = Controllers()
    server.meanwhile[write] = lambda: change(server)
    begin = copy.deepcopy(server.item)
    begin["spec"]["replicas"] = 0 if change is suspended else 3  # which it waits for
    avoidance.replace(server, begin, ["bad"], server.list_pods, server.delete(1))
    assert server.item["spec"] == other.item["spec"]
    assert not avoidance.is_open(server.item)
    made_of = {pod["metadata"]["labels"]["controller-revision-hash"] for pod in server.pods.values()}
    assert made_of <= {server.revision(server.item)}
    assert {pod["spec"]["containers"][0]["image"] for pod in server.pods.values()} <= {
        "tf:2" if change is updated else "tf:1"
    }


@pytest.mark.parametrize("writes", range(7))
def test_an_up_after_a_kill_leaves_no_pod_of_the_template_before(writes: int) -> None:
    server: Any = Controllers()
    server.writes_left = writes
    with contextlib.suppress(Killed):
        avoidance.replace(server, server.item, ["bad"], server.list_pods, server.delete(1))
    server.writes_left = 1000
    own = manifests.scaled(server.item, {})
    own["spec"].pop("updateStrategy")
    own["spec"]["template"]["spec"]["containers"][0]["image"] = "tf:2"
    server.apply(server.path, own)
    if avoidance.is_open(server.item):
        avoidance.recover(server, server.item, server.list_pods)
    assert [pod["spec"]["containers"][0]["image"] for pod in server.pods.values()] == ["tf:2"] * 3
    assert server.item["spec"]["updateStrategy"] == ROLLING


def test_a_pod_that_the_controller_makes_late_stays() -> None:
    server: Any = Controllers()

    def lose() -> None:
        server.late = (2, copy.deepcopy(server.item))
        del server.pods["demo-worker-2"]

    server.meanwhile[3] = lose  # before the template comes back
    avoidance.replace(server, server.item, ["bad"], server.list_pods, server.delete(1))
    assert (server.nodes, server.uids) == (["bad", "good", "good"], ["1", "4", "5"])


def test_a_pod_that_others_delete_meanwhile_does_no_harm() -> None:
    server: Any = Controllers()
    server.meanwhile[4] = lambda: server.pods.pop("demo-worker-1")  # before it gets its label
    avoidance.replace(server, server.item, ["bad"], server.list_pods, server.delete(1))
    assert (server.uids, server.item["spec"]["updateStrategy"]) == (["1", "5", "3"], ROLLING)


@pytest.mark.parametrize(
    "strategy", [{"type": "OnDelete"}, {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}]
)
def test_a_strategy_of_others_comes_back(strategy: Object) -> None:
    server: Any = Controllers()
    server.item["spec"]["updateStrategy"] = strategy
    assert not avoidance.is_open(server.item)
    avoidance.replace(server, server.item, ["bad"], server.list_pods, server.delete(1))
    assert server.item["spec"]["updateStrategy"] == strategy


def test_a_failure_at_the_end_restores_the_strategy(caplog: pytest.LogCaptureFixture) -> None:
    server: Any = Controllers()

    def forbid() -> None:
        server.forbidden = "pods"

    server.meanwhile[4] = forbid
    with pytest.raises(ApiError):
        avoidance.replace(server, server.item, ["bad"], server.list_pods, server.delete(1))
    assert server.item["spec"]["updateStrategy"] == ROLLING
    assert "OnDelete" not in caplog.text


@pytest.mark.parametrize("write", [3, 5])
def test_a_strategy_that_is_left_is_named(write: int, caplog: pytest.LogCaptureFixture) -> None:
    server: Any = Controllers()

    def forbid() -> None:
        server.forbidden = "statefulsets"

    server.meanwhile[write] = forbid
    with pytest.raises(ApiError):
        avoidance.replace(server, server.item, ["bad"], server.list_pods, server.delete(1))
    assert "demo-worker is left with OnDelete; `tfk8s up` puts it back" in caplog.text
    assert pod_status.is_on_delete(server.item)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"strategy": 1}', "[" * 100_000])
def test_a_foreign_note_of_the_strategy_is_no_error(text: str) -> None:
    server: Any = Controllers()
    server.item["metadata"]["annotations"] = {"tfk8s.dev/before-avoiding": text}
    server.change(updateStrategy={"type": "OnDelete"})
    avoidance.recover(server, server.item, server.list_pods)
    assert (server.uids, server.item["spec"]["updateStrategy"]) == (["1", "2", "3"], ROLLING)


def test_nodes_that_a_template_avoids_anyway_are_no_news() -> None:
    job = {"spec": {"template": placement.away_from({"metadata": {}, "spec": {}}, ["bad"])}}
    job["spec"]["template"]["metadata"] = {}  # by the job file
    faults = {"demo-worker-0": Fault("bad", "sees no GPUs"), "demo-worker-1": Fault("worse", "sees no GPUs")}
    assert avoidance.news(job, faults) == {"demo-worker-1": faults["demo-worker-1"]}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ApiError(403, "no")])
def test_no_job_stays_suspended(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    server: Any = Controllers(program=True)

    def fail() -> None:
        raise error

    server.meanwhile[1] = fail
    plain = manifests.scaled(server.item, {})
    with contextlib.suppress(KeyboardInterrupt):
        assert avoidance.create_job(server, server.path, plain, ["bad"], server.list_pods)
    assert not server.item["spec"].get("suspend")
    assert server.nodes == ["bad"] * 3


def test_the_place_of_each_of_many_pods_is_awaited() -> None:
    server: Any = Controllers(program=True)
    left = 40  # of the Job before

    def list_pods() -> list[Object]:
        nonlocal left
        left -= left > 0
        pods: list[Object] = copy.deepcopy(server.list_pods())
        ending = {**pods[0], "metadata": {**pods[0]["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
        return [*pods, *([ending] * left)]

    assert avoidance.create_job(server, server.path, manifests.scaled(server.item, {}), ["bad"], list_pods, 0.5)
    assert left == 0


def test_all_pods_of_a_job_avoid_a_node_and_those_of_the_next_job_do_not() -> None:
    server: Any = Controllers(program=True)
    plain = manifests.scaled(server.item, {})
    made = avoidance.create_job(server, server.path, plain, ["bad"], server.list_pods)
    assert made
    assert server.nodes == ["good"] * 3
    assert avoidance.without(made)["spec"]["template"] == plain["spec"]["template"]
    assert manifests.scaled(made, {}) == plain  # for `diff`, and for `restart`


def test_a_job_that_fits_no_other_node_is_not_made() -> None:
    server: Any = Controllers(program=True, free=("bad",))
    plain = manifests.scaled(server.item, {})
    assert avoidance.create_job(server, server.path, plain, ["bad"], server.list_pods) is None
