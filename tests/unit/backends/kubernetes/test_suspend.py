"""Suspended clusters, and commands that are killed between two requests."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes import apply, suspend
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.workloads import deployed, suspension
from tfk8s.core.job_file.mappings import IdleLimits
from tfk8s.core.lifetime import SUSPENDED, Suspension
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.render import manifests
from tfk8s.render.pods import Object

PS = Job(name="ps", tasks=2)
SERVERS = job_file("demo", Job(name="worker", tasks=3), PS, image="tf:1", namespace="ns")
PROGRAMS = job_file("demo", Job(name="worker", tasks=3, program=Program(("a",))), PS, image="tf:1", namespace="ns")
MIXES = pytest.mark.parametrize("job_file", [SERVERS, PROGRAMS], ids=["servers", "programs"])


class Killed(BaseException):
    """The process of a command gets SIGKILL."""


class Store:
    """An API server with the objects of one cluster, whose client dies before its writes are used up."""

    context, namespace = "test", "ns"

    def __init__(self, job_file: JobFile) -> None:
        objects = [copy.deepcopy(item) for item in render.objects(job_file, "ns")]
        for item in objects:
            item["metadata"] |= {"uid": item["metadata"]["name"], "namespace": "ns"}
        self.objects = {paths.path(item, "ns"): item for item in objects}
        self.writes_left, self.applies = 1000, True

    @property
    def client(self) -> Any:
        return self

    @property
    def tasks(self) -> dict[str, int | bool]:
        """The replicas of StatefulSets, and whether Jobs run."""
        found = filter(manifests.has_tasks, self.objects.values())
        return {
            item["metadata"]["name"]: not item["spec"].get("suspend", False)
            if item["kind"] == "Job"
            else item["spec"]["replicas"]
            for item in found
        }

    @property
    def cluster(self) -> deployed.DeployedCluster:
        return deployed.describe(list(filter(manifests.has_tasks, self.objects.values())))

    @property
    def whole_cluster(self) -> deployed.DeployedCluster:
        kinds = ("StatefulSet", "Job")
        return deployed.describe([item for item in self.objects.values() if item["kind"] in kinds])

    def find(self, path: str) -> Object | None:
        return copy.deepcopy(self.objects.get(path))

    def get(self, path: str, query: object) -> Object:
        return {"items": [item for key, item in self.objects.items() if key.rpartition("/")[0] == path]}

    def delete_all(self, path: str, query: object) -> None:
        pass

    def send(self, method: str, path: str, query: Any = None, body: Any = None, content_type: str = "") -> Object:
        if method == "POST":  # a dry run of pods
            return {}
        self._write()
        if method == "DELETE":
            return self.objects.pop(path)
        item = self.objects[path]
        for part, change in body.items():
            _merge(item.setdefault(part, {}), change)
        return copy.deepcopy(item)

    def apply(self, path: str, item: Object, *, dry_run: bool = False, force: bool = False) -> Object:
        assert self.applies
        before = self.objects.get(path, item)
        notes = {**before["metadata"].get("annotations", {}), **item["metadata"].get("annotations", {})}
        made = {**copy.deepcopy(item), "metadata": {**before["metadata"], **item["metadata"]}}
        if notes:
            made["metadata"]["annotations"] = notes
        if "suspend" in before.get("spec", {}):  # belongs to another manager of fields
            made["spec"]["suspend"] = before["spec"]["suspend"]
        if not dry_run:
            self._write()
            self.objects[path] = made
        return copy.deepcopy(made)

    def _write(self) -> None:
        if not self.writes_left:
            raise Killed
        self.writes_left -= 1


def _merge(target: Object, change: Object) -> None:
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        elif value is None:
            target.pop(key, None)
        else:
            target[key] = value


def suspended_tasks(job_file: JobFile) -> dict[str, int | bool]:
    return {f"demo-{job.name}": False if job.program else 0 for job in job_file.jobs}


def test_a_suspended_cluster_keeps_its_numbers_of_tasks() -> None:
    store = Store(PROGRAMS)
    before = store.tasks
    assert suspend.suspend(store.client, store.cluster, "jo")
    assert store.tasks == suspended_tasks(PROGRAMS)
    cluster = store.cluster
    assert cluster.suspended is not None
    assert (cluster.suspended.by, [str(task) for task in cluster.tasks]) == ("jo", list(map(str, PROGRAMS)))
    assert not suspend.suspend(store.client, store.cluster, "another")
    assert store.cluster.suspended == cluster.suspended
    assert suspend.resume(store.client, store.cluster)
    assert (store.tasks, store.cluster.suspended) == (before, None)
    assert not suspend.resume(store.client, store.cluster)


def writes_of(job_file: JobFile, verb: str) -> int:
    store = Store(job_file)
    suspend.suspend(store.client, store.cluster, "jo") if verb == "resume" else None
    left = store.writes_left
    command(store, verb, job_file)
    return left - store.writes_left


def command(store: Store, verb: str, job_file: JobFile) -> None:
    if verb == "suspend":
        suspend.suspend(store.client, store.cluster, "jo")
    elif verb == "resume":
        suspend.resume(store.client, store.cluster)
    else:
        apply.apply(store.client, "ns", "demo", render.objects(job_file, "ns"))


@MIXES
@pytest.mark.parametrize("killed", ["suspend", "resume"])
@pytest.mark.parametrize("following", ["suspend", "resume", "up"])
def test_the_next_command_finishes_what_a_killed_one_has_left(job_file: JobFile, killed: str, following: str) -> None:
    writes = writes_of(job_file, killed)
    assert writes >= 3
    for survived in range(1, writes):
        store = Store(job_file)
        before = store.tasks
        if killed == "resume":
            suspend.suspend(store.client, store.cluster, "jo")
        store.writes_left = survived
        with pytest.raises(Killed):
            command(store, killed, job_file)
        assert store.cluster.suspended, "the wish stands until the end"
        store.writes_left = 1000
        command(store, following, job_file)
        assert store.tasks == (suspended_tasks(job_file) if following == "suspend" else before)
        assert (store.cluster.suspended is not None) == (following == "suspend")


@MIXES
def test_a_suspension_is_no_change(job_file: JobFile) -> None:
    store = Store(job_file)
    suspend.suspend(store.client, store.cluster, "jo")
    assert not apply.apply(store.client, "ns", "demo", render.objects(job_file, "ns"), dry_run=True)
    assert store.tasks == suspended_tasks(job_file)


def idle(job_file: JobFile) -> Store:
    """Return a cluster that the Job of its limits has suspended."""
    store = Store(job_file)
    wish = Suspension(1_700_000_000.0, "tfk8s", {"worker": 3, "ps": 2}, 1800.0)
    for item in store.objects.values():
        if item["kind"] == "StatefulSet":
            item["spec"]["replicas"] = 0
        elif manifests.is_program(item):
            item["spec"]["suspend"] = True
        elif item["kind"] == "Job":
            item["metadata"]["annotations"][SUSPENDED] = wish.to_text()
    return store


@pytest.mark.parametrize("jobs", [SERVERS.jobs, PROGRAMS.jobs], ids=["servers", "programs"])
@pytest.mark.parametrize("verb", ["resume", "up", "up with other limits"])
def test_a_cluster_that_its_own_job_has_suspended_is_resumed(jobs: tuple[Job, ...], verb: str) -> None:
    limits = IdleLimits(suspend=1800)
    job_file = replace(SERVERS, jobs=jobs, idle=limits)
    store, before = idle(job_file), Store(job_file).tasks
    assert store.whole_cluster.suspended == Suspension(1_700_000_000.0, "tfk8s", {"worker": 3, "ps": 2}, 1800.0)
    assert [str(task) for task in store.whole_cluster.tasks] == list(map(str, job_file))
    assert not suspend.suspend(store.client, store.whole_cluster, "jo")
    if verb == "resume":
        assert suspend.resume(store.client, store.whole_cluster)
    else:
        other = replace(job_file, idle=limits if verb == "up" else 60)
        apply.apply(store.client, "ns", "demo", render.objects(other, "ns"))
    assert (store.tasks, store.whole_cluster.suspended) == (before, None)


def test_a_cluster_of_helm_that_its_own_job_has_suspended_keeps_helms_fields() -> None:
    job_file = replace(SERVERS, idle=IdleLimits(suspend=1800))
    store = idle(job_file)
    for item in store.objects.values():
        item["metadata"]["labels"][manifests.MANAGED_BY] = "Helm"
    store.applies = False
    assert suspend.resume(store.client, store.whole_cluster)
    assert (store.tasks, store.whole_cluster.suspended) == (Store(job_file).tasks, None)


@pytest.mark.parametrize("ended", [0, 1])
def test_a_cluster_in_a_queue_gives_the_quota_back_that_an_ended_pod_would_keep(ended: int) -> None:
    store = Store(replace(PROGRAMS, queue="gold"))
    before = store.tasks
    workload = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/demo"
    store.objects[workload] = {"kind": "Workload", "metadata": {"name": "demo"}, "status": {}}
    for _ in range(ended):
        store.objects["/api/v1/namespaces/ns/pods/demo-worker-0"] = {
            "kind": "Pod", "metadata": {"name": "demo-worker-0"}, "status": {"phase": "Succeeded"}
        }  # fmt: skip
    assert suspend.suspend(store.client, store.cluster, "jo")
    assert (workload in store.objects) is (not ended)  # Kueue deletes the Workload of no pod itself
    assert suspend.resume(store.client, store.cluster)
    assert store.tasks == before


def test_a_cluster_of_helm_is_refused_unless_nothing_would_change() -> None:
    store = Store(SERVERS)
    for item in store.objects.values():
        item["metadata"]["labels"][manifests.MANAGED_BY] = "Helm"
        item["metadata"].setdefault("annotations", {})["meta.helm.sh/release-name"] = "mine"
    with pytest.raises(InvalidInput, match='was installed by Helm, as release "mine"'):
        suspend.suspend(store.client, store.cluster, "jo")
    assert not suspend.resume(store.client, store.cluster)
    assert store.writes_left == 1000


def test_an_annotation_of_somebody_else_is_named_with_the_cure() -> None:
    item = Store(SERVERS).objects["/apis/apps/v1/namespaces/ns/statefulsets/demo-ps"]
    item["metadata"]["annotations"][SUSPENDED] = "x"
    with pytest.raises(ClusterError) as caught:
        suspension.read([item])
    assert str(caught.value) == f"the annotation {SUSPENDED} of statefulset demo-ps is not as tfk8s makes it"
    assert caught.value.help == f"kubectl annotate -n ns statefulset demo-ps {SUSPENDED}- removes it; then `tfk8s up`"
