"""The mappings that are values of keys in a job file: tolerations, network, security and more; not volumes."""

from __future__ import annotations

from typing import Any

from tfk8s.core import programs, spec
from tfk8s.core.script import ScriptResources
from tfk8s.jobfile import types
from tfk8s.jobfile.document import Path
from tfk8s.jobfile.types import Choice
from tfk8s.jobfile.validation import Container, Key, List, Map, OptionalList, Struct, Validator
from tfk8s.jobfile.values import Invalid

Values = dict[str, Any]  # a struct's values by key, without the absent keys


def _one_source(code: str, noun: str, *sources: str) -> dict[str, Any]:
    """Return the rule that a struct has exactly one of these keys, as a function and as a JSON Schema."""
    expected = f"expected exactly one of {', '.join(sources[:-1])} and {sources[-1]}"

    def rule(values: Values) -> None:
        given = [source for source in sources if source in values]
        if len(given) != 1:
            message = f"a {noun} can't have {' and '.join(given)} at once" if given else f"this {noun} has no source"
            raise Invalid(code, message, expected)

    return {"rule": rule, "rule_schema": {"oneOf": [{"required": [source]} for source in sources]}}


ENV_SOURCE = Struct(
    "EnvSource",
    "The source of a variable's value: a key of a Secret or of a ConfigMap.",
    {
        "secret": Key(types.NAME, "The name of a Secret.", "storage-key"),
        "config_map": Key(types.NAME, "The name of a ConfigMap.", "settings"),
        "key": Key(types.DATA_KEY, "The key in the Secret or ConfigMap.", "password", required=True),
    },
    make=spec.EnvSource,
    **_one_source("bad-env-source", "variable", "secret", "config_map"),
)


class _EnvValueForm(Container):
    """The two forms of a variable's value: a text, or a mapping with its source."""

    accepts = (str, dict)
    expected = "text, or a mapping with a source"
    json_schema: dict[str, Any] = {  # noqa: RUF012 - nobody changes it
        "type": ["string", "object"],
        "if": {"type": "object"},
        "then": ENV_SOURCE.json_schema,
    }

    def read_entries(self, form: Any, path: Path, validator: Validator, /) -> Any:
        """Return the text or the source."""
        return form if isinstance(form, str) else ENV_SOURCE.read_entries(form, path, validator)

    def suggest(self, value: object, text: str, /) -> str | None:
        """Return advice to write the value in quotes."""
        return types.TEXT.suggest(value, text)


ENV_VALUE = _EnvValueForm()


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


def _spread_or_pack(topology: Values) -> None:
    if ("spread" in topology) == ("pack" in topology):
        message = "tasks can't be spread and packed at once" if "pack" in topology else "this topology has no rule"
        raise Invalid("bad-topology", message, "expected exactly one of spread and pack")


class _Words(List):
    """The words of a program."""

    absent = None  # a job without program has servers

    def read_entries(self, entries: Any, path: Path, validator: Validator, /) -> Any:
        """Return the program."""
        words = super().read_entries(entries, path, validator)
        if words[0] is not None and not words[0].strip():
            raise Invalid("bad-program", "the program has no name", "expected a Python file, or a command of the image")
        return programs.Program(words)


PROGRAM = _Words(types.TEXT, minimum=1)


class _Ends(Container):
    """The ends after which programs run again: a word, or a list of exit codes."""

    accepts = (str, list)
    _words, _codes = Choice(*programs.RESTART_ON), List(types.EXIT_CODE, minimum=1)
    expected = f"{_words.expected}, or a list of exit codes"
    json_schema = {  # noqa: RUF012 - nobody changes it
        **_codes.json_schema,
        "type": ["string", "array"],
        "if": {"type": "string"},
        "then": {"enum": list(programs.RESTART_ON)},
    }

    def read_entries(self, value: Any, path: Path, validator: Validator, /) -> Any:
        """Return the word, or the exit codes."""
        if isinstance(value, str):
            return self._words.read(value, path)
        return self._codes.read_entries(value, path, validator)

    def suggest(self, value: object, text: str, /) -> str | None:
        """Return advice to write a single exit code as a list."""
        return f"write [{text}]" if isinstance(value, int) else None


