"""Programs in every task, as Indexed Jobs, in a namespace that enforces pod security."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kube_api import KubeApi
from on_cluster import IMAGE, left, make_job, make_job_file

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import commands, paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.cluster.program_run import wait_for_programs
from tfk8s.core.programs import Program, RunPolicy
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import LogOptions
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.core.status import ClusterStatus, Phase
from tfk8s.errors import ClusterError, InvalidInput, TaskUnreachable

STEPS = 90  # of 0.3 s and more: both faults of a slow machine come before the last step
SMALL, SMALL_MEMORY = Quantity.parse("50m"), Quantity.parse("700Mi")
# A linear regression on MultiWorkerMirroredStrategy. The chief writes checkpoints into its pod, and passes the restored
# values on, so that a worker in a new pod goes on where the chief is.
TRAIN = """
import json, os, sys, time
import tensorflow as tf

steps, pause, folder = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
is_chief = json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0
strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = tf.reshape(tf.range(32.0), [16, 2]) / 32
y = tf.reduce_sum(x, 1, keepdims=True) * 3 + 1
with strategy.scope():
    w, b, step = tf.Variable(tf.zeros([2, 1])), tf.Variable(tf.zeros([1])), tf.Variable(0.0)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(16).with_options(options)
data = iter(strategy.experimental_distribute_dataset(data))
everyone = tf.distribute.ReduceOp.SUM
manager = tf.train.CheckpointManager(tf.train.Checkpoint(w=w, b=b, step=step), folder, max_to_keep=1)
if is_chief:
    manager.restore_or_initialize()

@tf.function
def broadcast():
    def one():
        for variable in (w, b, step):
            own = variable.read_value() if is_chief else tf.zeros_like(variable)
            variable.assign(tf.distribute.get_replica_context().all_reduce(everyone, own))
    strategy.run(one)

