"""Session scripts in the cluster: the same scripts, results and exit codes as on this machine."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from on_cluster import IMAGE, left, make_job, make_job_file

from tfk8s import waiting
from tfk8s.backends import Script
from tfk8s.backends.kubernetes import KubernetesBackend, paths
from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.readiness import wait_until_ready

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(backend, cluster, capfd, tmp_path):
    """Runs a script, given as text or as a file; returns its exit code and its output, or its errors if it fails."""

    def run(script, *arguments, **options):
        if isinstance(script, str):
            (tmp_path / "script.py").write_text(script)
            script = tmp_path / "script.py"
        code = backend.run(options.pop("name", cluster), Script(path=script, arguments=arguments, **options))
        captured = capfd.readouterr()
        return code, (captured.err if code else captured.out).splitlines()

    return run


@pytest.fixture(scope="module")
def tutorial(backend):
    """The tutorial's cluster: two tasks of the job `local`."""
    backend.apply(make_job_file("tutorial", make_job("local", tasks=2)))
    wait_until_ready(backend, "tutorial", 60)
    yield "tutorial"
    backend.delete("tutorial")


@pytest.mark.parametrize("script", ["single", "session", "two_tasks"])
def test_the_tutorials_scripts_run_unmodified(run, tutorial, script):
    code, lines = run(EXAMPLES / f"tutorial/{script}.py", name=tutorial, tf1=True)
    assert (code, lines) == (0, ["238"])


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
    assert lines == ["['a b', '--flag'] data $(HOME)"]


def test_a_folder_too_large_for_a_secret_comes_by_a_stream(run, tmp_path):
    (tmp_path / "large").write_bytes(os.urandom(3_000_000))
    code, lines = run("import os; print(os.path.getsize('large'))")
    assert (code, lines[-1]) == (0, "3000000")


def test_a_folder_that_is_too_large_is_refused_before_anything_is_made(run, tmp_path, backend, client, namespace):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(101_000_000)
    before = left(client, namespace, "shared")
    with pytest.raises(InvalidInput, match="more than 100 MB"):
        run("print()")
    assert left(client, namespace, "shared") == before


def test_output_arrives_as_it_is_printed(run, capfd, tmp_path):
    go = "import time\nprint('first')\ntime.sleep(4)\nprint('second')\n"
    thread = threading.Thread(target=lambda: run(go))
    thread.start()
    seen = ""

    def look():
        nonlocal seen
        seen += capfd.readouterr().out
        return "first" in seen

    waiting.wait_until(look, "the first line", 20)
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


def test_the_script_sees_its_cluster_and_opens_a_session_on_every_task(run):
    code, lines = run(
        "import json, os, tfk8s\nimport tensorflow as tf\n"
        "print(sorted(json.loads(os.environ['TFK8S_CLUSTER'])['worker'])[1])\n"
        "with tfk8s.session() as session: print(len(session.list_devices()))\n"
    )
    assert code == 0
    assert lines[0].startswith("shared-worker-1.shared.")
    assert lines[1:] == ["2"]


def test_ctrl_c_ends_the_script_and_removes_its_job(cluster, client, namespace, tmp_path):
    (tmp_path / "script.py").write_text("import time\nprint('runs', flush=True)\ntime.sleep(600)\n")
    program = (
        "import sys; from pathlib import Path; from tfk8s.backends import Script\n"
        "from tfk8s.backends.kubernetes import KubernetesBackend\n"
        f"KubernetesBackend(namespace={namespace!r}).run({cluster!r}, Script(path=Path(sys.argv[1])))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "script.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "runs" in iter(process.stdout.readline, "runs\n") or True
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode != 0

    def running():
        query = paths.of_cluster(cluster)
        pods = client.get(paths.collection("Pod", namespace), query)["items"]
        return [pod for pod in pods if "script" in pod["metadata"]["name"] and pod["status"]["phase"] == "Running"]

    waiting.wait_until(lambda: not running(), "the script's pod to end", 10)


def test_a_finished_scripts_secret_goes_with_its_job(run, client, namespace):
    run("print()")
    jobs = client.get(paths.collection("Job", namespace))["items"]
    secrets = client.get(paths.collection("Secret", namespace))["items"]
    newest = max(jobs, key=lambda job: job["metadata"]["creationTimestamp"])
    (secret,) = [one for one in secrets if one["metadata"]["name"] == newest["metadata"]["name"]]
    assert secret["metadata"]["ownerReferences"][0]["uid"] == newest["metadata"]["uid"]
    assert newest["spec"]["ttlSecondsAfterFinished"] == 3600
    assert newest["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE


def test_status_counts_running_scripts(backend: KubernetesBackend, cluster):
    waiting.wait_until(lambda: backend.observe(cluster).running == 0, "no script to run", 10)