RUN = Struct(
    "Run",
    "The rules of a run, which jobs with programs make: its success, its restarts and its limit.",
    {
        "success": Key(
            types.TEXT,
            "The job or the task whose programs' end with exit code 0 is the run's success. If absent: chief, else all "
            "programs except an evaluator.",
            "worker/0",
        ),
        "restart_on": Key(
            _Ends(),
            "The ends after which programs run again: exit-code for 42 and codes from 128, which signals give; failure "
            "for each code except 0; never; or a list of exit codes.",
            programs.FAILURE,
            [42, 143],
            default=programs.EXIT_CODE,
        ),
        "max_restarts": Key(types.RESTARTS, "The greatest number of restarts.", 10, default=3),
        "restart_scope": Key(
            Choice(*programs.RESTART_SCOPES),
            "The programs that run again together: the failed task's, its job's, or all of the cluster. If absent: all "
            "of the cluster on this machine. On Kubernetes, each program runs again alone.",
            programs.TASK,
        ),
        "timeout": Key(types.DURATION, "The time after which the run fails.", "2h", 7200),
    },
    make=programs.RunPolicy,
)

SCRIPT = Struct(
    "ScriptResources",
    "The resources of a session script's pod. Only Kubernetes uses them.",
    {
        "cpu": Key(types.CPU, "The CPU cores of a script: request and limit. Default: a request of 50m.", 2, "500m"),
        "memory": Key(types.SIZE, "The memory of a script: request and limit. Default: a request of 512Mi.", "4Gi"),
        "shm": Key(types.SIZE, "The size of /dev/shm, in memory that the script gets besides `memory`.", "2Gi"),
        "ephemeral_storage": Key(
            types.SIZE, "The storage for a script's own folders and its log. Default: up to 4Gi.", "20Gi"
        ),
        "gpus": Key(types.GPUS, "The number of GPUs. A script with GPUs has a pod of its own.", 1),
    },
    make=ScriptResources,
)

TOPOLOGY = Struct(
    "Topology",
    "The placement of a job's tasks in relation to each other. Exactly one of spread and pack.",
    {
        "spread": Key(
            types.TOPOLOGY_KEY,
            "Spread the tasks evenly over hosts, zones, or the values of this label of nodes.",
            "zone",
        ),
        "pack": Key(
            types.TOPOLOGY_KEY,
            "Keep the tasks together: on one host, in one zone, or on nodes with the same value of this label.",
            "zone",
            "cloud.google.com/gce-topology-block",
        ),
        "required": Key(
            types.BOOLEAN,
            "Let a task wait until a node fits. If false, the scheduler prefers nodes that fit.",
            True,
            default=False,
        ),
    },
    make=spec.Topology,
    rule=_spread_or_pack,
    rule_schema={"oneOf": [{"required": ["spread"]}, {"required": ["pack"]}]},
)


def _peer(**values: Any) -> spec.Peer:
    return spec.Peer(**{"except_" if key == "except" else key: value for key, value in values.items()})


def _pods_or_addresses(peer: Values) -> None:
    pods = "namespace" in peer or "pods" in peer
    if "cidr" in peer and pods:
        raise Invalid("bad-peer", "cidr can't be combined with namespace or pods", "expected one of them")
    if "except" in peer and "cidr" not in peer:
        raise Invalid("bad-peer", "except needs cidr, the range that it leaves addresses out of", "expected cidr")
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
    "except": Key(List(types.CIDR, minimum=1), "Parts of cidr that are left out of the range.", ["169.254.169.254/32"]),
}
_PEER_RULE = {
    "anyOf": [{"required": ["namespace"]}, {"required": ["pods"]}, {"required": ["cidr"]}],
    "not": {
        "allOf": [
            {"anyOf": [{"required": ["cidr"]}, {"required": ["except"]}]},
            {"anyOf": [{"required": ["namespace"]}, {"required": ["pods"]}]},
        ]
    },
}

SOURCE = Struct(
    "Source",
    "Pods, or a range of IP addresses, that may connect to the cluster.",
    _PEER,
    make=_peer,
    rule=_pods_or_addresses,
    rule_schema=_PEER_RULE,
)

DESTINATION = Struct(
    "Destination",
    "Pods, or a range of IP addresses, that tasks and session scripts may connect to.",
    {**_PEER, "ports": Key(List(types.PORT, minimum=1), "The ports. If absent, all ports.", [443])},
    make=_peer,
    rule=_pods_or_addresses,
    rule_schema=_PEER_RULE,
)

NETWORK = Struct(
    "Network",
    "The allowed connections. By default, only the pods of the cluster can connect to the tasks.",
    {
        "allow_from": Key(List(SOURCE), "Other clients that may connect to the tasks.", [{"namespace": "notebooks"}]),
        "allow_to": Key(
            OptionalList(DESTINATION),
            "The only destinations that tasks and session scripts may connect to, besides the cluster and DNS. If "
            "empty, they may connect to no others. If absent, the job file does not restrict their connections.",
            [{"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"], "ports": [443]}],
            [],
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
