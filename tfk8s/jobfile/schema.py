"""What may stand in a job file, key by key; `json_schema` says it to editors and to Helm.

What a value is like is in `kinds`, and what concerns several keys at once in `checks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfk8s import spec
from tfk8s.jobfile import kinds
from tfk8s.jobfile.containers import Key, List, Map, Record
from tfk8s.jobfile.document import Path
from tfk8s.jobfile.fields import Refused
from tfk8s.jobfile.kinds import Choice, Kind

if TYPE_CHECKING:
    from tfk8s.jobfile.problems import Report

Given = dict[str, Any]  # the values of a record's keys, as far as they are given

MAX_JOBS = 100
_SOURCES = ("claim", "secret", "config_map", "size")
_ENV = Map(kinds.ENV_NAME, kinds.TEXT)
_LABELS = Map(kinds.LABEL_KEY, kinds.LABEL_VALUE)


def _one_source(volume: Given) -> None:
    given = [kind for kind in _SOURCES if kind in volume]
    if len(given) != 1:
        message = f"a volume can't have {' and '.join(given)} at once" if given else "this volume has no source"
        raise Refused("bad-volume", message, "expected exactly one of claim, secret, config_map and size")


VOLUME = Record(
    "Volume",
    "Something mounted into tasks: exactly one of claim, secret, config_map and size.",
    {
        "path": Key(kinds.MOUNT_PATH, "Where it is mounted, an absolute path.", "/data", required=True),
        "claim": Key(kinds.NAME, "The name of a PersistentVolumeClaim.", "datasets"),
        "secret": Key(kinds.NAME, "The name of a Secret.", "storage-key"),
        "config_map": Key(kinds.NAME, "The name of a ConfigMap.", "vocabulary"),
        "size": Key(kinds.SIZE, "An empty folder of at most this size, which goes with the pod.", "10Gi"),
        "read_only": Key(kinds.TRUTH, "Tasks can't write to it.", True, default=False),
    },
    make=spec.Volume,
    rule=_one_source,
    said={"oneOf": [{"required": [kind]} for kind in _SOURCES]},
)


def _consistent(toleration: Given) -> None:
    exists = toleration.get("operator") == "Exists"
    if "key" not in toleration and not exists:
        raise Refused("bad-toleration", "a toleration without key needs operator: Exists")
    if toleration.get("value") and exists:
        raise Refused("bad-toleration", "a toleration with operator: Exists has no value")
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        raise Refused("bad-toleration", "tolerationSeconds needs effect: NoExecute")


TOLERATION = Record(
    "Toleration",
    "A Kubernetes toleration, as it stands in a pod's spec.",
    {
        "key": Key(kinds.LABEL_KEY, "The taint's key; all taints where absent.", "dedicated"),
        "operator": Key(Choice("Equal", "Exists"), "How value is compared.", "Exists", default="Equal"),
        "value": Key(kinds.LABEL_VALUE, "The taint's value, for Equal.", "training"),
        "effect": Key(
            Choice("NoSchedule", "PreferNoSchedule", "NoExecute"),
            "Only taints of this effect; any where absent.",
            "NoSchedule",
        ),
        "tolerationSeconds": Key(kinds.SECONDS, "For how long; for ever where absent.", 300),
    },
    rule=_consistent,
    said={
        "anyOf": [{"required": ["key"]}, {"required": ["operator"], "properties": {"operator": {"const": "Exists"}}}],
        "not": {
            "required": ["operator", "value"],
            "properties": {"operator": {"const": "Exists"}, "value": {"minLength": 1}},
        },
        "if": {"required": ["tolerationSeconds"]},
        "then": {"required": ["effect"], "properties": {"effect": {"const": "NoExecute"}}},
    },
)


def _pods_or_addresses(peer: Given) -> None:
    pods = "namespace" in peer or "pods" in peer
    if "cidr" in peer and pods:
        raise Refused("bad-peer", "cidr can't be combined with namespace or pods", "expected one of them")
    if "cidr" not in peer and not pods:
        raise Refused("bad-peer", "this says nobody", "expected namespace, pods or cidr")


_PEER = {
    "namespace": Key(kinds.LABEL, "Pods of that namespace; the cluster's own where absent.", "notebooks"),
    "pods": Key(Map(kinds.LABEL_KEY, kinds.LABEL_VALUE, least=1), "Only pods with these labels.", {"app": "jupyter"}),
    "cidr": Key(kinds.CIDR, "A range of addresses, alone.", "10.0.0.0/8"),
}
_PEER_RULE = {
    "anyOf": [{"required": ["namespace"]}, {"required": ["pods"]}, {"required": ["cidr"]}],
    "not": {"required": ["cidr"], "anyOf": [{"required": ["namespace"]}, {"required": ["pods"]}]},
}

SOURCE = Record(
    "Source",
    "Who may connect to the cluster: pods, or a range of addresses.",
    _PEER,
    make=spec.Peer,
    rule=_pods_or_addresses,
    said=_PEER_RULE,
)

DESTINATION = Record(
    "Destination",
    "What tasks and session scripts may connect to: pods, or a range of addresses.",
    {**_PEER, "ports": Key(List(kinds.PORT, least=1), "Only these ports; all where absent.", [443])},
    make=spec.Peer,
    rule=_pods_or_addresses,
    said=_PEER_RULE,
)

NETWORK = Record(
    "Network",
    "Exceptions from the default, which is that only the cluster's own pods talk to each other.",
    {
        "allow_from": Key(List(SOURCE), "Who else may connect to the tasks.", [{"namespace": "notebooks"}]),
        "allow_to": Key(
            List(DESTINATION),
            "What tasks and session scripts may connect to, besides the cluster and DNS.",
            [{"cidr": "0.0.0.0/0", "ports": [443]}],
        ),
    },
    make=spec.Network,
)

SECURITY = Record(
    "Security",
    "Who the processes in a pod are.",
    {
        "user": Key(kinds.ID, "The user that processes run as; never 0 (root).", 1000, default=65532),
        "group": Key(kinds.ID, "The group that processes run as; never 0 (root).", 1000, default=65532),
        "service_account": Key(kinds.NAME, "The pods' ServiceAccount; its token is not mounted.", "trainer"),
    },
    make=spec.Security,
)

JOB = Record(
    "Job",
    "A named group of like tasks.",
    {
        "tasks": Key(kinds.COUNT, "How many tasks the job has.", 4, default=1),
        "image": Key(kinds.IMAGE, "What this job's tasks run in; overrides the cluster's.", "registry.example/tf:2.21"),
        "cpu": Key(kinds.CPU, "Cores of a task: request and limit.", 2, "500m"),
        "memory": Key(kinds.SIZE, "Memory of a task: request and limit.", "4Gi"),
        "gpus": Key(kinds.GPUS, "How many GPUs a task gets.", 1, default=0),
        "gpu_resource": Key(
            kinds.GPU_RESOURCE, "The resource that GPUs are counted as.", "amd.com/gpu", default="nvidia.com/gpu"
        ),
        "accelerator": Key(kinds.ACCELERATOR, "The kind of GPU, as GKE's node label names it.", "nvidia-l4"),
        "node_selector": Key(_LABELS, "Labels that a node must have.", {"disktype": "ssd"}),
        "tolerations": Key(
            List(TOLERATION), "Taints of nodes that do not matter.", [{"key": "dedicated", "operator": "Exists"}]
        ),
        "env": Key(_ENV, "Environment variables, over the cluster's.", {"OMP_NUM_THREADS": "4"}),
        "labels": Key(
            Map(kinds.OWN_LABEL_KEY, kinds.LABEL_VALUE), "Labels for the pods, besides tfk8s' own.", {"team": "ads"}
        ),
        "annotations": Key(
            Map(kinds.OWN_LABEL_KEY, kinds.TEXT), "Annotations for the pods.", {"example.com/owner": "ads@example.com"}
        ),
        "volumes": Key(List(VOLUME), "Volumes besides the cluster's.", [{"path": "/data", "claim": "datasets"}]),
        "preload": Key(
            List(kinds.MODULE),
            "Python modules that a task imports before it starts its server, for operations of their own.",
            ["tensorflow_text"],
        ),
        "port": Key(kinds.PORT, "The port of this job's tasks; overrides the cluster's.", 2300),
        "spot": Key(kinds.TRUTH, "Run on spot capacity.", True, default=False),
        "priority": Key(kinds.NAME, "The name of a PriorityClass.", "training"),
    },
    said={"if": {"required": ["accelerator"]}, "then": {"required": ["gpus"], "properties": {"gpus": {"minimum": 1}}}},
)


class _Form(Kind):
    """One of the three ways to write a job; each is read as what `spec.Job` takes besides the name."""

    takes = (int, list, dict)
    expected = "a number of tasks, a mapping, or a list of addresses"
    _addresses = List(kinds.ADDRESS, least=1, most=spec.MAX_TASKS)
    # Each form is under keywords of its own type: a validator's messages are then about the one that is meant.
    schema = {  # noqa: RUF012 - nobody changes it
        **kinds.TASKS.schema,
        **_addresses.schema,
        "type": ["integer", "array", "object"],
        "if": {"type": "object"},
        "then": JOB.schema,
        "description": "A number of tasks, a mapping that says more, or a list of where the servers already run, by "
        "index; then all jobs have addresses.",
    }

    def read(self, form: Any, path: Path, report: Report, /) -> Any:
        """Return the keywords of `spec.Job`."""
        if isinstance(form, dict):
            return JOB.read(form, path, report)
        if isinstance(form, int):
            return {"tasks": kinds.TASKS.read(form, path, report)}
        addresses = self._addresses.read(form, path, report)
        return {"tasks": len(addresses), "addresses": addresses}

    def rewritten(self, value: object, text: str, /) -> str | None:
        """Return the number that a text is."""
        return kinds.TASKS.rewritten(value, text)


JOB_FILE = Record(
    "tfk8s job file",
    "One cluster of TensorFlow servers, for tfk8s.",
    {
        "apiVersion": Key(Choice(spec.API_VERSION), "The version of this format.", spec.API_VERSION, required=True),
        "name": Key(kinds.CLUSTER_NAME, "The cluster's name; Kubernetes' names begin with it.", "mnist", required=True),
        "jobs": Key(
            Map(kinds.JOB_NAME, _Form(), least=1, most=MAX_JOBS),
            "The ClusterSpec: for each job a number of tasks, more about them, or the addresses of servers that run "
            "already.",
            {"chief": 1, "ps": {"tasks": 2, "cpu": 2, "memory": "4Gi"}},
            {"worker": ["10.0.0.5:2222"]},
            required=True,
        ),
        "image": Key(
            kinds.IMAGE,
            "What tasks run in: any image with TensorFlow in it. Needed on Kubernetes only.",
            "tensorflow/tensorflow:2.21.0",
        ),
        "master": Key(
            kinds.TEXT,
            "The job whose task 0 sessions connect to. Where absent: master, else chief, else worker, else the first "
            "by name.",
            "chief",
        ),
        "namespace": Key(kinds.LABEL, "The namespace in Kubernetes; the context's where absent.", "training"),
        "port": Key(
            kinds.PORT,
            "The port of every task in Kubernetes, and of the first task on this machine.",
            2222,
            default=spec.DEFAULT_PORT,
        ),
        "env": Key(_ENV, "Environment variables of every task.", {"TF_CPP_MIN_LOG_LEVEL": "1"}),
        "volumes": Key(
            List(VOLUME), "Volumes of every task.", [{"path": "/data", "claim": "datasets", "read_only": True}]
        ),
        "queue": Key(kinds.QUEUE_NAME, "The name of a Kueue LocalQueue.", "team-a"),
        "network": Key(NETWORK, "Which other connections are allowed."),
        "security": Key(SECURITY, "Which user and group they run as in a pod."),
        "ttl": Key(
            kinds.DURATION, "How long a finished submit stays, with its log.", "2h", 600, default=spec.DEFAULT_TTL
        ),
    },
)

JOB_FILE.elsewhere = {name: f"it belongs to a job, as in jobs: {{worker: {{{name}: …}}}}" for name in JOB.keys}
JOB.elsewhere = dict.fromkeys(JOB_FILE.keys, "it belongs to the whole file, beside jobs")

# What the JSON Schema defines once each.
RECORDS = (VOLUME, TOLERATION, SOURCE, DESTINATION, NETWORK, SECURITY, JOB)
