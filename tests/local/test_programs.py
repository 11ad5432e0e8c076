"""Programs in every task, on real processes and with real TensorFlow."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from clusters import output, start_tfk8s, tfk8s, wait_for, wait_until_gone, write_programs

from tfk8s import polling
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.progress import StepProgress
from tfk8s.core.spec import Task
from tfk8s.core.status import Phase

pytestmark = pytest.mark.usefixtures("servers_only")
PROGRESS = 'echo "tfk8s: step 3/4 (75%)" > "$TFK8S_PROGRESS"'  # what `tfk8s.progress(3, 4)` writes

FAILS = """
import os, time
if os.environ["TFK8S_INDEX"] == "1":
    raise ValueError("no data")
time.sleep(100)
"""


def shell(text: str, **more: object) -> dict[str, object]:
    return {"program": ["sh", "-c", text], **more}


def test_the_end_of_the_chief_is_the_success(backend: LocalBackend, tmp_path: Path) -> None:
    last = tmp_path / "evaluator_has_written"
    wait = f"until test -e {last}; do sleep 0.01; done"
    jobs = {
        "chief": shell(f'echo "$TF_CONFIG"; test -n "$TFK8S_NAME"; {PROGRESS}; {wait}'),
        "worker": shell("exec sleep 100"),
        "evaluator": shell(f'echo "$TF_CONFIG"; touch {last}; exec sleep 100'),
    }
    file = write_programs(tmp_path, "roles", jobs)
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


# The shell ends at once, and leaves the command that saves for as long as the test wants; the evaluator never ends.
SAVES = (
    "trap 'until test -e save; do sleep 0.05; done; touch saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
)
DEAF = "trap '' TERM; touch deaf; while :; do sleep 0.05; done"


def test_programs_save_within_their_grace_and_a_second_ctrl_c_ends_them(tmp_path: Path) -> None:
    jobs = {"worker": shell(f'sh -c "{SAVES}"; :'), "evaluator": shell(DEAF)}
    file = write_programs(tmp_path, "saves", jobs, grace="60s")
    process = start_tfk8s("run", "--local", str(file))
    assert next(line for line in process.stdout if "up" in line)
    polling.wait_until((tmp_path / "deaf").exists, "the evaluator to be deaf", 60)
    process.send_signal(signal.SIGINT)
    said = next(line for line in process.stderr if "waiting for" in line)
    assert said.endswith(' of cluster "saves" to end, at most 60 s; Ctrl-C ends them at once\n')
    assert {"worker/0", "evaluator/0"} == set(said.removeprefix("tfk8s: waiting for ").partition(" of ")[0].split(", "))
    (tmp_path / "save").touch()
    polling.wait_until((tmp_path / "saved").exists, "the worker to save", 60)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)  # half of the evaluator's grace
    assert process.returncode == 130
    assert "saves" not in tfk8s("ls", "--local").stdout


def test_a_program_that_sets_a_variable_of_the_import_gets_an_interpreter(tmp_path: Path) -> None:
    ask = "import os, sys; print('tensorflow' in sys.modules, len(os.environ['TF_CONFIG']) > 9, sys.argv)"
    (tmp_path / "sets.py").write_text(f"{ask}\nos.environ['KERAS_BACKEND'] = 'jax'")
    done = tfk8s("run", "--local", write_programs(tmp_path, "sets", {"worker": {"program": ["sets.py", "--a=b"]}}))
    assert done.returncode == 0
    assert "False True ['sets.py', '--a=b']\n" in done.stdout
    assert "sets.py, line 2, sets KERAS_BACKEND, so it runs in an interpreter of its own\n" in done.stdout + done.stderr


def test_a_failure_ends_run_with_its_code_and_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    done = tfk8s("run", "--local", write_programs(tmp_path, "fails", {"worker": {"tasks": 2, "program": ["fails.py"]}}))
    assert done.returncode == 1
    assert 'worker/1 |   File "fails.py", line 4, in <module>\n' in done.stdout
    assert done.stderr.endswith("error: worker/1 exited with 1: ValueError: no data\n")
    assert 'there is no cluster "fails"' in tfk8s("status", "--local", "fails").stderr


def test_the_timeout_ends_the_run(tmp_path: Path) -> None:
    done = tfk8s("run", "--local", write_programs(tmp_path, "late", {"worker": shell("exec sleep 100")}, timeout="1s"))
    assert done.returncode == 124
    assert done.stderr.endswith("error: worker/0 ended: the run has reached its timeout of 1s\n")


def test_ctrl_c_removes_all(backend: LocalBackend, tmp_path: Path) -> None:
    file = write_programs(tmp_path, "sleeps", {"worker": shell("echo is up; sleep 100 & wait", tasks=2)})
    run = start_tfk8s("run", "--local", file)
    assert run.stdout is not None
    assert [run.stdout.readline().partition("|")[2] for _ in range(2)] == [" is up\n"] * 2
    pids = [int(task.runs_on.removeprefix("pid ")) for task in backend.observe("sleeps").tasks]
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=30)
    assert run.returncode == 130
    assert "sleeps" not in [status.name for status in backend.clusters()]
    for pid in pids:
        wait_until_gone(pid)


def test_a_restart_on_request_runs_programs_again(backend: LocalBackend, tmp_path: Path) -> None:
    file = write_programs(
        tmp_path,
        "again",
        {"worker": shell(f'echo runs; test ! -e "$TFK8S_PROGRESS" || echo again; {PROGRESS}; exit 3')},
    )
    assert tfk8s("up", "--local", "--no-wait", file).returncode == 0
    assert tfk8s("wait", "--local", "again").returncode == 3
    assert tfk8s("restart", "--local", "--no-wait", "again").returncode == 0
    polling.wait_until(lambda: output(backend, "again", Task("worker", 0)) == "runs\nruns", "a second run", 60)
    assert tfk8s("wait", "--local", "again").returncode == 3
    assert tfk8s("down", "--local", "again").returncode == 0


def test_a_missing_file_is_refused_before_anything_starts(backend: LocalBackend, tmp_path: Path) -> None:
    done = tfk8s("up", "--local", write_programs(tmp_path, "absent", {"worker": {"program": ["absent.py"]}}))
    assert (done.returncode, done.stderr) == (2, (
        f'error: jobs.worker.program: there is no file "absent.py" in {tmp_path}\n'
        "  = help: a program's path is relative to the folder of the job file\n"
    ))  # fmt: skip
    assert "absent" not in [status.name for status in backend.clusters()]
