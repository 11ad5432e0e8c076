"""The pod template of a replica: the keys of a job in the job file, and its key `pod` for what has no key."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfk8s.core.programs import Program
from tfk8s.core.spec import DEFAULT_PORT, Job, Topology
from tfk8s.jobfile import types
from tfk8s.render import overlay, placement, pods, tfjob
from tfk8s.tools.kubeflow import container, volumes
from tfk8s.tools.kubeflow.draft import Draft, Notes
from tfk8s.tools.kubeflow.fields import Fields

Object = dict[str, Any]

# The settings of a pod that tfk8s' pods have anyway, and those that a replica's pod never gets.
_SAME = {
    "hostNetwork": False, "hostPID": False, "hostIPC": False, "shareProcessNamespace": False,
    "enableServiceLinks": False, "automountServiceAccountToken": False, "setHostnameAsFQDN": False,
}  # fmt: skip
_PLACES = {"kubernetes.io/hostname": "host", "topology.kubernetes.io/zone": "zone"}
_READ_ONLY = "the pods do not run as root, and only /tmp and volumes are writable (docs/security.md)"
_GPU = "nvidia.com/gpu"


def read(template: Fields, draft: Draft, name: str, notes: Notes, trainer: Fields | None = None) -> None:
    """Read a pod template into a draft.

    Args:
        template: the template, with `metadata` and `spec`.
        draft: the job.
        name: the name of the replica's container.
        notes: what gets lost.
        trainer: a TrainJob's trainer, whose fields override those of the container.
    """
    _read_metadata(template.fields("metadata"), draft, notes)
    spec = template.fields("spec")
    spec.check_names(overlay.MERGE_KEYS)
    containers = spec.each("containers")
    own = next((one for one in containers if one.text("name") == name), None)
    if own is None:
        raise spec.error("containers", f'no container has the name "{name}"', "expected the container of the program")
    spec.drop("containers", "restartPolicy")  # the replica's own restartPolicy overrides the pod's
    server = container.read(own, draft, notes, trainer)
    mounts = [{"name": mount.text("name"), **mount.rest()} for mount in own.each("volumeMounts")]
    for port in own.each("ports"):
        _read_port(port, draft, notes)
    _read_settings(spec, draft, notes)
    found = [volumes.plain(volume) for volume in spec.each("volumes")]
    left = volumes.read(found, mounts, draft, notes)
    _check_forms(spec, containers)
    rest = {**spec.rest(), "volumes": found}
    draft.spec |= {
        **{key: value for key, value in rest.items() if _SAME.get(key) is not value},
        "containers": [
            {**own.rest(), **server, "volumeMounts": left},
            *({"name": one.text("name"), **one.rest()} for one in containers if one is not own),
        ],
    }
    volumes.rename(draft.spec)
    if draft.spec["containers"][0].get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
        notes.add(_READ_ONLY)


def _check_forms(spec: Fields, containers: Sequence[Fields]) -> None:
    """Check the forms of what is compared or changed before the job file is checked as a whole."""
    affinity = spec.fields("affinity")
    for key in affinity.keys:
        affinity.fields(key)
    spec.each("topologySpreadConstraints")
    for one in (*containers, *spec.each("initContainers")):
        one.fields("securityContext")
        for mount in one.each("volumeMounts"):
            mount.text("name")
        one.untake("securityContext", "volumeMounts")
    spec.untake("affinity", "topologySpreadConstraints", "initContainers")


def _read_metadata(metadata: Fields, draft: Draft, notes: Notes) -> None:
    metadata.drop("creationTimestamp")
    for key in ("labels", "annotations"):
        entries = metadata.fields(key)
        if texts := {entry: entries.text(entry) for entry in entries.keys}:
            draft.keys[key] = texts
    for key in metadata.rest():
        notes.add(f"{draft.name}: the pods' metadata.{key} has no counterpart")


def _read_port(port: Fields, draft: Draft, notes: Notes) -> None:
    name, number = port.text("name"), port.value("containerPort", types.PORT)
    if "hostPort" in port:
        notes.add(f"{draft.name}: port {number} is not a port of the node (hostPort)")
    if name == tfjob.PORT:
        draft.keys.update({"port": number} if number != DEFAULT_PORT else {})
    else:
        notes.add(f"{draft.name}: port {number} is closed, as only the cluster's pods connect to each other")


def _read_settings(spec: Fields, draft: Draft, notes: Notes) -> None:
    """Read the fields of a pod's spec that have keys in the job file."""
    labels = spec.fields("nodeSelector")
    if selector := {key: labels.text(key) for key in labels.keys}:
        draft.keys["node_selector"] = selector
    if tolerations := [toleration.rest() for toleration in spec.each("tolerations")]:
        draft.keys["tolerations"] = tolerations
    if priority_class := spec.text("priorityClassName"):
        draft.keys["priority_class"] = priority_class
    draft.pull_secrets = [secret.text("name") for secret in spec.each("imagePullSecrets")]
    if account := spec.text("serviceAccountName") or spec.text("serviceAccount"):
        draft.security["service_account"] = account
        notes.add(f'{draft.name}: the pods do not mount the token of ServiceAccount "{account}"')
    spec.drop("serviceAccount")
    security = spec.fields("securityContext")
    for key, names in (("user", ("runAsUser",)), ("group", ("runAsGroup", "fsGroup"))):
        ids = list(dict.fromkeys(security.number(name) for name in names if name in security))
        if ids:
            draft.security[key] = ids[0]
        if len(ids) > 1:
            notes.add(f"{draft.name}: the pods' group is {ids[0]}, also of files in volumes (fsGroup is {ids[1]})")
    if rest := security.rest():
        draft.spec["securityContext"] = rest


