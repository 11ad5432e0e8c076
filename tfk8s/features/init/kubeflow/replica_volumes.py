"""The volumes of a replica's container."""

from __future__ import annotations

from typing import Any

from tfk8s.core.naming import SHM_FOLDER
from tfk8s.features.init.kubeflow import container
from tfk8s.features.init.kubeflow.located_fields import Fields
from tfk8s.jobfile import types, values
from tfk8s.render import pod_volumes

# Sources with a key in the job file, and the field of their name.
_SOURCES = {
    "persistentVolumeClaim": ("claim", "claimName"),
    "secret": ("secret", "secretName"),
    "configMap": ("config_map", "name"),
}
_FOLDER = "emptyDir"
_FOLDER_SIZE, _SHM_SIZE = "10Gi", "1Gi"  # of folders without a limit, which a job file must give


def read(spec: Fields, own: Fields, job: str, keys: dict[str, Any], notes: list[str]) -> None:
    """Add the volumes that a container mounts to the keys of its job; `notes` gets what is left out.

    Args:
        spec: the pod's spec.
        own: the container.
        keys: the job's keys.
    """
    by_name = {volume.text("name"): volume for volume in spec.each("volumes")}
    for mount in own.each("volumeMounts"):
        volume, path = by_name.get(mount.text("name")), mount.text("mountPath")
        kind = next((key for key in volume.keys if key != "name"), _FOLDER) if volume else "no volume"
        if volume is None or kind not in (*_SOURCES, _FOLDER) or mount.text("subPath"):
            notes.append(f"{job}: the volume at {path} is left out ({'subPath' if 'subPath' in mount else kind})")
            continue
        source = volume.fields(kind)
        entry = _folder(source, path, job, keys, notes) if kind == _FOLDER else _named(kind, source)
        if entry:
            is_read_only = mount.flag("readOnly") or (kind == "persistentVolumeClaim" and source.flag("readOnly"))
            read_only = {"read_only": True} if is_read_only else {}
            place = {"path": mount.value("mountPath", types.MOUNT_PATH)}
            keys.setdefault("volumes", []).append({**place, **entry, **read_only})
        notes += [f"{job}: {field} of the volume at {path} is left out" for field in (*source.left(), *mount.left())]


def _named(kind: str, source: Fields) -> dict[str, Any]:
    key, name = _SOURCES[kind]
    return {key: source.value(name, types.NAME)}


def _folder(source: Fields, path: str, job: str, keys: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return the source of an empty folder; none for /tmp, which pods have, and for /dev/shm, which has a key."""
    source.drop("medium")
    folder, given = values.normal_path(path), source.value("sizeLimit", types.SIZE)
    if folder == pod_volumes.SCRATCH_FOLDER:
        notes.append(f"{job}: the empty folder at /tmp is tfk8s' own, of {pod_volumes.SCRATCH_SIZE}")
        return {}
    size = given or (_SHM_SIZE if folder == SHM_FOLDER else _FOLDER_SIZE)
    if given is None:
        notes.append(f"{job}: the empty folder at {path} has at most {size}")
    if folder != SHM_FOLDER:
        return {"size": size}
    keys["shm"] = size  # memory besides `memory`
    if "memory" in keys:
        keys["memory"] = container.less(str(keys["memory"]), str(size)) or keys["memory"]
    return {}
