"""Volumes of tasks, as the job file describes them."""

from __future__ import annotations

from dataclasses import dataclass

from tfk8s.core.job_file.keys import key
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
    """A volume that tasks mount.

    Exactly one of claim, secret, config_map, size and bucket is its source on Kubernetes; folder is its source on this
    machine.
    """

    path: str = key("MOUNT_PATH", "The absolute path at which tasks mount the volume.", "/data", required=True)
    claim: str | None = key("NAME", "The name of a PersistentVolumeClaim.", "datasets")
    create: Quantity | None = key(
        "SIZE",
        "The size of the claim, which is made if there is none of that name. tfk8s keeps the claim when the cluster is "
        "removed.",
        "100Gi",
    )
    storage_class: str | None = key(
        "NAME", "The StorageClass of the claim to make. If absent, the default of Kubernetes.", "premium-rwo"
    )
    access: str = key(
        "ACCESS_MODE",
        f"The access mode of the claim to make. {ONE_NODE} is for the pods of one node, {MANY_NODES} for those of many "
        f"nodes, {ONE_POD} for one pod.",
        MANY_NODES,
        default=ONE_NODE,
    )
    secret: str | None = key("NAME", "The name of a Secret.", "storage-key")
    config_map: str | None = key("NAME", "The name of a ConfigMap.", "vocabulary")
    size: Quantity | None = key("SIZE", "The maximum size of an empty folder that is deleted with the pod.", "10Gi")
    bucket: str | None = key(
        "BUCKET",
        "A bucket of Cloud Storage, or a folder in one, which the driver of GKE mounts.",
        "gs://models/mnist",
    )
    folder: str | None = key(
        "FOLDER",
        "The folder of this machine that clusters on this machine use, relative to the job file's folder. `up` makes "
        "it, unless the volume is read-only.",
        "./data",
    )
    local_mount: bool = key(
        "BOOLEAN",
        "Mount the folder at the path in clusters on this machine. If false, tfk8s.path finds the folder.",
        False,
        default=True,
    )
    read_only: bool = key("BOOLEAN", "Mount the volume read-only.", True, default=False)

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
