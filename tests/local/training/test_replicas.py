"""Programs that train in every task: MultiWorkerMirroredStrategy, and TensorFlow 1's replicas between graphs."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from clusters import REPOSITORY, output, tfk8s, wait_for, write_programs
from documented_commands import page_output

from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.spec import Task

EXAMPLE = REPOSITORY / "examples" / "multi_worker_mirrored" / "train.py"
REPLICA = REPOSITORY / "examples" / "between_graph" / "replica.py"
PREEMPTION = REPOSITORY / "examples" / "preemption"
STEPS = 600

# Makes TensorFlow believe that it runs on Google Cloud, with a GPU or without, and runs another program.
GOOGLE = """
import http.server, os, runpy, sys, threading
from types import SimpleNamespace
from tensorflow.python.distribute.failure_handling import failure_handling_util

class Metadata(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"host")

server = http.server.HTTPServer(("localhost", 0), Metadata)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["GCE_METADATA_IP"] = f"localhost:{server.server_port}"
gpus = ["GPU:0"] if sys.argv[1] == "gpu" else []
context = SimpleNamespace(list_logical_devices=lambda kind: gpus if kind == "GPU" else [])
failure_handling_util.context = SimpleNamespace(context=lambda: context)
sys.argv[:2] = []
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# A program of TensorFlow 1, whose flags come from TF_CONFIG.
TF1 = f"""
import json, os, runpy, sys
config = json.loads(os.environ["TF_CONFIG"])
hosts = [f"--{{job}}_hosts={{','.join(config['cluster'][job])}}" for job in ("ps", "worker")]
task = [f"--job_name={{config['task']['type']}}", f"--task_index={{config['task']['index']}}"]
sys.argv = [{str(REPLICA)!r}, *hosts, *task, "--sync_replicas", "--train_steps=100"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

CONNECTS = """
import os, pathlib, time
import tensorflow as tf

print("gRPC:", os.environ["TF_GRPC_DEFAULT_OPTIONS"], "parent:", os.getppid(), flush=True)
with tf.Graph().as_default(), tf.compat.v1.Session(tf.distribute.Server.create_local_server().target) as session:
    session.run(tf.constant(1))
print("threads:", len(os.listdir("/proc/self/task")), flush=True)
pathlib.Path(os.environ["TFK8S_JOB"]).touch()
while not (os.path.exists("chief") and os.path.exists("worker")):
    time.sleep(0.01)
