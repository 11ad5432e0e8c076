"""The keys of a job file and their types, and the JSON Schema of job files for editors and Helm.

`types` and `validation` define the types; `cross_checks` compares the values of several keys.
"""

from __future__ import annotations

from typing import Any

from tfk8s.core import spec
from tfk8s.jobfile import types
from tfk8s.jobfile.document import Path
from tfk8s.jobfile.types import Choice
from tfk8s.jobfile.validation import Container, Key, List, Map, Struct, Validator
from tfk8s.jobfile.values import Invalid

Values = dict[str, Any]  # a struct's values by key, without the absent keys

MAX_JOBS = 100
_SOURCES = ("claim", "secret", "config_map", "size")
_ENV = Map(types.ENV_NAME, types.TEXT)
_LABELS = Map(types.LABEL_KEY, types.LABEL_VALUE)


def _one_source(volume: Values) -> None:
    sources = [source for source in _SOURCES if source in volume]
    if len(sources) != 1:
        message = f"a volume can't have {' and '.join(sources)} at once" if sources else "this volume has no source"
        raise Invalid("bad-volume", message, "expected exactly one of claim, secret, config_map and size")


VOLUME = Struct(
    "Volume",
    "A volume that tasks mount. Exactly one of claim, secret, config_map and size is its source.",
    {
        "path": Key(types.MOUNT_PATH, "The absolute path at which tasks mount the volume.", "/data", required=True),
        "claim": Key(types.NAME, "The name of a PersistentVolumeClaim.", "datasets"),
        "secret": Key(types.NAME, "The name of a Secret.", "storage-key"),
        "config_map": Key(types.NAME, "The name of a ConfigMap.", "vocabulary"),
        "size": Key(types.SIZE, "The maximum size of an empty folder that is deleted with the pod.", "10Gi"),
        "read_only": Key(types.BOOLEAN, "Mount the volume read-only.", True, default=False),
    },
    make=spec.Volume,
    rule=_one_source,
    rule_schema={"oneOf": [{"required": [source]} for source in _SOURCES]},
)


def _consistent(toleration: Values) -> None:
    exists = toleration.get("operator") == "Exists"
    if "key" not in toleration and not exists:
        raise Invalid("bad-toleration", "a toleration without key needs operator: Exists")
    if toleration.get("value") and exists:
        raise Invalid("bad-toleration", "a toleration with operator: Exists has no value")
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        raise Invalid("bad-toleration", "tolerationSeconds needs effect: NoExecute")


TOLERATION = Struct(
    "Toleration",
    "A Kubernetes toleration, with the keys that it has in a pod's spec.",
    {
        "key": Key(types.LABEL_KEY, "The key of the taint. If absent, the toleration matches all taints.", "dedicated"),
        "operator": Key(Choice("Equal", "Exists"), "Exists ignores the taint's value.", "Exists", default="Equal"),
        "value": Key(types.LABEL_VALUE, "The value of the taint, for the operator Equal.", "training"),
        "effect": Key(
            Choice("NoSchedule", "PreferNoSchedule", "NoExecute"),
            "The effect of the taint. If absent, the toleration matches every effect.",
            "NoSchedule",
        ),
        "tolerationSeconds": Key(types.SECONDS, "The tolerated time in seconds. If absent, unlimited.", 300),
    },
    rule=_consistent,
    rule_schema={
        "anyOf": [{"required": ["key"]}, {"required": ["operator"], "properties": {"operator": {"const": "Exists"}}}],
        "not": {
            "required": ["operator", "value"],
            "properties": {"operator": {"const": "Exists"}, "value": {"minLength": 1}},
        },
        "if": {"required": ["tolerationSeconds"]},
        "then": {"required": ["effect"], "properties": {"effect": {"const": "NoExecute"}}},
    },
)


def _pods_or_addresses(peer: Values) -> None:
    pods = "namespace" in peer or "pods" in peer
    if "cidr" in peer and pods:
        raise Invalid("bad-peer", "cidr can't be combined with namespace or pods", "expected one of them")
    if "cidr" not in peer and not pods:
        raise Invalid("bad-peer", "this entry selects no pods and no addresses", "expected namespace, pods or cidr")


