"""The volumes of tasks' pods, and the PersistentVolumeClaims that are made for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfk8s.core import naming
from tfk8s.core.job_file.mappings import Security
from tfk8s.core.spec import Job, JobFile
from tfk8s.core.storage.volumes import Volume
from tfk8s.render import package_files

Object = dict[str, Any]

PACKAGE_FOLDER = "/opt/tfk8s"
PACKAGE = f"{PACKAGE_FOLDER}/{package_files.KEY}"
SCRATCH_FOLDER = "/tmp"  # noqa: S108 - the path is in the pod
SCRATCH_SIZE = "2Gi"

# `helm uninstall`, and an upgrade whose job file no longer has the claim, leave an object with this annotation.
KEEP = {"helm.sh/resource-policy": "keep"}

BUCKET_DRIVER = "gcsfuse.csi.storage.gke.io"
# By this annotation, GKE adds the container to a pod in which Cloud Storage FUSE runs.
BUCKET_ANNOTATION = "gke-gcsfuse/volumes"


def mounts(job_file: JobFile, job: Job) -> Iterator[Object]:
    """Yield the mounts of a task's container."""
    # A mount with a subPath keeps its file when `up` changes the ConfigMap. zipimport reads each module when it is
    # imported, at the place that the zip had at first.
    yield {"name": "tfk8s", "mountPath": PACKAGE, "subPath": package_files.KEY, "readOnly": True}
    yield {"name": "scratch", "mountPath": SCRATCH_FOLDER}
    if job.shm:
        yield {"name": "shm", "mountPath": naming.SHM_FOLDER}
    for number, volume in enumerate((*job_file.volumes, *job.volumes)):
        mount: Object = {"name": f"volume-{number}", "mountPath": volume.path}
        if volume.read_only:
            mount["readOnly"] = True
        yield mount


def python_path(own: object = None) -> str:
    """Return PYTHONPATH of a pod, which has this package before the user's folders, if there are any."""
    return f"{PACKAGE}:{own}" if own is not None else PACKAGE


def users_python_path(value: str) -> str | None:
    """Return the user's part of a pod's PYTHONPATH, also of a pod that another version of tfk8s made, or None."""
    _, colon, path = value.partition(":")
    return path if colon else None


def volumes(job_file: JobFile, job: Job) -> Iterator[Object]:
    """Yield the volumes of a task's pod."""
    # A pod waits for a ConfigMap that has the key.
    items = [{"key": package_files.KEY, "path": package_files.KEY}]
    yield {"name": "tfk8s", "configMap": {"name": job_file.name, "items": items}}
    yield {"name": "scratch", "emptyDir": {"sizeLimit": SCRATCH_SIZE}}
    if job.shm:
        yield {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(job.shm)}}
    for number, volume in enumerate((*job_file.volumes, *job.volumes)):
        yield {"name": f"volume-{number}", **_source(volume, job_file.security)}


def pod_annotations(job_file: JobFile, job: Job) -> dict[str, str]:
    """Return the annotations that the pods of a job need for their volumes."""
    return {BUCKET_ANNOTATION: "true"} if any(one.bucket for one in (*job_file.volumes, *job.volumes)) else {}


def claim_spec(volume: Volume) -> Object:
    """Return the spec of the PersistentVolumeClaim that is made for a volume."""
    spec: Object = {"accessModes": [volume.access], "resources": {"requests": {"storage": str(volume.create)}}}
    if volume.storage_class:
        spec["storageClassName"] = volume.storage_class
    return spec


def _source(volume: Volume, security: Security) -> Object:
    if volume.claim:
        return {"persistentVolumeClaim": {"claimName": volume.claim}}
    if volume.secret:
        return {"secret": {"secretName": volume.secret}}
    if volume.config_map:
        return {"configMap": {"name": volume.config_map}}
    if volume.bucket:
        return {"csi": _bucket(volume, security)}
    return {"emptyDir": {"sizeLimit": str(volume.size)}}


def _bucket(volume: Volume, security: Security) -> Object:
    """Return the volume of a bucket. Its files belong to the user of the pods, and folders need no objects."""
    name, prefix = volume.bucket_parts
    options = ["implicit-dirs", f"uid={security.user}", f"gid={security.group}"]
    if prefix:
        options.append(f"only-dir={prefix}")
    source: Object = {
        "driver": BUCKET_DRIVER,
        "volumeAttributes": {"bucketName": name, "mountOptions": ",".join(options)},
    }
    return {**source, "readOnly": True} if volume.read_only else source
