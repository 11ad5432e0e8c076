"""Session scripts in the cluster: the same scripts, results and exit codes as on this machine."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from on_cluster import IMAGE, left, make_job, make_job_file, start_tfk8s, write_wheel

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.backends.stacks import explainer
from tfk8s.cluster.handle import Cluster
from tfk8s.core.script import Download, LogOptions, Script, ScriptResources
from tfk8s.core.task_names import choose
from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.features.timeline import here as timeline
from tfk8s.render import manifests, package_files, program_job


@pytest.fixture
def run(backend, cluster, capfd, tmp_path):
    """Runs a script, given as text or as a file; returns its exit code and its output, or its errors if it fails."""

    def run(script, *arguments, **options):
        if isinstance(script, str):
            (tmp_path / "script.py").write_text(script)
            script = tmp_path / "script.py"
        code = backend.scripts.run(
            options.pop("name", cluster), Script(path=script, arguments=arguments, **options)
        ).code
        captured = capfd.readouterr()
        return code, (captured.err if code else captured.out).splitlines()

    return run


def test_arguments_folder_variables_and_exit_code(run, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/data.txt").write_text("data")
    (tmp_path / "package/__init__.py").write_text("value = open('package/data.txt').read()\n")
    code, lines = run(
        "import os, sys, package\nprint(sys.argv[1:], package.value, os.environ['MY'], file=sys.stderr)\n"
        "open('written', 'w').close()\nsys.exit(7)\n",
        "a b", "--flag", environment={"MY": "$(HOME)"},
    )  # fmt: skip
    assert code == 7
    assert lines[-1] == "['a b', '--flag'] data $(HOME)"


ROOM = program_job.max_secret_bytes(package_files.zip_of_scripts())


@pytest.mark.parametrize("size", [ROOM - 10_000, 3_000_000], ids=["beside the package", "above a Secret"])
def test_a_folder_comes_in_the_secret_or_is_streamed(run, tmp_path, size):
    (tmp_path / "large").write_bytes(os.urandom(size))
    code, lines = run("import os; print(os.path.getsize('large'))", fresh=True)
    assert (code, lines[-1]) == (0, str(size))


def test_steps_are_recorded_in_the_pod(backend, cluster, tmp_path):
    (tmp_path / "steps.py").write_text(
        "import os\nimport tensorflow as tf\n"
        "with tf.device('/job:worker/task:1'):\n    w1 = tf.Variable(tf.ones([2048, 2048]), name='w1')\n"
        "with tf.device('/job:worker/task:0'):\n    mean = tf.reduce_mean(w1 + 1)\n"
        "with tf.Session(os.environ['TFK8S_TARGET']) as session:\n"
        "    session.run(w1.initializer)\n    for _ in range(3): session.run(mean)\n"
    )
    page = tmp_path / "steps.html"
    script = Script(path=tmp_path / "steps.py", tf1=True, isolate=True)
    with timeline.recorded(script, timeline.Timeline(page), Cluster(backend, cluster)) as recorded:
        assert backend.scripts.run(cluster, recorded).code == 0
    assert "of the step waits for worker/1 to send w1 to worker/0 (16 MiB)" in page.read_text()


def test_a_folder_over_100_mb_is_refused(run, tmp_path, backend, client, namespace):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(101_000_000)
    before = left(client, namespace, "shared")
    with pytest.raises(InvalidInput, match="more than 100 MB"):
        run("print()")
    assert left(client, namespace, "shared") == before


@pytest.mark.parametrize("fresh", [True, False], ids=["in a pod of its own", "in a warm pod"])
def test_files_are_copied_whatever_the_exit_code(run, tmp_path, fresh):
    code, _ = run(
        "import os, sys\nos.makedirs('model/sub')\nopen('model/sub/big', 'wb').write(bytes(20_000_000))\n"
        "os.symlink('sub', 'model/latest')\nopen('/tmp/log', 'w').write('text')\nsys.exit(7)\n",
        downloads=[Download("model", tmp_path / "out"), Download("/tmp/log", tmp_path), Download("x", tmp_path / "x")],
        fresh=fresh,
    )  # fmt: skip
    assert (code, (tmp_path / "out/sub/big").stat().st_size, (tmp_path / "log").read_text()) == (7, 20_000_000, "text")
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "out/latest").is_symlink()


def test_output_arrives_as_it_is_printed(run, capfd, tmp_path):
    go = "import time\nprint('first')\ntime.sleep(4)\nprint('second')\n"
    thread = threading.Thread(target=lambda: run(go))
    thread.start()
    seen = ""

    def look():
        nonlocal seen
        seen += capfd.readouterr().out
        return "first" in seen

    polling.wait_until(look, "the first line", 90)
    assert "second" not in seen
    thread.join()


def test_an_error_in_the_script_is_its_traceback(run):
    code, lines = run("1 / 0")
    assert code == 1
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_a_missing_script_is_said(run):
    with pytest.raises(InvalidInput, match="there is no script"):
        run(Path("/none.py"))


def test_a_script_that_can_not_start_is_said_why(up, backend, run):
    name = up(make_job_file("imageless", make_job(image="not an image")), wait=0)
    with pytest.raises(ClusterError, match=r"the script can't start: .* is not the name of an image"):
        run("print()", name=name)


def test_a_session_of_a_script_has_every_task(run):
    code, lines = run(
        "import json, os, tfk8s\nimport tensorflow as tf\n"
        "print(sorted(json.loads(os.environ['TFK8S_CLUSTER'])['worker'])[1])\n"
        "with tfk8s.session() as session: print(len(session.list_devices()))\n"
    )
    assert code == 0
    assert lines[0].startswith("shared-worker-1.shared.")
    assert lines[1:] == ["2"]


@pytest.mark.parametrize("flags", [("--fresh",), ()], ids=["in a pod of its own", "in a warm pod"])
def test_ctrl_c_ends_the_script(backend, client, cluster, namespace, tmp_path, flags):
    def own_pods():
        query = paths.labelled({**manifests.selector(cluster), manifests.COMPONENT: manifests.SCRIPT})
        return {pod["metadata"]["name"] for pod in client.get(paths.collection("Pod", namespace), query)["items"]}

    (tmp_path / "script.py").write_text("import time\nprint('runs', flush=True)\ntime.sleep(600)\n")
    before = own_pods()
    process = start_tfk8s("submit", *flags, "--namespace", namespace, cluster, tmp_path / "script.py")
    assert process.stdout.readline() == "runs\n"
    mine = own_pods() - before
    assert len(mine) == len(flags)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    polling.wait_until(lambda: backend.observe(cluster).running == 0, "the script to end", 60)
    polling.wait_until(lambda: not mine & own_pods(), "the script's own pod to go", 60)


def test_ctrl_c_copies_the_files_of_a_script_in_a_pod_of_its_own(cluster, namespace, tmp_path):
    (tmp_path / "script.py").write_text(
        "import time\ntry:\n    print('runs', flush=True)\n    time.sleep(600)\n"
        "finally:\n    open('model', 'w').write('weights')\n"
    )
    wanted = f"model:{tmp_path}/model"
    process = start_tfk8s(
        "submit", "--fresh", "--get", wanted, "--namespace", namespace, cluster, tmp_path / "script.py"
    )
    assert process.stdout.readline() == "runs\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, (tmp_path / "model").read_text()) == (130, "weights"), err


def test_a_finished_scripts_secret_goes_with_its_job(run, client, namespace):
    def jobs():
        return {job["metadata"]["uid"]: job for job in client.get(paths.collection("Job", namespace))["items"]}

    before = jobs()
    run("print()", fresh=True)
    (newest,) = (job for uid, job in jobs().items() if uid not in before)
    secrets = client.get(paths.collection("Secret", namespace))["items"]
    (secret,) = [one for one in secrets if one["metadata"]["name"] == newest["metadata"]["name"]]
    assert secret["metadata"]["ownerReferences"][0]["uid"] == newest["metadata"]["uid"]
    assert newest["spec"]["ttlSecondsAfterFinished"] == 3600
    assert newest["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE


def test_status_counts_running_scripts(backend: KubernetesBackend, cluster):
    polling.wait_until(lambda: backend.observe(cluster).running == 0, "no script to run", 60)


# ---- without the command that submitted them -----------------------------------------------------------------------


def status_of(backend, cluster, name):
    return next((script for script in backend.observe(cluster).scripts if script.name == name), None)


def test_a_detached_script_is_shown_followed_and_removed(backend, cluster, capfd, tmp_path):
    (tmp_path / "a.py").write_text("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    name = backend.detached.start(cluster, Script(path=tmp_path / "a.py", arguments=("--steps", "5")))
    for follow, code in ((True, 7), (False, 0)):
        assert backend.detached.show(cluster, name, LogOptions(follow=follow)) == code
        out, err = capfd.readouterr()
        assert (out, err.splitlines()[-1]) == ("out\n", "err")
    polling.wait_until(lambda: status_of(backend, cluster, name).exit_code == 7, "the exit code to be shown", 60)
    found = status_of(backend, cluster, name)
    assert (found.phase, found.command) == ("Failed", "a.py --steps 5")
    log = list(backend.detached.log(cluster, name))
    assert log
    assert list(backend.detached.log(cluster, name, LogOptions(follow=True))) == log
    backend.detached.stop(cluster, name)
    assert status_of(backend, cluster, name) is None
    with pytest.raises(InvalidInput, match=f'has no script "{name}"'):
        backend.detached.stop(cluster, name)


def test_a_script_outlives_a_command_that_is_killed(backend, cluster, namespace, capfd, tmp_path):
    # It ends when it is told so, through a file: nothing here depends on how long anything takes.
    (tmp_path / "a.py").write_text(
        "import os, time\nprint('runs', flush=True)\nwhile not os.path.exists('/tmp/end'): time.sleep(0.1)\n"
    )
    before = {script.name for script in backend.observe(cluster).scripts}
    process = start_tfk8s("submit", "--fresh", "--namespace", namespace, cluster, tmp_path / "a.py")
    assert process.stdout.readline() == "runs\n"
    process.kill()
    process.communicate()
    (name,) = {script.name for script in backend.observe(cluster).scripts} - before
    assert status_of(backend, cluster, name).phase == "Running"
    pod = status_of(backend, cluster, name).runs_on.partition(" ")[0]
    subprocess.run(
        ["kubectl", "exec", "--namespace", namespace, pod, "--", "touch", "/tmp/end"], check=True, timeout=60
    )
    assert backend.detached.show(cluster, name, LogOptions(follow=True)) == 0
    assert capfd.readouterr().out == "runs\n"


# ---- what a script brings along, and asks for ----------------------------------------------------------------------


@pytest.mark.parametrize("flags", [("--fresh",), ()], ids=["in a pod of its own", "in a warm pod"])
def test_standard_input_and_its_end_reach_the_script(cluster, namespace, tmp_path, flags):
    (tmp_path / "a.py").write_text("import sys; text = sys.stdin.read(); print(len(text), text[:5], end='')")
    command = ["submit", *flags, "--namespace", namespace, cluster, tmp_path / "a.py"]
    for text in ("hello", "x" * 1_000_000, ""):
        process = start_tfk8s(*command, stdin=subprocess.PIPE)
        out, err = process.communicate(text, timeout=240)
        assert (process.returncode, out.rstrip()) == (0, f"{len(text)} {text[:5]}".rstrip()), err


def test_requirements_are_added_to_the_packages_of_the_image(run, tmp_path):
    (tmp_path / "wheels").mkdir()
    write_wheel(tmp_path / "wheels", "tiny", {"tiny.py": b"value = 5\n"})
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("--no-index\n--find-links wheels\ntiny\nnumpy\n")
    code, lines = run("import tiny, numpy; print(tiny.value)", requirements=requirements)
    assert (code, lines[-1]) == (0, "5")
    requirements.write_text("--no-index\nnone-of-that-name\n")
    code, lines = run("print('not reached')", requirements=requirements)
    assert code == 1
    assert "error: requirements.txt can't be installed: pip ended with exit code 1" in lines


def test_gpus_that_no_node_has_are_refused(run, client, namespace):
    before = left(client, namespace, "shared")
    message = r"(?m)^the script asks for 1000 nvidia.com/gpu, and no node has (any|more than \d+)$"
    with pytest.raises(InvalidInput, match=message):
        run("print()", resources=ScriptResources(gpus=1000))
    assert left(client, namespace, "shared") == before


# ---- a task that is lost -------------------------------------------------------------------------------------------


def test_a_script_does_not_wait_for_a_master_that_is_lost(up, namespace, client, tmp_path):
    name = up(make_job_file("lossy"))
    (tmp_path / "a.py").write_text(
        "import tensorflow as tf\nx = tf.placeholder(tf.int64, [])\nwith tf.device('/job:worker/task:1'):\n"
        "    y = tf.while_loop(lambda i: i < 10**15, lambda i: i + 1, [x])\n"
        "with tf.Session('grpc://localhost:2222') as session:\n"
        "    print(session.run(x + 1, {x: 4}), flush=True)\n    session.run(y, {x: 0})\n"
    )
    process = start_tfk8s("submit", "--namespace", namespace, "--tf1", name, tmp_path / "a.py")
    assert process.stdout.readline() == "5\n"
    client.send("DELETE", paths.pod(namespace, f"{name}-worker-0"), {"gracePeriodSeconds": 0})
    _, err = process.communicate(timeout=240)
    assert process.returncode == 3
    assert "worker/0 was lost" in err


HANGING = """
import tensorflow as tf
with tf.device("/job:worker/task:1"):
    queue = tf.queue.FIFOQueue(1, tf.int32)
    item = queue.dequeue()
