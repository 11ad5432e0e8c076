"""The claims that `up` makes, grows, uses and refuses, and the driver of buckets."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes import claims, deletion
from tfk8s.backends.kubernetes.api_server import errors
from tfk8s.core.job_file.mappings import Topology
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job
from tfk8s.core.storage.volumes import KeptClaim, Volume
from tfk8s.errors import InvalidInput, NoSuchCluster
from tfk8s.features.doctor import kubernetes as doctor
from tfk8s.features.doctor.check import State
from tfk8s.render.pods import Object

PATH = "/api/v1/namespaces/ns/persistentvolumeclaims/ckpt"
DRIVER = "/apis/storage.k8s.io/v1/csidrivers/gcsfuse.csi.storage.gke.io"
NOT_RESIZABLE = (
    'persistentvolumeclaims "ckpt" is forbidden: only dynamically provisioned pvc can be resized and the storageclass '
    "that provisions the pvc must support resize"
)


class Server:
    """An API server with claims and drivers, which refuses what a test wants."""

    context, namespace = "test", "ns"

    def __init__(self, *objects: Object) -> None:
        self.objects = {f"{PATH.rpartition('/')[0]}/{item['metadata']['name']}": item for item in objects}
        self.refused: dict[str, str] = {}  # messages by the word of a request
        self.tried: list[Object] = []

    def find(self, path: str) -> Object | None:
        self._check("get")
        return self.objects.get(path)

    def get(self, path: str, query: dict[str, str]) -> Object:
        self._check("list all" if "/namespaces/" not in path else "list")
        terms = dict(term.split("=") for term in query["labelSelector"].split(","))
        in_path = path if "/namespaces/" in path else path.replace("/v1/", "/v1/namespaces/ns/")
        found = [item for key, item in self.objects.items() if key.rpartition("/")[0] == in_path]
        return {"items": [item for item in found if terms.items() <= item["metadata"]["labels"].items()]}

    def apply(self, path: str, item: Object, *, dry_run: bool) -> None:
        assert path == PATH
        assert dry_run
        self._check("patch")
        self.tried.append(item)

    def send(self, method: str, path: str) -> None:
        assert method == "DELETE"
        del self.objects[path]

    def _check(self, word: str) -> None:
        if word in self.refused:
            raise errors.from_response(403, json.dumps({"message": self.refused[word]}).encode(), "test")


def forbidden(verb: str) -> str:
    return f'User "jo" cannot {verb} resource "persistentvolumeclaims" in API group "" in the namespace "ns"'


def volume(size: str = "2Gi", **settings: Any) -> Volume:
    return Volume(path="/ckpt", claim="ckpt", create=Quantity.parse(size), **settings)


def claim(size: str = "2Gi", cluster: str = "demo", made_by: str = "tfk8s", **spec: Any) -> Object:
    labels = {"app.kubernetes.io/name": "tfk8s", "app.kubernetes.io/instance": cluster}
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "ckpt", "namespace": "ns", "labels": {**labels, "app.kubernetes.io/managed-by": made_by},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "standard",
            "resources": {"requests": {"storage": size}}, **spec,
        },
    }  # fmt: skip


def usable(server: Any, *volumes: Volume, jobs: tuple[Job, ...] = (Job(name="worker"),)) -> list[Object]:
    """Return the claims that `up` would apply."""
    demo = job_file("demo", *jobs, image="tf:1", volumes=volumes)
    objects = claims.usable(server, "ns", demo, render.objects(demo, "ns"))
    assert [item["kind"] for item in objects].count("StatefulSet") == len(jobs)
    return [item for item in objects if item["kind"] == "PersistentVolumeClaim"]


def refusal(server: Server, *volumes: Volume, **settings: Any) -> tuple[str, str | None]:
    with pytest.raises(InvalidInput) as caught:
        usable(server, *volumes, **settings)
    return str(caught.value), caught.value.help


def test_a_missing_claim_is_made_after_a_dry_run() -> None:
    server = Server()
    assert usable(server, volume()) == server.tried
    assert server.tried[0]["spec"]["resources"] == {"requests": {"storage": "2Gi"}}
    assert usable(server, Volume(path="/data", claim="data")) == []


@pytest.mark.parametrize(
    "existing",
    [
        claim(),
        claim(size="2147483648"),
        claim(size="3Gi", made_by="Helm"),
        claim(size="3Gi", cluster="other"),
        claim(accessModes=["ReadWriteMany"], cluster="other"),
    ],
)
def test_a_claim_that_fits_stays_as_it_is(existing: Object) -> None:
    server = Server(existing)
    assert usable(server, volume()) == server.tried == []


def test_an_own_claim_is_grown_with_its_class() -> None:
    (grown,) = usable(server := Server(claim(size="1Gi")), volume())
    assert server.tried == [grown]
    assert grown["spec"]["storageClassName"] == "standard"
    assert grown["spec"]["resources"]["requests"]["storage"] == "2Gi"


@pytest.mark.parametrize(
    ("existing", "settings", "message"),
    [
        (claim(size="3Gi"), {}, 'claim "ckpt" has 3Gi, and a claim can\'t shrink to 2Gi'),
        (
            claim(size="1Gi", cluster="other"), {},
            'claim "ckpt" has 1Gi, less than 2Gi, and tfk8s did not make it for this cluster',
        ),
        (
            claim(), {"access": "ReadWriteMany"},
            'claim "ckpt" exists with the access mode ReadWriteOnce, not ReadWriteMany',
        ),
        (claim(), {"storage_class": "fast"}, 'claim "ckpt" exists with the StorageClass standard, not fast'),
    ],
)  # fmt: skip
def test_a_claim_that_does_not_fit(existing: Object, settings: dict[str, Any], message: str) -> None:
    server = Server(existing)
    assert refusal(server, volume(**settings))[0] == message
    assert server.tried == []


def test_a_claim_that_is_being_deleted() -> None:
    existing = claim()
    existing["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert refusal(Server(existing), volume())[0] == 'claim "ckpt" is being deleted'


def test_a_class_without_expansion() -> None:
    server = Server(claim(size="1Gi"))
    server.refused["patch"] = NOT_RESIZABLE
    assert refusal(server, volume()) == (
        'claim "ckpt" has 1Gi, and can\'t grow to 2Gi: its StorageClass "standard" has no allowVolumeExpansion',
        "write create: 1Gi, or the name of another claim",
    )


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_rights_are_missing_before_any_change(verb: str) -> None:
    server = Server()
    server.refused[verb] = forbidden(verb)
    with pytest.raises(errors.ApiError, match=f'"jo" may not {verb} persistentvolumeclaims') as caught:
        usable(server, volume())
    assert str(caught.value.help).startswith("the Role tfk8s-user allows it")
    server.refused = {"get": forbidden("get")}
    assert usable(server, Volume(path="/data", claim="data")) == []  # nobody needs to read the claims of others


TWO = (Job(name="ps"), Job(name="worker"))
PACKED = (Job(name="worker", tasks=2, topology=Topology(pack="host", required=True)),)


@pytest.mark.parametrize(
    ("volumes", "jobs", "existing", "warned"),
    [
        (volume(), TWO, (), True),
        (volume(), (Job(name="worker", tasks=2),), (claim(),), True),
        (Volume(path="/d", claim="ckpt"), TWO, (claim(),), True),
        (Volume(path="/d", claim="ckpt"), TWO, (claim(accessModes=["ReadWriteOnce", "ReadWriteMany"]),), False),
        (Volume(path="/d", claim="ckpt"), TWO, (), False),  # the claim is missing: pods will say so
        (volume(access="ReadWriteMany"), TWO, (), False),
        (volume(), (Job(name="worker"),), (), False),
        (volume(), PACKED, (), False),
    ],
)
def test_several_tasks_of_a_claim_for_one_node(
    caplog: pytest.LogCaptureFixture, volumes: Volume, jobs: tuple[Job, ...], existing: tuple[Object, ...], warned: bool
) -> None:
    usable(Server(*existing), volumes, jobs=jobs)
    expected = 'claim "ckpt" is ReadWriteOnce: its 2 tasks and their scripts start only if they are on one node; '
    assert [record.message.startswith(expected) for record in caplog.records] == [True] * warned


def test_several_tasks_of_a_claim_for_one_pod() -> None:
    server = Server(claim(accessModes=["ReadWriteOncePod"]))
    message, _ = refusal(server, Volume(path="/d", claim="ckpt"), jobs=TWO)
    assert message == '2 tasks would mount claim "ckpt", which is ReadWriteOncePod'


# ---- kept claims ---------------------------------------------------------------------------------------------------


def test_down_keeps_claims_and_deletes_them_if_asked() -> None:
    server: Any = Server(claim())
    assert claims.names(server, "ns", "demo", is_needed=False) == ["ckpt"]
    assert deletion.delete(server, "ns", "demo", delete_claims=True) == []  # the cluster is gone already
    assert PATH not in server.objects
    server.refused["list"] = forbidden("list")
    assert claims.names(server, "ns", "demo", is_needed=False) == []
    with pytest.raises(errors.ApiError, match='"jo" may not list persistentvolumeclaims'):
        claims.names(server, "ns", "demo", is_needed=True)


def test_a_removed_cluster_without_claims_does_not_exist() -> None:
    server: Any = Server()
    with pytest.raises(NoSuchCluster):
        deletion.delete(server, "ns", "demo", delete_claims=True)


@pytest.mark.parametrize("namespace", [None, "ns"])
def test_kept_claims_are_listed(namespace: str | None) -> None:
    server: Any = Server(claim())
    expected = [KeptClaim(name="ckpt", cluster="demo", location="context test, namespace ns", size="2Gi")]
    assert claims.kept(server, namespace) == expected
    server.refused["list all"] = forbidden("list")
    assert claims.kept(server, namespace) == expected
    server.refused["list"] = forbidden("list")
    assert claims.kept(server, namespace) == []


# ---- buckets -------------------------------------------------------------------------------------------------------


def test_the_driver_of_buckets(caplog: pytest.LogCaptureFixture) -> None:
    server: Any = Server()
    demo = job_file("demo", worker=1, volumes=(Volume(path="/m", bucket="gs://models"),))
    with pytest.raises(InvalidInput, match="which mounts the buckets of the job file"):
        claims.require_driver(server, demo)
    assert doctor.bucket_driver(server).state is State.MISSING
    server.objects[DRIVER] = {}
    claims.require_driver(server, demo)
    assert doctor.bucket_driver(server).state is State.OK
    server.refused["get"] = forbidden("get")
    claims.require_driver(server, job_file("demo", worker=1))
    assert doctor.bucket_driver(server).state is State.UNKNOWN
    with caplog.at_level(logging.INFO, "tfk8s"):
        claims.require_driver(server, demo)
    assert "you may not see whether the cluster has the CSIDriver gcsfuse.csi.storage.gke.io" in caplog.text
