"""Rows about a program of MultiWorkerMirroredStrategy on Kubernetes, with its checkpoints on a claim.

After each fault, all workers go on from a checkpoint, and end with the weights of an undisturbed run.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import node
from harness.command import PATIENCE, Command, Ended
from harness.kube import NAME, KubeEnvironment
from harness.row import NOTHING, VERDICT, Row
from rows.removals import evict

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.render import program_job

EXAMPLE = Path(__file__).parents[3] / "examples" / "multi_worker_mirrored" / "train.py"
WHEN = "`run`, while MultiWorkerMirroredStrategy trains"
STEPS, WEIGHTS = 1000, 79.3434  # of one worker, and so of any number; a fast machine needs seconds for the steps
CLAIM = "checkpoints"

Fault = Callable[[KubeEnvironment, str], None]


def claim(environment: KubeEnvironment) -> None:
    """Make a claim of a folder on the only node, until the end of the row. All users may write to the folder."""
    client, volume = environment.client, f"{environment.namespace}-{CLAIM}"
    folder, (host,) = f"/var/{volume}", client.get("/api/v1/nodes")["items"]
    name = host["metadata"]["name"]
    node.run(name, "rm -rf $1; mkdir -m 777 $1", folder)
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    size = {"storage": "100Mi"}
    made = {
        "/api/v1/persistentvolumes": {
            "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": {**common, "capacity": size, "hostPath": {"path": folder}},
        },
        f"/api/v1/namespaces/{environment.namespace}/persistentvolumeclaims": {
            "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM},
            "spec": {**common, "resources": {"requests": size}, "volumeName": volume},
        },
    }  # fmt: skip
    environment.at_end(lambda: node.run(name, "rm -rf $1", folder))
    for path, body in made.items():
        client.send("POST", path, body={"apiVersion": "v1", **body})
        one = f"{path}/{body['metadata']['name']}"
        environment.at_end(lambda one=one: until_deleted(environment, one))


def until_deleted(environment: KubeEnvironment, path: str) -> None:
    environment.client.send("DELETE", path)
    polling.wait_until(lambda: environment.client.find(path) is None, f"{path} to be gone", PATIENCE)


def start_training(environment: KubeEnvironment, example: Path, steps: int, **fields: object) -> Command:
    """Return a `run` of two workers that train, with a checkpoint on a claim already.

    Args:
        environment: whose cluster is removed first.
        example: a program of `examples`.
        steps: of the program.
        fields: other fields of the job file, and those of its job as `worker`.
    """
    environment.remove()
    claim(environment)
    folder = environment.folder / example.parent.name
    folder.mkdir(exist_ok=True)
    shutil.copy(example, folder)
    program = [example.name, "--steps", str(steps), "--checkpoints", f"/{CLAIM}/of-the-run"]
    worker = {"tasks": 2, "cpu": "50m", "memory": "700Mi", "program": program, **fields.pop("worker", {})}
    (folder / "cluster.yaml").write_text(json.dumps({
        "apiVersion": "tfk8s.dev/v1", "name": NAME, "image": environment.image, "jobs": {"worker": worker},
        "volumes": [{"path": f"/{CLAIM}", "claim": CLAIM}], "run": {"timeout": "5m"}, **fields,
    }))  # fmt: skip
    command = environment.start("run", folder / "cluster.yaml")
    command.until_says("worker/0 | step 100,")  # the checkpoint of step 50 is complete
    return command


def require_weights(ended: Ended, steps: int, weights: float) -> None:
    """Check that both workers end with the weights of a run that nothing disturbs."""
    found = re.findall(rf"ends after step {steps}, weights ([\d.]+)", ended.out)
    assert [float(one) for one in found] == pytest.approx([weights] * 2, rel=1e-3), ended


def train(environment: KubeEnvironment, example: Path, steps: int, task: str, fault: Fault, **fields: object) -> Ended:
    """Train with a fault in the pod of a worker; `fields` are those of `start_training`."""
    try:
        command = start_training(environment, example, steps, **fields)
        pod = pod_of(environment, task)
        command.now()
        fault(environment, pod)
        return command.end(2 * PATIENCE)
    except Exception:
        environment.remove()  # a claim that pods use can't be deleted
        raise


def trains_through(task: str, fault: Fault) -> Callable[[KubeEnvironment], Ended]:
    """Inject a fault into the pod of a worker while two workers train."""

    def run(environment: KubeEnvironment) -> Ended:
        ended = train(environment, EXAMPLE, STEPS, task, fault)
        assert "2 workers, from step " in ended.out, ended
        require_weights(ended, STEPS, WEIGHTS)
        return ended

    return run


def pod_of(environment: KubeEnvironment, task: str) -> str:
    """Return the name of the pod of a worker, which the Job controller has chosen."""
    index = task.partition("/")[2]
    (name,) = (
        name
        for name, pod in environment.pods().items()
        if pod["metadata"]["labels"].get(program_job.POD_INDEX) == index
    )
    return name


def signalled(number: int) -> Fault:
    """Send a signal to the program of a pod, a child of the pod's first process."""

    def fault(environment: KubeEnvironment, pod: str) -> None:
        process = node.Process(environment.pods()[pod])
        node.run(process.node, "kill -$1 $(cat /proc/$2/task/$2/children)", int(number), process.id)

    return fault


def deleted(environment: KubeEnvironment, pod: str) -> None:
    environment.client.send("DELETE", paths.pod(environment.namespace, pod))


def evicted(environment: KubeEnvironment, pod: str) -> None:
    evict(pod)(environment)


def drained(environment: KubeEnvironment, pod: str) -> None:
    """Drain the only node; allow pods on it again when the worker's next pod has found no place."""
    environment.cordon()
    evict(pod)(environment)
    until_a_pod_waits(environment)
    environment.uncordon()


def until_a_pod_waits(environment: KubeEnvironment) -> None:
    """Wait until a worker's next pod has found no place."""
    polling.wait_until(
        lambda: any("nodeName" not in one["spec"] for one in environment.pods().values()), "a pod to wait", PATIENCE
    )


def rows() -> Iterator[Row]:
    success = 'the run of cluster "faults" has succeeded'
    for fault, task, run, is_thorough in (
        ("SIGKILL of worker/1", "worker/1", signalled(signal.SIGKILL), True),
        ("SIGKILL of worker/0, the chief", "worker/0", signalled(signal.SIGKILL), False),
        ("SIGSTOP of worker/1", "worker/1", signalled(signal.SIGSTOP), True),
        ("pod of worker/1 deleted", "worker/1", deleted, True),
        ("node of worker/1 drained, and back later", "worker/1", drained, True),
        ("pod of worker/0, the chief, evicted", "worker/0", evicted, False),
    ):
        yield Row(
            fault=fault, when=WHEN, run=trains_through(task, run), words=(success,), left=NOTHING, thorough=is_thorough,
            limit=6 * VERDICT,
        )  # fmt: skip
