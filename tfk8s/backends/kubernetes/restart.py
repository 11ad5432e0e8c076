"""Starts one task anew: in its pod where that is quick, else in a new pod.

A new pod has a new address, which the other servers may need half a minute to learn: gRPC asks DNS again at most every
30 s (GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS in grpc/impl/channel_arg_names.h). A container that ends is started
again in its pod, with the same address; but kubelet puts that off, twice as long each time, until it has run for ten
minutes (kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle, "Container restarts").
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tfk8s import polling
from tfk8s.backends.kubernetes import paths, pod_status, streams
from tfk8s.backends.kubernetes.client import Client
from tfk8s.backends.kubernetes.errors import ApiError
from tfk8s.errors import ClusterError, WaitTimeout
from tfk8s.render import manifests
from tfk8s.render.pods import Object

_SOON = 2  # restarts after which kubelet waits 10 s at most
_FORGIVEN_SECONDS = 600.0
_END_SECONDS = 10.0
# The server ends at SIGTERM; one that is stopped has to go on first. Python is there: it runs the server.
_END = ("python3", "-c", "import os; os.kill(1, 15); os.kill(1, 18)")


def restart_task(client: Client, namespace: str, pod: str) -> None:
    """Have a task's server end and start again; returns when it has ended."""
    path = paths.pod(namespace, pod)
    before = client.find(path)
    if before is None or not starts_again_soon(before, time.time()) or not _ends(client, before):
        client.send("DELETE", path)


def starts_again_soon(pod: Object, now: float) -> bool:
    """Return whether a pod's container, if it ended now, would be started again within seconds."""
    running = _running(pod)
    if running is None or "deletionTimestamp" in pod["metadata"]:
        return False
    restarts = pod["status"]["containerStatuses"][0]["restartCount"]
    return bool(restarts < _SOON or now - pod_status.seconds(running["startedAt"]) > _FORGIVEN_SECONDS)


def _running(pod: Object) -> Object | None:
    """Return since when a pod's container runs, as Kubernetes says it."""
    containers = pod["status"].get("containerStatuses", ())
    return containers[0]["state"].get("running") if containers else None


def _ends(client: Client, before: Object) -> bool:
    """Tell the server in a pod to end; return whether it does."""
    namespace, pod = before["metadata"]["namespace"], before["metadata"]["name"]
    try:
        streams.execute(client, namespace, pod, _END, (), _END_SECONDS)
    except ApiError:
        raise
    except ClusterError:  # the command ends with the container, perhaps before it can say how it went
        pass
    path = paths.pod(namespace, pod)
    try:
        polling.wait_until(
            lambda: (now := client.find(path)) is None or _running(now) != _running(before),
            f"{pod} to end", _END_SECONDS,
        )  # fmt: skip
    except WaitTimeout:
        return False
    return True


def recreate_pods(client: Client, namespace: str, name: str, components: Sequence[str]) -> None:
    """Delete the pods of these jobs' tasks (their DNS names), so that their StatefulSets make new ones."""
    query = paths.of_cluster(name)
    query["labelSelector"] += f",{manifests.COMPONENT} in ({','.join(components)})"
    client.send("DELETE", paths.collection("Pod", namespace), query)
