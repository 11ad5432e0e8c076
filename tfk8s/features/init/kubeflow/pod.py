"""The pod template of a replica: what people use of a pod becomes keys of a job, and the rest becomes notes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tfk8s.core.spec import DEFAULT_PORT
from tfk8s.features.init.kubeflow import container, replica_volumes
from tfk8s.features.init.kubeflow.located_fields import Fields
from tfk8s.jobfile import types

CONTAINER = "tensorflow"  # the operator requires this name
PORT = "tfjob-port"

_READ_ONLY = "the pods do not run as root, and only /tmp and volumes are writable (docs/security.md)"


@dataclass(slots=True)
class Replica:
    """A replica type, as a job file has it.

    Attributes:
        job: the job's name in the job file.
        keys: the job's keys.
        security: the keys of the job file's `security` that the pods have.
        pull_secrets: the names of Secrets for registries.
    """

    job: str
    keys: dict[str, Any]
    security: dict[str, Any] = field(default_factory=dict)
    pull_secrets: list[str] = field(default_factory=list)


def read(template: Fields, replica: Replica, notes: list[str]) -> None:
    """Read a pod template, with `metadata` and `spec`, into a replica; `notes` gets what is left out.

    Raises:
        JobFileError: a field is not valid, or no container has the operator's name.
    """
    keys, job = replica.keys, replica.job
    metadata, spec = template.fields("metadata"), template.fields("spec")
    for key in ("labels", "annotations"):
        keys |= _texts(metadata, key, key)
    metadata.drop("creationTimestamp")
    containers = spec.each("containers")
    own = next((one for one in containers if one.text("name") == CONTAINER), None)
    if own is None:
        message = f'no container has the name "{CONTAINER}"'
        raise spec.error("containers", message, "expected the container of the program")
    keys |= container.read(own, job, notes)
    for port in own.each("ports"):
        _read_port(port, replica, notes)
    _read_settings(spec, replica, notes)
    replica_volumes.read(spec, own, job, keys, notes)
    spec.drop("restartPolicy")  # the replica's own restartPolicy overrides the pod's
    notes += [f'{job}: the container "{one.text("name")}" is left out' for one in containers if one is not own]
    for fields, of in ((metadata, "pods' metadata"), (spec, "pods"), (own, "container")):
        if left := fields.left():
            notes.append(f"{job}: {', '.join(left)} of the {of} is left out; docs/job-file.md says what `pod` may have")
    notes.append(_READ_ONLY)


def _texts(fields: Fields, key: str, name: str) -> dict[str, Any]:
    """Return a mapping of texts as a key of the job, or nothing if the mapping is empty."""
    entries = fields.fields(key)
    return {name: {entry: entries.text(entry) for entry in entries.keys}} if entries.keys else {}


def _read_port(port: Fields, replica: Replica, notes: list[str]) -> None:
    name, number = port.text("name"), port.value("containerPort", types.PORT)
    if name != PORT:
        notes.append(f"{replica.job}: port {number} is closed, as only the cluster's pods connect to each other")
    elif number != DEFAULT_PORT:
        replica.keys["port"] = number


def _read_settings(spec: Fields, replica: Replica, notes: list[str]) -> None:
    """Read the fields of a pod's spec that have keys in the job file."""
    keys, job = replica.keys, replica.job
    keys |= _texts(spec, "nodeSelector", "node_selector")
    if tolerations := [toleration.rest() for toleration in spec.each("tolerations")]:
        keys["tolerations"] = tolerations
    if priority_class := spec.text("priorityClassName"):
        keys["priority_class"] = priority_class
    replica.pull_secrets = [secret.text("name") for secret in spec.each("imagePullSecrets")]
    if account := spec.text("serviceAccountName") or spec.text("serviceAccount"):
        replica.security["service_account"] = account
        notes.append(f'{job}: the pods do not mount the token of ServiceAccount "{account}"')
    spec.drop("serviceAccount")
    security = spec.fields("securityContext")
    for key, names in (("user", ("runAsUser",)), ("group", ("runAsGroup", "fsGroup"))):
        ids = list(dict.fromkeys(security.number(name) for name in names if name in security))
        if ids:
            replica.security[key] = ids[0]
        if len(ids) > 1:
            notes.append(f"{job}: the pods' group is {ids[0]}, also of files in volumes (fsGroup is {ids[1]})")
