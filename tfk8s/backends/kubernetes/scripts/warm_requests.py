"""The log of a script in a warm pod, and its end, for other commands than the one that runs the script."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths, streams
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.scripts import script_pod
from tfk8s.backends.kubernetes.workloads import warm_status
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core.script import LogOptions, Outcome
from tfk8s.errors import ClusterError, InvalidInput, TaskUnreachable
from tfk8s.render import warm_job
from tfk8s.render.pods import Object
from tfk8s.sessions.pod.end_line import read_end
from tfk8s.task.stream import channel
from tfk8s.task.stream.channel import Channel

_MAX_LINE = 1 << 20  # bytes; the pod cuts lines that are longer than 16 KiB


def find(client: Client, cluster: DeployedCluster, name: str) -> Object | None:
    """Return the warm pod in which a script runs; None if it runs in none."""
    pods = client.get(paths.collection("Pod", cluster.namespace), paths.of_cluster(cluster.name))["items"]
    warm = {pod["metadata"]["name"]: pod for pod in pods if warm_job.is_warm(pod)}
    found = warm_status.read_scripts(client, list(warm.values()))
    return next((warm[pod] for pod, scripts in found.items() if any(one["name"] == name for one in scripts)), None)


def show(client: Client, pod: Object, name: str, options: LogOptions) -> Outcome:
    """Write the output of a script to this process' streams; with `follow`, until its end. Return how it ended.

    Raises:
        InvalidInput: the script has just ended.
        ClusterError: the connection broke, or the pod sends no log.
    """
    code = 0

    def noted() -> Iterator[str]:
        nonlocal code
        for line in lines(client, pod, name, options):
            _, _, text = line.partition(" ")
            if end := read_end(text):
                code = end[1]
            yield line if options.timestamps else text

    found = noted()
    script_pod.write(found if options.follow else list(found), options)
    return Outcome(code if options.follow else 0)


def lines(client: Client, pod: Object, name: str, options: LogOptions) -> Iterator[str]:
    """Yield lines of a script's log, each after its time.

    Raises:
        InvalidInput, ClusterError: as `show`.
    """
    wanted = {name: getattr(options, name) for name in ("tail", "since", "follow")}
    with _ask(client, pod, {"script": name, "log": wanted}) as (connection, answer):
        if "gone" in answer:
            raise InvalidInput(
                f"{name} has ended: a warm pod keeps a script's log until the script's end",
                help="`tfk8s submit --detach` runs a script whose log stays",
            )
        one, rest = Channel(), b""
        one.attach(connection, 0)
        while one.connection is not None:
            polling.ready({one.connection.fileno()}, channel.PING_INTERVAL)
            for kind, data in _read(one):
                if kind == channel.END:
                    return
                *whole, rest = (rest + data).split(b"\n")
                if len(rest) > _MAX_LINE:
                    raise _damaged(name)
                yield from (line.decode(errors="replace") for line in whole)
            one.acknowledge()
            one.keep_alive()
    raise ClusterError(
        f"lost sight of {name}, which goes on: the connection to its pod broke", help="`tfk8s logs -f` shows it again"
    )


def _read(one: Channel) -> list[channel.Frame]:
    try:
        return one.read()
    except channel.Damaged as error:
        raise _damaged("the script") from error


def _damaged(name: str) -> ClusterError:
    return ClusterError(f"lost sight of {name}: its pod sent what no pod of tfk8s sends")


def stop(client: Client, pod: Object, name: str, timeout: float) -> None:
    """Interrupt a script as a deleted pod does, and wait until the script has ended.

    Raises:
        WaitTimeout: the script has not ended in time.
        ClusterError: the pod can't be reached, or is no warm pod.
    """
    metadata = pod["metadata"]

    def is_over() -> bool:
        try:
            with _ask(client, pod, {"script": name, "stop": True}) as (_, answer):
                return "gone" in answer
        except TaskUnreachable:  # the pod may end, too
            return client.find(paths.pod(metadata["namespace"], metadata["name"])) is None

    polling.wait_until(is_over, f"{name} to end", timeout)


@contextlib.contextmanager
def _ask(client: Client, pod: Object, message: dict[str, Any]) -> Iterator[tuple[socket.socket, dict[str, Any]]]:
    """Yield a connection to a warm pod, and the first frame that the pod sent.

    Raises:
        TaskUnreachable: no process in the pod answers.
        ClusterError: this user may not connect, or the API server does not answer.
    """
    metadata = pod["metadata"]
    connection = streams.dial(client, metadata["namespace"], metadata["name"], channel.PORT)
    with contextlib.closing(connection):
        try:
            channel.say_hello(connection, {"received": 0, "is_new": False, **message})
            answer = channel.hear_hello(connection)
        except OSError as error:
            raise TaskUnreachable(f"the warm pod {metadata['name']} does not answer: {error}") from error
        yield connection, answer
