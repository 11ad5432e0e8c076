"""The last use of a cluster by a session or a script: its tasks tell. Standard library only: this file runs in pods."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from tfk8s import concurrency
from tfk8s.task import activity

_ANSWER_TIMEOUT = 2.0
_MAX_QUESTIONS = 8  # at the same time


def last_activity(host: str, port: int) -> float:
    """Return the seconds since a session or a script was connected to a task; infinity if none was.

    0 if no task answers: then nothing is known.

    Args:
        host: the name of all tasks, the headless Service. It is also the name of the cluster's other pods.
        port: the port where tasks answer `activity.ask`.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return 0.0
    hosts = sorted({str(address[0]) for *_, address in found})
    answers = concurrency.map_parallel(lambda host: activity.ask(host, port, _ANSWER_TIMEOUT), hosts, _MAX_QUESTIONS)
    return youngest_client(dict(zip(hosts, answers, strict=True)))


def youngest_client(answers: Mapping[str, Mapping[str, float] | None]) -> float:
    """Return the seconds since the last client was connected that is no task; infinity if none was.

    Tasks connect to each other. A pod that answers is a task. 0 if no task answers: then nothing is known.

    Args:
        answers: the clients of each pod, with the seconds since they were connected; None for pods without an answer.
    """
    tasks = {host: clients for host, clients in answers.items() if clients is not None}
    if not tasks:
        return 0.0
    ages = [age for clients in tasks.values() for client, age in clients.items() if client not in tasks]
    return min(ages, default=float("inf"))
