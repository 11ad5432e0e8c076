"""What a task is told of its cluster, in each of the forms that programs read.

Three ways to say where tasks listen: `local_address` on this machine, `pod_address` in Kubernetes,
`given_address` where the job file itself says.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from tfk8s.core.cluster_spec import cluster_spec
from tfk8s.core.spec import ClusterSpec


def script_environment(cluster: ClusterSpec, target: str) -> dict[str, str]:
    """Return the variables that tell a session script where its cluster is."""
    return {"TFK8S_CLUSTER": cluster_spec(cluster), "TFK8S_TARGET": target}


def environment_lines(environment: Mapping[str, str]) -> str:
    """Return variables as lines that a POSIX shell reads."""
    return "\n".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())


LOOPBACK = ("localhost", "127.0.0.1", "::1")


def without_proxy(environment: Mapping[str, str], hosts: Iterable[str] = LOOPBACK) -> dict[str, str]:
    """Return the variables under which clients in `environment` connect to `hosts` directly."""
    before = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    value = ",".join(dict.fromkeys(filter(None, (*before.split(","), *hosts))))
    return {"no_proxy": value, "NO_PROXY": value, "no_grpc_proxy": value}
