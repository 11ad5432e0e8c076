"""The Job of a warm pod, which runs session scripts of one user as forks of a process with TensorFlow imported."""

from __future__ import annotations

import hashlib
import json

from tfk8s.core.script import ScriptResources
from tfk8s.render import manifests, script_job
from tfk8s.render.pods import Object
from tfk8s.render.script_job import PodSettings
from tfk8s.render.script_resources import Rules

COMPONENT = "warm-scripts"  # no job's DNS name is this, as it would end in a hash
COMMAND = ("python3", "-m", "tfk8s.sessions.warm.entrypoint")
TTL = 60  # seconds for which an ended pod stays, so that its scripts' clients learn the reason
_PREFIX = "warm-"


def is_warm(item: Object) -> bool:
    """Return whether an object is the Job of a warm pod, or such a pod."""
    return bool(item["metadata"].get("labels", {}).get(manifests.COMPONENT) == COMPONENT)


def key(user: str, master: Object, idle: float | None, digest: str, resources: ScriptResources) -> str:
    """Return the first part of the name of a user's warm pods that fit a cluster, such as "warm-8f14e45f".

    Another user, another version of tfk8s, another pod of the master and other resources have another key. What the
    namespace allows is left out, because what quotas have left changes all the time.

    Args:
        master: as of `job`.
        idle: as of `job`.
        digest: of this package's files in the pod.
        resources: as of `job`.
    """
    text = json.dumps([user, job("", master, idle, resources), digest], sort_keys=True)
    return f"{_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def name(item: Object) -> str:
    """Return the name of a warm pod for users, from its Job: "warm-8f14e45f-1b2c"."""
    return str(item["metadata"]["name"])[-len("warm-00000000-0000") :]


def job(
    name: str, master: Object, idle: float | None, resources: ScriptResources, rules: Rules | None = None
) -> Object:
    """Return the Job.

    Args:
        name: the name of the Job and of the Secret with the files.
        master: the master's StatefulSet.
        idle: the seconds without a script after which the pod ends; None is a default.
        resources: of scripts, as the job file names them; the pod has no GPUs.
        rules: what the namespace allows.
    """
    environment = {} if idle is None else {"TFK8S_IDLE": f"{idle:g}"}
    run = PodSettings(arguments=(), environment=environment, command=COMMAND, resources=resources, rules=rules or {})
    made = script_job.job(name, master, run)
    made["spec"]["ttlSecondsAfterFinished"] = TTL
    template = made["spec"]["template"]
    for metadata in (made["metadata"], template["metadata"]):
        metadata["labels"][manifests.COMPONENT] = COMPONENT
    return made
