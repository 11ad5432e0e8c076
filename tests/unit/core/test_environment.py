from __future__ import annotations

import functools
import json
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfk8s
from tfk8s.core import environment, naming
from tfk8s.core.addresses import local_address
from tfk8s.core.script import Script
from tfk8s.core.spec import Task
from tfk8s.jobfile.loader import loads

CLUSTER = {"chief": ["localhost:1"], "ps": ["far:2"]}
CLUSTER_VARIABLES = {
    "TFK8S_CLUSTER": '{"chief":["localhost:1"],"ps":["far:2"]}',
    "TFK8S_TARGET": "grpc://localhost:1",
}


def test_the_table_has_every_variable_of_the_code() -> None:
    package = Path(tfk8s.__file__).parent
    in_code = {name for path in package.rglob("*.py") for name in re.findall(r'"(TFK8S_[A-Z_]+)"', path.read_text())}
    assert set(re.findall("^    (TFK8S_[A-Z_]+) ", environment.__doc__ or "", re.MULTILINE)) == in_code


def test_a_script_inherits_the_callers_variables() -> None:
    script = Script(path=Path("a.py"), environment={"A": "script", "B": "script", "C": "script"})
    base = {"A": "base", "D": "base", "no_proxy": "corp", "TFK8S_TARGET": "grpc://another:1"}
    direct = "corp,localhost,127.0.0.1,::1,far"
    more = {"B": "more"}
    assert environment.script_environment(script, CLUSTER, "grpc://localhost:1", base, more) == {
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "A": "script",
        "B": "more",
        "C": "script",
        "D": "base",
        "no_proxy": direct,
        "NO_PROXY": direct,
        "no_grpc_proxy": direct,
        **CLUSTER_VARIABLES,
    }


def test_only_a_script_here_has_the_mark_of_forwards() -> None:
    script, base = Script(path=Path("a.py")), {"TFK8S_FORWARDED": "1"}  # of a script that started this one
    make = functools.partial(environment.script_environment, script, CLUSTER, "grpc://localhost:1")
    assert naming.FORWARDED not in make(base, {})
    assert make({}, {}, forwards={"a:1": "localhost:2"})[naming.FORWARDED] == '{"a:1": "localhost:2"}'


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True), st.text()))
def test_a_shell_reads_the_lines(variables: dict[str, str]) -> None:
    words = shlex.split(environment.environment_lines({**variables, **CLUSTER_VARIABLES}))
    assert dict(word.split("=", 1) for word in words) == {**variables, **CLUSTER_VARIABLES}


@pytest.mark.parametrize(
    ("variables", "value"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"no_proxy": "corp,localhost"}, "corp,localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "corp"}, "corp,localhost,127.0.0.1,::1"),
    ],
)
def test_no_proxy_lists_the_hosts(variables: dict[str, str], value: str) -> None:
    assert environment.without_proxy(variables) == {"no_proxy": value, "NO_PROXY": value, "no_grpc_proxy": value}


def test_a_program_finds_its_place_in_the_cluster() -> None:
    text = "jobs: {ps: 1, worker: {tasks: 2, program: [a.py]}, evaluator: {program: [a.py]}}"
    job_file = loads(f"{{apiVersion: tfk8s.dev/v1, name: a, {text}}}", "f")
    address = local_address(job_file)
    variables = environment.program_variables(job_file, Task("worker", 1), address)
    cluster = {"ps": ["localhost:2222"], "worker": ["localhost:2224", "localhost:2225"]}
    assert json.loads(variables.pop("TF_CONFIG")) == {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    assert json.loads(variables.pop("TFK8S_CLUSTER")) == cluster
    assert variables == {
        "TFK8S_NAME": "a", "TFK8S_JOB": "worker", "TFK8S_INDEX": "1", "TFK8S_TARGET": "grpc://localhost:2222",
    }  # fmt: skip
    of_evaluator = environment.program_variables(job_file, Task("evaluator", 0), address)
    assert "evaluator" in json.loads(of_evaluator["TF_CONFIG"])["cluster"]


def test_a_program_finds_the_service_of_tf_data() -> None:
    text = "jobs: {input: {kind: data, tasks: 2}, worker: {program: [a.py]}}"
    job_file = loads(f"{{apiVersion: tfk8s.dev/v1, name: a, {text}}}", "f")
    address = local_address(job_file)
    assert environment.data_variables(job_file, address) == {"TFK8S_DATA_SERVICE": "grpc://localhost:2223"}
    variables = environment.program_variables(job_file, Task("worker", 0), address)
    assert json.loads(variables["TFK8S_CLUSTER"]) == {"worker": ["localhost:2222"]}
    assert "TFK8S_TARGET" not in variables  # sessions can't connect to the service


def test_a_program_without_servers_has_no_target() -> None:
    job_file = loads("{apiVersion: tfk8s.dev/v1, name: a, jobs: {worker: {program: [a.py]}}}", "f")
    variables = environment.program_variables(job_file, Task("worker", 0), local_address(job_file))
    assert "TFK8S_TARGET" not in variables
