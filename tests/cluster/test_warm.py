"""Warm pods: their scripts are forks, see the cluster as it is, and end with all that they started."""

from __future__ import annotations

import signal

import pytest
from on_cluster import left, make_job, make_job_file, start_tfk8s

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.script import LogOptions, Script
from tfk8s.errors import InvalidInput
from tfk8s.render import warm_job

WHERE = (
    "import os, pathlib, socket\n"
    "print(socket.gethostname(), 'fork_server' in pathlib.Path(f'/proc/{os.getppid()}/cmdline').read_text())\n"
)
DEVICES = "import tfk8s\nwith tfk8s.session() as session: print(len(session.list_devices()))\n"
LIMIT = 120.0


@pytest.fixture
def run(backend, capfd, tmp_path):
    """Runs a script, given as text; returns the lines that it prints."""

    def run(name, text, **options):
        (tmp_path / "script.py").write_text(text)
        outcome = backend.scripts.run(name, Script(path=tmp_path / "script.py", **options))
        out, err = capfd.readouterr()
        assert outcome.code == 0, err
        return out.splitlines()

    return run


def warm_pods(client, namespace, name):
    """Return the warm pods of a cluster that are not deleted."""
    pods = client.get(paths.collection("Pod", namespace), paths.of_cluster(name))["items"]
    return [pod for pod in pods if warm_job.is_warm(pod) and "deletionTimestamp" not in pod["metadata"]]


def test_up_starts_a_warm_pod_whose_scripts_see_the_cluster_as_it_is(up, run, backend, client, namespace):
    name = up(make_job_file("warm", make_job(tasks=1), warm=True))
    jobs = client.get(paths.collection("Job", namespace), paths.of_cluster(name))["items"]
    (job,) = filter(warm_job.is_warm, jobs)
    (first,) = run(name, WHERE)
    assert first == f"{warm_pods(client, namespace, name)[0]['metadata']['name']} True"
    assert first.startswith(job["metadata"]["name"])
    assert run(name, DEVICES) == ["1"]
    backend.scale(name, {"worker": 2})
    wait_until_ready(backend, name, LIMIT)
    assert run(name, WHERE + DEVICES) == [first, "2"]
    own = run(name, WHERE, fresh=True)
    assert own[0].endswith("False")
    backend.delete(name)
    polling.wait_until(lambda: not left(client, namespace, name), "the cluster to go", LIMIT)


def test_a_script_ends_with_its_command_and_is_lost_with_its_pod(up, run, backend, client, namespace, tmp_path):
    name = up(make_job_file("lost", make_job(tasks=1)))
    nap = tmp_path / "nap.py"
    nap.write_text("import time\nprint('runs', flush=True)\ntime.sleep(600)\n")
    process = start_tfk8s("submit", "--namespace", namespace, name, nap)
    assert process.stdout.readline() == "runs\n"
    (script,) = [script for script in backend.observe(name).scripts if script.name.startswith("script-")]
    assert (script.phase, script.command) == ("Running", "nap.py")
    (looked,) = backend.inside.stacks(name, [script.name])
    (napping,) = looked.processes
    assert [frame.source for frame in napping.threads[0].frames] == ["time.sleep(600)"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    polling.wait_until(lambda: backend.observe(name).running == 0, "the script to end", LIMIT)

    process = start_tfk8s("submit", "--namespace", namespace, name, nap)
    assert process.stdout.readline() == "runs\n"
    (pod,) = warm_pods(client, namespace, name)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
    client.send("POST", paths.pod(namespace, pod["metadata"]["name"], "eviction"), body=eviction)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "the script was lost with its pod: evicted from its node" in err
    before = pod["metadata"]["name"]
    assert run(name, WHERE)[0] not in (f"{before} True", f"{before} False")


def test_a_script_is_shown_and_stopped_by_name_and_leaves_its_pod(up, run, backend, client, namespace, tmp_path, capfd):
    name = up(make_job_file("stopped", make_job(tasks=1)))
    (tmp_path / "nap.py").write_text("import time\nprint('runs', flush=True)\ntime.sleep(600)\n")
    process = start_tfk8s("submit", "--namespace", namespace, "--get", "left", name, tmp_path / "nap.py")
    assert process.stdout.readline() == "runs\n"
    (script,) = [script.name for script in backend.observe(name).scripts if script.name.startswith("script-")]
    assert backend.detached.show(name, script, LogOptions()) == 0
    assert capfd.readouterr().out == "runs\n"
    assert list(backend.detached.log(name, script)) == ["runs"]
    assert next(backend.detached.log(name, script, LogOptions(follow=True))) == "runs"
    follower = start_tfk8s("logs", "-f", "--namespace", namespace, name, script)
    assert follower.stdout.readline() == "runs\n"
    (pod,) = warm_pods(client, namespace, name)
    backend.detached.stop(name, script)
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, "the script was ended by `tfk8s stop`" in err) == (1, True), err
    _, err = follower.communicate(timeout=LIMIT)
    assert (follower.returncode, "KeyboardInterrupt" in err) == (130, True), err
    assert run(name, WHERE) == [f"{pod['metadata']['name']} True"]
    with pytest.raises(InvalidInput, match=f'has no script "{script}"'):
        backend.detached.stop(name, script)
