"""The mappings that are values in a job file: the source of a variable, the place of tasks, connections, identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfk8s.core.job_file.keys import key

PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}  # the label by the Prometheus Operator, and by Prometheus' chart


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSource:
    """The source of a variable's value: a key of a Secret or of a ConfigMap."""

    secret: str | None = key("NAME", "The name of a Secret.", "storage-key")
    config_map: str | None = key("NAME", "The name of a ConfigMap.", "settings")
    key: str = key("DATA_KEY", "The key in the Secret or ConfigMap.", "password", required=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLimits:
    """The times without a session and a session script after which the cluster is suspended, and removed."""

    suspend: int | None = key(
        "DURATION", "The time after which the cluster is suspended, as by `tfk8s suspend`.", "30m", 1800
    )
    remove: int | None = key(
        "DURATION", "The time after which the cluster is removed. It counts on while the cluster is suspended.",
        "7d", 604800,
    )  # fmt: skip


# Environment variables by name. On this machine, a variable with a source keeps the value that `up` inherited.
Env = Mapping[str, str | EnvSource]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The placement of a job's tasks in relation to each other. Exactly one of spread and pack."""

    spread: str | None = key(
        "TOPOLOGY_KEY", "Spread the tasks evenly over hosts, zones, or the values of this label of nodes.", "zone"
    )
    pack: str | None = key(
        "TOPOLOGY_KEY",
        "Keep the tasks together: on one host, in one zone, or on nodes with the same value of this label.",
        "zone",
        "cloud.google.com/gce-topology-block",
    )
    required: bool = key(
        "BOOLEAN",
        "Let a task wait until a node fits. If false, the scheduler prefers nodes that fit.",
        True,
        default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Pods, or a range of IP addresses, that may connect to the cluster."""

    namespace: str | None = key(
        "LABEL", "The namespace of the pods. If absent, the namespace of the cluster.", "notebooks"
    )
    pods: Mapping[str, str] = key(
        "PEER_LABELS", "The labels of the pods. If absent, all pods of the namespace.", {"app": "jupyter"}, default={}
    )
    cidr: str | None = key(
        "CIDR", "A range of IP addresses. It can't be combined with namespace or pods.", "10.0.0.0/8"
    )
    except_: tuple[str, ...] = key(
        "CIDRS", "Parts of cidr that are left out of the range.", ["169.254.169.254/32"], default=()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination(Source):
    """Pods, or a range of IP addresses, that tasks and session scripts may connect to."""

    ports: tuple[int, ...] = key("PORTS", "The ports. If absent, all ports.", [443], default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The allowed connections. By default, only the pods of the cluster can connect to the tasks."""

    allow_from: tuple[Source, ...] = key(
        "SOURCES", "Other clients that may connect to the tasks.", [{"namespace": "notebooks"}], default=()
    )
    allow_to: tuple[Destination, ...] | None = key(
        "DESTINATIONS",
        "The only destinations that tasks and session scripts may connect to, besides the cluster and DNS. If empty, "
        "they may connect to no others. If absent, the job file does not restrict their connections.",
        [{"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"], "ports": [443]}],
        [],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The clients that may read the metrics of tasks."""

    from_: tuple[Source, ...] = key(
        "SOURCES",
        "The clients. If absent, the pods of Prometheus in the namespace of the cluster.",
        [{"namespace": "monitoring", "pods": {"app.kubernetes.io/name": "prometheus"}}],
        default=(),
    )

    @property
    def readers(self) -> tuple[Source, ...]:
        """The clients, also if the job file names none."""
        return self.from_ or (Source(pods=PROMETHEUS),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The user, group and ServiceAccount of the pods."""

    user: int = key("ID", "The user ID of processes in pods. It can't be 0 (root).", 1000, default=65532)
    group: int = key("ID", "The group ID of processes in pods. It can't be 0 (root).", 1000, default=65532)
    service_account: str | None = key("NAME", "The pods' ServiceAccount. Its token is not mounted.", "trainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedHistory:
    """The place of a history that several people read. Exactly one of claim and bucket."""

    claim: str | None = key(
        "NAME", "The PersistentVolumeClaim, of the cluster's namespace, with the history.", "tfk8s-history"
    )
    bucket: str | None = key(
        "HISTORY_BUCKET", "The bucket of S3 or Cloud Storage with the history.", "s3://team/tfk8s", "gs://team/tfk8s"
    )
    endpoint: str | None = key(
        "ENDPOINT", "The URL of the server of an s3:// bucket. If absent, that of S3.", "https://minio.example"
    )
    secret: str | None = key(
        "NAME",
        "A Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and perhaps AWS_SESSION_TOKEN and AWS_REGION. If "
        "absent, the cluster's identity in its cloud counts.",
        "history-keys",
    )
    logs: bool = key("BOOLEAN", "Keep the ends of the logs there, too.", True, default=False)
