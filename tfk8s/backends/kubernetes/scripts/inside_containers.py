"""The stacks of tasks and scripts, and what they use, by a program that runs in each container for a second."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tfk8s import task
from tfk8s.backends import stacks, usage
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.commands import Output, RemoteCommand
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.workloads import script_status, task_pods
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.backends.stacks import Stacks
from tfk8s.backends.usage import Usage
from tfk8s.concurrency import map_parallel
from tfk8s.core import naming
from tfk8s.errors import ClusterError
from tfk8s.render import script_job, warm_job

_TIMEOUT = 30.0  # for Python to start with a small share of a CPU, and to look twice
_MAX_AT_ONCE = 32
MAX_ANSWER = 4 << 20  # bytes; the stacks of 100 threads are some 2 MB

# Runs a program of a known size from standard input. API servers before Kubernetes 1.30 can't end that input.
# Imported in containers alone: they read /proc.
_INSPECTOR = Path(task.__path__[0], "programs", "inspector.py")
_METER = Path(usage.__file__).with_name("meter.py")
RUN = "import sys; exec(compile(sys.stdin.buffer.read(int(sys.argv.pop())), 'tfk8s', 'exec'))"

Place = tuple[str, str]  # a pod and a container
Answer = tuple[Sequence[Mapping[str, Any]], str]  # the processes of a container, or the problem


def read_stacks(client: Client, cluster: DeployedCluster, chosen: Sequence[str]) -> list[Stacks]:
    """Return what tasks and scripts do now; see `Backend.stacks`.

    Raises:
        ApiError: this user may run no command in pods.
    """
    own, warm = _ask_all(client, cluster, chosen, _INSPECTOR)
    return [_stacks(name, own[name]) if name in own else _in_warm_pod(name, warm) for name in chosen]


def read_usage(client: Client, cluster: DeployedCluster, chosen: Sequence[str]) -> list[Usage]:
    """Return what tasks and scripts use; see `Backend.usage`.

    Raises:
        ApiError: this user may run no command in pods.
    """
    own, _ = _ask_all(client, cluster, chosen, _METER)
    return [
        Usage(name=name, problem=own[name][1]) if name in own and own[name][1]
        else usage.parse(name, own[name][0]) if name in own
        else Usage(name=name, problem="shares a warm pod, whose scripts are not told apart")
        for name in chosen
    ]  # fmt: skip


def _ask_all(
    client: Client, cluster: DeployedCluster, chosen: Sequence[str], program: Path
) -> tuple[dict[str, Answer], list[Answer]]:
    """Run a program in the containers of tasks and scripts.

    Returns: the answers of tasks and of scripts with pods of their own, by name; and those of warm pods.
    """
    tasks = {str(task): task for task in cluster.tasks}
    pods = task_pods.names(client, cluster, [tasks[name] for name in chosen if name in tasks])
    places = {name: (pods[tasks[name]], naming.SERVER_CONTAINER) for name in chosen if name in tasks}
    warm: list[Place] = []
    if scripts := [name for name in chosen if name not in tasks]:
        own, warm = _script_places(client, cluster, scripts)
        places |= own
    asked = [*places.values(), *warm]
    text = program.read_bytes()
    answers = map_parallel(lambda place: _ask(client, cluster.namespace, *place, text), asked, _MAX_AT_ONCE)
    by_place = dict(zip(asked, answers, strict=True))
    return {name: by_place[place] for name, place in places.items()}, [by_place[place] for place in warm]


def _script_places(
    client: Client, cluster: DeployedCluster, scripts: Collection[str]
) -> tuple[dict[str, Place], list[Place]]:
    """Return the places of scripts with pods of their own, and those of warm pods if there are other scripts."""
    pods = client.get(paths.collection("Pod", cluster.namespace), paths.of_cluster(cluster.name))["items"]
    running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    by_job = script_status.pods_by_job(running)
    jobs = {name: script_job.object_name(cluster.name, name) for name in scripts}
    own = {
        name: (by_job[job]["metadata"]["name"], naming.SCRIPT_CONTAINER) for name, job in jobs.items() if job in by_job
    }
    warm = [(pod["metadata"]["name"], naming.SCRIPT_CONTAINER) for pod in running if warm_job.is_warm(pod)]
    return own, warm if len(own) < len(jobs) else []


def _ask(client: Client, namespace: str, pod: str, container: str, program: bytes) -> Answer:
    words = ["python3", "-I", "-c", RUN, str(len(program))]  # without the user's modules in the working folder
    try:
        with RemoteCommand(client, namespace, pod, words, container=container, timeout=_TIMEOUT) as command:
            command.send(program)
            return parse_answer(io.BufferedReader(Output(command)).read(MAX_ANSWER + 1)), ""
    except ValueError:
        return [], "the answer of python3 in its container can't be read"
    except ApiError as error:
        if error.code == HTTPStatus.FORBIDDEN:
            raise
        return [], str(error)
    except ClusterError as error:
        return [], str(error).rpartition("\n")[2]


def parse_answer(data: bytes) -> list[dict[str, Any]]:
    """Return what a program has printed in a container, which may send anything.

    Raises:
        ValueError: it is too long, or no list of JSON objects.
    """
    try:
        documents = json.loads(data or b"[]") if len(data) <= MAX_ANSWER else None
    except RecursionError as error:
        raise ValueError("it is too deep") from error
    if not isinstance(documents, list) or not all(isinstance(document, dict) for document in documents):
        raise ValueError("it is no list of objects")
    return documents


def _stacks(name: str, answer: Answer) -> Stacks:
    documents, problem = answer
    return Stacks(name, problem=problem) if problem else stacks.parse(name, documents)


def _in_warm_pod(name: str, given: Sequence[Answer]) -> Stacks:
    """Return the stacks of a script in one of the warm pods."""
    found = [document for documents, _ in given for document in documents if document.get("script") == name]
    problems = [problem for _, problem in given if problem]
    for process in stacks.parse(
        name, (one for documents, _ in given for one in documents if not one.get("script"))
    ).processes:
        if process.problem or process.is_stopped:
            problems.append(
                f"pid {process.pid} of a warm pod, which may be the script: {process.problem or process.activity}"
            )
    return stacks.parse(name, found) if found else Stacks(name, problem="; ".join(problems) or "has no process")
