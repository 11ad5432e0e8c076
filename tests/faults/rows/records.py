"""Rows about the record of a cluster in a claim: its pod, its volume, and the `down` that waits for it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import open_claims
from harness import node
from harness.command import PATIENCE, Command, Ended
from harness.kube import NAME, NOW, KubeEnvironment
from harness.row import NOTHING, VERDICT, Row

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.render.pods import Object

LIMIT = 45  # seconds, `max_duration`
CLAIM, SHUT = "past", "shut"  # the second belongs to root
_WAITS = "waiting for the shared history to be written"


def claim(environment: KubeEnvironment, name: str) -> str:
    """Make a claim, if it does not exist, which everybody may write but `SHUT`; return its name."""
    client, namespace = environment.client, environment.namespace
    path = paths.collection("PersistentVolumeClaim", namespace)
    if client.find(f"{path}/{name}") is None:
        client.send("POST", path, body=open_claims.claim(name))
        opener = open_claims.opener(name, environment.image, "755" if name == SHUT else "777")
        client.send("POST", paths.collection("Pod", namespace), body=opener)
        done = lambda: client.get(paths.pod(namespace, f"opener-{name}"))["status"]["phase"] == "Succeeded"  # noqa: E731
        polling.wait_until(done, f"claim {name} to be open", 2 * PATIENCE)
    return name


def up(environment: KubeEnvironment, name: str = CLAIM, more: str = "") -> None:
    """Start a cluster with a record in a claim."""
    environment.remove()
    text = environment.text + f"history: {{claim: {claim(environment, name)}}}\n{more}"
    ended = environment.start("up", environment.file("recorded.yaml", text)).end(2 * PATIENCE)
    assert ended.code == 0, ended


def writer(environment: KubeEnvironment) -> Object:
    """Return the pod that writes the record, once it runs."""

    def running() -> list[Object]:
        pods = environment.client.get(paths.collection("Pod", environment.namespace), paths.of_cluster(NAME))["items"]
        return [pod for pod in pods if "TFK8S_HISTORY" in str(pod["spec"]) and pod["status"].get("phase") == "Running"]

    return polling.wait_until(running, "the pod of the record to run", PATIENCE)[0]


def down_after(fault: Callable[[KubeEnvironment], None]) -> Callable[[KubeEnvironment], Ended]:
    """Inject a fault, and remove the cluster."""

    def run(environment: KubeEnvironment) -> Ended:
        up(environment)
        writer(environment)
        fault(environment)
        return environment.start("down", NAME).end(2 * PATIENCE)

    return run


def kill_writer(environment: KubeEnvironment) -> None:
    name = writer(environment)["metadata"]["name"]
    environment.client.send("DELETE", paths.pod(environment.namespace, name), NOW)


def remove_all(environment: KubeEnvironment) -> None:
    query = {**paths.of_cluster(NAME), "propagationPolicy": "Background"}
    for kind in (*(kind for kind in paths.GROUPS if kind != "Service"), "ServiceAccount"):
        environment.client.send("DELETE", paths.collection(kind, environment.namespace), query)
    for service in environment.client.get(paths.collection("Service", environment.namespace), query)["items"]:
        environment.client.send("DELETE", paths.path({"kind": "Service", **service}, environment.namespace))


def shut(environment: KubeEnvironment) -> Ended:
    """Show the status of a cluster whose record can't be written; the verdict is the end of its removal."""
    up(environment, SHUT)

    def is_told() -> bool:
        status = environment.start("status", NAME).end(PATIENCE)
        assert status.code == 0, status
        return f"history: claim {SHUT}; it is not written: Permission denied" in status.out

    polling.wait_until(is_told, "the reason", PATIENCE)
    return environment.start("down", NAME).end(2 * PATIENCE)


def waiting_down(environment: KubeEnvironment) -> Command:
    """Return a `down` that waits for a pod that is stopped; a limit removes the cluster later."""
    up(environment, more=f"max_duration: {LIMIT}s\n")
    node.Process(writer(environment)).send(signal.SIGSTOP)
    command = environment.start("down", NAME)
    command.until_says(_WAITS)
    return command


def limited(environment: KubeEnvironment, command: Command) -> Ended:
    """Return the end of a command, once the limit has removed the cluster, as its time."""
    ended = command.end(2 * PATIENCE)
    polling.wait_until(
        lambda: all("-lifetime" in one for one in environment.objects()),
        lambda: f"the cluster to be removed: {environment.objects()}", 3 * PATIENCE,
    )  # fmt: skip
    seconds = time.monotonic() - command.fault
    environment.remove()  # the Job that tells for a while why it has removed the cluster
    return Ended(seconds, ended.code, ended.out, ended.err)


def killed_down(environment: KubeEnvironment) -> Ended:
    command = waiting_down(environment)
    command.send(signal.SIGKILL)
    return limited(environment, command)


def cut_down(environment: KubeEnvironment) -> Ended:
    command = waiting_down(environment)
    command.now()
    environment.proxy.cut()
    return limited(environment, command)


def rows() -> Iterator[Row]:
    when = "before `down` of a cluster with a record in a claim"
    yield Row(
        fault="pod of the record deleted by force", when=when, run=down_after(kill_writer), left=NOTHING,
        limit=4 * VERDICT,
    )  # fmt: skip
    yield Row(
        fault="all pods deleted by force", when=when, run=down_after(lambda environment: environment.delete_pods()),
        left=NOTHING, thorough=True, limit=4 * VERDICT,
    )  # fmt: skip
    yield Row(
        fault="all objects deleted by somebody else", when=when, run=down_after(remove_all), code=(0, 2),
        left=NOTHING, thorough=True, limit=4 * VERDICT,
    )  # fmt: skip
    yield Row(fault="a claim that can't be written", when=when, run=shut, left=NOTHING, limit=4 * VERDICT)


def on_kind() -> Iterator[Row]:
    when = f"while `down` waits for the record of a cluster with `max_duration: {LIMIT}s`"
    yield Row(
        fault="SIGKILL of `down`", when=when, run=killed_down, code=137, words=(_WAITS,), left=NOTHING,
        limit=LIMIT + 6 * VERDICT,
    )  # fmt: skip
    yield Row(
        fault="the API server is away", when=when, run=cut_down, code=1, words=(_WAITS,), left=NOTHING,
        thorough=True, limit=LIMIT + 6 * VERDICT,
    )  # fmt: skip