def tidy(draft: Draft, labels: Mapping[str, str]) -> None:
    """Give a draft the keys for places and spot nodes, and remove the variables and tolerations that tfk8s adds.

    Args:
        draft: the job.
        labels: the labels of the job's pods in rules about their places.
    """
    keys = draft.keys
    selector, gpus = keys.get("node_selector", {}), keys.get("gpus", 0)
    if gpus and placement.GKE_ACCELERATOR in selector:
        keys["accelerator"] = selector.pop(placement.GKE_ACCELERATOR)
    if selector.get(placement.GKE_SPOT) == "true":
        del selector[placement.GKE_SPOT]
        keys["spot"] = True
    job = Job(
        name=draft.name,
        gpus=gpus,
        gpu_resource=keys.get("gpu_resource", _GPU),
        spot=keys.get("spot", False),
        program=Program(tuple(keys["program"])) if "program" in keys else None,
    )
    added = placement.rules(job, labels).get("tolerations", [])
    if "tolerations" in keys:
        keys["tolerations"] = [toleration for toleration in keys["tolerations"] if toleration not in added]
    defaults = pods.default_environment(job)
    keys["env"] = {name: value for name, value in keys.get("env", {}).items() if defaults.get(name) != value}
    _set_topology(draft, labels)
    draft.keys = {key: value for key, value in keys.items() if value not in ({}, [], ())}


def _set_topology(draft: Draft, labels: Mapping[str, str]) -> None:
    """Set `topology` if a value of it gives a pod the rules about other pods that the draft's pods have."""
    rules = _rules(draft.spec)
    for topology in (None, *_topologies(rules)):
        job = Job(name=draft.name, topology=Topology(**topology) if topology else None)
        if rules and _rules(placement.rules(job, labels)) == rules:
            affinity = {key: rule for key, rule in draft.spec.pop("affinity", {}).items() if key not in rules}
            draft.spec.pop("topologySpreadConstraints", None)
            if affinity:
                draft.spec["affinity"] = affinity
            if topology:
                draft.keys["topology"] = topology
            return


def _rules(spec: Object) -> Object:
    """Return the rules of a pod about its place in relation to other pods, by their keys."""
    found = {**spec.get("affinity", {}), **spec}
    return {key: found[key] for key in ("podAffinity", "podAntiAffinity", "topologySpreadConstraints") if key in found}


def _topologies(rules: Object) -> Iterator[Object]:
    """Yield the values of `topology` with the node labels in a pod's rules."""
    for label in dict.fromkeys(re.findall("'topologyKey': '([^']+)'", str(rules))):
        for form, required in itertools.product(("spread", "pack"), (False, True)):
            yield {form: _PLACES.get(label, label), **({"required": True} if required else {})}
