"""The container of a task or a script in a pod: `pod` in the job file and service meshes add others to the same pod."""

from __future__ import annotations

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.core.naming import CONTAINERS
from tfk8s.core.output import reason
from tfk8s.errors import ClusterError
from tfk8s.render import manifests
from tfk8s.render.pods import Object

# The reasons of containers that wait for volumes, images or init containers.
STARTING = ("ContainerCreating", "PodInitializing")
_NO_LOG = "unable to retrieve container logs for "  # kubelet's answer, in place of a log, for a container that is gone


def spec(pod: Object) -> Object:
    """Return the container in a pod's spec.

    Raises:
        ClusterError: there is none, since somebody else has changed the spec.
    """
    for container in pod["spec"].get("containers", ()):
        if container["name"] in CONTAINERS:
            return dict(container)
    raise _changed(pod, "the container of tfk8s")


def log_path(pod: Object) -> str:
    """Return the path of the container's log."""
    return paths.container(pod["metadata"]["namespace"], pod["metadata"]["name"], spec(pod)["name"], "log")


def telling_line(log: str) -> str:
    """Return the line that says why a container ended, from the end of its log, or ""."""
    return reason.telling_line(line for line in log.splitlines() if not line.startswith(_NO_LOG))


def template_variables(item: Object) -> dict[str, str]:
    """Return the variables with fixed values of the container that a StatefulSet or a Job describes.

    A ClusterError says that somebody else has removed the variable that is asked for.
    """
    return _Variables(item["spec"]["template"])


class _Variables(dict[str, str]):
    def __init__(self, template: Object) -> None:
        variables = spec(template).get("env", ())
        super().__init__((variable["name"], variable["value"]) for variable in variables if "value" in variable)
        self._template = template

    def __missing__(self, name: str) -> str:
        raise _changed(self._template, f"the variable {name}")


def _changed(pod: Object, lacks: str) -> ClusterError:
    name = pod["metadata"].get("labels", {}).get(manifests.INSTANCE, "")
    return ClusterError(
        f'the pods of cluster "{name}" lack {lacks}: another program has changed them',
        help=f"`tfk8s down {name}` removes the cluster, and `tfk8s up` makes the cluster again",
    )


def out_of_memory(pod: Object) -> tuple[str, str]:
    """Return why a pod's container was killed for its use of memory, and the verb for the limit to change."""
    limit = spec(pod)["resources"].get("limits", {}).get("memory")
    return (f"at its memory limit of {limit}", "raise") if limit else ("because its node ran out of memory", "set")


def statuses(pod: Object) -> list[Object]:
    """Return the status of the container, as a list; an empty list before kubelet has seen the pod."""
    return [status for status in pod["status"].get("containerStatuses", ()) if status["name"] in CONTAINERS]


def last_end(pod: Object) -> Object | None:
    """Return the last end of a pod's container, as Kubernetes reports it; None before an end."""
    for container in statuses(pod):
        if end := container["state"].get("terminated") or container.get("lastState", {}).get("terminated"):
            return dict(end)
    return None


def why_others_wait(job: str, pod: Object) -> str:
    """Return why another container of a pod does not run, or ""."""
    for container in _others(pod):
        ended = container["state"].get("terminated") or container.get("lastState", {}).get("terminated", {})
        waiting = container["state"].get("waiting", {})
        if "running" in container["state"] or waiting.get("reason") in STARTING:
            continue
        if ended.get("exitCode"):
            problem = f"ended with exit code {ended['exitCode']}"
        elif waiting:
            problem = f"can't start: {waiting.get('message') or waiting.get('reason')}"
        else:
            continue
        return f'its container "{container["name"]}" {problem}: change pod or jobs.{job}.pod'
    return ""


def have_ended(pod: Object) -> bool:
    """Return whether nothing runs in a pod any more: kubelet has seen all its containers end, and starts none."""
    kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    status = pod["status"]
    every = [item for kind in kinds for item in status.get(kind, ())]
    has_run = pod["spec"]["restartPolicy"] == "Never" and bool(status.get("containerStatuses"))
    return has_run and all("terminated" in item["state"] for item in every)


def _others(pod: Object) -> list[Object]:
    """Return the statuses of the pod's other containers, those first that run before the task."""
    status = pod["status"]
    every = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return [item for item in every if item["name"] not in CONTAINERS]
