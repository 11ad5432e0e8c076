"""Processes and networks on the nodes of a kind cluster, which are containers."""

from __future__ import annotations

import os
import subprocess

from harness.command import PATIENCE

from tfk8s.render.pods import Object

_PROVIDER = os.environ.get("KIND_EXPERIMENTAL_PROVIDER", "docker")
_PID = 'ctr --namespace k8s.io tasks list | while read -r id pid _; do if [ "$id" = "$1" ]; then echo "$pid"; fi; done'


def run(node: str, script: str, *words: object) -> str:
    """Run a shell script on a node, with words as its arguments; return what it prints."""
    command = [_PROVIDER, "exec", node, "sh", "-ec", script, "sh", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


class Process:
    """The first process of a pod's container, which only its node can kill."""

    def __init__(self, pod: Object) -> None:
        self.node = pod["spec"]["nodeName"]
        container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
        self.id = int(run(self.node, _PID, container))

    def send(self, number: int) -> None:
        run(self.node, "kill -$1 $2", int(number), self.id)

    def cut_network(self) -> None:
        """Cut the pod from the network without closing connections."""
        run(self.node, "nsenter --target $1 --net ip link set eth0 down", self.id)