_PEER = {
    "namespace": Key(types.LABEL, "The namespace of the pods. If absent, the namespace of the cluster.", "notebooks"),
    "pods": Key(
        Map(types.LABEL_KEY, types.LABEL_VALUE, minimum=1),
        "The labels of the pods. If absent, all pods of the namespace.",
        {"app": "jupyter"},
    ),
    "cidr": Key(types.CIDR, "A range of IP addresses. It can't be combined with namespace or pods.", "10.0.0.0/8"),
}
_PEER_RULE = {
    "anyOf": [{"required": ["namespace"]}, {"required": ["pods"]}, {"required": ["cidr"]}],
    "not": {"required": ["cidr"], "anyOf": [{"required": ["namespace"]}, {"required": ["pods"]}]},
}

SOURCE = Struct(
    "Source",
    "Pods, or a range of IP addresses, that may connect to the cluster.",
    _PEER,
    make=spec.Peer,
    rule=_pods_or_addresses,
    rule_schema=_PEER_RULE,
)

DESTINATION = Struct(
    "Destination",
    "Pods, or a range of IP addresses, that tasks and session scripts may connect to.",
    {**_PEER, "ports": Key(List(types.PORT, minimum=1), "The ports. If absent, all ports.", [443])},
    make=spec.Peer,
    rule=_pods_or_addresses,
    rule_schema=_PEER_RULE,
)

NETWORK = Struct(
    "Network",
    "Additional allowed connections. By default, only the pods of the cluster can connect to each other.",
    {
        "allow_from": Key(List(SOURCE), "Other clients that may connect to the tasks.", [{"namespace": "notebooks"}]),
        "allow_to": Key(
            List(DESTINATION),
            "Destinations that tasks and session scripts may connect to, besides the cluster and DNS.",
            [{"cidr": "0.0.0.0/0", "ports": [443]}],
        ),
    },
    make=spec.Network,
)

SECURITY = Struct(
    "Security",
    "The user, group and ServiceAccount of the pods.",
    {
        "user": Key(types.ID, "The user ID of processes in pods. It can't be 0 (root).", 1000, default=65532),
        "group": Key(types.ID, "The group ID of processes in pods. It can't be 0 (root).", 1000, default=65532),
        "service_account": Key(types.NAME, "The pods' ServiceAccount. Its token is not mounted.", "trainer"),
    },
    make=spec.Security,
)

JOB = Struct(
    "Job",
    "A job of the ClusterSpec: a number of tasks with the same settings.",
    {
        "tasks": Key(types.COUNT, "The number of tasks.", 4, default=1),
        "image": Key(types.IMAGE, "The image of this job. It overrides the cluster's.", "registry.example/tf:2.21"),
        "cpu": Key(types.CPU, "The CPU cores of a task: request and limit.", 2, "500m"),
        "memory": Key(types.SIZE, "The memory of a task: request and limit.", "4Gi"),
        "gpus": Key(types.GPUS, "The number of GPUs of a task.", 1, default=0),
        "gpu_resource": Key(
            types.GPU_RESOURCE, "The name of the GPU resource in Kubernetes.", "amd.com/gpu", default="nvidia.com/gpu"
        ),
        "accelerator": Key(types.ACCELERATOR, "The GPU model, as in the value of GKE's node label.", "nvidia-l4"),
        "node_selector": Key(_LABELS, "The labels that a node must have.", {"disktype": "ssd"}),
        "tolerations": Key(
            List(TOLERATION), "The node taints that the tasks tolerate.", [{"key": "dedicated", "operator": "Exists"}]
        ),
        "env": Key(_ENV, "Environment variables. They override the cluster's variables.", {"OMP_NUM_THREADS": "4"}),
        "labels": Key(Map(types.USER_LABEL_KEY, types.LABEL_VALUE), "Additional labels of the pods.", {"team": "ads"}),
        "annotations": Key(
            Map(types.USER_LABEL_KEY, types.TEXT), "Annotations of the pods.", {"example.com/owner": "ads@example.com"}
        ),
        "volumes": Key(
            List(VOLUME), "Volumes, in addition to the cluster's volumes.", [{"path": "/data", "claim": "datasets"}]
        ),
        "preload": Key(
            List(types.MODULE),
            "Python modules that a task imports before it starts its server, because they register operations.",
            ["tensorflow_text"],
        ),
        "port": Key(types.PORT, "The port of this job's tasks. It overrides the cluster's port.", 2300),
        "spot": Key(types.BOOLEAN, "Run the tasks on spot nodes.", True, default=False),
        "priority": Key(types.NAME, "The name of a PriorityClass.", "training"),
    },
    rule_schema={
        "if": {"required": ["accelerator"]},
        "then": {"required": ["gpus"], "properties": {"gpus": {"minimum": 1}}},
    },
)


