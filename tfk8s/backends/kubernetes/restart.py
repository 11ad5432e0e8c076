"""Restarts tasks: one task in its pod if that is quick, else in a new pod; all tasks of jobs in new pods.

A new pod has a new address. In a cluster with programs, the other servers may need half a minute to learn the address:
gRPC asks DNS again at most every 30 s (GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS in grpc/impl/channel_arg_names.h).
A container that ends restarts in its pod, with the same address. But kubelet delays each restart twice as long as the
one before, until the container has run for ten minutes (kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle,
"Container restarts").
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import commands, paths
from tfk8s.backends.kubernetes.api_server.client import Client, Query
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.pods import containers, pod_events, pod_status
from tfk8s.backends.kubernetes.workloads import avoidance, bad_nodes, ownership, program_status
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core import naming
from tfk8s.core.spec import Task
from tfk8s.errors import ClusterError, InvalidInput, WaitTimeout
from tfk8s.render import manifests
from tfk8s.render.pods import Object

_MAX_RESTARTS = 2  # kubelet delays the restart after fewer restarts by at most 10 s
_BACKOFF_RESET = 600.0  # seconds
_END_TIMEOUT = 10.0
# SIGTERM ends the server, and SIGCONT lets a stopped server take it. Python is in the image, since it runs the server.
_END_SERVER = ("python3", "-c", "import os; os.kill(1, 15); os.kill(1, 18)")
_RUN_PROGRAM_AGAIN = ("python3", "-c", "import os; os.kill(1, 1)")  # SIGHUP: see task/programs/pod.py


def restart_task(client: Client, namespace: str, pod: str) -> None:
    """End a task's server, which starts again; return when it has ended."""
    path = paths.pod(namespace, pod)
    before = client.find(path)
    if before is None or not restarts_quickly(before, time.time()) or not _end_server(client, before):
        client.send("DELETE", path)


def restarts_quickly(pod: Object, now: float) -> bool:
    """Return whether kubelet would restart a pod's container within seconds if it ended now."""
    running = _running(pod)
    if running is None or "deletionTimestamp" in pod["metadata"]:
        return False
    restarts = containers.statuses(pod)[0]["restartCount"]
    return bool(restarts < _MAX_RESTARTS or now - pod_status.since(pod) > _BACKOFF_RESET)


def _running(pod: Object) -> Object | None:
    """Return the running state of a pod's container; None if the container does not run."""
    own = containers.statuses(pod)
    return own[0]["state"].get("running") if own else None


def restart_program(client: Client, job: Object, task: Task, pod: str) -> None:
    """Run a program again in its pod.

    Raises:
        InvalidInput: the program's Job has ended, so that no pod can run the program.
    """
    namespace = job["metadata"]["namespace"]
    if program_status.end(job) is not None:
        name = job["metadata"]["labels"][manifests.INSTANCE]
        raise InvalidInput(f"{task} has ended with its job", help=f"`tfk8s restart {name}` runs all programs again")
    commands.execute(client, namespace, pod, _RUN_PROGRAM_AGAIN, (), _END_TIMEOUT)


def _end_server(client: Client, before: Object) -> bool:
    """End the server in a pod; return whether it ended in time."""
    namespace, pod = before["metadata"]["namespace"], before["metadata"]["name"]
    try:
        commands.execute(client, namespace, pod, _END_SERVER, (), _END_TIMEOUT)
    except ApiError:
        raise
    except ClusterError:  # the command ends with the container, perhaps before it can report its result
        pass
    path = paths.pod(namespace, pod)
    try:
        polling.wait_until(
            lambda: (now := client.find(path)) is None or _running(now) != _running(before),
            f"{pod} to end", _END_TIMEOUT,
        )  # fmt: skip
    except WaitTimeout:
        return False
    return True


def replace_elsewhere(client: Client, cluster: DeployedCluster, task: Task) -> bool:
    """Replace the pod of a server by one on another node, if its node may be at fault; return whether that is so."""
    item, name = cluster.workload(task.job), naming.pod(cluster.name, task.job, task.index)
    if item is None or ownership.is_of_helm(item):
        return False
    find = _finder(client, cluster.namespace, cluster.name, [item])
    fault = bad_nodes.read(find(), [item], functools.partial(pod_events.read, client, cluster.namespace)).get(name)
    path = paths.pod(cluster.namespace, name)
    if fault and avoidance.news(item, {name: fault}):
        avoidance.say([(str(task), fault)])
        avoidance.replace(client, item, [fault.node], find, lambda: client.send("DELETE", path))
    elif fault:
        client.send("DELETE", path)
    return fault is not None


def recreate_pods(client: Client, namespace: str, name: str, workloads: Iterable[Object]) -> None:
    """Delete all pods of those workloads that are StatefulSets, which create new pods, away from bad nodes."""
    sets = [item for item in workloads if not manifests.is_program(item)]
    if not sets:
        return
    path = paths.collection("Pod", namespace)
    list_events = functools.partial(pod_events.read, client, namespace)
    faults = bad_nodes.read(_finder(client, namespace, name, sets)(), sets, list_events)
    others = []
    for item in sets:
        own = {pod: fault for pod, fault in faults.items() if pod.rpartition("-")[0] == item["metadata"]["name"]}
        own = avoidance.news(item, own)
        if not own or ownership.is_of_helm(item):
            others.append(item)
            continue
        avoidance.say(own.items())
        query, nodes = _query(name, [item]), sorted({fault.node for fault in own.values()})
        find = _finder(client, namespace, name, [item])
        avoidance.replace(client, item, nodes, find, functools.partial(client.delete_all, path, query))
    if others:
        client.delete_all(path, _query(name, others))


def recover(client: Client, namespace: str, name: str, objects: Iterable[Object]) -> None:
    """Finish what a restart that was killed has left half-done, for the objects that `up` has applied."""
    for item in objects:
        if item["kind"] == "StatefulSet" and avoidance.is_open(item):
            avoidance.recover(client, item, _finder(client, namespace, name, [item]))


def _finder(client: Client, namespace: str, name: str, stateful_sets: Iterable[Object]) -> Callable[[], list[Object]]:
    """Return a function that returns the pods of StatefulSets of a cluster."""
    components = {item["metadata"]["labels"][manifests.COMPONENT] for item in stateful_sets}

    def find() -> list[Object]:
        pods = client.get(paths.collection("Pod", namespace), paths.of_cluster(name))["items"]
        return [pod for pod in pods if pod["metadata"]["labels"].get(manifests.COMPONENT) in components]

    return find


def _query(name: str, stateful_sets: Iterable[Object]) -> Query:
    """Return the query for the pods of StatefulSets of a cluster."""
    query = paths.of_cluster(name)
    components = ",".join(item["metadata"]["labels"][manifests.COMPONENT] for item in stateful_sets)
    query["labelSelector"] += f",{manifests.COMPONENT} in ({components})"
    return query
