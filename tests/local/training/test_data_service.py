"""tf.data's service: scripts read datasets that its workers compute, and its processes restart."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from clusters import addresses, is_ready, pids, wait_for
from job_files import job_file

from tfk8s.backends import devices
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.spec import Job, Task

# /proc/self is the process that computes the element: a worker of the service.
READ = """
import os
import tensorflow as tf
def computed(number):
    return tf.data.TextLineDataset("/proc/self/stat").map(lambda line: (number, tf.strings.split(line)[0]))
service = tf.data.experimental.service.distribute("parallel_epochs", os.environ["TFK8S_DATA_SERVICE"])
read = [(int(number), int(pid)) for number, pid in tf.data.Dataset.range(200).flat_map(computed).apply(service)]
print(sorted({pid for _, pid in read}))
print(sorted(number for number, _ in read) == sorted([*range(200)] * 2))
print(os.environ["TFK8S_DATA_SERVICE"], os.environ["TFK8S_CLUSTER"])
"""
DISPATCHER, FIRST, SECOND = (Task("input", index) for index in range(3))

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cluster(backend: LocalBackend) -> Iterator[str]:
    """A cluster with a worker, and with a dispatcher and two workers of tf.data's service."""
    backend.apply(job_file("fed", Job(name="worker"), Job(name="input", kind="data", tasks=3)))
    wait_for(backend, "fed", is_ready)
    yield "fed"
    backend.delete("fed")


def expected(backend: LocalBackend, cluster: str) -> str:
    """Return the output of a script that got all elements from both data workers."""
    by_task = pids(backend.observe(cluster))
    workers = sorted((by_task[FIRST], by_task[SECOND]))
    worker, dispatcher, *_ = addresses(backend, cluster)
    return f'{workers}\nTrue\ngrpc://{dispatcher} {{"worker":["{worker}"]}}\n'


def test_each_data_worker_computes_the_whole_dataset(cluster: str, backend: LocalBackend, run: Run) -> None:
    code, out, err = run(cluster, READ)
    assert (code, out) == (0, expected(backend, cluster)), err


def test_sessions_do_not_see_the_service(cluster: str, backend: LocalBackend) -> None:
    answers = devices.list_devices(backend, backend.observe(cluster))
    assert [str(answer.task) for answer in answers] == ["worker/0"]


def test_the_killed_service_restarts(cluster: str, backend: LocalBackend, run: Run) -> None:
    by_task = pids(backend.observe(cluster))
    for task in (DISPATCHER, FIRST):
        os.kill(by_task[task], signal.SIGKILL)
    status = wait_for(backend, cluster, lambda now: is_ready(now) and sum(task.restarts for task in now.tasks) == 2)
    assert [task.task for task in status.tasks if task.restarts] == [DISPATCHER, FIRST]
    code, out, err = run(cluster, READ)
    assert (code, out) == (0, expected(backend, cluster)), err
