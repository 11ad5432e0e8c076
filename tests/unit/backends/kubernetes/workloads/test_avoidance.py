"""Starts away from nodes, with a StatefulSet's and a Job's controller that do what Kubernetes' do."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.errors import from_response
from tfk8s.backends.kubernetes.pods import pod_status
from tfk8s.backends.kubernetes.workloads import avoidance
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
        if not program:
            self.item["spec"]["updateStrategy"] = ROLLING
            self._act()

    def get(self, path: str) -> Object:
        assert path == self.path
        return self.item

    def apply(self, path: str, item: Object, *, dry_run: bool = False) -> Object:
        """Apply, by the one manager that owns the template."""
        if dry_run:
            return item if "statefulsets" not in self.forbidden else self._refuse("statefulsets")
        self._write("statefulsets")
        metadata = {**self.item["metadata"], "generation": self.item["metadata"]["generation"] + 1}
        strategy = {key: value for key, value in self.item["spec"].items() if key == "updateStrategy"}
        self.item = {**copy.deepcopy(item), "metadata": metadata, "status": self.item.get("status", {})}
        self.item["spec"] |= strategy
        self._act()
        return self.item

    def send(self, method: str, path: str, query: Any = None, body: Any = None, *_: object) -> Object:
        if query and "dryRun" in query:
            return {} if "pods" not in self.forbidden else self._refuse("pods")
        self._write("pods" if "/pods/" in path else "statefulsets")
        name = path.rpartition("/")[2]
        if method == "DELETE":
            del self.pods[name]
        elif path == self.path:
            self.item["metadata"]["generation"] += 1
            self.item["spec"] = _merged(self.item["spec"], body["spec"])
        else:
            self.pods[name] = _merged(self.pods[name], body)
        self._act()
        return self.item

    def find(self) -> list[Object]:
        return list(self.pods.values())

    def delete(self, *indexes: int) -> Callable[[], None]:
        def delete() -> None:
            self._write("pods")
            for index in indexes:
                del self.pods[f"demo-worker-{index}"]
            self._act()

        return delete

    def _write(self, resource: str) -> None:
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
        revision = str(hash(json.dumps(spec["template"], sort_keys=True)))
        if self.item["kind"] == "StatefulSet":
            self.item["status"] = {
                "observedGeneration": self.item["metadata"]["generation"], "updateRevision": revision,
            }  # fmt: skip
            if spec["updateStrategy"]["type"] == "RollingUpdate":
                labels = {name: pod["metadata"]["labels"] for name, pod in self.pods.items()}
                self.pods = {
                    name: pod for name, pod in self.pods.items() if labels[name]["controller-revision-hash"] == revision
                }
        for index in range(3 if not spec.get("suspend") else 0):
            if f"demo-worker-{index}" not in self.pods:
                self._create(index, revision)

    def _create(self, index: int, revision: str) -> None:
        self.created += 1
        template = copy.deepcopy(self.item["spec"]["template"])
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
    avoidance.replace(server, server.item, ["bad"], server.find, server.delete(1))
    assert (server.nodes, server.uids) == (["bad", "good", "bad"], ["1", "4", "3"])
    assert server.item["spec"] == before  # for `diff`, and for each later start
    assert placement.avoided_once(server.pods["demo-worker-1"]) == ["bad"]
    server.delete(1)()
    assert server.nodes == ["bad"] * 3


def test_all_pods_of_a_stateful_set_start_away_from_a_node() -> None:
    server: Any = Controllers()
    avoidance.replace(server, server.item, ["bad"], server.find, server.delete(0, 1, 2))
    assert (server.nodes, server.uids) == (["good"] * 3, ["4", "5", "6"])


def test_a_pod_starts_anywhere_if_no_other_node_takes_it(caplog: pytest.LogCaptureFixture) -> None:
    server: Any = Controllers(free=("bad",))
    avoidance.replace(server, server.item, ["bad"], server.find, server.delete(1))
    assert (server.nodes, server.uids) == (["bad"] * 3, ["1", "5", "3"])
    assert "demo-worker-1: no other node takes it now, so it may start on any" in caplog.text


@pytest.mark.parametrize("forbidden", ["pods", "statefulsets"])
def test_a_user_who_may_not_change_a_template_restarts_as_before(
    forbidden: str, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    server: Any = Controllers(forbidden=forbidden)
    server.item["spec"]["updateStrategy"] = ROLLING
    avoidance.replace(server, server.item, ["bad"], server.find, lambda: server.pods.pop("demo-worker-1"))
    assert [*server.pods] == ["demo-worker-0", "demo-worker-2"]
    assert "the node can't be avoided: " in caplog.text


@pytest.mark.parametrize("writes", range(8))
def test_a_command_that_is_killed_costs_no_other_pod(writes: int) -> None:
    server: Any = Controllers()
    own = manifests.scaled(server.item, {})
    own["spec"].pop("updateStrategy")
    server.writes_left = writes
    try:
        avoidance.replace(server, server.item, ["bad"], server.find, server.delete(1))
    except Killed:
        server.writes_left = 1000
        server.apply(server.path, own)  # the next `up`
        if pod_status.is_on_delete(server.item):
            avoidance.recover(server, server.item, server.find())
    assert (server.uids[0], server.uids[2], len(server.uids)) == ("1", "3", 3)
    assert placement.anywhere(server.item["spec"]["template"]) == server.item["spec"]["template"]
    assert server.item["spec"]["updateStrategy"] == ROLLING


def test_all_pods_of_a_job_avoid_a_node_and_those_of_the_next_job_do_not() -> None:
    server: Any = Controllers(program=True)
    plain = manifests.scaled(server.item, {})
    made = avoidance.create_job(server, server.path, plain, ["bad"], server.find)
    assert made
    assert server.nodes == ["good"] * 3
    assert avoidance.without(made)["spec"]["template"] == plain["spec"]["template"]
    assert manifests.scaled(made, {}) == plain  # for `diff`, and for `restart`


def test_a_job_that_fits_no_other_node_is_not_made() -> None:
    server: Any = Controllers(program=True, free=("bad",))
    plain = manifests.scaled(server.item, {})
    assert avoidance.create_job(server, server.path, plain, ["bad"], server.find) is None
