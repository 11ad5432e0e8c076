"""Volumes of tasks, as the job file describes them."""

from __future__ import annotations

from dataclasses import dataclass

from tfk8s.core.quantity import Quantity

# The sources of a volume on Kubernetes.
SOURCES = ("claim", "secret", "config_map", "size", "bucket")

ONE_NODE = "ReadWriteOnce"
ONE_POD = "ReadWriteOncePod"
MANY_NODES = "ReadWriteMany"
ACCESS_MODES = (ONE_NODE, MANY_NODES, ONE_POD)

BUCKET_SCHEME = "gs://"


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume of tasks. It has at most one of `SOURCES`, and without one `folder`.

    Attributes:
        path: the absolute path at which the volume is mounted.
        claim: the name of a PersistentVolumeClaim.
        create: the size of the claim, which is made if it does not exist; None for a claim that somebody else makes.
        storage_class: the StorageClass of a claim that is made; None is the cluster's default.
        access: the access mode of a claim that is made.
        secret: the name of a Secret.
        config_map: the name of a ConfigMap.
        size: the maximum size of an empty folder, which ends with the pod.
        bucket: a bucket of Cloud Storage and a folder in it, "gs://NAME/PREFIX".
        folder: the absolute folder of this machine that local clusters use.
        local_mount: whether local clusters mount `folder` at `path`.
        read_only: whether tasks can't write to the volume.
    """

    path: str
    claim: str | None = None
    create: Quantity | None = None
    storage_class: str | None = None
    access: str = ONE_NODE
    secret: str | None = None
    config_map: str | None = None
    size: Quantity | None = None
    bucket: str | None = None
    folder: str | None = None
    local_mount: bool = True
    read_only: bool = False

    @property
    def source(self) -> str:
        """The key of the source on Kubernetes; "" if only local clusters have the volume."""
        return next((key for key in SOURCES if getattr(self, key) is not None), "")

    @property
    def bucket_parts(self) -> tuple[str, str]:
        """The name of the bucket, and the folder in it; "" for the whole bucket."""
        name, _, prefix = (self.bucket or "").removeprefix(BUCKET_SCHEME).partition("/")
        return name, prefix.removesuffix("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptClaim:
    """A PersistentVolumeClaim that was made for a cluster, and that `down` keeps.

    Attributes:
        name: of the claim.
        cluster: the name of the cluster that it was made for.
        location: where the claim is, as the status of its cluster has it.
        size: the requested size.
    """

    name: str
    cluster: str
    location: str
    size: str
