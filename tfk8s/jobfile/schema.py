"""The keys of a job file and their types, and the JSON Schema of job files for editors and Helm.

`types` and `validation` define the types; `cross_checks` compares the values of several keys.
"""

from __future__ import annotations

from typing import Any

from tfk8s.core import roles, spec
from tfk8s.jobfile import pod, types
from tfk8s.jobfile.document import Path
from tfk8s.jobfile.mappings import (
    DESTINATION,
    ENV_SOURCE,
    ENV_VALUE,
    NETWORK,
    PROGRAM,
    RUN,
    SCRIPT,
    SECURITY,
    SOURCE,
    TOLERATION,
    TOPOLOGY,
)
from tfk8s.jobfile.types import Choice
from tfk8s.jobfile.validation import Container, Key, List, Map, Struct, Validator
from tfk8s.jobfile.volumes import VOLUME

MAX_JOBS = 100
_MAX_AVOIDED = 100  # each is a rule in each pod
_ENV = Map(types.ENV_NAME, ENV_VALUE)
_LABELS = Map(types.LABEL_KEY, types.LABEL_VALUE)
_POD_LABELS = Map(types.USER_LABEL_KEY, types.LABEL_VALUE)
_POD_ANNOTATIONS = Map(types.USER_LABEL_KEY, types.TEXT)