"""


def mirrored(folder: Path, name: str, tasks: int, *python: str) -> Path:
    words = [*python, EXAMPLE.name, "--steps", str(STEPS), "--checkpoints", str(folder / name)]
    (folder / EXAMPLE.name).write_text(EXAMPLE.read_text())
    jobs = {"worker": {"tasks": tasks, "program": words}}
    return write_programs(folder, name, jobs, max_restarts=5, timeout="5m")


def result(text: str) -> float:
    """Return the sum of the weights at the end."""
    return float(re.findall(rf"ends after step {STEPS}, weights ([\d.]+)", text)[-1])


def test_mirrored_workers_learn_as_the_page_of_the_example_shows(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE.parent, tmp_path / "mirrored")
    file = folder / "cluster.yaml"
    file.write_text(file.read_text().replace("/tmp/multi-worker-mirrored", str(tmp_path)))
    done = tfk8s("run", "--local", file, timeout=120)
    assert done.returncode == 0, done.stderr
    seen, shown = (
        re.findall(r"^worker/0 \| (?:step 200, loss|ends after step 200, weights) ([\d.]+)$", text, re.MULTILINE)
        for text in (done.stdout, page_output("examples/multi_worker_mirrored/README.md", "tfk8s run --local"))
    )
    assert len(shown) == 2
    assert list(map(float, seen)) == pytest.approx(list(map(float, shown)), rel=1e-2)


@pytest.mark.parametrize("python", [(), ("python3", "-u")], ids=["file", "command"])
def test_mirrored_workers_equal_one_process_and_survive_kills(
    backend: LocalBackend, tmp_path: Path, undisturbed: float, python: tuple[str, ...]
) -> None:
    assert tfk8s("up", "--local", mirrored(tmp_path, "mirrored", 2, *python)).returncode == 0
    for task in (Task("worker", 1), Task("worker", 0)):
        before = backend.observe("mirrored").tasks[task.index].restarts
        saved = f"step {100 * before + 100},"
        wait_for(backend, "mirrored", lambda _, text=saved: text in output(backend, "mirrored", Task("worker", 0)))
        os.kill(int(backend.observe("mirrored").tasks[task.index].runs_on.removeprefix("pid ")), signal.SIGKILL)
        wait_for(backend, "mirrored", lambda status, at=before: all(other.restarts > at for other in status.tasks))
    assert tfk8s("wait", "--local", "--timeout", "2m", "mirrored", timeout=130).returncode == 0
    text = output(backend, "mirrored", Task("worker", 0))
    assert tfk8s("down", "--local", "mirrored").returncode == 0
    assert text.count("2 workers, from step ") == 2
    assert result(text) == pytest.approx(undisturbed, rel=1e-3)


def test_the_pages_of_the_mirrored_examples_have_the_same_result() -> None:
    pages = [f"examples/{folder}/README.md" for folder in ("multi_worker_mirrored", "preemption")]
    first, second = (page_output(page, "tfk8s run --local").splitlines()[-3:-1] for page in pages)
    assert first == second


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The sum of the weights after a run without a preemption."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = tfk8s("run", "--local", mirrored(folder, "undisturbed", 1), timeout=120)
    return result(done.stdout)


SAVED = "exited with 42, to run again"


@pytest.mark.parametrize(("device", "python"), [("cpu", []), ("gpu", ["python3"])])
def test_a_preemption_loses_no_step_on_google_cloud_either(
    backend: LocalBackend, tmp_path: Path, device: str, undisturbed: float, python: list[str]
) -> None:
    # The only ordinary checkpoint is that of step 100. Of many, the preemption might meet one.
    text = (PREEMPTION / "train.py").read_text()
    (tmp_path / "train.py").write_text(text.replace("if (done + 1) % 50 == 0:", "if done + 1 == 100:"))
    (tmp_path / "on_google.py").write_text(GOOGLE)
    program = [
        *python,
        "on_google.py",
        device,
        "train.py",
        "--steps",
        str(STEPS),
        "--checkpoints",
        str(tmp_path / "checkpoints" / "all"),
    ]
    jobs = {"worker": {"tasks": 2, "program": program}}
    assert tfk8s("up", "--local", write_programs(tmp_path, "preempted", jobs, grace="30s")).returncode == 0
    wait_for(backend, "preempted", lambda _: "step 100," in output(backend, "preempted", Task("worker", 0)))
    os.kill(int(backend.observe("preempted").tasks[1].runs_on.removeprefix("pid ")), signal.SIGTERM)
    assert tfk8s("wait", "--local", "--timeout", "2m", "preempted", timeout=130).returncode == 0
    status, text = backend.observe("preempted"), output(backend, "preempted", Task("worker", 0))
    ends = {event.about for event in backend.events("preempted", follow=False) if SAVED in event.message}
    assert tfk8s("down", "--local", "preempted").returncode == 0
    assert [task.restarts for task in status.tasks] == [1, 1]
    assert ends == {"worker/0", "worker/1"}
    starts = [int(step) for step in re.findall(r"2 workers, from step (\d+)", text)]
    assert starts[0] == 0
    assert re.findall(r"^step (\d+),", text, re.MULTILINE) == ["100"]
    assert starts[1] > 100, "it is no step of an ordinary checkpoint"
    assert result(text) == pytest.approx(undisturbed, rel=1e-3)


def test_between_graph_replicas_with_a_server(tmp_path: Path) -> None:
    (tmp_path / "tf1.py").write_text(TF1)
    file = write_programs(
        tmp_path, "between", {"ps": 1, "worker": {"tasks": 2, "program": ["tf1.py"], "tf1": True}}, timeout="5m"
    )
    done = tfk8s("run", "--local", file, timeout=200)
    assert done.returncode == 0, done.stderr
    # A replica may take some of the other's steps. A thread's warning may stand in the same line.
    for index in (0, 1):
        assert re.search(rf"worker {index}: \d+ steps, accuracy [01]\.\d\d", done.stdout), done


def test_forks_of_one_process_read_their_own_variables(tmp_path: Path) -> None:
    (tmp_path / "connects.py").write_text(CONNECTS)
    program = {"program": ["connects.py"]}
    threads = 5 * (os.cpu_count() or 1) + 100
    env = {"TF_GRPC_DEFAULT_OPTIONS": "wrong", "TF_NUM_INTRAOP_THREADS": str(threads)}
    jobs = {"chief": program, "worker": {**program, "env": env}}
    done = tfk8s("run", "--local", write_programs(tmp_path, "connect", jobs))
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"gRPC: (\S+) parent: (\d+)", done.stdout)
    assert {options for options, _ in lines} == {"grpc.initial_reconnect_backoff_ms=100", "wrong"}
    assert len({parent for _, parent in lines}) == 1
    # TensorFlow has read the worker's variables in the worker's own process.
    assert re.findall(r"(\S+) +\| .*Invalid GRPC options format: wrong", done.stdout) == ["worker/0"]
    counts = dict(re.findall(r"(\S+) +\| threads: (\d+)", done.stdout))
    assert int(counts["worker/0"]) > threads > int(counts["chief/0"])
