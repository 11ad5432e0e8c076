"""What may stand in a job file, key by key; `json_schema` says it to editors and to Helm.

What a value is like is in `kinds`, and what concerns several keys at once in `checks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfk8s.core import spec
from tfk8s.jobfile import types
from tfk8s.jobfile.document import Path
from tfk8s.jobfile.types import Choice, Type
from tfk8s.jobfile.validation import Key, List, Map, Record
from tfk8s.jobfile.values import Invalid

if TYPE_CHECKING:
    from tfk8s.jobfile.validation import Validator


import json
import sys

Given = dict[str, Any]  # the values of a record's keys, as far as they are given

MAX_JOBS = 100
_SOURCES = ("claim", "secret", "config_map", "size")
_ENV = Map(types.ENV_NAME, types.TEXT)
_LABELS = Map(types.LABEL_KEY, types.LABEL_VALUE)


def _one_source(volume: Given) -> None:
    given = [kind for kind in _SOURCES if kind in volume]
    if len(given) != 1:
        message = f"a volume can't have {' and '.join(given)} at once" if given else "this volume has no source"
        raise Invalid("bad-volume", message, "expected exactly one of claim, secret, config_map and size")


VOLUME = Record(
    "Volume",
    "Something mounted into tasks: exactly one of claim, secret, config_map and size.",
    {
        "path": Key(types.MOUNT_PATH, "Where it is mounted, an absolute path.", "/data", required=True),
        "claim": Key(types.NAME, "The name of a PersistentVolumeClaim.", "datasets"),
        "secret": Key(types.NAME, "The name of a Secret.", "storage-key"),
        "config_map": Key(types.NAME, "The name of a ConfigMap.", "vocabulary"),
        "size": Key(types.SIZE, "An empty folder of at most this size, which goes with the pod.", "10Gi"),
        "read_only": Key(types.BOOLEAN, "Tasks can't write to it.", True, default=False),
    },
    make=spec.Volume,
    rule=_one_source,
    said={"oneOf": [{"required": [kind]} for kind in _SOURCES]},
)


def _consistent(toleration: Given) -> None:
    exists = toleration.get("operator") == "Exists"
    if "key" not in toleration and not exists:
        raise Invalid("bad-toleration", "a toleration without key needs operator: Exists")
    if toleration.get("value") and exists:
        raise Invalid("bad-toleration", "a toleration with operator: Exists has no value")
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        raise Invalid("bad-toleration", "tolerationSeconds needs effect: NoExecute")


TOLERATION = Record(
    "Toleration",
    "A Kubernetes toleration, as it stands in a pod's spec.",
    {
        "key": Key(types.LABEL_KEY, "The taint's key; all taints where absent.", "dedicated"),
        "operator": Key(Choice("Equal", "Exists"), "How value is compared.", "Exists", default="Equal"),
        "value": Key(types.LABEL_VALUE, "The taint's value, for Equal.", "training"),
        "effect": Key(
            Choice("NoSchedule", "PreferNoSchedule", "NoExecute"),
            "Only taints of this effect; any where absent.",
            "NoSchedule",
        ),
        "tolerationSeconds": Key(types.SECONDS, "For how long; for ever where absent.", 300),
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
        raise Invalid("bad-peer", "cidr can't be combined with namespace or pods", "expected one of them")
    if "cidr" not in peer and not pods:
        raise Invalid("bad-peer", "this says nobody", "expected namespace, pods or cidr")


_PEER = {
    "namespace": Key(types.LABEL, "Pods of that namespace; the cluster's own where absent.", "notebooks"),
    "pods": Key(Map(types.LABEL_KEY, types.LABEL_VALUE, least=1), "Only pods with these labels.", {"app": "jupyter"}),
    "cidr": Key(types.CIDR, "A range of addresses, alone.", "10.0.0.0/8"),
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
    {**_PEER, "ports": Key(List(types.PORT, least=1), "Only these ports; all where absent.", [443])},
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
        "user": Key(types.ID, "The user that processes run as; never 0 (root).", 1000, default=65532),
        "group": Key(types.ID, "The group that processes run as; never 0 (root).", 1000, default=65532),
        "service_account": Key(types.NAME, "The pods' ServiceAccount; its token is not mounted.", "trainer"),
    },
    make=spec.Security,
)

JOB = Record(
    "Job",
    "A named group of like tasks.",
    {
        "tasks": Key(types.COUNT, "How many tasks the job has.", 4, default=1),
        "image": Key(types.IMAGE, "What this job's tasks run in; overrides the cluster's.", "registry.example/tf:2.21"),
        "cpu": Key(types.CPU, "Cores of a task: request and limit.", 2, "500m"),
        "memory": Key(types.SIZE, "Memory of a task: request and limit.", "4Gi"),
        "gpus": Key(types.GPUS, "How many GPUs a task gets.", 1, default=0),
        "gpu_resource": Key(
            types.GPU_RESOURCE, "The resource that GPUs are counted as.", "amd.com/gpu", default="nvidia.com/gpu"
        ),
        "accelerator": Key(types.ACCELERATOR, "The kind of GPU, as GKE's node label names it.", "nvidia-l4"),
        "node_selector": Key(_LABELS, "Labels that a node must have.", {"disktype": "ssd"}),
        "tolerations": Key(
            List(TOLERATION), "Taints of nodes that do not matter.", [{"key": "dedicated", "operator": "Exists"}]
        ),
        "env": Key(_ENV, "Environment variables, over the cluster's.", {"OMP_NUM_THREADS": "4"}),
        "labels": Key(
            Map(types.OWN_LABEL_KEY, types.LABEL_VALUE), "Labels for the pods, besides tfk8s' own.", {"team": "ads"}
        ),
        "annotations": Key(
            Map(types.OWN_LABEL_KEY, types.TEXT), "Annotations for the pods.", {"example.com/owner": "ads@example.com"}
        ),
        "volumes": Key(List(VOLUME), "Volumes besides the cluster's.", [{"path": "/data", "claim": "datasets"}]),
        "preload": Key(
            List(types.MODULE),
            "Python modules that a task imports before it starts its server, for operations of their own.",
            ["tensorflow_text"],
        ),
        "port": Key(types.PORT, "The port of this job's tasks; overrides the cluster's.", 2300),
        "spot": Key(types.BOOLEAN, "Run on spot capacity.", True, default=False),
        "priority": Key(types.NAME, "The name of a PriorityClass.", "training"),
    },
    said={"if": {"required": ["accelerator"]}, "then": {"required": ["gpus"], "properties": {"gpus": {"minimum": 1}}}},
)


class _Form(Type):
    """One of the three ways to write a job; each is read as what `spec.Job` takes besides the name."""

    takes = (int, list, dict)
    expected = "a number of tasks, a mapping, or a list of addresses"
    _addresses = List(types.ADDRESS, least=1, most=spec.MAX_TASKS)
    # Each form is under keywords of its own type: a validator's messages are then about the one that is meant.
    schema = {  # noqa: RUF012 - nobody changes it
        **types.TASKS.schema,
        **_addresses.schema,
        "type": ["integer", "array", "object"],
        "if": {"type": "object"},
        "then": JOB.schema,
        "description": "A number of tasks, a mapping that says more, or a list of where the servers already run, by "
        "index; then all jobs have addresses.",
    }

    def read(self, form: Any, path: Path, report: Validator, /) -> Any:
        """Return the keywords of `spec.Job`."""
        if isinstance(form, dict):
            return JOB.read(form, path, report)
        if isinstance(form, int):
            return {"tasks": types.TASKS.read(form, path, report)}
        addresses = self._addresses.read(form, path, report)
        return {"tasks": len(addresses), "addresses": addresses}

    def rewritten(self, value: object, text: str, /) -> str | None:
        """Return the number that a text is."""
        return types.TASKS.rewritten(value, text)


JOB_FILE = Record(
    "tfk8s job file",
    "One cluster of TensorFlow servers, for tfk8s.",
    {
        "apiVersion": Key(Choice(spec.API_VERSION), "The version of this format.", spec.API_VERSION, required=True),
        "name": Key(types.CLUSTER_NAME, "The cluster's name; Kubernetes' names begin with it.", "mnist", required=True),
        "jobs": Key(
            Map(types.JOB_NAME, _Form(), least=1, most=MAX_JOBS),
            "The ClusterSpec: for each job a number of tasks, more about them, or the addresses of servers that run "
            "already.",
            {"chief": 1, "ps": {"tasks": 2, "cpu": 2, "memory": "4Gi"}},
            {"worker": ["10.0.0.5:2222"]},
            required=True,
        ),
        "image": Key(
            types.IMAGE,
            "What tasks run in: any image with TensorFlow in it. Needed on Kubernetes only.",
            "tensorflow/tensorflow:2.21.0",
        ),
        "master": Key(
            types.TEXT,
            "The job whose task 0 sessions connect to. Where absent: master, else chief, else worker, else the first "
            "by name.",
            "chief",
        ),
        "namespace": Key(types.LABEL, "The namespace in Kubernetes; the context's where absent.", "training"),
        "port": Key(
            types.PORT,
            "The port of every task in Kubernetes, and of the first task on this machine.",
            2222,
            default=spec.DEFAULT_PORT,
        ),
        "env": Key(_ENV, "Environment variables of every task.", {"TF_CPP_MIN_LOG_LEVEL": "1"}),
        "volumes": Key(
            List(VOLUME), "Volumes of every task.", [{"path": "/data", "claim": "datasets", "read_only": True}]
        ),
        "queue": Key(types.QUEUE_NAME, "The name of a Kueue LocalQueue.", "team-a"),
        "network": Key(NETWORK, "Which other connections are allowed."),
        "security": Key(SECURITY, "Which user and group they run as in a pod."),
        "ttl": Key(
            types.DURATION, "How long a finished submit stays, with its log.", "2h", 600, default=spec.DEFAULT_TTL
        ),
    },
)

JOB_FILE.elsewhere = {name: f"it belongs to a job, as in jobs: {{worker: {{{name}: …}}}}" for name in JOB.keys}
JOB.elsewhere = dict.fromkeys(JOB_FILE.keys, "it belongs to the whole file, beside jobs")

# What the JSON Schema defines once each.
RECORDS = (VOLUME, TOLERATION, SOURCE, DESTINATION, NETWORK, SECURITY, JOB)

_AS_WRITTEN = ("properties", "default")  # keywords whose values keep their order, which readers see


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a job file (draft 2020-12)."""
    definitions = {record.name: record.definition() for record in RECORDS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_sorted({"$defs": definitions, **JOB_FILE.definition()}),
    }


def _sorted(said: Any, keyword: str = "") -> Any:
    if isinstance(said, list):
        return [_sorted(one) for one in said]
    if not isinstance(said, dict):
        return said
    names = said if keyword in _AS_WRITTEN else sorted(said)
    return {name: _sorted(said[name], name) for name in names}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
