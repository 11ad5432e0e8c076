"""The mappings that are values of keys in a job file: volumes, tolerations, network and security."""

from __future__ import annotations

from typing import Any

from tfk8s.core import spec
from tfk8s.jobfile import types
from tfk8s.jobfile.types import Choice
from tfk8s.jobfile.validation import Key, List, Map, Struct
from tfk8s.jobfile.values import Invalid

Values = dict[str, Any]  # a struct's values by key, without the absent keys

_SOURCES = ("claim", "secret", "config_map", "size")


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