@tf.function
def train(batch):
    def one(features, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((features @ w + b - labels) ** 2) / 16
        gradients = tf.distribute.get_replica_context().all_reduce(everyone, tape.gradient(loss, [w, b]))
        w.assign_sub(0.1 * gradients[0])
        b.assign_sub(0.1 * gradients[1])
        return loss
    return strategy.reduce(everyone, strategy.run(one, batch), None)

broadcast()
print(strategy.num_replicas_in_sync, "replicas begin at step", int(step.numpy()), flush=True)
while int(step.numpy()) < steps:
    loss = train(next(data))
    step.assign_add(1)
    if is_chief and int(step.numpy()) % 5 == 0:
        manager.save()
    time.sleep(pause)
    print("step", int(step.numpy()), f"loss {float(loss):.4f}", flush=True)
"""


def program(*words: str, folder: Path | str = "", **settings: object) -> Job:
    small = {"cpu": SMALL, "memory": SMALL_MEMORY, "tasks": 2}
    return make_job(**{**small, "program": Program(words, str(folder)), **settings})


@pytest.fixture
def start(backend: KubernetesBackend, client: KubeApi, namespace: str) -> Iterator[Callable[[JobFile], str]]:
    """Applies job files; returns the cluster's name."""
    made = []

    def apply(job_file: JobFile) -> str:
        made.append(job_file.name)
        backend.apply(job_file)
        return job_file.name

    yield apply
    for name in made:
        backend.delete(name)
        assert polling.wait_until(lambda name=name: not left(client, namespace, name), "all to be gone", 120)


def until_end(backend: KubernetesBackend, name: str, timeout: float = 240) -> ClusterStatus:
    def look() -> ClusterStatus | None:
        status = backend.observe(name)
        return status if status.exit_code is not None else None

    return polling.wait_until(look, lambda: f"the end, and saw {backend.observe(name).tasks}", timeout)


def until_line(backend: KubernetesBackend, name: str, task: Task, is_wanted: Callable[[str], bool]) -> str:
    """Wait for a line of a task's log; return the line."""

    def look() -> str | None:
        return next((line.text for line in backend.logs(name, [task], LogOptions()) if is_wanted(line.text)), None)

    return polling.wait_until(look, f"a line of {task}", 240)


def until_begin(backend: KubernetesBackend, name: str, after: int) -> int:
    """Wait until the chief begins at a checkpoint after a step; return the step of the checkpoint."""
    words = "2 replicas begin at step "
    found = until_line(
        backend, name, Task("worker", 0), lambda line: line.startswith(words) and int(line.split()[-1]) > after
    )
    return int(found.removeprefix(words))


def pod_of(backend: KubernetesBackend, name: str, task: Task) -> str:
    (status,) = (status for status in backend.observe(name).tasks if status.task == task)
    return status.runs_on.partition(" ")[0]


def test_training_goes_on_after_a_kill_and_in_a_new_pod(
    start: Callable[[JobFile], str], backend: KubernetesBackend, client: KubeApi, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    job = program("train.py", str(STEPS), "0.3", "/tmp/checkpoints", folder=tmp_path)
    name = start(make_job_file("trained", job))
    chief, other = Task("worker", 0), Task("worker", 1)
    until_line(backend, name, chief, lambda line: line.startswith("step 7 "))
    kill = "import os, signal; [os.kill(int(child), 9) for child in open('/proc/1/task/1/children').read().split()]"
    first = pod_of(backend, name, other)
    commands.execute(Client(None), namespace, first, ["python3", "-c", kill], (), 60)
    again = until_begin(backend, name, after=0)
    assert pod_of(backend, name, other) == first
    until_line(backend, name, other, lambda line: line.startswith(f"step {again + 12} "))
    client.send("DELETE", paths.pod(namespace, first))
    until_begin(backend, name, after=again)
    status = until_end(backend, name)
    assert (status.phase, status.exit_code) == (Phase.SUCCEEDED, 0)
    assert pod_of(backend, name, other) != first
    last = [line.text for line in backend.logs(name, [chief, other], LogOptions(tail=1))]
    assert last == [_by_hand(tmp_path)] * 2


def _by_hand(folder: Path) -> str:
    """Return the last line of the same program in one process."""
    config = {"cluster": {"worker": ["localhost:23456"]}, "task": {"type": "worker", "index": 0}}
    done = subprocess.run(
        [sys.executable, "train.py", str(STEPS), "0", str(folder / "checkpoints")],
        cwd=folder, env={**os.environ, "TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()[-1]


LEAVE = """
import pathlib, time
print("begins", flush=True)
while not pathlib.Path("/tmp/go").exists():
    time.sleep(0.1)
pathlib.Path("left").mkdir()
pathlib.Path("left/model").write_bytes(bytes(50_000_000))
raise SystemExit(3)
"""


def test_files_come_from_the_pod_in_which_the_program_ended(
    backend: KubernetesBackend, client: KubeApi, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "leave.py").write_text(LEAVE)
    job = "{program: [leave.py], cpu: 50m, memory: 256Mi}"
    (tmp_path / "leave.yaml").write_text(
        f"{{apiVersion: tfk8s.dev/v1, name: leave, image: {IMAGE}, jobs: {{worker: {job}}}}}"
    )
    words = ["run", "--namespace", namespace, "--get", "left/model:model", "leave.yaml"]
    command = subprocess.Popen([sys.executable, "-m", "tfk8s", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    task = Task("worker", 0)
    polling.wait_until(lambda: "Job leave-worker" in left(client, namespace, "leave"), "the cluster", 60)
    until_line(backend, "leave", task, lambda line: line.startswith("begins"))
    first = pod_of(backend, "leave", task)
    client.send("DELETE", paths.pod(namespace, first), {"gracePeriodSeconds": 0})
    polling.wait_until(lambda: pod_of(backend, "leave", task) not in (first, ""), "the next pod", 120)
    until_line(backend, "leave", task, lambda line: line.startswith("begins"))
    commands.execute(Client(None), namespace, pod_of(backend, "leave", task), ["touch", "/tmp/go"], (), 60)
    _, errors = command.communicate(timeout=240)
    assert command.returncode == 3, errors
    assert (tmp_path / "model").stat().st_size == 50_000_000, errors
    assert not left(client, namespace, "leave")


def test_large_folder_reaches_the_pods(
    start: Callable[[JobFile], str], backend: KubernetesBackend, client: KubeApi, namespace: str, tmp_path: Path
) -> None:
    """The folder needs several Secrets. After a change, one goes, one comes and the others stay; `down` removes all."""
    (tmp_path / "vocabulary").write_bytes(content := os.urandom(2_500_000))
    job_file = make_job_file("large", program("read.py", folder=tmp_path))
    digest, found = hashlib.sha256(content).hexdigest(), []
    for said, apply in (("first", start), ("second", backend.apply)):
        text = f"import hashlib; print('{said}', hashlib.sha256(open('vocabulary', 'rb').read()).hexdigest())"
        (tmp_path / "read.py").write_text(text)
        apply(job_file)
        assert until_end(backend, "large").exit_code == 0
        lines = {line.text for line in backend.logs("large", [Task("worker", 0), Task("worker", 1)], LogOptions())}
        assert lines == {f"{said} {digest}"}
        secrets = client.send("GET", paths.collection("Secret", namespace), paths.of_cluster("large"))["items"]
        found.append({secret["metadata"]["uid"] for secret in secrets})
    assert [len(found[0]), len(found[1]), len(found[0] & found[1])] == [4, 4, 3]


PORT = 2225  # beside that of the tasks, of use and of metrics
ALL_LINKED = f"[ $(cat /proc/net/tcp* | grep -c ':{PORT:04X} [0-9A-F]*:[0-9A-F]* 01 ') = 3 ]"


def are_linked(namespace: str, pod: str) -> bool:
    """Return whether three pods are connected with the one that decides about restarts."""
    try:
        commands.execute(Client(None), namespace, pod, ["sh", "-c", ALL_LINKED], (), 60)
    except ClusterError:
        return False
    return True


BEGINS = "echo $$ > /tmp/pid; echo begins; exec sleep 1000"


def test_programs_of_several_pods_run_again_together(
    start: Callable[[JobFile], str], backend: KubernetesBackend, client: KubeApi, namespace: str
) -> None:
    """The pod that decides is replaced, too."""
    jobs = [program("sh", "-c", BEGINS, name=job, tasks=tasks) for job, tasks in (("chief", 1), ("worker", 2))]
    name = start(make_job_file("together", *jobs, run=RunPolicy(restart_scope="cluster")))
    tasks = [Task("chief", 0), Task("worker", 0), Task("worker", 1)]

    def until_all_begin(reason: str = "") -> None:
        def look() -> bool:
            texts: dict[Task, list[str]] = {task: [] for task in tasks}
            for line in backend.logs(name, tasks, LogOptions()):
                texts[line.task].append(line.text)
            known = {task: f"tfk8s: {task} runs again: {reason}" if reason else "begins" for task in tasks}
            return all(known[task] in said and said[-1] == "begins" for task, said in texts.items())

        polling.wait_until(look, f"all programs to begin again: {reason}", 240)

    until_all_begin()
    polling.wait_until(lambda: are_linked(namespace, pod_of(backend, name, tasks[0])), "the links", 90)
    first = pod_of(backend, name, tasks[1])
    commands.execute(Client(None), namespace, first, ["sh", "-c", "kill -9 $(cat /tmp/pid)"], (), 60)
    until_all_begin("worker/0 ended with exit code 137, restart 1 of 3")
    assert pod_of(backend, name, tasks[1]) == first
    polling.wait_until(lambda: are_linked(namespace, pod_of(backend, name, tasks[0])), "the links", 90)
    client.send("DELETE", paths.pod(namespace, pod_of(backend, name, tasks[0])))
    until_all_begin("chief/0 has a new pod")


FAILS = "import os, sys, time; time.sleep(2); os.environ['TFK8S_INDEX'] == '1' and sys.exit('no data'); time.sleep(600)"


def test_failure_is_named_and_ends_the_job(start: Callable[[JobFile], str], backend: KubernetesBackend) -> None:
    name = start(make_job_file("failed", program("python3", "-c", FAILS)))
    status = until_end(backend, name)
    assert (status.phase, status.exit_code) == (Phase.FAILED, 1)
    assert status.failed_program is not None
    assert (str(status.failed_program.task), status.failed_program.reason) == (
        "worker/1", "ended with exit code 1: no data",
    )  # fmt: skip
    reasons = polling.wait_until(
        lambda: [task.reason for task in backend.observe(name).tasks if task.phase is Phase.FAILED][:-1],
        "the other pod to end", 120,
    )  # fmt: skip
    assert reasons == ["ended: another program of its job failed"]
    with pytest.raises(InvalidInput, match="worker/1 has ended with its job"):
        backend.restart(name, Task("worker", 1))
    mended = make_job_file("failed", program("python3", "-c", "print('ok')"))
    (change,) = backend.plan(mended).changes
    assert (change.kind, [field.path for field in change.fields]) == (
        "Job", ["spec.template.spec.containers[server].command"],
    )  # fmt: skip
    assert backend.apply(mended)
    assert until_end(backend, name).exit_code == 0
    assert not backend.apply(mended)
    backend.restart(name, None)
    assert until_end(backend, name).exit_code == 0


def test_success_of_one_task_ends_the_others(
    start: Callable[[JobFile], str], backend: KubernetesBackend, client: KubeApi
) -> None:
    waits = "import os, time; os.environ['TFK8S_INDEX'] == '0' or time.sleep(600)"
    run = RunPolicy(success="worker/0", timeout=300)
    job_file = make_job_file("succeeded", program("python3", "-c", waits), run=run)
    if int(client.get("/version")["minor"]) < 31:
        with pytest.raises(InvalidInput, match=r"run\.success: worker/0: on Kubernetes before 1\.31"):
            start(job_file)
        return
    name = start(job_file)
    assert until_end(backend, name).exit_code == 0
    with pytest.raises(TaskUnreachable, match="worker/0 has ended with exit code 0"):
        backend.inside.execute(name, Task("worker", 0), ["true"])
    reasons = polling.wait_until(
        lambda: [task.reason for task in backend.observe(name).tasks if task.phase is Phase.SUCCEEDED][1:],
        "the other pod to end", 120,
    )  # fmt: skip
    assert reasons == ["ended: the run succeeded"]


def test_success_of_the_chief_ends_other_jobs(start: Callable[[JobFile], str], backend: KubernetesBackend) -> None:
    waits = make_job("worker", cpu=SMALL, memory=SMALL_MEMORY, program=Program(("sleep", "600")))
    chief = make_job("chief", cpu=SMALL, memory=SMALL_MEMORY, program=Program(("true",)))
    wanted = make_job_file("led", chief, waits)
    name, worker = start(wanted), Task("worker", 0)
    assert wait_for_programs(backend, name, 240).exit_code == 0
    polling.wait_until(lambda: not pod_of(backend, name, worker), "the worker to end", 120)
    ended = {str(task.task): (task.phase, task.reason) for task in backend.observe(name).tasks}
    assert ended == {
        "chief/0": (Phase.SUCCEEDED, ""), "worker/0": (Phase.SUCCEEDED, "ended: the run succeeded"),
    }  # fmt: skip
    assert not backend.apply(wanted)
    with pytest.raises(InvalidInput, match="worker/0 has ended with its job"):
        backend.restart(name, worker)
    backend.restart(name, None)
    polling.wait_until(lambda: pod_of(backend, name, worker), "the worker to run again", 120)


def test_timeout_ends_the_run(start: Callable[[JobFile], str], backend: KubernetesBackend) -> None:
    run = RunPolicy(timeout=3)
    name = start(make_job_file("late", program("sleep", "600", tasks=1), run=run))
    status = until_end(backend, name)
    assert (status.exit_code, status.tasks[0].reason) == (
        124, "ended: the run took longer than its timeout: raise run.timeout",
    )  # fmt: skip
