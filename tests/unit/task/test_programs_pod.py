"""Tests of process 1 of a program's pod, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tfk8s.backends.kubernetes.scripts import script_archive, sent_folder
from tfk8s.core import programs
from tfk8s.task.programs import pod

POD = {
    "TFK8S_NAME": "demo", "TFK8S_NAMESPACE": "ns", "TFK8S_JOBS": "chief=1,worker=2:2300", "TFK8S_PORT": "2222",
    "TFK8S_JOB": "worker", "TFK8S_INDEX": "1",
}  # fmt: skip
CLUSTER = {
    "chief": ["demo-chief-0.demo.ns.svc:2222"],
    "worker": ["demo-worker-0.demo.ns.svc:2300", "demo-worker-1.demo.ns.svc:2300"],
}


def start(folder: Path, restart_on: str, max_restarts: int, *words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tfk8s.task.programs.pod", restart_on, str(max_restarts), "-", *words],
        cwd=folder, env={**os.environ, **POD, "TFK8S_VERDICT": str(folder / "message"), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(folder: Path, restart_on: str, max_restarts: int, *words: str, **environment: str) -> tuple[int, str, str]:
    process = start(folder, restart_on, max_restarts, *words, **environment)
    output, errors = process.communicate(timeout=30)
    return process.returncode, output, errors


# The first runs end in ways that the arguments name; the last run ends with 0.
ENDS = 'n=$(cat runs 2>/dev/null || echo 0); echo $((n+1)) >runs; shift $n 2>/dev/null || exit 0; eval "$1"'


def ends(*commands: str) -> list[str]:
    return ["sh", "-c", ENDS, "sh", *commands]


POLICIES = [
    # restart on, max restarts, program, exit code, message
    ("exit-code", 3, ends("exit 0"), 0, "exit code 0, restarts 0"),
    ("exit-code", 3, ends("exit 1"), 1, "exit code 1, restarts 0"),
    ("exit-code", 3, ends("exit 138"), 0, "exit code 0, restarts 1"),
    ("exit-code", 3, ends("exit 42"), 0, "exit code 0, restarts 1"),
    ("42,3", 3, ends("exit 3", "exit 138"), 138, "exit code 138, restarts 1"),
    ("exit-code", 1, ends("exit 138", "exit 139"), 139, "exit code 139, restarts 1"),
    ("exit-code", 0, ends("kill -9 $$"), 1, "exit code 137, restarts 0"),
    ("failure", 1, ends("exit 1"), 0, "exit code 0, restarts 1"),
    ("never", 3, ends("exit 143"), 1, "exit code 143, restarts 0"),
    ("exit-code", 3, ["no-such-command"], 127, "exit code 127, restarts 0"),
]

# Runs the lines of its standard input one after another, each in a folder of its own.
RUN_ALL = """
import json, os, sys
from tfk8s.task.programs import pod
for number, line in enumerate(sys.stdin):
    os.makedirs(str(number))
    os.chdir(str(number))
    print(pod.main(json.loads(line)), open("message").read(), sep="; ")
    os.chdir("..")
