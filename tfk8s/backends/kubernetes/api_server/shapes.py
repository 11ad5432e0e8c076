"""The types of what tfk8s reads from objects of Kubernetes. A kubeconfig may name any server, which may send anything.

A shape is a type, `[shape]` for a list, `{name: shape}` for an object, or a function that raises a ValueError. A field
may be missing, unless its name ends with "!". Fields that stand in no shape are not looked at. The names and types are
those of k8s.io/api; a field has one type in all kinds of objects that tfk8s reads.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tfk8s.core.quantity import Quantity
from tfk8s.render.pods import Object

_MOST = 1 << 63  # Kubernetes' integers are smaller


def _integer(value: Any) -> None:
    if type(value) is not int or abs(value) >= _MOST:
        raise ValueError


def _time(value: Any) -> None:
    if value is not None:  # as Kubernetes writes the time of what has not happened
        datetime.fromisoformat(value)


def _strings(value: Any) -> None:
    if not all(isinstance(item, str) for item in value.values()):
        raise ValueError


def _quantities(value: Any) -> None:
    for amount in value.values():
        Quantity.parse(amount if isinstance(amount, str) else str(float(amount)))


_METADATA = {
    "name": str, "namespace": str, "uid": str, "resourceVersion": str, "labels": _strings, "annotations": _strings,
    "creationTimestamp": _time, "deletionTimestamp": _time, "finalizers": [str], "continue": str,
    "ownerReferences": [{"kind!": str, "name!": str, "uid!": str}],
}  # fmt: skip
_RESOURCES = {"requests": _quantities, "limits": _quantities}
_CONTAINER = {
    "name!": str, "image": str, "env": [{"name!": str, "value": str}], "resources": _RESOURCES, "command": [str],
    "args": [str], "ports": [{"name": str, "containerPort!": _integer}],
    "volumeMounts": [{"name!": str, "mountPath!": str}],
}  # fmt: skip
_EXPRESSION = {"key!": str, "operator!": str, "values": [str]}
_TERM = {"matchFields": [_EXPRESSION], "matchExpressions": [_EXPRESSION]}
_POD = {
    "containers": [_CONTAINER], "initContainers": [_CONTAINER], "nodeName": str, "nodeSelector": _strings,
    "restartPolicy": str, "priorityClassName": str, "terminationGracePeriodSeconds": _integer,
    "tolerations": [{"key": str, "operator": str, "value": str, "effect": str}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}}},
    "volumes": [{"name!": str}], "schedulingGroup": {"podGroupName": str},
}  # fmt: skip
_SPEC = {
    **_POD, "template": {"metadata": _METADATA, "spec": _POD}, "replicas": _integer, "completions": _integer,
    "parallelism": _integer, "suspend": bool, "unschedulable": bool, "storageClassName": str, "hard": _quantities,
    "taints": [{"key!": str, "effect!": str, "value": str}], "resources": _RESOURCES,
    "schedulingPolicy": {"gang": {"minCount": _integer}},
}  # fmt: skip
_ENDED = {
    "exitCode!": _integer, "signal": _integer, "reason": str, "message": str, "startedAt": _time, "finishedAt": _time,
}  # fmt: skip
_STATE = {"running": {"startedAt": _time}, "waiting": {"reason": str, "message": str}, "terminated": _ENDED}
_CONTAINER_STATUS = {
    "name!": str, "restartCount!": _integer, "state!": _STATE, "lastState": _STATE, "ready": bool, "imageID": str,
}  # fmt: skip
_STATUS = {
    "phase": str, "reason": str, "message": str, "startTime": _time, "completionTime": _time, "podIP": str,
    "conditions": [{"type!": str, "status!": str, "reason": str, "message": str, "lastTransitionTime": _time}],
    "containerStatuses": [_CONTAINER_STATUS], "initContainerStatuses": [_CONTAINER_STATUS],
    "ephemeralContainerStatuses": [_CONTAINER_STATUS], "allocatable": _quantities, "capacity": _quantities,
    "hard": _quantities, "used": _quantities, "replicas": _integer, "readyReplicas": _integer, "active": _integer,
    "succeeded": _integer, "failed": _integer, "updateRevision": str, "currentRevision": str,
}  # fmt: skip
_OBJECT = {
    "kind": str, "apiVersion": str, "metadata": _METADATA, "spec": _SPEC, "status": _STATUS, "data": _strings,
    "involvedObject": {"kind": str, "name": str, "namespace": str}, "reason": str, "message": str, "type": str,
    "count": _integer, "firstTimestamp": _time, "lastTimestamp": _time, "eventTime": _time,
    "series": {"count": _integer, "lastObservedTime": _time},
}  # fmt: skip
_STORED = {**_OBJECT, "metadata!": {**_METADATA, "name!": str, "creationTimestamp!": _time}}


def problem(item: Object, *, is_stored: bool = False) -> str:
    """Return the path of the first field of an object of Kubernetes that has another type or is missing, or "".

    Args:
        is_stored: the API server keeps the object, so that the object has a name and a time.
    """
    return (_problem(item, _STORED if is_stored else _OBJECT) or "").lstrip(".")


def _problem(value: Any, shape: Any) -> str | None:
    """Return the path of the first such field below a value; None if there is none."""
    if isinstance(shape, dict):
        return _problem_in_object(value, shape) if isinstance(value, dict) else ""
    if isinstance(shape, list):
        return _problem_in_list(value, shape[0]) if isinstance(value, list) else ""
    if isinstance(shape, type):
        return None if isinstance(value, shape) else ""
    try:
        shape(value)
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        return ""
    return None


def _problem_in_object(value: Object, shape: dict[str, Any]) -> str | None:
    for key, inner in shape.items():
        name = key if key[-1] != "!" else key[:-1]
        if name in value:
            if (path := _problem(value[name], inner)) is not None:
                return f".{name}{path}"
        elif key != name:
            return f".{name}"
    return None


def _problem_in_list(value: list[Any], shape: Any) -> str | None:
    for number, item in enumerate(value):
        if (path := _problem(item, shape)) is not None:
            return f"[{number}]{path}"
    return None
