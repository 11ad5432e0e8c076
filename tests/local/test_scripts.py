"""The environment of session scripts, and their ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import addresses, is_ready, pids, start_tfk8s, tfk8s, wait_for
from job_files import job_file

from tfk8s.backends.local import state
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.progress import StepProgress
from tfk8s.core.script import Download
from tfk8s.core.spec import Task
from tfk8s.polling import wait_until

STUCK = """
import tensorflow as tf
with tf.device("/job:worker/task:1"):
    count = tf.while_loop(lambda i: i < 2**40, lambda i: i + 1, [tf.constant(0, tf.int64)])
session = tf.Session("grpc://localhost:2222")
session.run(tf.constant(1))
print("running", flush=True)
session.run(count)
"""

HANGING = """
import tensorflow as tf
parts = []
for task in range(2):
    with tf.device(f"/job:worker/task:{task}"):
        parts.append(tf.random.uniform([]))
session = tf.Session("grpc://localhost:2222")
session.loss_timeout = 600  # else the script ends after three seconds
session.run(parts)
print("running", flush=True)
while True:
    session.run(parts, {})
"""


@pytest.fixture(scope="module")
def recovering(state_home: Path, backend: LocalBackend) -> Iterator[str]:
    backend.apply(job_file("recovering", worker=3, ps=1))
    yield "recovering"
    backend.delete("recovering")


@pytest.fixture
def ready(backend: LocalBackend, recovering: str) -> str:
    """A cluster of three workers and a ps, whose tasks and scripts a test may end."""
    wait_for(backend, recovering, is_ready)
    return recovering


def test_files_are_copied_after_ctrl_c_too(run, pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import os, signal; open('left', 'w').write('text'); os.kill(os.getpid(), signal.SIGINT); input()"
    code, _, _ = run(pair, text, downloads=[Download("left", Path("left")), Download("left", tmp_path / "copy")])
    assert (code, (tmp_path / "copy").read_text()) == (130, "text")


def test_arguments_folder_and_neighbours(run, pair: str, tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("word = 'beside the script'")
    (tmp_path / "data.txt").write_text("data")
    text = (
        "import sys, os, pathlib, neighbour\n"
        "print(sys.argv[1:], neighbour.word, (pathlib.Path(__file__).parent / 'data.txt').read_text(), __name__)\n"
        "print(os.getcwd())"
    )
    code, out, _ = run(pair, text, "--steps", "5", "a b")
    assert (code, out) == (0, f"['--steps', '5', 'a b'] beside the script data __main__\n{Path.cwd()}\n")
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("raise SystemExit(7)", 7),
        ("import sys; sys.exit('said on standard error')", 1),
        ("1 / 0", 1),
        ("import os; os._exit(9)", 9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 128 + signal.SIGSEGV),
        ("import atexit; atexit.register(print, 'at exit')", 0),
        ("import threading; threading.Timer(0.1, lambda: print('thread')).start()", 0),
    ],
)
@pytest.mark.parametrize("fresh", [False, True])
def test_the_exit_code_is_the_scripts(
    run, pair: str, text: str, code: int, fresh: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    got, out, err = run(pair, text, fresh=fresh)
    assert got == code
    signals = [f"{tmp_path / 'script.py'} was ended by signal SIGSEGV"] if "SIGSEGV" in text else []
    assert caplog.messages == signals
    assert ("at exit" in out) == ("at exit" in text)
    assert ("thread" in out) == ("thread" in text)
    assert ("said on standard error" in err) == ("said on" in text)


def test_a_traceback_shows_only_the_script(run, pair: str, tmp_path: Path) -> None:
    _, _, err = run(pair, "def f():\n    return 1 / 0\nf()\n")
    path = tmp_path / "script.py"
    assert err == (
        f'Traceback (most recent call last):\n  File "{path}", line 3, in <module>\n    f()\n'
        f'  File "{path}", line 2, in f\n    return 1 / 0\n           ~~^~~\nZeroDivisionError: division by zero\n'
    )


ADOPTS = """
import tensorflow as tf
cluster = tf.train.ClusterSpec({"local": ["a.example.com:1", "b.example.com:1"]})
server = tf.distribute.Server(cluster, "local", 1, start=False)
server.start()
print(isinstance(server, tf.distribute.Server), server.target)
for target in (server.target, tf.distribute.Server.create_local_server().target):
    with tf.Graph().as_default(), tf.compat.v1.Session(target) as session:
        where = tf.compat.v1.RunMetadata()
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        value = session.run(tf.add(1.0, 2.0), options=options, run_metadata=where)
        print(value, where.step_stats.dev_stats[0].device)
