"""What a task is told, in all the forms it may be told in; the server itself runs in tests/local."""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from package_imports import PACKAGE, closure

from tfk8s.core import addresses, cluster_spec
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.task import config, eager_context, server, server_options

OLD_FORM = "master|m:2222,worker|a:2222;b:2223"
CLUSTER = {"master": {0: "m:2222"}, "worker": {0: "a:2222", 1: "b:2223"}}


@pytest.mark.parametrize(
    "text",
    [
        OLD_FORM,
        json.dumps({"master": ["m:2222"], "worker": ["a:2222", "b:2223"]}),
        json.dumps({"master": {"0": "m:2222"}, "worker": {"1": "b:2223", "0": "a:2222"}}),
    ],
)
def test_a_cluster_in_each_of_its_forms(text: str) -> None:
    assert config.parse_cluster(text) == CLUSTER


MALFORMED = [
    ("", '"" in the cluster is not JOB|HOST:PORT;HOST:PORT'),
    ("worker", '"worker" in the cluster is not JOB|HOST:PORT;HOST:PORT'),
    ("worker|a", '"a" in job "worker" is not HOST:PORT'),
    ("worker|a:70000", '"a:70000" in job "worker" is not HOST:PORT'),
    ("worker|a:1,worker|b:1", 'job "worker" stands twice in the cluster'),
    ('{"worker": 1}', 'the tasks of job "worker" are neither a list of addresses nor a map of index to address'),
    ("{", "the cluster is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ("{}", "the cluster has no jobs"),
]


def test_a_malformed_cluster_is_refused() -> None:
    for text, message in MALFORMED:
        with pytest.raises(ValueError) as caught:
            config.parse_cluster(text)
        assert str(caught.value) == message, text


@pytest.mark.parametrize(
    ("job", "index", "message"),
    [
        (None, "0", "--job-name and --task-index must both be given: which task of the cluster is this one?"),
        ("worker", None, "--job-name and --task-index must both be given: which task of the cluster is this one?"),
        ("ps", "0", 'the cluster has no job "ps"; it has master, worker'),
        ("worker", "2", 'job "worker" has no task 2; it has 0, 1'),
        ("worker", "one", 'job "worker" has no task one; it has 0, 1'),
    ],
)
def test_a_task_that_is_not_in_the_cluster(job: str | None, index: str | None, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        config.check_config(CLUSTER, job, index)
    assert str(caught.value) == message


def test_a_job_name_that_would_abort_the_server_is_refused() -> None:
    with pytest.raises(ValueError, match='"my-job" is not a TensorFlow job name'):
        config.check_config({"my-job": {0: "a:1"}}, "my-job", "0")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--cluster-spec", OLD_FORM, "--job-name", "worker", "--task-index", "1"],
        [f"--cluster_spec={OLD_FORM}", "--job_name=worker", "--task_id=1"],
        [f"--cluster_spec={OLD_FORM}", "--job_name=worker", "--task_index=1"],
    ],
)
def test_the_spellings_of_the_old_binary(arguments: list[str]) -> None:
    found = server_options.config_from(server_options.parse_options(arguments), {})
    assert vars(found) == vars(config.TaskConfig(CLUSTER, "worker", 1))
    assert (found.name, found.port, found.size) == ("worker/1", 2223, 3)


def test_tf_config() -> None:
    described = {
        "cluster": {"master": ["m:2222"], "worker": ["a:2222", "b:2223"]}, "task": {"type": "worker", "index": "1"}
    }  # fmt: skip
    found = server_options.config_from(server_options.parse_options([]), {"TF_CONFIG": json.dumps(described)})
    assert vars(found) == vars(config.TaskConfig(CLUSTER, "worker", 1))


def test_without_any_cluster_both_ways_are_named() -> None:
    with pytest.raises(ValueError) as caught:
        server_options.config_from(server_options.parse_options([]), {})
    assert str(caught.value) == ("no cluster: give --cluster-spec, --job-name and --task-index, or set TF_CONFIG")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cluster": 1}', '{"cluster": {"a": ["x:1"]}, "task": []}'])
def test_a_malformed_tf_config_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="TF_CONFIG is not"):
        server_options.config_from(server_options.parse_options([]), {"TF_CONFIG": text})


JOBS = st.dictionaries(st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True), st.integers(1, 5), min_size=1)