session = tf.Session("grpc://localhost:2222")
session.run(tf.constant(1))
session.run(item)  # nobody fills the queue
"""


def test_stacks_name_the_line_and_the_task_that_a_script_waits_for(backend, cluster, tmp_path):
    (tmp_path / "hanging.py").write_text(HANGING)
    script = backend.detached.start(cluster, Script(path=tmp_path / "hanging.py", tf1=True))

    def look():
        status = backend.observe(cluster)
        found = backend.inside.stacks(cluster, choose(status, ()))
        by_name = {entry.name: entry for entry in found}
        processes = by_name[script].processes if script in by_name else ()
        threads = [thread for process in processes for thread in process.threads or ()]
        waits = any(thread.call and thread.call.is_same and thread.frames[0].line == 8 for thread in threads)
        return (status, by_name) if waits else None

    try:
        status, found = polling.wait_until(look, "the script to wait", 120)
        used = backend.inside.usage(cluster, ["worker/1", script])
    finally:
        backend.detached.stop(cluster, script)
    (process,) = found[script].processes
    main = process.threads[0]
    assert (main.name, main.frames[0].line, main.call.name) == ("MainThread", 8, "session.run")
    assert main.frames[0].source == "session.run(item)  # nobody fills the queue"
    assert main.call.needs == ("worker/0", "worker/1")
    assert "worker/1" in explainer(status, found.values())(main.call)
    (server,) = found["worker/1"].processes
    assert (server.state, server.threads) == ("S", None)
    for usage in used:
        assert usage.memory > 20 << 20, usage
        assert None not in (usage.cpu, usage.received, usage.sent), usage
        assert not usage.problem
