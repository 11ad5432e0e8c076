"""tf.data's service: scripts read datasets that its workers compute, and its processes restart."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters import addresses, is_ready, pids, start_tfk8s, wait_for
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


# TensorFlow would wait for ever; tfk8s for five minutes, and in this script for seconds.
READ_ON = """
import os, sys
import tensorflow as tf
from tfk8s.task.peers import dispatchers
dispatchers.SILENT, dispatchers.HOPELESS, dispatchers.INTERVAL = 0.5, 4.0, 0.25
service = tf.data.experimental.service.distribute("parallel_epochs", os.environ["TFK8S_DATA_SERVICE"])
READS
"""
READS = {
    "eager": "dataset = tf.data.Dataset.range(200).apply(service)\n"
    "for number, _ in enumerate(dataset): number or (print('reads', flush=True), sys.stdin.readline())",
    "function": """
@tf.function
def read(iterator):
    return tf.reduce_sum([next(iterator) for _ in range(500)])
iterator = iter(tf.data.Dataset.range(200).apply(service))
next(iterator)
print('reads', flush=True)
sys.stdin.readline()
read(iterator)
""",
    "session": """
with tf.Graph().as_default(), tf.compat.v1.Session(os.environ["TFK8S_TARGET"]) as session:
    iterator = tf.compat.v1.data.make_initializable_iterator(tf.data.Dataset.range(200).apply(service))
    element = iterator.get_next()
    session.run(iterator.initializer)
    session.run(element)
    print('reads', flush=True)
    sys.stdin.readline()
    for _ in range(500):
        session.run(element)
""",
}


@pytest.mark.parametrize(("kind", "task"), [*((kind, DISPATCHER) for kind in READS), ("eager", FIRST)])
def test_an_iteration_ends_without_a_part_of_the_service(
    cluster: str, backend: LocalBackend, tmp_path: Path, kind: str, task: Task
) -> None:
    (tmp_path / "read.py").write_text(READ_ON.replace("READS", READS[kind]))
    with start_tfk8s("submit", "--local", cluster, str(tmp_path / "read.py"), stdin=subprocess.PIPE) as script:
        assert script.stdout.readline() == "reads\n"
        frozen = pids(backend.observe(cluster))[task]
        os.kill(frozen, signal.SIGSTOP)
        try:
            _, err = script.communicate("\n", timeout=60)
        finally:
            os.kill(frozen, signal.SIGCONT)
    part = "the dispatcher" if task == DISPATCHER else "a worker"
    lost = f"{part} of tf.data's service at {addresses(backend, cluster)[1 + task.index]}"
    assert f"{lost} does not answer; an iteration that waits for it is ended within 4s" in err
    assert re.search(rf"error: {lost} was lost: has not answered for \d+ s; a call waited for it", err)
    assert script.returncode == 3


def test_a_session_of_this_machine_ends_without_the_dispatcher(
    cluster: str, backend: LocalBackend, tmp_path: Path
) -> None:
    script = tmp_path / "read.py"
    connected = f"import os, tfk8s\nos.environ['TFK8S_TARGET'] = tfk8s.connect({cluster!r}, local=True).target\n"
    script.write_text(connected + READ_ON.replace("READS", READS["session"]))
    dispatcher = addresses(backend, cluster)[1]
    variables = {**os.environ, "TFK8S_DATA_SERVICE": f"grpc://{dispatcher}"}
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, script], env=variables, **streams) as process:  # type: ignore[call-overload]
        frozen = pids(backend.observe(cluster))[DISPATCHER]
        try:
            assert process.stdout.readline() == "reads\n"
            os.kill(frozen, signal.SIGSTOP)
            _, err = process.communicate("\n", timeout=120)
        finally:
            process.kill()
            os.kill(frozen, signal.SIGCONT)
    lost = f"the dispatcher of tf.data's service at {dispatcher} was lost: has not answered for"
    assert re.search(rf"AbortedError: .*{re.escape(lost)}", err), err
    assert process.returncode == 1


def test_the_killed_service_restarts(cluster: str, backend: LocalBackend, run: Run) -> None:
    by_task = pids(backend.observe(cluster))
    for task in (DISPATCHER, FIRST):
        os.kill(by_task[task], signal.SIGKILL)
    status = wait_for(backend, cluster, lambda now: is_ready(now) and sum(task.restarts for task in now.tasks) == 2)
    assert [task.task for task in status.tasks if task.restarts] == [DISPATCHER, FIRST]
    code, out, err = run(cluster, READ)
    assert (code, out) == (0, expected(backend, cluster)), err