@given(JOBS)
def test_pod_derives_the_cluster_of_the_job_file(jobs: dict[str, int]) -> None:
    job_file = JobFile(
        name="c",
        jobs=tuple(Job(name=name, tasks=n, port=3000 if n == 2 else None) for name, n in jobs.items()),
        master=next(iter(jobs)),
    )
    compact = ",".join(f"{name}={n}" + (":3000" if n == 2 else "") for name, n in jobs.items())
    environment = {"TFK8S_NAME": "c", "TFK8S_NAMESPACE": "ns", "TFK8S_JOBS": compact, "TFK8S_PORT": "2222"}
    derived = {job: list(tasks.values()) for job, tasks in config.derive_cluster(environment).items()}
    assert derived == job_file.cluster_spec(addresses.pod_address(job_file, "ns"))


@given(JOBS)
def test_the_flags_that_views_writes_are_read_back(jobs: dict[str, int]) -> None:
    job_file = JobFile(
        name="c", jobs=tuple(Job(name=name, tasks=n) for name, n in jobs.items()), master=next(iter(jobs))
    )
    cluster = job_file.cluster_spec(addresses.local_address(job_file), seen_by="evaluator")
    task = Task(job_file.master, 0)
    (line, _) = cluster_spec.flags(cluster, task).splitlines()
    found = server_options.config_from(server_options.parse_options(line.split()), {})
    assert {job: list(tasks.values()) for job, tasks in found.cluster.items()} == cluster
    assert (found.job, found.index) == (task.job, task.index)
    environment = {"TF_CONFIG": cluster_spec.tf_config(cluster, task.job, task.index)}
    by_config = server_options.config_from(server_options.parse_options([]), environment)
    assert vars(by_config) == vars(found)


@pytest.mark.parametrize(
    ("cores", "chosen", "session_config"),
    [
        (2, "", "2202 2810"),
        (16, "", ""),
        (2, "4", "2202 2804"),
        (16, "4", "2202 2804"),
        (16, "1", "2202 2803"),  # the least that two coordinators need
        (2, "0", "2202 2810"),  # TensorFlow's default
        (2, "two", "2202 2810"),
    ],
)
def test_the_server_def_on_the_wire(
    cores: int, chosen: str, session_config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", chosen)
    found = config.TaskConfig({"a": {0: "x:1", 300: "y:2"}}, "a", 300)
    cluster = "0a18 0a16 0a0161 1207 0800 1203 783a31 1208 08ac02 1203 793a32"
    assert found.server_def() == bytes.fromhex(f"{cluster} 120161 18ac02 {session_config} 2a04 67727063")


def test_the_request_for_the_first_context() -> None:
    alone = config.TaskConfig({"a": {0: "x:1"}}, "a", 0)
    server_def = "0a0e 0a0c 0a0161 1207 0800 1203 783a31 120161 1800 2202 2801 2a04 67727063"
    context_id = "39 0100000000000000"
    assert eager_context.create_request(alone) == bytes.fromhex(f"0a 1f {server_def} {context_id}")


def test_modules_in_pods_import_slow_modules_late() -> None:
    """Nothing is compiled before in a pod, and servers that start together share a small machine."""
    imported = set()
    for path in closure(["task/server.py", "task/lifetime/__main__.py"], late=False):
        for statement in ast.parse((PACKAGE / path).read_text()).body:
            if isinstance(statement, ast.Import):
                imported |= {alias.name for alias in statement.names}
            elif isinstance(statement, ast.ImportFrom):
                imported.add(str(statement.module))
    assert "ctypes" in imported
    assert imported & {"argparse", "asyncio", "dataclasses", "inspect", "logging", "pathlib", "subprocess"} == set()


def test_a_module_that_is_not_found_is_named_with_the_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(threading, "Thread", lambda **_: SimpleNamespace(start=lambda: None))
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: None)
    start = lambda given, preload: server.start_by_import(given, preload)  # noqa: E731
    words = ["--cluster-spec", OLD_FORM, "--job-name=worker", "--task-index=1", f"--preload-folder={tmp_path}"]
    assert server.run(server_options.parse_options([*words, "--preload=no_such.module"]), start) == server.BAD_INPUT
    error = capsys.readouterr().err
    assert "worker/1 can't import no_such.module of preload: ModuleNotFoundError: No module named" in error
    assert error.endswith(f"{tmp_path})\n")
    assert "packages, " in error
