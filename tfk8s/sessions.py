"""Opens sessions on a cluster, after asking whether its tasks answer.

TensorFlow itself waits without a word, and without end, for a task that does not answer. Standard library and
TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfk8s import naming, probe
from tfk8s.errors import InvalidInput, TaskUnreachable

if TYPE_CHECKING:
    import tensorflow as tf

ANSWER_SECONDS = 4.0


def session(target: str | None = None, graph: tf.Graph | None = None, config: Any = None) -> tf.compat.v1.Session:
    """Open a session on the cluster's master.

    Args:
        target: the master, "grpc://host:port"; default: `TFK8S_TARGET`, which `tfk8s submit` and `run` set.
        graph: what the session runs; default: TensorFlow's default graph.
        config: a `tf.compat.v1.ConfigProto`.

    Returns:
        A `tf.compat.v1.Session`, to be used in a `with`.

    Raises:
        InvalidInput: there is no target.
        TaskUnreachable: tasks do not answer; names each, and why.
    """
    if target is None:
        target = os.environ.get("TFK8S_TARGET")
        if target is None:
            raise InvalidInput(
                "no cluster to open a session on: TFK8S_TARGET is not set",
                help="run the script with `tfk8s submit NAME SCRIPT`, or pass target=",
            )
        require_answers(os.environ)
    import tensorflow.compat.v1 as tf1

    return tf1.Session(target, graph=graph, config=config)


def require_answers(environment: Mapping[str, str]) -> None:
    """Ask all tasks of `TFK8S_CLUSTER` at once whether they answer.

    Raises:
        TaskUnreachable: some do not; names each, and why.
    """
    silent = unanswered(json.loads(environment.get("TFK8S_CLUSTER", "{}")))
    if silent:
        listed = "; ".join(f"{task}: {reason}" for task, reason in silent.items())
        raise TaskUnreachable(
            f"not every task of the cluster answers: {listed}",
            help="`tfk8s status` shows the tasks, `tfk8s logs` what they wrote",
        )


def unanswered(cluster: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the tasks of a ClusterSpec that do not answer within `ANSWER_SECONDS`, each with the reason."""
    addresses = {naming.task(job, i): address for job, tasks in cluster.items() for i, address in enumerate(tasks)}
    if not addresses:
        return {}
    with concurrent.futures.ThreadPoolExecutor(min(64, len(addresses))) as pool:
        reasons = dict(zip(addresses, pool.map(_no_answer, addresses.values()), strict=True))
    return {task: reason for task, reason in reasons.items() if reason}


def _no_answer(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS) as stream:
            probe.get_status(stream, ANSWER_SECONDS)
    except TimeoutError:
        return f"no answer from {address} in {ANSWER_SECONDS:.0f} s (is it stopped, or overloaded?)"
    except (OSError, probe.ProbeError) as error:
        return f"{address}: {getattr(error, 'strerror', None) or error}"
    return ""