JOB = Struct(
    "Job",
    "A job of the ClusterSpec: a number of tasks with the same settings.",
    {
        "tasks": Key(types.COUNT, "The number of tasks.", 4, default=1),
        "image": Key(types.IMAGE, "The image of this job. It overrides the cluster's.", "registry.example/tf:2.21"),
        "cpu": Key(types.CPU, "The CPU cores of a task: request and limit. Default: a request of 100m.", 2, "500m"),
        "memory": Key(types.SIZE, "The memory of a task: request and limit. Default: a request of 512Mi.", "4Gi"),
        "shm": Key(types.SIZE, "The size of /dev/shm, in memory that the task gets besides `memory`.", "8Gi"),
        "gpus": Key(types.GPUS, "The number of GPUs of a task.", 1, default=0),
        "gpus_optional": Key(
            types.BOOLEAN, "Let a task run even if TensorFlow does not see its GPUs.", True, default=False
        ),
        "gpu_resource": Key(
            types.GPU_RESOURCE, "The name of the GPU resource in Kubernetes.", "amd.com/gpu", default="nvidia.com/gpu"
        ),
        "accelerator": Key(types.ACCELERATOR, "The GPU model, as in the value of GKE's node label.", "nvidia-l4"),
        "node_selector": Key(_LABELS, "The labels that a node must have.", {"disktype": "ssd"}),
        "tolerations": Key(
            List(TOLERATION), "The node taints that the tasks tolerate.", [{"key": "dedicated", "operator": "Exists"}]
        ),
        "env": Key(_ENV, "Environment variables. They override the cluster's variables.", {"OMP_NUM_THREADS": "4"}),
        "labels": Key(_POD_LABELS, "Labels of the pods. They override the cluster's labels.", {"team": "ads"}),
        "annotations": Key(
            _POD_ANNOTATIONS,
            "Annotations of the pods. They override the cluster's annotations.",
            {"example.com/owner": "ads@example.com"},
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
        "priority_class": Key(types.NAME, "The name of a PriorityClass.", "training"),
        "topology": Key(
            TOPOLOGY, "The placement of the tasks in relation to each other. If absent, on different hosts if possible."
        ),
        "pod": Key(pod.POD, "A part of a pod's spec, which is merged into the spec of this job's pods."),
        "program": Key(
            PROGRAM,
            "A program, which each task runs to its end instead of a server: a Python file beside the job file with "
            "arguments, or a command of the image.",
            ["train.py", "--epochs", "3"],
            ["python3", "-m", "trainer"],
        ),
        "tf1": Key(
            types.BOOLEAN, "Give the program of Python the TensorFlow 1 API as `tensorflow`.", True, default=False
        ),
        "kind": Key(
            Choice(roles.DATA),
            "data for tf.data's service: task 0 is the dispatcher, the others are workers. If absent, the tasks are "
            "servers or run a program.",
            roles.DATA,
        ),
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
        "image_pull_secrets": Key(
            List(types.NAME, unique=""),
            "The names of Secrets with the credentials of image registries.",
            ["registry-login"],
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
        "labels": Key(_POD_LABELS, "Labels of all pods, those of scripts too.", {"team": "ads"}),
        "annotations": Key(
            _POD_ANNOTATIONS, "Annotations of all pods, those of scripts too.", {"linkerd.io/inject": "disabled"}
        ),
        "volumes": Key(
            List(VOLUME), "Volumes of every task.", [{"path": "/data", "claim": "datasets", "read_only": True}]
        ),
        "queue": Key(types.QUEUE_NAME, "The name of a Kueue LocalQueue.", "team-a"),
        "avoid": Key(
            List(types.NAME, maximum=_MAX_AVOIDED, unique=""),
            "The names of nodes that no pod of the cluster may use.",
            ["gpu-node-7"],
        ),
        "network": Key(NETWORK, "The allowed connections."),
        "security": Key(SECURITY, "The user, group and ServiceAccount of the pods."),
        "ttl": Key(
            types.DURATION,
            "The time for which a finished script of `tfk8s submit` is kept, with its log.",
            "2h",
            600,
            default=spec.DEFAULT_TTL,
        ),
        "pod": Key(pod.POD, "A part of a pod's spec, which is merged into the spec of all pods."),
        "max_duration": Key(
            types.DURATION, "The time after which the cluster is removed, counted from its first `up`.", "8h", 28800
        ),
        "idle": Key(
            types.DURATION,
            "The time without a session and a session script after which the cluster is removed.",
            "30m",
            1800,
        ),
        "grace": Key(
            types.DURATION,
            "The time that programs and scripts have to save after SIGTERM. If absent, programs have 2 seconds, and "
            "scripts end 15 seconds after Ctrl-C.",
            "30s",
            30,
        ),
        "drain": Key(
            Choice(*roles.DRAINS),
            "What drains of nodes may do to the master and the ps, whose variables a restart loses: block forbids "
            "their eviction, allow permits the eviction of all tasks, idle permits theirs while nobody uses the "
            "cluster.",
            roles.WHILE_IDLE,
            default=roles.BLOCK,
        ),
        "warm": Key(
            types.BOOLEAN,
            "Run scripts as forks in a warm pod, which `up` starts. Without this key, the first script starts it.",
            True,
        ),
        "script": Key(SCRIPT, "The resources of the pods of scripts."),
        "run": Key(RUN, "The rules of the run, if jobs have programs."),
    },
)

JOB_FILE.misplaced = {name: f"this key belongs to a job, as in jobs: {{worker: {{{name}: …}}}}" for name in JOB.keys}
JOB_FILE.misplaced["priority"] = JOB_FILE.misplaced["priority_class"]
del JOB_FILE.misplaced["kind"]  # there, it comes from a Kubernetes object
JOB.misplaced = dict.fromkeys(JOB_FILE.keys, "this key belongs at the top level, beside jobs")
# The keys of Kubernetes' containers that jobs have under other names.
for _words, _keys, _example in (
    ("resources limits requests", "cpu, memory and gpus", "cpu: 2, memory: 4Gi, gpus: 1"),
    ("command args", "program", 'program: [train.py, --epochs, "3"]'),
):
    for _word in _words.split():
        JOB.misplaced[_word] = f"a job has {_keys} instead, as in {{{_example}}}"
        JOB_FILE.misplaced[_word] = f"a job has {_keys} instead, as in jobs: {{worker: {{{_example}}}}}"

_ORDERED = ("properties", "default")  # keywords with values in the order that readers see


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a job file (draft 2020-12)."""
    structs = (
        ENV_SOURCE,
        VOLUME,
        TOLERATION,
        TOPOLOGY,
        SOURCE,
        DESTINATION,
        NETWORK,
        SECURITY,
        SCRIPT,
        RUN,
        *pod.STRUCTS,
        JOB,
    )
    definitions = {struct.name: struct.definition() for struct in structs}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{spec.API_VERSION.replace('/', ':')}:job-file",
        **_sorted({"$defs": definitions, **JOB_FILE.definition()}),
    }


def _sorted(schema: Any, keyword: str = "") -> Any:
    if isinstance(schema, list):
        return [_sorted(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    names = schema if keyword in _ORDERED else sorted(schema)
    return {name: _sorted(schema[name], name) for name in names}
