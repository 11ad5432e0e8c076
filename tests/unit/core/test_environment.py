from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfk8s
from tfk8s.core import environment
from tfk8s.core.script import Script

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
