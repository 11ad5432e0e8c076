"""Programs in every task, on real processes and with real TensorFlow."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from clusters import REPOSITORY, start_tfk8s, tfk8s, wait_for, wait_until_gone

from tfk8s import polling
from tfk8s.backends.local import LocalBackend
from tfk8s.core.progress import StepProgress
from tfk8s.core.script import LogOptions
from tfk8s.core.spec import Task
from tfk8s.core.status import Phase

pytestmark = pytest.mark.usefixtures("servers_only")
EXAMPLE = REPOSITORY / "examples" / "multi_worker_mirrored" / "train.py"
REPLICA = REPOSITORY / "examples" / "between_graph" / "replica.py"
STEPS = 600
PROGRESS = 'echo "tfk8s: step 3/4 (75%)" > "$TFK8S_PROGRESS"'  # what `tfk8s.progress(3, 4)` writes

# A program of TensorFlow 1, whose flags come from TF_CONFIG.
TF1 = f"""
import json, os, runpy, sys
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
sys.modules["tensorflow"] = tf
config = json.loads(os.environ["TF_CONFIG"])
hosts = [f"--{{job}}_hosts={{','.join(config['cluster'][job])}}" for job in ("ps", "worker")]
task = [f"--job_name={{config['task']['type']}}", f"--task_index={{config['task']['index']}}"]
sys.argv = [{str(REPLICA)!r}, *hosts, *task, "--sync_replicas", "--train_steps=100"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

FAILS = """
import os, time
if os.environ["TFK8S_INDEX"] == "1":
    raise ValueError("no data")
time.sleep(100)
"""


def job_file(folder: Path, name: str, jobs: object, **rules: object) -> Path:
    path = folder / f"{name}.yaml"
    run = {"run": rules} if rules else {}
    path.write_text(json.dumps({"apiVersion": "tfk8s.dev/v1", "name": name, "jobs": jobs, **run}))
    return path


def shell(text: str, **more: object) -> dict[str, object]:
    return {"program": ["sh", "-c", text], **more}


def output(backend: LocalBackend, name: str, task: Task) -> str:
    return "\n".join(line.text for line in backend.logs(name, [task], LogOptions()))


def mirrored(folder: Path, name: str, tasks: int) -> Path:
    words = [EXAMPLE.name, "--steps", str(STEPS), "--checkpoints", str(folder / name)]
    (folder / EXAMPLE.name).write_text(EXAMPLE.read_text())
    return job_file(folder, name, {"worker": {"tasks": tasks, "program": words}}, max_restarts=5, timeout="5m")


def result(text: str) -> float:
    """Return the sum of the weights at the end."""
    return float(re.findall(rf"ends after step {STEPS}, weights ([\d.]+)", text)[-1])


@pytest.mark.usefixtures("tensorflow")
def test_mirrored_workers_equal_one_process_and_survive_kills(backend: LocalBackend, tmp_path: Path) -> None:
    alone = start_tfk8s("run", "--local", mirrored(tmp_path, "alone", 1))
    assert tfk8s("up", "--local", mirrored(tmp_path, "mirrored", 2)).returncode == 0
    for task in (Task("worker", 1), Task("worker", 0)):
        before = backend.observe("mirrored").tasks[task.index].restarts
        saved = f"step {100 * before + 100},"
        wait_for(backend, "mirrored", lambda _, text=saved: text in output(backend, "mirrored", Task("worker", 0)))
        os.kill(int(backend.observe("mirrored").tasks[task.index].runs_on.removeprefix("pid ")), signal.SIGKILL)
        wait_for(backend, "mirrored", lambda status, at=before: all(other.restarts > at for other in status.tasks))
    assert tfk8s("wait", "--local", "--timeout", "2m", "mirrored", timeout=130).returncode == 0
    text = output(backend, "mirrored", Task("worker", 0))
    assert tfk8s("down", "--local", "mirrored").returncode == 0
    one, errors = alone.communicate(timeout=120)
    assert alone.returncode == 0, errors
    assert text.count("2 workers, from step ") == 2
    assert result(text) == pytest.approx(result(one), rel=1e-3)


@pytest.mark.usefixtures("tensorflow")
def test_between_graph_replicas_with_a_server(tmp_path: Path) -> None:
    (tmp_path / "tf1.py").write_text(TF1)
    file = job_file(tmp_path, "between", {"ps": 1, "worker": {"tasks": 2, "program": ["tf1.py"]}}, timeout="5m")
    done = tfk8s("run", "--local", file, timeout=200)
    assert done.returncode == 0, done.stderr
    # A replica may take some of the other's steps, when it is faster.
    for index in (0, 1):
        assert re.search(rf"^worker/{index} \| worker {index}: \d+ steps, accuracy [01]\.\d\d$", done.stdout, re.M), (
            done
        )


def test_the_end_of_the_chief_is_the_success(backend: LocalBackend, tmp_path: Path) -> None:
    jobs = {
        "chief": shell(f'echo "$TF_CONFIG"; test -n "$TFK8S_NAME"; {PROGRESS}'), "worker": shell("exec sleep 100"),
        "evaluator": shell('echo "$TF_CONFIG"; exec sleep 100'),
    }  # fmt: skip
    file = job_file(tmp_path, "roles", jobs)
    assert tfk8s("up", "--local", file).returncode == 0
    assert tfk8s("wait", "--local", "roles").returncode == 0
    status = wait_for(backend, "roles", lambda status: all(task.phase is Phase.SUCCEEDED for task in status.tasks))
    assert {str(task.task): task.reason for task in status.tasks} == {
        "chief/0": "", "evaluator/0": "ended: the run succeeded", "worker/0": "ended: the run succeeded",
    }  # fmt: skip
    assert status.progress == StepProgress(step=3, total=4)
    address = {str(task.task): task.address for task in status.tasks}
    cluster = {"chief": [address["chief/0"]], "worker": [address["worker/0"]]}
    assert json.loads(output(backend, "roles", Task("chief", 0))) == {
        "cluster": cluster, "task": {"type": "chief", "index": 0},
    }  # fmt: skip
    assert json.loads(output(backend, "roles", Task("evaluator", 0))) == {
        "cluster": {**cluster, "evaluator": [address["evaluator/0"]]}, "task": {"type": "evaluator", "index": 0},
    }  # fmt: skip
    assert tfk8s("down", "--local", "roles").returncode == 0


def test_a_failure_ends_run_with_its_code_and_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    done = tfk8s("run", "--local", job_file(tmp_path, "fails", {"worker": {"tasks": 2, "program": ["fails.py"]}}))
    assert done.returncode == 1
    assert 'worker/1 |   File "fails.py", line 4, in <module>\n' in done.stdout
    assert done.stderr.endswith("error: worker/1 exited with 1: ValueError: no data\n")
    assert 'there is no cluster "fails"' in tfk8s("status", "--local", "fails").stderr


def test_the_timeout_ends_the_run(tmp_path: Path) -> None:
    done = tfk8s("run", "--local", job_file(tmp_path, "late", {"worker": shell("exec sleep 100")}, timeout="1s"))
    assert done.returncode == 124
    assert done.stderr.endswith("error: worker/0 ended: the run has reached its timeout of 1s\n")


def test_ctrl_c_removes_all(backend: LocalBackend, tmp_path: Path) -> None:
    file = job_file(tmp_path, "sleeps", {"worker": shell("echo is up; sleep 100 & wait", tasks=2)})
    run = start_tfk8s("run", "--local", file)
    assert run.stdout is not None
    assert run.stdout.readline().endswith("| is up\n")
    pids = [int(task.runs_on.removeprefix("pid ")) for task in backend.observe("sleeps").tasks]
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=30)
    assert run.returncode == 130
    assert "sleeps" not in [status.name for status in backend.clusters()]
    for pid in pids:
        wait_until_gone(pid)