class _JobForm(Container):
    """The three forms of a job: a number of tasks, a mapping, or a list of addresses."""

    accepts = (int, list, dict)
    expected = "a number of tasks, a mapping, or a list of addresses"
    _addresses = List(types.ADDRESS, minimum=1, maximum=spec.MAX_TASKS)
    # A validator's messages are about the form that the user chose, because each form has keywords of its own type.
    json_schema = {  # noqa: RUF012 - nobody changes it
        **types.TASKS.json_schema,
        **_addresses.json_schema,
        "type": ["integer", "array", "object"],
        "if": {"type": "object"},
        "then": JOB.json_schema,
        "description": "A number of tasks, a mapping with more settings, or a list of the addresses of running "
        "servers, in the order of their indices. Either all jobs have addresses, or none.",
    }

    def read_entries(self, form: Any, path: Path, validator: Validator, /) -> Any:
        """Return the keyword arguments of `spec.Job`, without the name."""
        if isinstance(form, dict):
            return JOB.read_entries(form, path, validator)
        if isinstance(form, int):
            return {"tasks": types.TASKS.read(form, path)}
        addresses = self._addresses.read_entries(form, path, validator)
        return {"tasks": len(addresses), "addresses": addresses}

    def suggest(self, value: object, text: str, /) -> str | None:
        """Return advice to write a plain number of tasks."""
        return types.TASKS.suggest(value, text)


JOB_FILE = Struct(
    "tfk8s job file",
    "A cluster of TensorFlow servers, for tfk8s.",
    {
        "apiVersion": Key(Choice(spec.API_VERSION), "The version of this format.", spec.API_VERSION, required=True),
        "name": Key(types.CLUSTER_NAME, "The cluster's name, and the prefix of its objects.", "mnist", required=True),
        "jobs": Key(
            Map(types.JOB_NAME, _JobForm(), minimum=1, maximum=MAX_JOBS),
            "The ClusterSpec: for each job a number of tasks, a mapping with more settings, or the addresses of "
            "running servers.",
            {"chief": 1, "ps": {"tasks": 2, "cpu": 2, "memory": "4Gi"}},
            {"worker": ["10.0.0.5:2222"]},
            required=True,
        ),
        "image": Key(
            types.IMAGE,
            "The container image of tasks: any image that contains TensorFlow. Only Kubernetes uses it.",
            "tensorflow/tensorflow:2.21.0",
        ),
        "master": Key(
            types.TEXT,
            "The job whose task 0 sessions connect to. If absent: master, else chief, else worker, else the first job "
            "by name.",
            "chief",
        ),
        "namespace": Key(
            types.LABEL, "The Kubernetes namespace. If absent, the namespace of the kubeconfig context.", "training"
        ),
        "port": Key(
            types.PORT,
            "The port of every task on Kubernetes, and of the first task on this machine.",
            2222,
            default=spec.DEFAULT_PORT,
        ),
        "env": Key(_ENV, "Environment variables of every task.", {"TF_CPP_MIN_LOG_LEVEL": "1"}),
        "volumes": Key(
            List(VOLUME), "Volumes of every task.", [{"path": "/data", "claim": "datasets", "read_only": True}]
        ),
        "queue": Key(types.QUEUE_NAME, "The name of a Kueue LocalQueue.", "team-a"),
        "network": Key(NETWORK, "Additional allowed connections."),
        "security": Key(SECURITY, "The user, group and ServiceAccount of the pods."),
        "ttl": Key(
            types.DURATION,
            "The time for which a finished script of `tfk8s submit` is kept, with its log.",
            "2h",
            600,
            default=spec.DEFAULT_TTL,
        ),
    },
)

JOB_FILE.misplaced = {name: f"this key belongs to a job, as in jobs: {{worker: {{{name}: …}}}}" for name in JOB.keys}
JOB.misplaced = dict.fromkeys(JOB_FILE.keys, "this key belongs at the top level, beside jobs")

_ORDERED = ("properties", "default")  # keywords with values in the order that readers see


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a job file (draft 2020-12)."""
    structs = (VOLUME, TOLERATION, SOURCE, DESTINATION, NETWORK, SECURITY, JOB)
    definitions = {struct.name: struct.definition() for struct in structs}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_sorted({"$defs": definitions, **JOB_FILE.definition()}),
    }


def _sorted(schema: Any, keyword: str = "") -> Any:
    if isinstance(schema, list):
        return [_sorted(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    names = schema if keyword in _ORDERED else sorted(schema)
    return {name: _sorted(schema[name], name) for name in names}
