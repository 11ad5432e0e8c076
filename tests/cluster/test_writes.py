"""The number of writes to the API server does not depend on the number of tasks."""

import json
import os
import re
import subprocess
import sys

import pytest
from fakes.api_server import ApiServer

JOBS, PROGRAMS = 2, 1
DRY = " (dry run)"


@pytest.fixture(scope="module")
def crowded(client, make_namespace):
    """A namespace that allows no pods: the writes are the same without pods."""
    namespace = make_namespace()
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}},
    }  # fmt: skip
    client.send("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", body=quota)
    return namespace


@pytest.fixture
def tfk8s(client, crowded, tmp_path):
    """Runs a command through a proxy; returns its writes to the API server, as methods and kinds of objects."""

    def pass_on(handler, serve):
        if handler.path.startswith("/api/v1/nodes"):  # nobody may list them: hundreds of tasks need many nodes
            handler.answer(403, {"kind": "Status", "code": 403, "message": "nodes is forbidden"})
            return
        content_type = handler.headers.get("content-type", "application/json")
        response = client.request(handler.command, handler.path, body=handler.body, content_type=content_type)
        handler.answer(response.status, json.loads(response.data))

    def run(*arguments):
        with ApiServer(always=pass_on) as proxy:
            environment = {**os.environ, "KUBECONFIG": str(proxy.kubeconfig(tmp_path))}
            command = [sys.executable, "-m", "tfk8s", *arguments, "--namespace", crowded]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr
        requests = (re.match(r"(\w+) .*/namespaces/[^/]+/(\w+)", request) for request in proxy.requests)
        writes = [request for request in requests if request and request[1] != "GET"]
        return [f"{request[1]} {request[2]}{DRY * ('dryRun' in request.string)}" for request in writes]

    return run


def life(tfk8s, job_file, tasks):
    """Return the writes of each command."""
    job_file.write_text(
        f"apiVersion: tfk8s.dev/v1\nname: counted\nimage: tf:1\n"
        f"jobs: {{ps: {tasks}, worker: {tasks}, trainer: {{tasks: {tasks}, program: ['true']}}}}\n"
    )
    return {
        "up": tfk8s("up", "--no-wait", str(job_file)),
        "up again": tfk8s("up", "--no-wait", str(job_file)),
        "diff": tfk8s("diff", str(job_file)),
        "scale": tfk8s("scale", "--no-wait", "counted", f"worker={tasks + 1}"),
        "down": tfk8s("down", "counted"),
    }


def test_two_tasks_and_hundreds_take_equally_many_writes(tfk8s, tmp_path):
    two, hundreds = (life(tfk8s, tmp_path / "cluster.yaml", tasks) for tasks in (2, 200))
    assert two == hundreds
    assert len(two["up"]) <= 8 + 2 * JOBS + PROGRAMS
    # `up` compares the pod templates before it changes anything, and sees whether the namespace lasts.
    checks = [f"PATCH {kind}{DRY}" for kind in ("statefulsets", "statefulsets", "jobs", "configmaps")]
    assert two["up again"] == [*checks, *two["up"]]
    assert two["diff"] == [*checks, *(f"{write}{DRY}" for write in two["up"])]
    assert two["scale"] == [
        "PATCH statefulsets", "PATCH statefulsets", "DELETE pods", "DELETE jobs", "PATCH jobs",
    ]  # fmt: skip
    assert len(two["down"]) <= 8
