"""A TFJob, and generated job files with programs that a TFJob can run."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TFJOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mnist}
spec:
  tfReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
            - {name: tensorflow, image: a, command: [b]}
"""

_TEXTS = ["", "1e3", "yes", "$(HOME) $$ ${X}", "a: b #c", "'\"\\", "a\n b\n", "😀 é", "\x7f\x85\u2028"]
_VOLUMES = [
    {"claim": "a"}, {"claim": "a", "read_only": True}, {"secret": "b"}, {"config_map": "c"}, {"size": "1Gi"},
]  # fmt: skip
_PATHS = ["/a", "/b/", "/dev//shm", "/tmp/x y", "/é"]
_ENV = [{"secret": "a", "key": "b.c"}, {"config_map": "e1", "key": "on"}]
_TOLERATIONS = [{"operator": "Exists"}, {"key": "a", "value": "b"}, {"key": "nvidia.com/gpu", "operator": "Exists"}]
_TOPOLOGIES = [
    {"spread": "zone"}, {"spread": "host", "required": True}, {"pack": "host"}, {"pack": "example.com/rack"},
]  # fmt: skip
_PODS = [
    {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}], "runtimeClassName": "gvisor"},
    {"nodeName": "n", "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}},
    {"volumes": [{"name": "m", "emptyDir": {}}], "initContainers": [{"name": "i", "image": "a", "env": []}]},
    {"containers": [{"name": "p", "image": "b", "ports": [{"containerPort": 80, "name": "x"}]}]},
    {"containers": [{"name": "server", "resources": {"limits": {"x/y": "1", "cpu": "7"}}, "workingDir": "/w"}]},
    {"containers": [{"name": "server", "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}]}]},
    {"securityContext": {"supplementalGroups": [2000000], "seccompProfile": {"type": "Localhost"}}},
    {"affinity": {"nodeAffinity": {"a": [1, 2.5, True, "no"]}}},
]  # fmt: skip


def job_files() -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for job files as data."""
    heads = st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "y", "mnist-2"]), "image": st.just("r.example:5000/a/b:1.0")},
        optional={
            "namespace": st.sampled_from(["a", "on"]),
            "port": st.sampled_from([1, 2222, 65535]),
            "env": _env(),
            "image_pull_secrets": st.lists(st.sampled_from(["a", "b"]), unique=True),
            "labels": _labels(),
            "volumes": st.lists(_volume(_PATHS[:1]), max_size=1),
            "queue": st.just("gold"),
            "security": st.fixed_dictionaries({}, optional={"user": st.just(7), "service_account": st.just("me")}),
            "ttl": st.sampled_from([5, "2h"]),
            "pod": st.sampled_from(_PODS),
            "run": _run(),
        },
    )
    jobs = st.dictionaries(st.sampled_from(["worker", "ps", "evaluator"]), _job(), min_size=0).flatmap(
        lambda jobs: st.builds(
            lambda name, job: {name: job, **jobs}, st.sampled_from(["chief", "master", "worker"]), _job()
        )
    )
    return st.builds(lambda head, jobs: {"apiVersion": "tfk8s.dev/v1", **head, "jobs": jobs}, heads, jobs)


def _run() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"restart_on": st.sampled_from(["exit-code", "failure", "never"])},
        optional={"max_restarts": st.sampled_from([0, 5, 1000]), "timeout": st.sampled_from([5, "2h"])},
    )


def _labels() -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional={"b_c": st.just("1e1"), "example.com/x": st.just("on")})


def _env() -> st.SearchStrategy[dict[str, Any]]:
    text = st.sampled_from(_TEXTS)
    value = text | st.sampled_from(_ENV)
    optional = {"OMP": value, "y": value, "PYTHONPATH": text, "HOME": value, "CUDA_VISIBLE_DEVICES": value}
    return st.fixed_dictionaries({}, optional=optional)


def _volume(paths: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda path, source: {"path": path} | source, st.sampled_from(paths), st.sampled_from(_VOLUMES))


def _job() -> st.SearchStrategy[dict[str, Any]]:
    word = st.sampled_from(_TEXTS)
    sizes = st.sampled_from(["4Gi", "1e9", "512M", 1 << 30, "0.5Gi"])
    more = st.fixed_dictionaries(
        {"program": st.lists(word, max_size=2).map(lambda words: ["python3", *words])},
        optional={
            "tasks": st.sampled_from([1, 3]),
            "image": st.just("a/b:c"),
            "cpu": st.sampled_from([1, 0.5, "500m", "2500m"]),
            "memory": sizes,
            "shm": sizes,
            "gpus": st.sampled_from([0, 2]),
            "gpu_resource": st.just("amd.com/gpu"),
            "node_selector": _labels(),
            "tolerations": st.lists(st.sampled_from(_TOLERATIONS), max_size=2, unique_by=str),
            "env": _env(),
            "labels": _labels(),
            "annotations": _labels(),
            "volumes": st.lists(_volume(_PATHS[1:2] + _PATHS[3:]), max_size=2, unique_by=lambda volume: volume["path"]),
            "port": st.sampled_from([443, 2222]),
            "spot": st.booleans(),
            "priority_class": st.just("high"),
            "topology": st.sampled_from(_TOPOLOGIES),
            "pod": st.sampled_from(_PODS),
        },
    )
    return more | more.map(lambda job: job | {"accelerator": "nvidia-l4", "gpus": 2})
