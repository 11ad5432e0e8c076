"""Prometheus reads the metrics of tasks, and no other pod does."""

import json
from collections.abc import Callable

import pytest
from on_cluster import make_job, make_job_file
from prometheus_client.parser import text_string_to_metric_families

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.core.job_file.mappings import PROMETHEUS, Metrics
from tfk8s.core.programs import Program
from tfk8s.core.quantity import Quantity
from tfk8s.render import manifests, pods

READ = """
import json, sys, time, urllib.request
for _ in range(3):
    for url in sys.argv[1:]:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                print(json.dumps([answer.headers["Content-Type"], answer.read().decode()]))
        except OSError as error:
            print(json.dumps(["", str(error)]))
    time.sleep(1)
"""
TRAIN = """
import pathlib, sys, time, tfk8s
first = pathlib.Path("/tmp/first")
if not first.exists():
    first.touch()
    sys.exit(138)
for step in range(10**6):
    tfk8s.progress(step, 10**6, loss=0.5, note="so so")
    time.sleep(0.1)
"""


@pytest.fixture
def urls(up, client, namespace) -> list[str]:
    """The metrics of a server, and those of a program that has restarted and reported."""
    small = {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("256Mi")}
    worker = make_job(**small, program=Program(("python3", "-c", TRAIN)))
    job_file = make_job_file("measured", make_job("ps"), worker, metrics=Metrics())
    up(job_file)
    port = pods.metrics_port(job_file)
    return [f"http://{address}:{port}/metrics" for address in addresses(client, namespace)]


def addresses(client, namespace: str) -> list[str]:
    """Return the addresses of the pods, by the order of their names."""
    selector = ",".join(f"{key}={value}" for key, value in manifests.selector("measured").items())
    found = client.get(f"{paths.collection('Pod', namespace)}?labelSelector={selector}")["items"]
    return [pod["status"]["podIP"] for pod in sorted(found, key=lambda pod: pod["metadata"]["name"])]


def read(log: str) -> dict[str, dict[tuple[str, str], float]]:
    """Return the values of the last answers by task, and by name and the label that only some samples have."""
    tasks: dict[str, dict[tuple[str, str], float]] = {}
    for line in log.splitlines():
        kind, text = json.loads(line)
        assert kind == "text/plain; version=0.0.4; charset=utf-8", text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = dict(sample.labels)
                assert labels.pop("tfk8s_cluster") == "measured"
                task = labels.pop("task")
                tasks.setdefault(task, {})[sample.name, "".join(labels.values())] = sample.value
    return tasks


def test_prometheus_reads_the_metrics_of_servers_and_programs(visit: Callable[..., str], namespace, urls):
    found: dict[str, dict[tuple[str, str], float]] = {}

    def has_reported() -> bool:
        found.update(read(visit(namespace, PROMETHEUS, READ, *urls)))
        return ("tfk8s_task_progress", "loss") in found["worker/0"]

    polling.wait_until(has_reported, "the program to report", 120)
    ps, worker = found["ps/0"], found["worker/0"]
    assert (ps["tfk8s_task_state", "Ready"], worker["tfk8s_task_state", "Running"]) == (1, 1)
    assert (ps["tfk8s_task_restarts_total", ""], worker["tfk8s_task_restarts_total", ""]) == (0, 1)
    assert worker["tfk8s_task_progress", "loss"] == 0.5
    assert worker["tfk8s_task_step", ""] > 0
    assert worker["tfk8s_task_steps", ""] == 10**6
    assert worker["tfk8s_task_memory_limit_bytes", ""] == 256 << 20
    assert 0 < worker["tfk8s_task_memory_bytes", ""] < ps["tfk8s_task_memory_bytes", ""]
    assert ps["tfk8s_task_cpu_seconds_total", ""] > 0


def test_no_other_pod_reads_the_metrics(visit: Callable[..., str], namespace, make_namespace, urls):
    strangers = (
        (namespace, {"app": "visitor"}), (make_namespace(), PROMETHEUS), (namespace, manifests.selector("measured"))
    )  # fmt: skip
    for space, labels in strangers:
        answers = [json.loads(line) for line in visit(space, labels, READ, *urls).splitlines()]
        assert len(answers) == 3 * len(urls)
        assert {kind for kind, _ in answers[-len(urls) :]} == {""}, labels