"""


@pytest.mark.programs
def test_program_runs_again_as_the_policy_says(tmp_path: Path) -> None:
    lines = [[restart_on, str(most), "-", *program] for restart_on, most, program, _, _ in POLICIES]
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL],
        cwd=tmp_path, env={**os.environ, **POD, "TFK8S_VERDICT": "message"}, text=True, timeout=60, check=False,
        input="\n".join(map(json.dumps, lines)), capture_output=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [f"{code}; {message}" for *_, code, message in POLICIES], done.stderr
    assert done.stderr.splitlines() == [
        "tfk8s: worker/1 ended with exit code 138 and runs again, restart 1 of 3",
        "tfk8s: worker/1 ended with exit code 42 and runs again, restart 1 of 3",
        "tfk8s: worker/1 ended with exit code 3 and runs again, restart 1 of 3",
        "tfk8s: worker/1 ended with exit code 138 and runs again, restart 1 of 1",
        "tfk8s: worker/1 ended with exit code 1 and runs again, restart 1 of 1",
        "tfk8s: no-such-command can't run: No such file or directory",
    ]


@pytest.mark.programs
def test_script_finds_its_cluster_and_its_folder(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "src").mkdir()
    (source / "src" / "beside.py").write_text("word = 'beside'")
    (source / "src" / "train.py").write_text(
        "import beside, os, sys\nprint(beside.word, sys.argv, os.environ['TF_CONFIG'], sep='\\n')"
    )
    (tmp_path / "archive").write_bytes(script_archive.pack_folder(sent_folder.find(source)))
    work = tmp_path / "work"
    work.mkdir()
    code, output, errors = run(
        work, "never", 0, "src/train.py", "--steps", "3", TFK8S_ARCHIVE=str(tmp_path / "archive")
    )
    assert (code, errors) == (0, "")
    word, arguments, config = output.splitlines()
    assert (word, arguments) == ("beside", "['src/train.py', '--steps', '3']")
    assert json.loads(config) == {"cluster": CLUSTER, "task": {"type": "worker", "index": 1}}


@pytest.mark.programs
@pytest.mark.parametrize("words", [["trainer.py", "3"], [sys.executable, "-u", "-m", "trainer", "3"]])
def test_tf1_gives_scripts_and_modules_tensorflow_1(tmp_path: Path, words: list[str]) -> None:
    texts = {"__init__": "", "compat/__init__": "", "compat/v1/__init__": "def disable_v2_behavior(): print('1')"}
    for name, text in texts.items():
        path = tmp_path / f"lib/tensorflow/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "socket.py").write_text("raise SystemExit('tfk8s imports a file of the user')")
    (tmp_path / "trainer.py").write_text("import sys, tensorflow as tf; print(tf.__name__, __name__, *sys.argv[1:])")
    code, output, errors = run(tmp_path, "never", 0, *words, TFK8S_TF1="1", PYTHONPATH=str(tmp_path / "lib"))
    assert (code, output, errors) == (0, "1\ntensorflow.compat.v1 __main__ 3\n", "")


@pytest.mark.programs
def test_script_takes_any_size_of_cluster_and_a_command_does_not(tmp_path: Path) -> None:
    (tmp_path / "size.py").write_text("import os\nprint(len(os.environ['TF_CONFIG']) > 131072)")
    huge = {"TFK8S_JOBS": "worker=4500"}
    assert run(tmp_path, "never", 0, "size.py", **huge)[:2] == (0, "True\n")
    code, _, errors = run(tmp_path, "never", 0, "true", **huge)
    size = len(pod.variables({**POD, **huge})["TF_CONFIG"])
    assert code == 126
    assert errors.splitlines()[0] == (
        f"tfk8s: true can't run: TF_CONFIG has {size} bytes, and the kernel allows a command 131071: "
        "run a Python file instead"
    )


@pytest.mark.programs
def test_deleted_pod_ends_its_program_without_a_verdict(tmp_path: Path) -> None:
    process = start(tmp_path, "failure", 3, "sh", "-c", "trap 'echo saved; exit 0' TERM; echo up; sleep 60 & wait")
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert (process.communicate(timeout=30)[0], process.returncode) == ("saved\n", 143)
    assert not (tmp_path / "message").exists()


SAVES = "trap 'sleep $TIME; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"


@pytest.mark.programs
@pytest.mark.parametrize(("grace", "time", "output"), [("20", "0.2", "saved\n"), ("0.05", "20", "")])
def test_every_process_of_a_program_may_save_within_its_grace(
    tmp_path: Path, grace: str, time: str, output: str
) -> None:
    shell = 'sh -c "$0"; echo never'  # this shell ends at once, and does not pass the signal on
    process = start(tmp_path, "failure", 3, "sh", "-c", shell, SAVES, TFK8S_GRACE=grace, TIME=time)
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert (process.communicate(timeout=30)[0], process.returncode) == (output, 143)


@pytest.mark.programs
def test_restart_by_signal_counts_for_nothing(tmp_path: Path) -> None:
    process = start(tmp_path, "never", 0, "sh", "-c", "test -e again && exit 0; touch again; echo up; exec sleep 60")
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGHUP)
    errors = process.communicate(timeout=30)[1]
    assert (errors, process.returncode) == (
        "tfk8s: worker/1 is restarted\n", 0,
    )  # fmt: skip


@pytest.mark.programs
def test_stopped_program_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    script = "test -e again && exit 0; touch again; sleep 60 & kill -STOP $$; exit 5"
    code = "import sys; from tfk8s.task.programs import pod; pod.MAX_STOPPED = 0.1; sys.exit(pod.main(sys.argv[1:]))"
    process = subprocess.run(
        [sys.executable, "-c", code, "exit-code", "1", "-", "sh", "-c", script],
        cwd=tmp_path, env={**os.environ, **POD}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    # The output ends with the last process, of which one would sleep for longer than the timeout.
    assert process.returncode == 0
    assert process.stderr == (
        "tfk8s: worker/1 is stopped; it is killed unless it continues within 0.1 s\n"
        "tfk8s: worker/1 ended with exit code 137 and runs again, restart 1 of 1\n"
    )


def test_end_is_read_as_it_was_written() -> None:
    assert programs.read_end(programs.end_message(137, 2)) == (137, 2)
    assert programs.read_end("OOM") is None
