"""Rows about an iteration whose dispatcher or worker of tf.data's service does not come back, on Kubernetes.

The script waits for seconds, where others wait for minutes.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

from harness.command import PATIENCE, Ended
from harness.kube import NAME, NOW, KubeEnvironment
from harness.node import Process
from harness.row import NOTHING, VERDICT, Row
from rows import removals

WHEN = "in an iteration of tf.data's service"


def frozen(process: Process) -> None:
    process.send(signal.SIGSTOP)


def iterates(task: str, fault: Callable[[Process], None]) -> Callable[[KubeEnvironment], Ended]:
    """Inject a fault into a task of the service while a script reads a dataset."""

    def run(environment: KubeEnvironment) -> Ended:
        environment.remove()
        text = environment.text.replace("chief: {", "input: {kind: data, tasks: 2, cpu: 50m, memory: 1Gi}, chief: {")
        text = text.replace("tasks: 2, cpu: 50m, memory: 1Gi}}", "cpu: 50m, memory: 1Gi}}")  # room on a small node
        up = environment.start("up", environment.file("data.yaml", text))
        assert up.end(2 * PATIENCE).code == 0, up.err
        script = environment.start("submit", NAME, environment.alone("iterates.py"))
        script.until_says("reads")
        process = environment.process(task)
        script.now()
        fault(process)
        script.go_on()
        ended = script.end(PATIENCE)
        removals.delete(task, **NOW)(environment)
        environment.remove()
        return ended

    return run


def rows() -> Iterator[Row]:
    for task, part, name, fault in (
        ("input/0", "the dispatcher", "SIGSTOP of input/0, the dispatcher", frozen),
        ("input/0", "the dispatcher", "network of input/0, the dispatcher, cut", Process.cut_network),
        ("input/1", "a worker", "SIGSTOP of input/1, a data worker", frozen),
    ):
        yield Row(
            fault=name, when=WHEN, run=iterates(task, fault), code=3, left=NOTHING, thorough=True, limit=2 * VERDICT,
            words=(f"{part} of tf.data's service at", "was lost: has not answered for"),
        )  # fmt: skip
