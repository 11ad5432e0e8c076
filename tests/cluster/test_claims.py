"""Claims that tfk8s makes on a real cluster: they grow, last, and are deleted only if the user asks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kube_api import KubeApi
from on_cluster import make_job, make_job_file, open_claim

from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import Script
from tfk8s.core.spec import JobFile
from tfk8s.core.storage.volumes import Volume
from tfk8s.errors import InvalidInput

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


@pytest.fixture(scope="module")
def growing(client: KubeApi) -> Iterator[str]:
    """A StorageClass as the default, whose claims may grow."""
    is_default = "storageclass.kubernetes.io/is-default-class"
    found = client.get(CLASSES)["items"]
    default = next(item for item in found if item["metadata"].get("annotations", {}).get(is_default) == "true")
    body = {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "tfk8s-test-growing"},
        "provisioner": default["provisioner"], "allowVolumeExpansion": True,
        "volumeBindingMode": default["volumeBindingMode"], "reclaimPolicy": "Delete",
    }  # fmt: skip
    client.send("DELETE", f"{CLASSES}/tfk8s-test-growing")  # of a run that was killed
    client.send("POST", CLASSES, body=body)
    yield "tfk8s-test-growing"
    client.send("DELETE", f"{CLASSES}/tfk8s-test-growing")


def job_file(size: str, fixed: str = "64Mi", **settings: str) -> JobFile:
    volumes = (
        Volume(path="/ckpt", claim="ckpt", create=Quantity.parse(size), **settings),
        Volume(path="/fixed", claim="fixed", create=Quantity.parse(fixed)),
    )
    return make_job_file("claims", make_job(tasks=1), volumes=volumes)


def test_a_claim_from_its_first_up_to_its_end(
    up: Callable[[JobFile], str], backend: KubernetesBackend, client: KubeApi, namespace: str, growing: str,
    tmp_path: Path, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def run(text: str) -> str:
        (tmp_path / "script.py").write_text(text)
        capfd.readouterr()
        assert backend.scripts.run("claims", Script(path=tmp_path / "script.py")).code == 0
        return capfd.readouterr().out

    def claim(name: str = "ckpt") -> dict[str, object] | None:
        return client.find(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")

    def size() -> object:
        return client.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/ckpt")["spec"]["resources"]

    up(job_file("64Mi", storage_class=growing))
    open_claim(client, namespace, "ckpt")
    run("open('/ckpt/step', 'w').write('7')")

    # Another size is grown where the class allows it. All else is refused before any change.
    assert not backend.plan(job_file("64Mi"))  # what the job file does not say stays
    backend.apply(job_file("128Mi"))
    assert size() == {"requests": {"storage": "128Mi"}}
    for refused, message in (
        (job_file("64Mi"), 'claim "ckpt" has 128Mi, and a claim can\'t shrink to 64Mi'),
        (
            job_file("128Mi", fixed="128Mi"),
            r'claim "fixed" has 64Mi, and can\'t grow to 128Mi: .* allowVolumeExpansion',
        ),
        (job_file("128Mi", access="ReadWriteMany"), "exists with the access mode ReadWriteOnce, not ReadWriteMany"),
    ):
        with pytest.raises(InvalidInput, match=message):
            backend.apply(refused)

    # A claim that the job file no longer has stays, and so do all claims after the end of their cluster.
    backend.apply(dataclasses.replace(job_file("128Mi"), volumes=()))
    assert backend.delete("claims") == ["ckpt", "fixed"]
    assert [(kept.cluster, kept.name, kept.size) for kept in backend.shared.claims()] == [
        ("claims", "ckpt", "128Mi"), ("claims", "fixed", "64Mi"),
    ]  # fmt: skip
    up(job_file("128Mi"))
    assert run("print(open('/ckpt/step').read())") == "7\n"
    assert backend.delete("claims", delete_claims=True) == []
    assert (claim(), claim("fixed")) == (None, None)
