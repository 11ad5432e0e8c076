"""The objects of a cluster whose tasks serve metrics: the port, who may read it, and the PodMonitor."""

from __future__ import annotations

from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.core.job_file.mappings import Metrics, Network, Source
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import InvalidInput
from tfk8s.jobfile.loader import loads
from tfk8s.render import manifests, metrics, pods, script_job

JOBS = (Job(name="ps"), Job(name="worker", tasks=3, port=2300, program=Program(("a",))))
PORT = 2302  # after that of the list of clients


def cluster(**settings: Any) -> JobFile:
    return job_file("demo", *JOBS, image="tf:1", **{"metrics": Metrics(), **settings})


def rules(job_file: JobFile) -> list[Any]:
    (policy,) = (item for item in manifests.render(job_file, b"") if item["kind"] == "NetworkPolicy")
    rules: list[Any] = policy["spec"]["ingress"]
    return rules


def on_the_port(job_file: JobFile) -> list[Any]:
    """Return the peers that a policy lets to the metrics."""
    open_to = (rule["from"] for rule in rules(job_file) if pods.metrics_port(job_file) in map(_port, rule["ports"]))
    return [peer for peers in open_to for peer in peers]


def _port(entry: dict[str, Any]) -> int:
    assert "endPort" not in entry or not entry["port"] <= PORT <= entry["endPort"]
    return int(entry["port"])


def containers(job_file: JobFile) -> list[Any]:
    workloads = (item for item in render.objects(job_file) if manifests.has_tasks(item))
    return [item["spec"]["template"]["spec"]["containers"][0] for item in workloads]


def test_each_task_has_a_port_of_its_own_for_metrics() -> None:
    for container in containers(cluster()):
        assert {"name": "tfk8s-metrics", "containerPort": PORT} in container["ports"]
        assert {"name": "TFK8S_METRICS_PORT", "value": str(PORT)} in container["env"]
    busy = {"containers": [{"name": "proxy", "ports": [{"containerPort": PORT}]}]}
    assert pods.metrics_port(cluster(pod=busy)) == PORT + 1
    assert pods.metrics_port(cluster()) != pods.activity_port(cluster())


def test_no_port_is_one_of_a_scripts_servers() -> None:
    made = job_file("a", Job(name="chief"), Job(name="ps", port=2320), metrics=Metrics())
    assert (pods.activity_port(made), pods.metrics_port(made)) == (2321, 2354)  # scripts have 2322 to 2353


def test_without_the_key_nothing_changes() -> None:
    without = cluster(metrics=None)
    assert "metrics" not in str(containers(without)).lower()
    assert on_the_port(without) == []


@pytest.mark.parametrize(
    ("sources", "peers"),
    [
        ((), [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}]),
        (
            (Source(namespace="monitoring"), Source(cidr="10.0.0.0/8")),
            [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},
                {"ipBlock": {"cidr": "10.0.0.0/8"}},
            ],
        ),
    ],
)  # fmt: skip
def test_only_those_whom_the_job_file_names_reach_the_port(sources: tuple[Source, ...], peers: list[Any]) -> None:
    """Not even the cluster's own pods, and those of `network.allow_from`, do."""
    network = Network(allow_from=(Source(namespace="notebooks"),), allow_to=())
    made = cluster(metrics=Metrics(from_=sources), network=network, idle=60)
    assert on_the_port(made) == peers
    assert {"ports": [manifests.port_rule(PORT)], "from": peers[:1]} in rules(made)


def test_forms_in_the_job_file() -> None:
    def read(form: str) -> Metrics | None:
        text = f"apiVersion: tfk8s.dev/v1\nname: demo\njobs: {{worker: 1}}\nmetrics: {form}\n"
        return loads(text, "job.yaml").metrics

    assert read("true") == Metrics()
    assert read("false") is None
    assert read("{from: [{namespace: a}]}") == Metrics(from_=(Source(namespace="a"),))


def test_pods_of_scripts_serve_no_metrics() -> None:
    (master, *_) = (item for item in render.objects(cluster()) if item["kind"] == "StatefulSet")
    assert "metrics" in str(master).lower()
    master["metadata"]["uid"] = "1"
    settings = script_job.PodSettings(arguments=[], environment={})
    assert "metrics" not in str(script_job.job("a", master, settings)).lower()


def test_pod_monitor_selects_the_port_of_the_tasks() -> None:
    made = metrics.pod_monitor(cluster(), "ns")
    (template, *_) = (
        item["spec"]["template"] for item in render.objects(cluster()) if manifests.has_tasks(item)
    )  # fmt: skip
    assert made["metadata"]["namespace"] == "ns"
    assert made["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = made["spec"]["podMetricsEndpoints"]
    names = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
    assert names.count(endpoint["port"]) == 1
    with pytest.raises(InvalidInput, match="serve no metrics"):
        metrics.pod_monitor(cluster(metrics=None))