tf.distribute.Server(server.server_def, job_name="local", task_index=0)
tf.distribute.Server({"local": ["localhost:1", "localhost:2", "localhost:3"]}, "local", 0)
"""


@pytest.mark.parametrize("fresh", [False, True])
def test_servers_of_scripts_adopt_tasks(run, backend: LocalBackend, pair: str, fresh: bool) -> None:
    code, out, err = run(pair, ADOPTS, fresh=fresh)
    assert (code, out.splitlines()) == (
        2,
        [
            f"True grpc://{addresses(backend, pair)[1]}",
            "3.0 /job:local/replica:0/task:1/device:CPU:0",
            "3.0 /job:localhost/replica:0/task:0/device:CPU:0",
        ],
    )
    known = f"here, local/1 is {addresses(backend, pair)[1]}\n"
    assert f"the script's addresses (a.example.com:1) are not used: {known}" in err
    assert err.endswith(
        "error: the script's server is for another cluster, with a task local/2 that this cluster does not have:\n"
        "  the script's cluster: {local: 3}\n"
        "  this cluster:         {local: 2}\n"
        "  = help: write `jobs: {local: 3}` in the job file, then run `tfk8s up` and this script again; or leave out "
        "the lines that start servers (script.py:14), since the tasks of this cluster have servers\n"
    )


def test_tf1_gives_tensorflow_1_and_without_it_tensorflow_2(run, pair: str) -> None:
    text = "import tensorflow as tf; print(hasattr(tf, 'placeholder'), tf.executing_eagerly())"
    assert run(pair, text, tf1=True)[1] == "True False\n"
    assert run(pair, text, tf1=True, fresh=True)[1] == "True False\n"
    assert run(pair, text)[1] == "False True\n"


def test_a_session_computes_on_two_servers(run, pair: str) -> None:
    text = (
        "import tensorflow as tf\n"
        "x = tf.placeholder(tf.int32)\n"
        "with tf.device('/job:local/task:1'): y = x * 2\n"
        "with tf.Session('grpc://localhost:2222') as s: print(s.run(y, {x: 21}))\n"
    )
    assert run(pair, text, tf1=True)[:2] == (0, "42\n")


def test_tfk8s_session_and_the_environment(run, backend: LocalBackend, pair: str) -> None:
    text = (
        "import json, os, tensorflow as tf, tfk8s\n"
        "print(os.environ['TFK8S_TARGET'], json.loads(os.environ['TFK8S_CLUSTER']))\n"
        "graph = tf.Graph()\n"
        "with graph.as_default(), tf.device('/job:local/task:1'): y = tf.constant(5)\n"
        "with tfk8s.session(graph=graph) as session: print(session.run(y))\n"
    )
    tasks = addresses(backend, pair)
    expected = f"grpc://{tasks[0]} {{'local': {tasks}}}\n5\n"
    assert run(pair, text)[:2] == (0, expected)


def test_isolated_sessions_share_no_variables(run, pair: str) -> None:
    text = (
        "import tensorflow as tf\n"
        "v = tf.get_variable('shared_by_name', initializer=1.0)\n"
        "with tf.Session('grpc://localhost:2222') as a, tf.Session('grpc://localhost:2222') as b:\n"
        "    a.run(v.initializer)\n"
        "    print(len(b.run(tf.report_uninitialized_variables())))\n"
    )
    assert run(pair, text, tf1=True, isolate=True)[1] == "1\n"
    assert run(pair, text, tf1=True)[1] == "0\n"


def test_standard_input_is_the_callers(pair: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("import sys; print(sys.stdin.read().upper(), input.__name__)")
    code = (
        "import pathlib, sys; from tfk8s.core.script import Script;"
        "from tfk8s.backends.local.backend import LocalBackend;"
        f"sys.exit(LocalBackend().scripts.run({pair!r}, Script(path=pathlib.Path({str(path)!r}))).code)"
    )
    done = subprocess.run([sys.executable, "-c", code], input="typed", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "TYPED input\n")


def test_output_arrives_at_once(backend: LocalBackend, pair: str, tmp_path: Path) -> None:
    path, gate = tmp_path / "script.py", tmp_path / "gate"
    os.mkfifo(gate)
    path.write_text(f"print('first', end='')\nopen({str(gate)!r}).read()\nprint('second')")
    code = (
        "import pathlib, sys; from tfk8s.core.script import Script;"
        "from tfk8s.backends.local.backend import LocalBackend;"
        f"sys.exit(LocalBackend().scripts.run({pair!r}, Script(path=pathlib.Path({str(path)!r}))).code)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 100) == b"first"
        gate.write_text("go on")
        assert process.stdout.read() == b"second\n"
    assert process.returncode == 0


def test_random_numbers_differ_from_script_to_script(run, pair: str) -> None:
    text = "import random, numpy; print(random.random(), numpy.random.rand())"
    assert run(pair, text)[1] != run(pair, text)[1]


def test_settings_of_tensorflow_get_a_fresh_interpreter(run, pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import sys; print('tensorflow' in sys.modules)"
    assert run(pair, text)[1] == "True\n"
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    assert run(pair, text)[1] == "False\n"
    monkeypatch.delenv("TF_USE_LEGACY_KERAS")
    assert run(pair, text, fresh=True)[1] == "False\n"


def test_variables_that_a_script_sets_are_read_as_by_plain_python(run, pair: str, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import os; os.environ['KERAS_BACKEND'] = 'tensorflow'")
    ask = "import sys; print('tensorflow' in sys.modules, sys.argv[1:])"
    code, out, err = run(pair, f"import beside\n{ask}", "one", "--two=2")
    assert (code, out) == (0, "False ['one', '--two=2']\n")
    assert "tfk8s: beside.py, line 1, sets KERAS_BACKEND, so it runs in an interpreter of its own\n" in err
    name = "import os; os.environ['TF_USE_' + 'LEGACY_KERAS'] = '1'"
    code, out, err = run(pair, f"{name}\n{ask}\nraise SystemExit(7)", "one")
    assert (code, out) == (7, "False ['one']\n")
    assert "tfk8s: script.py sets TF_USE_LEGACY_KERAS, so it runs in an interpreter of its own\n" in err


def test_xla_reads_its_flags_in_a_fork(run, pair: str, tmp_path: Path) -> None:
    text = (
        "import os, sys; print('tensorflow' in sys.modules)\n"
        f"os.environ['XLA_FLAGS'] = '--xla_dump_to={tmp_path}/xla'\n"
        "import tensorflow as tf\nprint(tf.function(lambda x: x * x, jit_compile=True)(tf.constant(2.0)).numpy())\n"
    )
    assert run(pair, text)[:2] == (0, "True\n4.0\n")
    assert list((tmp_path / "xla").iterdir())


def test_sessions_without_a_target_are_told_and_led_to_the_master(run, pair: str) -> None:
    text = (
        "import tensorflow as tf\nx = tf.constant(2) * 3\nwith tf.Session() as session:\n"
        "    print(session.run(x), len(session.list_devices()))\n"
    )
    code, out, err = run(pair, text, tf1=True)
    assert (code, out) == (0, "6 1\n")
    assert "tfk8s: no session of this script used the cluster: its session has no target; open sessions at " in err
    code, out, err = run(pair, text, tf1=True, on_master=True)
    assert (code, out, "no session" in err) == (0, "6 2\n", False)


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_environments_packages(
    run, pair: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    (packages / "only_here.py").write_text("word = 'from the environment'")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "venv"))
    text = "import only_here, sys, tfk8s; print(only_here.word, tfk8s.session.__name__)"
    assert run(pair, text)[:2] == (0, "from the environment session\n")


def test_ctrl_c_reaches_the_script(backend: LocalBackend, pair: str, start) -> None:
    text = (
        "import sys, time\ntry:\n    print('up', flush=True)\n    time.sleep(60)\nexcept KeyboardInterrupt:\n"
        "    print('tidied up')\n    sys.exit(5)"
    )
    process = start(pair, text)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (5, "tidied up\n")


def test_the_progress_of_a_script(backend: LocalBackend, pair: str, start) -> None:
    text = "import tfk8s, time\ntfk8s.progress(3, 4, loss=0.5)\nprint('up', flush=True)\ntime.sleep(60)"
    process = start(pair, text)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    assert backend.observe(pair).progress == StepProgress(step=3, total=4, metrics={"loss": "0.5"})
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    wait_for(backend, pair, lambda status: not status.scripts)
    assert list(state.folder(pair).progress("x").parent.iterdir()) == []


def test_ctrl_c_ends_a_session_call_and_leaves_the_cluster_usable(
    run, backend: LocalBackend, ready: str, start
) -> None:
    process = start(ready, STUCK)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "KeyboardInterrupt" in err  # the script's `finally` and `with` are left as usual
    text = "import tensorflow as tf\nprint(tf.Session('grpc://localhost:2222').run(tf.constant(3)))"
    assert run(ready, text, tf1=True)[:2] == (0, "3\n")


def test_killing_submit_ends_the_script(backend: LocalBackend, pair: str, start) -> None:
    wait_for(backend, pair, is_ready)
    process = start(pair, "import time; print('up', flush=True); time.sleep(60)")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    assert backend.observe(pair).running == 1
    process.kill()
    process.wait()
    wait_for(backend, pair, lambda status: status.running == 0)


@pytest.mark.parametrize("index", [0, 1])
def test_a_task_killed_in_a_call_is_named(backend: LocalBackend, ready: str, start, index: int) -> None:
    process = start(ready, STUCK)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    os.kill(pids(backend.observe(ready))[Task("worker", index)], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    # A loaded machine judges the call when the task is back.
    assert re.search(rf"worker/{index} was (lost: |restarted \()killed by SIGKILL", err), err


def test_script_survives_the_loss_of_an_unused_task(backend: LocalBackend, ready: str, start) -> None:
    text = "print('up', flush=True); print(input())"
    process = start(ready, text)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "up\n"
    os.kill(pids(backend.observe(ready))[Task("ps", 0)], signal.SIGKILL)
    assert process.stderr is not None
    assert process.stderr.readline() == "tfk8s: ps/0 was lost: killed by SIGKILL\n"
    out, _ = process.communicate("still here\n", timeout=30)
    assert (process.returncode, out) == (0, "still here\n")


def test_a_script_waits_for_a_task_that_was_killed_before(run, backend: LocalBackend, ready: str) -> None:
    task = Task("worker", 2)
    pid = pids(backend.observe(ready))[task]
    os.kill(pid, signal.SIGKILL)
    wait_for(backend, ready, lambda status: pids(status).get(task) != pid)
    text = (
        "import tensorflow as tf\nwith tf.device('/job:worker/task:2'): y = tf.constant(8)\n"
        "print(tf.Session('grpc://localhost:2222').run(y))"
    )
    code, out, err = run(ready, text, tf1=True)
    assert (code, out) == (0, "8\n"), err


def test_a_frozen_task_is_named(backend: LocalBackend, ready: str, run) -> None:
    pid = pids(backend.observe(ready))[Task("worker", 1)]
    os.kill(pid, signal.SIGSTOP)
    try:
        code, _, err = run(ready, "print('not reached')", fresh=True)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert code == 3
    first, second, *_ = addresses(backend, ready)
    assert f"of 4 tasks, worker/1 does not answer:\n  worker/0  {first}  answers\n" in err
    assert f"  worker/1  {second}  no answer in 4 s (is it stopped, or overloaded?)\n" in err


def test_scripts_run_side_by_side(pair: str, start) -> None:
    text = "import tensorflow as tf; print(tf.Session('grpc://localhost:2222').run(tf.constant(1)))"
    processes = [start(pair, text) for _ in range(4)]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["1\n"] * 4


def test_a_script_of_its_own_server_goes_on_working(run, pair: str) -> None:
    text = (
        "import tensorflow as tf\nserver = tf.distribute.Server.create_local_server()\n"
        "print(tf.Session(server.target).run(tf.constant(7)))"
    )
    assert run(pair, text, tf1=True)[:2] == (0, "7\n")


def test_a_script_for_tensorflow_1_gets_a_hint(run, pair: str) -> None:
    code, _, err = run(pair, "import tensorflow as tf\ntf.train.GradientDescentOptimizer(0.1)", "--tf1")
    assert code == 1
    assert err.endswith(
        "AttributeError: module 'tensorflow._api.v2.train' has no attribute 'GradientDescentOptimizer'\n"
        "hint: --tf1 after SCRIPT is an argument of the script; add --tf1 before SCRIPT: "
        "tfk8s submit … --tf1 … SCRIPT\n"
    )


def test_open_files_are_written_at_the_end(run, pair: str, tmp_path: Path) -> None:
    code, _, _ = run(pair, f"file = open({str(tmp_path / 'out')!r}, 'w'); file.write('data')")
    assert (code, (tmp_path / "out").read_text()) == (0, "data")


def test_annotations_equal_those_of_python(run, pair: str) -> None:
    assert run(pair, "def f(x: int): ...\nprint(f.__annotations__)")[1] == "{'x': <class 'int'>}\n"


def test_a_script_has_its_callers_umask(run, pair: str) -> None:
    text = "import os; print(oct(os.umask(0)))"
    before = os.umask(0o077)
    try:
        assert run(pair, text)[1] == run(pair, text, fresh=True)[1] == "0o77\n"
    finally:
        os.umask(before)


def test_stacks_name_the_line_and_the_task_that_a_script_waits_for(start, backend: LocalBackend, ready: str) -> None:
    script = start(ready, HANGING)
    assert script.stdout.readline() == "running\n"

    def look() -> dict[str, object] | None:
        shown = tfk8s("stacks", "--local", ready, "-o", "json")
        assert shown.returncode == 0, shown.stderr
        document = json.loads(shown.stdout)
        processes = [process for found in document["scripts"] for process in found["processes"]]
        calls = [thread["call"] for process in processes for thread in process["threads"] or ()]
        waits = any(call and call["is_same"] for call in calls)
        return document if waits and len(document["scripts"]) == 1 else None

    worker = pids(backend.observe(ready))[Task("worker", 1)]
    os.kill(worker, signal.SIGSTOP)
    try:
        document = wait_until(look, "the script to wait", 60)
    finally:
        os.kill(worker, signal.SIGCONT)
    thread = document["scripts"][0]["processes"][0]["threads"][0]
    assert thread["name"] == "MainThread"
    place = {"line": 12, "function": "<module>", "source": "session.run(parts, {})"}
    assert {key: thread["frames"][0][key] for key in place} == place
    assert thread["call"]["name"] == "session.run"
    assert thread["call"]["needs"] == ["worker/0", "worker/1"]
    assert thread["call"]["text"].endswith("; waits for worker/1 (stopped by a signal)")
    tasks = {task["task"]: task for task in document["tasks"]}
    assert tasks["worker/1"]["processes"][0]["activity"] == "stopped by a signal"
    assert tasks["worker/1"]["needed_by"] == [document["scripts"][0]["script"]]
    assert tasks["ps/0"]["needed_by"] == []


# The main thread ends at Ctrl-C, and Python waits for the other thread.
THREAD = """
import signal, sys, threading
if sys.argv[1] == "caught":
    signal.signal(signal.SIGTERM, lambda *_: print("saves", flush=True))
threading.Thread(target=threading.Event().wait, name="reader").start()
print("running", flush=True)
threading.Event().wait()
"""


def test_ctrl_c_ends_a_script_whose_thread_waits(pair: str, tmp_path: Path) -> None:
    path = tmp_path / "thread.py"
    path.write_text(THREAD)
    once, twice = (start_tfk8s("submit", "--local", pair, str(path), how) for how in ("caught", "default"))
    for process in (once, twice):
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
    said = next(line for line in twice.stderr if line.startswith("tfk8s: waiting"))
    assert said.startswith(
        'tfk8s: waiting for the script\'s thread "reader" to end; Ctrl-C again ends it at once, else'
    )
    twice.send_signal(signal.SIGINT)
    twice.communicate(timeout=10)  # less than the 15 s without a second Ctrl-C
    assert twice.returncode == 143
    out, err = once.communicate(timeout=60)  # 15 s, and 2 s after SIGTERM
    assert (once.returncode, out) == (130, "saves\n"), err
