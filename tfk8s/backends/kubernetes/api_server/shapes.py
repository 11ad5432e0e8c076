"""The types of what tfk8s reads from objects of Kubernetes. A kubeconfig may name any server, which may send anything.

A shape is a type, `[shape]` for a list, `{name: shape}` for an object, or a function that raises a ValueError. A field
may be missing, unless its name ends with "!". Fields that stand in no shape are not looked at. The names and types are
those of k8s.io/api; a field has one type in all kinds of objects that tfk8s reads.
"""

from __future__ import annotations

import functools
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
        _moment(value)


def _moment(value: Any) -> None:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError
    moment.timestamp()


def _strings(value: Any) -> None:
    if not all(isinstance(item, str) for item in value.values()):
        raise ValueError


def _quantities(value: Any) -> None:
    for amount in value.values():
        _quantity(amount)


def _quantity(value: Any) -> None:
    Quantity.parse(value if isinstance(value, str) else str(float(value)))


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
    "volumes": [{"name!": str, "persistentVolumeClaim": {"claimName!": str}}],
    "schedulingGroup": {"podGroupName": str}, "imagePullSecrets": [{"name": str}],
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
    "name!": str, "restartCount!": _integer, "state!": _STATE, "lastState": _STATE, "ready!": bool, "imageID": str,
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
    "series": {"count": _integer, "lastObservedTime": _time}, "major": str, "minor": str, "gitVersion": str,
    "groups": [{"versions!": [{"groupVersion!": str}]}],
}  # fmt: skip


def _with(shape: dict[str, Any], *names: str, **shapes: Any) -> dict[str, Any]:
    """Return the shape of an object that has these fields at least."""
    needed = {name: shape[name] for name in names} | shapes
    return {name: inner for name, inner in shape.items() if name not in needed} | {
        f"{name}!": inner for name, inner in needed.items()
    }


# What an API server always sends of a kind, as far as tfk8s reads it: of other fields, empty values may be left out.
_KEPT = _with(_METADATA, "name", "uid", creationTimestamp=_moment)
_IN_NAMESPACE = _with(_KEPT, "namespace")
_PODS = {"metadata!": _with(_METADATA, "labels"), "spec!": _with(_POD, "containers")}
_WORKLOAD = {"spec": _with(_SPEC, template=_PODS), "status": _STATUS}
_OF_KIND: dict[str, dict[str, Any]] = {
    "Pod": {"spec": _with(_SPEC, "containers", "restartPolicy"), "status": _STATUS},
    "StatefulSet": {
        **_WORKLOAD, "spec": _with(_WORKLOAD["spec"], "replicas"),
        "metadata": _with(_IN_NAMESPACE, generation=_integer),
    },
    "Job": _WORKLOAD,
    "Node": {"spec": _SPEC, "status": _STATUS},
    "Event": {"involvedObject": _OBJECT["involvedObject"]},
    "NetworkPolicy": {"spec": _SPEC},
    "LimitRange": {"spec": _SPEC},
    "PersistentVolumeClaim": {
        "spec": _with(_SPEC, accessModes=[str], resources={"requests!": _with({}, storage=_quantity)}),
    },
}  # fmt: skip
_REVIEWS = {  # nothing keeps them
    "SelfSubjectAccessReview": {"allowed!": bool},
    "SelfSubjectReview": {"userInfo!": {"username!": str}},
}
_UNSCOPED = ("", "Node")


def problem(item: Object, kind: str | None = None, *, is_stored: bool = False) -> str:
    """Return the path of the first field of an object of Kubernetes that has another type or is missing, or "".

    Args:
        kind: the object's, of which an API server always sends some fields; "" for a kind that needs no more than a
            name, a uid and a time. None if nothing is known.
        is_stored: the object has a version, as it has unless it is the answer to a dry run.
    """
    return (_problem(item, _OBJECT if kind is None else _shape(kind, is_stored=is_stored)) or "").lstrip(".")


@functools.cache
def _shape(kind: str, *, is_stored: bool) -> dict[str, Any]:
    if kind in _REVIEWS:
        return _with(_OBJECT, status=_REVIEWS[kind])
    own: dict[str, Any] = {"metadata": _KEPT if kind in _UNSCOPED else _IN_NAMESPACE, **_OF_KIND.get(kind, {})}
    if is_stored:
        own["metadata"] = _with(own["metadata"], "resourceVersion")
    return _with(_OBJECT, **own)


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
