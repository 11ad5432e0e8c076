"""`up` with `max_duration` and `idle`: rights first, a Job that has ended again, limits that are taken back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes import apply
from tfk8s.backends.kubernetes.api_server import errors
from tfk8s.backends.kubernetes.pods.pod_events import PodEvents
from tfk8s.backends.kubernetes.workloads import deployed, lifetime
from tfk8s.core.job_file.mappings import IdleLimits, SharedHistory
from tfk8s.core.lifetime import NO_LIMITS, RENEWED, Limits
from tfk8s.core.plan import Action
from tfk8s.errors import NoSuchCluster
from tfk8s.render.pods import Object


class ObjectStore:
    """An API server: keeps what is applied, and refuses what a test wants."""

    context, namespace = "test", "ns"

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.refused = ""  # the part of a path
        self.writes: list[str] = []

    def find(self, path: str) -> Object | None:
        return self.objects.get(path)

    def get(self, path: str, query: dict[str, str]) -> Object:
        terms = dict(term.split("=") for term in query["labelSelector"].split(","))
        found = [item for key, item in self.objects.items() if key.rpartition("/")[0] == path]
        return {"items": [item for item in found if terms.items() <= item["metadata"]["labels"].items()]}

    def apply(self, path: str, item: Object, *, dry_run: bool = False, force: bool = False) -> Object:
        if self.refused and self.refused in path:
            message = f'User "jo" cannot patch resource "{self.refused}" in API group "" in the namespace "ns"'
            raise errors.from_response(403, json.dumps({"message": message}).encode(), "test")
        if dry_run and "/rolebindings/" in path and path.replace("rolebindings", "roles") not in self.objects:
            raise errors.from_response(404, b"{}", "test")
        more = {"uid": f"uid of {path}", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"}
        made = {**item, "metadata": {**item["metadata"], **more}}
        if not dry_run:
            self.writes.append(path.rpartition("/")[2])
            self.objects[path] = made
        return made

    def send(self, method: str, path: str, *_: object) -> Object:
        if method == "POST":  # a dry run of pods
            return {}
        assert method == "DELETE"
        self.writes.append(f"delete {path.rpartition('/')[2]}")
        return self.objects.pop(path, {})

    def delete_all(self, path: str, query: object) -> None:
        self.send("DELETE", path, query)

    def up(self, *, dry_run: bool = False, **settings: Any) -> list[tuple[Action, str, str]]:
        objects = render.objects(job_file("demo", worker=1, image="tf:1", **settings))
        client: Any = self
        lifetime.require_rights(client, "ns", objects)
        changes = apply.apply(client, "ns", "demo", objects, dry_run=dry_run).changes
        return [(change.action, change.kind, change.name) for change in changes]

    def job(self) -> Object:
        return next(item for path, item in self.objects.items() if "/jobs/" in path)


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore()


@pytest.mark.parametrize("resource", ["serviceaccounts", "roles", "rolebindings", "jobs"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_nothing_is_created_where_the_user_may_not_create_the_job_and_its_rights(
    store: ObjectStore, resource: str, dry_run: bool
) -> None:
    store.refused = resource
    with pytest.raises(errors.ApiError) as caught:
        store.up(idle=60, dry_run=dry_run)
    assert store.objects == {}
    assert str(caught.value) == (
        "max_duration, idle, drain: idle and history need a Job that may remove the cluster, and you can't create it: "
        f'"jo" may not patch {resource} in namespace "ns"'
    )
    assert str(caught.value.help).endswith("; or remove max_duration, idle, drain and history from the job file")


def test_the_account_owns_its_role_and_binding(store: ObjectStore) -> None:
    assert (Action.CREATE, "RoleBinding", "demo-lifetime") in store.up(idle=60, dry_run=True)
    store.up(idle=60)
    owned = {item["kind"]: item["metadata"]["ownerReferences"] for item in store.objects.values()
             if "ownerReferences" in item["metadata"]}  # fmt: skip
    account = "/api/v1/namespaces/ns/serviceaccounts/demo-lifetime"
    owner = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "demo-lifetime", "uid": f"uid of {account}"}
    assert owned == {"Role": [owner], "RoleBinding": [owner]}
    assert store.up(idle=60) == []


def test_a_job_that_has_removed_the_cluster_is_replaced(store: ObjectStore) -> None:
    store.up(idle=60)
    job = store.job()
    job["status"] = {"completionTime": "2026-01-01T00:00:00Z"}
    name = job["metadata"]["name"]
    store.writes = []
    assert store.up(idle=60, dry_run=True) == store.up(idle=60) == [(Action.CREATE, "Job", name)]
    assert [write for write in store.writes if name in write] == [f"delete {name}", name]


def test_other_limits_get_another_job_and_no_limits_none(store: ObjectStore) -> None:
    store.up(idle=60)
    first = store.job()["metadata"]["name"]
    store.up(idle=120)
    second = store.job()["metadata"]["name"]
    assert first != second
    changes = store.up()
    removed = [change for change in changes if change[0] is Action.REMOVE]
    assert removed == [
        (Action.REMOVE, "Job", second),
        (Action.REMOVE, "ServiceAccount", "demo-lifetime"),  # which owns the Role and the RoleBinding
        (Action.REMOVE, "NetworkPolicy", "demo-lifetime"),
    ]


@pytest.mark.parametrize("keeps_record", [True, False])
def test_the_record_of_another_user_stays_with_its_rights(store: ObjectStore, keeps_record: bool) -> None:
    store.up(history=SharedHistory(claim="past"))
    own = sorted(path for path in store.objects if "lifetime" in path)
    objects = render.objects(job_file("demo", worker=1, image="tf:1"))
    client: Any = store
    plan = apply.apply(client, "ns", "demo", objects, keeps_record=keeps_record)
    kept = sorted(path for path in store.objects if "lifetime" in path)
    if keeps_record:
        assert kept == own
    else:
        assert not any("/jobs/" in path or "/serviceaccounts/" in path for path in kept)
    assert bool(plan.changes) is not keeps_record


def test_limits_of_a_cluster(store: ObjectStore) -> None:
    store.up(max_duration=3600)
    assert lifetime.limits([store.job()]) == Limits(3600, None)
    assert lifetime.limits([]) == NO_LIMITS
    store.up(lease=900)
    assert lifetime.limits([store.job()]) == Limits(None, None, 900)
    store.up(idle=IdleLimits(suspend=60))
    assert lifetime.limits([store.job()]) == Limits(None, None, None, 60)


def test_a_renewal_is_no_change(store: ObjectStore) -> None:
    store.up(lease=900)
    path = "/api/v1/namespaces/ns/serviceaccounts/demo-lifetime"
    applied = store.apply

    def apply(path: str, item: Object, *, dry_run: bool = False, force: bool = False) -> Object:
        made = applied(path, item, dry_run=dry_run)
        if item["kind"] == "ServiceAccount":  # the API server keeps the fields of others
            made["metadata"]["annotations"] = {RENEWED: "now"}
        return made

    store.apply = apply  # type: ignore[method-assign]
    assert RENEWED not in store.objects[path]["metadata"].get("annotations", {})
    assert store.up(lease=900) == []


def test_a_namespace_that_is_being_deleted_is_no_lack_of_rights(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, item: Object, *, dry_run: bool = False) -> Object:
        raise errors.NamespaceTerminating("ns")

    monkeypatch.setattr(store, "apply", refuse)
    with pytest.raises(errors.NamespaceTerminating):
        store.up(lease=900)


FORBIDDEN = 'pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1'
QUOTA = (
    'has no pod: the namespace\'s quota "small" is used up (requested: pods=1, used: pods=1, limited: pods=1): ask for '
    "higher limits: the Job requests 10m of a core and 32Mi, with limits of 500m and 128Mi"
)
NO_IMAGE = (
    'has no running pod: image "tf:1" is not found: change jobs.worker.image (or image, for all jobs), or make it '
    "available to the nodes"
)


@pytest.mark.parametrize(
    ("state", "warnings", "problem"),
    [
        (None, [FORBIDDEN], QUOTA),
        (None, [], ""),
        ({"waiting": {"reason": "ErrImagePull", "message": "tf:1: not found"}}, [], NO_IMAGE),
        ({"waiting": {"reason": "ContainerCreating"}}, [], ""),
        ({"running": {}}, [FORBIDDEN], ""),
    ],
)
def test_status_says_why_the_limits_are_not_kept(
    store: ObjectStore, state: Object | None, warnings: list[str], problem: str
) -> None:
    store.up(max_duration=3600)
    job = store.job()
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    container = {"name": "lifetime", "state": state, "ready": True, "image": "tf:1"}
    pod = {
        "metadata": {"uid": "pod", "labels": {"batch.kubernetes.io/job-name": name}},
        "spec": {},
        "status": {"containerStatuses": [container]},
    }
    keepers = lifetime.keepers([job], [pod] if state else [])
    found = lifetime.limits_problem(keepers, {uid: PodEvents(warnings=warnings)})
    assert found == (f"Job {name} {problem}" if problem else "")


FULL = {"exitCode": 1, "message": "No space left on device\nmore"}


@pytest.mark.parametrize(
    ("history", "place"),
    [(SharedHistory(claim="past"), "claim past"), (SharedHistory(bucket="s3://team/past"), "bucket s3://team/past")],
)
@pytest.mark.parametrize(
    ("status", "warnings", "problem"),
    [
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": FULL}}, [], FULL),
        ({"state": {"terminated": FULL}}, [], FULL),
        ({"state": {"running": {}}, "lastState": {"terminated": FULL}}, [], ""),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, ["Multi-Attach error for volume"], "Multi-Attach"),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, [], ""),
    ],
)
def test_status_says_why_the_record_is_not_written_and_the_limits_are_kept_even_so(
    store: ObjectStore, status: Object, warnings: list[str], problem: object, history: SharedHistory, place: str
) -> None:
    store.up(max_duration=3600, history=history)
    jobs = [item for path, item in store.objects.items() if "/jobs/" in path]
    record = next(filter(lifetime.is_record, jobs))
    pod = {
        "metadata": {"uid": "pod", "labels": {"batch.kubernetes.io/job-name": record["metadata"]["name"]}},
        "spec": {},
        "status": {"containerStatuses": [{"name": "lifetime", "ready": False, "image": "tf:1", **status}]},
    }
    keepers = lifetime.keepers(jobs, [pod])
    found = lifetime.record(keepers, {"pod": PodEvents(warnings=warnings)})
    assert found
    assert found.place == place
    assert found.problem == "No space left on device" if problem == FULL else str(problem) in found.problem
    assert bool(found.problem) == bool(problem)
    assert lifetime.limits_problem(keepers, {}) == ""
    assert lifetime.limits(jobs) == Limits(3600, None)


def test_limits_are_not_kept_while_kueue_holds_their_job_back(store: ObjectStore) -> None:
    store.up(max_duration=3600)
    job = store.job()
    held = {**job, "spec": {**job["spec"], "suspend": True}}
    problem = lifetime.limits_problem([(held, None)], {})
    assert "has no pod: Kueue has suspended its Job, which is in no queue: have an administrator" in problem
    labels = {**job["metadata"]["labels"], "kueue.x-k8s.io/queue-name": "default"}
    held["metadata"] = {**job["metadata"], "labels": labels}
    assert lifetime.limits_problem([(held, None)], {}).endswith('queue "default" has not admitted it yet')


def test_the_end_of_a_cluster_is_told_for_as_long_as_its_pod_is_there(store: ObjectStore) -> None:
    labels = {"app.kubernetes.io/name": "tfk8s", "app.kubernetes.io/instance": "demo",
              "app.kubernetes.io/component": "cluster-lifetime"}  # fmt: skip
    reason = "after 30m without a session and a script (idle)"
    end = {"exitCode": 0, "message": reason, "finishedAt": "2026-01-02T00:00:00Z"}
    pod = {
        "metadata": {"labels": labels},
        "status": {"containerStatuses": [{"name": "lifetime", "state": {"terminated": end}}]},
    }
    store.objects["/api/v1/namespaces/ns/pods/demo-lifetime-0123abcd-x"] = pod
    assert lifetime.removal(store, "ns", "demo") == (reason, 1767312000.0)  # type: ignore[arg-type]
    with pytest.raises(NoSuchCluster) as caught:
        deployed.find(store, "ns", "demo")  # type: ignore[arg-type]
    assert str(caught.value) == (
        'there is no cluster "demo" in namespace "ns" of context "test"; '
        "tfk8s removed it after 30m without a session and a script (idle)"
    )
