"""The volumes of a replica's container: those with a key in the job file, and the others for the key `pod`."""

from __future__ import annotations

import re
from typing import Any

from tfk8s.core.naming import SHM_FOLDER
from tfk8s.jobfile import types, values
from tfk8s.render import volumes as pod_volumes
from tfk8s.tools.kubeflow import container
from tfk8s.tools.kubeflow.draft import Draft, Notes
from tfk8s.tools.kubeflow.fields import Fields

Object = dict[str, Any]

# Sources with a key in the job file, and the key of their name.
_SOURCES = {
    "persistentVolumeClaim": ("claim", "claimName"),
    "secret": ("secret", "secretName"),
    "configMap": ("config_map", "name"),
    "emptyDir": ("size", "sizeLimit"),
}


def plain(volume: Fields) -> Object:
    """Return a volume, whose source must be a mapping; without a source, it is an empty folder."""
    kinds = [key for key in volume.keys if key != "name"]
    return {"name": volume.text("name"), **({kind: volume.fields(kind).rest() for kind in kinds} or {"emptyDir": {}})}


def read(volumes: list[Object], mounts: list[Object], draft: Draft, notes: Notes) -> list[Object]:
    """Read the mounts of a replica's container into a draft; return the mounts for the key `pod`.

    Args:
        volumes: the pod's volumes; those that the draft's keys have are removed, and reserved names are changed.
        mounts: the mounts of the replica's container.
        draft: the job.
        notes: what gets lost.
    """
    by_name = {volume.get("name"): volume for volume in volumes}
    uses = [mount.get("name") for mount in mounts]
    left, own = [], []
    for mount in mounts:
        volume = by_name.get(mount.get("name"), {})
        entry = _entry(volume, mount)
        if _is_scratch(volume, mount):
            if volume["emptyDir"] != {"sizeLimit": pod_volumes.SCRATCH_SIZE}:
                notes.add(f"{draft.name}: the empty folder at /tmp is tfk8s' own, of {pod_volumes.SCRATCH_SIZE}")
        elif _is_shm(volume, mount) and _set_shm(volume, draft):
            pass
        elif entry is not None and uses.count(mount["name"]) == 1:
            draft.keys.setdefault("volumes", []).append(entry)
        else:
            left.append(mount)
            continue
        own.append(volume["name"])
    volumes[:] = [volume for volume in volumes if volume.get("name") not in own]
    return left


def rename(spec: Object) -> None:
    """Change the names of a pod's volumes that are tfk8s' own."""
    names = {volume.get("name"): f"{volume.get('name')}-user" for volume in spec.get("volumes", ())}
    reserved = {name: new for name, new in names.items() if re.search(values.RESERVED_VOLUME, str(name))}
    mounts = [
        mount
        for one in (*spec.get("containers", ()), *spec.get("initContainers", ()))
        for mount in one.get("volumeMounts", ())
    ]
    for entry in (*spec.get("volumes", ()), *mounts):
        entry["name"] = reserved.get(entry.get("name"), entry.get("name"))


def _entry(volume: Object, mount: Object) -> Object | None:
    """Return the entry of the job file's `volumes`, or None if none says the same."""
    if not set(mount) <= {"name", "mountPath", "readOnly"} or len(volume) != 2:
        return None
    kind = next(key for key in volume if key != "name")
    source = volume[kind]
    if kind not in _SOURCES:
        return None
    key, name = _SOURCES[kind]
    is_read_only = bool(source.get("readOnly")) if kind == "persistentVolumeClaim" else False
    if set(source) - ({"readOnly"} if is_read_only else set()) != {name}:
        return None
    read_only = {"read_only": True} if is_read_only or mount.get("readOnly") else {}
    return {"path": mount["mountPath"], key: source[name], **read_only}


def _is_scratch(volume: Object, mount: Object) -> bool:
    return values.normal_path(str(mount.get("mountPath"))) == pod_volumes.SCRATCH_FOLDER and "emptyDir" in volume


def _is_shm(volume: Object, mount: Object) -> bool:
    folder, source = values.normal_path(str(mount.get("mountPath"))), volume.get("emptyDir")
    if folder != SHM_FOLDER or source is None or {*source} != {"medium", "sizeLimit"}:
        return False
    return container.is_valid(types.SIZE, source["sizeLimit"])


def _set_shm(volume: Object, draft: Draft) -> bool:
    """Set `shm`, which is memory besides `memory`; return whether that is possible."""
    shm = str(volume["emptyDir"]["sizeLimit"])
    if "memory" in draft.keys:
        memory = container.less(str(draft.keys["memory"]), shm)
        if memory is None:
            return False
        draft.keys["memory"] = memory
    draft.keys["shm"] = shm
    return True
