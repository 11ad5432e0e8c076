"""Changes of clusters that tfk8s refuses."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from fakes.stateful_sets import JOB_FILE, stateful_sets
from job_files import job_file

from tfk8s import polling, render
from tfk8s.backends.kubernetes import apply, deletion
from tfk8s.backends.kubernetes.api_server import errors, paths
from tfk8s.backends.kubernetes.workloads import deployed
from tfk8s.core.job_file.mappings import SharedHistory
from tfk8s.core.plan import Plan
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests
from tfk8s.render.pods import Object

WORKER = Job(name="worker")


RUNNING: Object = {"containerStatuses": [{"state": {"running": {}}}]}
ENDED: Object = {"containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}


class ReadOnlyClient:
    """An API server that has objects, and accepts no changes."""

    def __init__(self, *objects: Object) -> None:
        self.objects = objects

    def find(self, path: str) -> Object | None:
        return next((item for item in self.objects if path == paths.path(item, "ns")), None)

    def get(self, path: str, query: object) -> Object:
        return {"items": [item for item in self.objects if path == paths.collection(item["kind"], "ns")]}


class TerminatingNamespace(ReadOnlyClient):
    """An API server in whose namespace nothing can be created any more."""

    def apply(self, path: str, item: Object, *, dry_run: bool = False, force: bool = False) -> Object:
        if found := self.find(path):
            return found
        message = f"{path} is forbidden: unable to create new content in namespace ns because it is being terminated"
        raise errors.from_response(403, message.encode(), "c")


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("existing", [0, 1, 100])
def test_a_namespace_that_is_being_deleted_is_refused(existing: int, dry_run: bool) -> None:
    objects = render.objects(JOB_FILE, "ns")
    client: Any = TerminatingNamespace(*objects[:existing])
    with pytest.raises(errors.NamespaceTerminating, match='namespace "ns" is being deleted: nothing can be created'):
        apply.apply(client, "ns", "demo", objects, dry_run=dry_run)


@pytest.mark.parametrize(
    "change",
    [
        lambda client: apply.apply(client, "ns", "demo", render.objects(JOB_FILE)),
        lambda client: apply.scale(client, deployed.describe(client.objects), {"My_ps": 3}),
        lambda client: deletion.delete(client, "ns", "demo"),
    ],
    ids=["up", "scale", "down"],
)
def test_a_cluster_that_helm_installed_is_left_to_helm(change: Callable[[Any], object]) -> None:
    client = ReadOnlyClient(*stateful_sets())
    for item in client.objects:
        item["metadata"]["labels"][manifests.MANAGED_BY] = "Helm"
        item["metadata"]["annotations"] |= {"meta.helm.sh/release-name": "digits"}
    with pytest.raises(InvalidInput) as caught:
        change(client)
    assert str(caught.value) == 'cluster "demo" was installed by Helm, as release "digits"'
    arguments = "digits --namespace ns"
    assert caught.value.help == f"`helm upgrade {arguments} …` changes it, `helm uninstall {arguments}` removes it"


class PretendedServer(ReadOnlyClient):
    """An API server that makes nothing, but tells what it would make."""

    def apply(self, path: str, item: Object, *, dry_run: bool) -> Object:
        assert dry_run
        assert path.endswith("-new") or "lifetime" in path  # not the object itself, whose fields of Helm would stay
        return {**item, "metadata": {**item["metadata"], "uid": "of the preview"}}


def by_helm(item: Object) -> Object:
    metadata = item["metadata"]
    metadata |= {"uid": f"of {metadata['name']}", "namespace": "ns"}
    metadata["labels"] |= {manifests.MANAGED_BY: "Helm", "helm.sh/chart": "tfk8s-0.0.9"}
    metadata["annotations"] = {**metadata.get("annotations", {}), "meta.helm.sh/release-name": "digits"}
    if item["metadata"]["name"] == "demo-master":
        item["spec"] |= {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]}
    return item


def test_diff_compares_a_cluster_that_helm_installed() -> None:
    settings: dict[str, Any] = {"image": "tf:1", "idle": 60}
    labelled = job_file("demo", Job(name="worker", labels={"team": "a"}), Job(name="ps"), drain="idle", **settings)
    client: Any = PretendedServer(*map(by_helm, render.objects(labelled, "ns")))
    same = apply.apply(client, "ns", "demo", render.objects(labelled, "ns"), dry_run=True)
    assert (same.changes, bool(same.refusal)) == ((), True)
    file = job_file("demo", WORKER, Job(name="ps"), **settings)
    plan = apply.apply(client, "ns", "demo", render.objects(file, "ns"), dry_run=True)
    changed = [(change.kind, change.name) for change in plan.changes if "lifetime" not in change.name]
    assert changed == [
        ("StatefulSet", "demo-worker"), ("PodDisruptionBudget", "demo-worker"), ("PodDisruptionBudget", "demo-ps"),
    ]  # fmt: skip
    fields = [str(field) for change in plan.changes for field in change.fields]
    assert "spec.template.metadata.labels.team: a → none" in fields
    assert "installed by Helm" in plan.refusal


def test_tasks_with_variables_go_by_scale_only() -> None:
    two, one = (job_file("demo", Job(name="ps", tasks=tasks), WORKER, image="tf:1") for tasks in (2, 1))
    objects = render.objects(two, "ns")
    with pytest.raises(InvalidInput) as caught:
        apply.apply(ReadOnlyClient(*objects), "ns", "demo", render.objects(one, "ns"))
    assert str(caught.value) == "ps/1 may hold variables, which would be lost"
    assert caught.value.help == "save them; then run: tfk8s scale demo ps=1 --yes"


MORE: Object = {"status": {**ENDED, "comment": "more pods follow on the next page"}}


class DeletingClient(ReadOnlyClient):
    """An API server whose pods have the next of some statuses at each list, and are gone at last; it notes deletes."""

    def __init__(self, *statuses: list[Object]) -> None:
        super().__init__(*render.objects(JOB_FILE, "ns"))
        self.statuses = list(statuses)
        self.deletes: list[tuple[str, int | None]] = []
        self.queries: list[str] = []

    def get(self, path: str, query: object) -> Object:
        if path == paths.collection("Pod", "ns"):
            statuses = self.statuses.pop(0) if self.statuses else []
            items = [
                {"metadata": {"name": f"demo-{number}"}, "spec": {"restartPolicy": "Never"}, "status": status}
                for number, status in enumerate(statuses)
            ]
            return {"items": items, "metadata": {"continue": "more"} if MORE["status"] in statuses else {}}
        return super().get(path, query)

    def delete_all(self, path: str, query: Object) -> None:
        self.send("DELETE", path, query)

    def send(self, method: str, path: str, query: Object) -> None:
        assert method == "DELETE"
        self.deletes.append((path.rpartition("/")[2], query.get("gracePeriodSeconds")))
        self.queries += [query["labelSelector"]] if "labelSelector" in query else []


@pytest.mark.parametrize(
    ("statuses", "graces"),
    [
        ([[RUNNING, ENDED], [RUNNING, ENDED], [ENDED, ENDED], [ENDED]], [None, 0]),
        ([[RUNNING], [RUNNING]], [None]),
        ([[ENDED, ENDED], [ENDED]], [0]),
        ([[ENDED, MORE["status"]], [ENDED]], [None, 0]),
        ([], [None]),
    ],
)
def test_down_waits_for_kubelet_only_while_a_container_runs(statuses: list[Any], graces: list[int | None]) -> None:
    client = DeletingClient(*statuses)
    deletion.delete(client, "ns", "demo")
    kinds = [kind for kind, _ in client.deletes]
    assert [grace for kind, grace in client.deletes if kind == "pods"] == graces
    assert not client.statuses
    assert kinds[-1] == "networkpolicies"


def test_a_signal_ends_pods_at_once_that_save(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class SavingClient(DeletingClient):
        def get(self, path: str, query: object) -> Object:
            answer = super().get(path, query)
            for item in answer["items"] if path == paths.collection("Pod", "ns") else []:
                item["spec"]["terminationGracePeriodSeconds"] = 33
                if len(self.statuses) == 2:
                    signal.raise_signal(signal.SIGINT)
            return answer

    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)
    client = SavingClient([RUNNING], [RUNNING], [RUNNING], [RUNNING])
    deletion.delete(client, "ns", "demo")
    assert [grace for kind, grace in client.deletes if kind == "pods"] == [None, 1]
    wait = 'the pods of "demo" to end, at most 33 s: demo-0; Ctrl-C ends them at once'
    assert caplog.messages == [f"waiting for {wait}"]


def test_limits_are_kept_until_nothing_is_left_that_costs() -> None:
    """Also if this process is killed while it waits for the record, or between two requests."""
    objects = render.objects(job_file("demo", WORKER, image="tf:1", idle=60, history=SharedHistory(claim="past")), "ns")
    record, limits = (item["metadata"]["name"] for item in objects if item["kind"] == "Job")
    client: Any = DeletingClient()
    client.objects = objects
    deletion.delete(client, "ns", "demo", end_record=lambda *_: client.deletes.append(("the record", None)))
    kinds = [kind for kind, _ in client.deletes]
    assert kinds[:6] == ["the record", "jobs", "statefulsets", record, limits, "demo-lifetime"]
    assert client.queries[:2] == [
        "app.kubernetes.io/name=tfk8s,app.kubernetes.io/instance=demo,app.kubernetes.io/component!=cluster-lifetime",
        "app.kubernetes.io/name=tfk8s,app.kubernetes.io/instance=demo",
    ]


class Namespace:
    """An API server with a running cluster, which answers a dry run of pods with a message."""

    def __init__(self, objects: list[Object], code: int, message: str) -> None:
        self.objects = {paths.path(item, "ns"): item for item in objects}
        for number, item in enumerate(objects):
            item["metadata"] |= {"uid": f"uid-{number}", "namespace": "ns"}
        self.code, self.message = code, message
        self.pods: list[Object] = []
        self.writes: list[str] = []

    def find(self, path: str) -> Object | None:
        return self.objects.get(path)

    def get(self, path: str, query: object) -> Object:
        return {"items": [item for key, item in self.objects.items() if key.rpartition("/")[0] == path]}

    def apply(self, path: str, item: Object, *, dry_run: bool = False, force: bool = False) -> Object:
        if not dry_run:
            self.writes.append(path)
        return {**item, "metadata": {**self.objects.get(path, item)["metadata"], **item["metadata"]}}

    def send(self, method: str, path: str, query: Object, body: Object) -> Object:
        assert (method, path, query) == ("POST", "/api/v1/namespaces/ns/pods", {"dryRun": "All"})
        self.pods.append(body)
        if self.code:
            text = json.dumps({"message": self.message.replace("POD", f'pods "{body["metadata"]["generateName"]}"')})
            raise errors.from_response(self.code, text.encode(), "test", path=path)
        return body

    def delete_all(self, *_: object) -> None:
        self.writes.append("delete pods")


TOO_MUCH = "POD is forbidden: maximum cpu usage per Container is 1, but limit is 2"


def objects(cpu: str, queue: str | None = None) -> list[Object]:
    worker = Job(name="worker", tasks=2, cpu=Quantity.parse(cpu))
    return render.objects(job_file("demo", worker, image="tf:1", queue=queue), "ns")


def up(client: Any, cpu: str, queue: str | None = None, *, dry_run: bool = False) -> Plan:
    return apply.apply(client, "ns", "demo", objects(cpu, queue), dry_run=dry_run)


def running(code: int = 0, message: str = "", queue: str | None = None) -> Namespace:
    return Namespace(objects("1", queue), code, message)


def test_a_cluster_in_a_queue_is_not_scaled() -> None:
    client: Any = ReadOnlyClient(*stateful_sets())
    with pytest.raises(InvalidInput, match='"demo" can\'t be scaled in queue "gold": Kueue admits all') as caught:
        apply.scale(client, deployed.describe(client.objects), {"My_ps": 3})
    assert caught.value.help == "change the numbers in the job file, run tfk8s down demo, then tfk8s up"


def test_pods_that_the_namespace_refuses_end_no_running_task() -> None:
    client = running(403, TOO_MUCH)
    with pytest.raises(InvalidInput) as caught:
        up(client, "2")
    assert str(caught.value) == (
        "new pods of job worker can't be created: the namespace's LimitRange refuses its pod (maximum cpu usage per "
        "Container is 1, but limit is 2): change jobs.worker.cpu or memory (a task's CPU limit is a core at least), or "
        "have it changed"
    )
    assert caught.value.help == "nothing was changed"
    assert not client.writes
    (pod,) = client.pods
    assert pod["metadata"]["generateName"] == "demo-worker-"
    assert pod["metadata"]["ownerReferences"][0]["controller"]
    assert up(client, "2", dry_run=True).refusal.startswith("new pods of job worker can't be created: ")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (0, ""),
        (403, 'pods is forbidden: User "jo" cannot create resource "pods" in API group "" in the namespace "ns"'),
        (400, 'admission webhook "w.example" does not support dry run'),
        (500, 'Internal error occurred: failed calling webhook "w.example": connection refused'),
        (403, "POD is forbidden: exceeded quota: q, requested: cpu=2, used: cpu=2, limited: cpu=2"),
    ],
)
def test_up_is_not_held_up_by_what_a_dry_run_can_not_tell(code: int, message: str) -> None:
    client = running(code, message)
    up(client, "2")
    assert "delete pods" in client.writes
    assert len(client.pods) == 1


def test_no_dry_run_is_made_of_unchanged_pods() -> None:
    client = running(403, TOO_MUCH)
    up(client, "1")
    assert client.writes
    assert not client.pods


@pytest.mark.parametrize(("before", "cpu", "after"), [("gold", "2", "gold"), ("gold", "1", None), (None, "1", "gold")])
def test_what_kueue_has_admitted_can_not_change(before: str | None, cpu: str, after: str | None) -> None:
    client = running(queue=before)
    with pytest.raises(InvalidInput, match="can't change while it is in a queue") as caught:
        up(client, cpu, after)
    assert caught.value.help.startswith("run tfk8s down demo, then tfk8s up")
    assert not client.writes