def test_a_restart_on_request_runs_programs_again(backend: LocalBackend, tmp_path: Path) -> None:
    file = job_file(
        tmp_path,
        "again",
        {"worker": shell(f'echo runs; test ! -e "$TFK8S_PROGRESS" || echo again; {PROGRESS}; exit 3')},
    )
    assert tfk8s("up", "--local", "--no-wait", file).returncode == 0
    assert tfk8s("wait", "--local", "again").returncode == 3
    assert tfk8s("restart", "--local", "--no-wait", "again").returncode == 0
    polling.wait_until(lambda: output(backend, "again", Task("worker", 0)) == "runs\nruns", "a second run", 30)
    assert tfk8s("wait", "--local", "again").returncode == 3
    assert tfk8s("down", "--local", "again").returncode == 0


def test_a_missing_file_is_refused_before_anything_starts(backend: LocalBackend, tmp_path: Path) -> None:
    done = tfk8s("up", "--local", job_file(tmp_path, "absent", {"worker": {"program": ["absent.py"]}}))
    assert (done.returncode, done.stderr) == (2, (
        f'error: jobs.worker.program: there is no file "absent.py" in {tmp_path}\n'
        "  = help: a program's path is relative to the folder of the job file\n"
    ))  # fmt: skip
    assert "absent" not in [status.name for status in backend.clusters()]
