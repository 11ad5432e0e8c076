"""Values of the command line in place of a job file's."""

from __future__ import annotations

import json

import pytest
from bad_files import HEAD
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput, JobFileError
from tfk8s.jobfile import overrides
from tfk8s.jobfile.loader import loads
from tfk8s.jobfile.overrides import Setting

FILE = HEAD + "jobs: {worker: 2, ps: {tasks: 1, env: {A: one}}}\nvolumes: [{path: /a, claim: x}]\n"


def load(*settings: str, variables: dict[str, str] | None = None, file: str = FILE) -> JobFile:
    chosen: list[Setting] = [overrides.parse(setting) for setting in settings]
    chosen += [overrides.parse_variable(name, variables or {}) for name in variables or {}]
    return loads(file, "job.yaml", "/", chosen)


def rejected(*settings: str, variables: dict[str, str] | None = None) -> str:
    with pytest.raises(JobFileError) as caught:
        load(*settings, variables=variables)
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (["jobs.worker.tasks=4"], "jobs: {worker: 4, ps: {tasks: 1, env: {A: one}}}"),
        (["worker=4"], "jobs: {worker: 4, ps: {tasks: 1, env: {A: one}}}"),
        (["worker.cpu=500m"], "jobs: {worker: {tasks: 2, cpu: 500m}, ps: {tasks: 1, env: {A: one}}}"),
        (["worker.tasks=3", "worker.tasks=5"], "jobs: {worker: 5, ps: {tasks: 1, env: {A: one}}}"),
        (["jobs={worker: 7}"], "jobs: {worker: 7}"),
        (["ps.env.A=two"], "jobs: {worker: 2, ps: {tasks: 1, env: {A: two}}}"),
    ],
)
def test_a_setting_replaces_a_value_of_a_job(settings: list[str], text: str) -> None:
    assert load(*settings) == loads(HEAD + text + "\nvolumes: [{path: /a, claim: x}]\n", "job.yaml", "/")


def test_a_setting_adds_what_the_file_lacks() -> None:
    job_file = load("network.allow_to=[]", 'labels["example.com/team"]=red', "volumes[1].path=/b", "volumes[1].claim=z")
    assert job_file.network.allow_to == ()
    assert job_file.labels == {"example.com/team": "red"}
    assert [(volume.path, volume.claim) for volume in job_file.volumes] == [("/a", "x"), ("/b", "z")]


def test_a_setting_mends_a_problem_of_the_file() -> None:
    file = HEAD + "jobs: {worker: {tasks: two}}\n"
    with pytest.raises(JobFileError):
        loads(file, "job.yaml")
    assert load("worker.tasks=2", file=file).jobs[0].tasks == 2


def test_variables_win_over_those_of_the_file_and_of_its_jobs() -> None:
    job_file = load(variables={"A": 'two\n"\\ud83d😀', "B": ""})
    assert job_file.env == {"A": 'two\n"\\ud83d😀', "B": ""}
    assert job_file.job("ps").env == {"A": 'two\n"\\ud83d😀'}
    assert job_file.job("worker").env == {}


@given(
    st.dictionaries(st.sampled_from(["cpu", "memory", "tasks", "gpus"]), st.integers(1 << 20, 1 << 21), min_size=1),
    st.dictionaries(
        st.from_regex("[a-z]{1,9}([.][a-z]{1,9}/[a-z]{1,9})?", fullmatch=True), st.text("ab1 #:", max_size=9)
    ),
)
def test_settings_mean_what_the_file_would(job: dict[str, int], variables: dict[str, str]) -> None:
    job = {name: value % 100 + 1 if name != "memory" else value for name, value in job.items()}
    labels = {name: "".join(c for c in value if c.isalnum()) for name, value in variables.items()}
    text = HEAD + f"jobs: {{worker: {json.dumps(job)}}}\nlabels: {json.dumps(labels)}\n"
    settings = [f"worker.{name}={json.dumps(value)}" for name, value in job.items()]
    settings += [f"labels[{json.dumps(name)}]={json.dumps(value)}" for name, value in labels.items()]
    assert load(*settings, file=HEAD + "jobs: {worker: 1}\n") == loads(text, "job.yaml", "/")


def test_nodes_to_avoid_come_after_those_of_the_file() -> None:
    def avoided(file: str, *nodes: str) -> tuple[str, ...]:
        return loads(file, "job.yaml", "/", list(map(overrides.parse_node, nodes))).avoid

    file = HEAD + "jobs: {worker: 1}\n"
    assert avoided(file, "b", "c", "b") == ("b", "c")
    assert avoided(file + "avoid: [a, b]\n", "b", "c") == ("a", "b", "c")
    with pytest.raises(JobFileError, match="--avoid:1:1"):
        avoided(file, "A node")


def test_a_problem_names_the_option_and_the_field() -> None:
    text = rejected("worker.cpu=2", "worker.tasks=three")
    assert '"tasks" can\'t be text' in text
    assert "--> --set:2:14" in text
    assert "2 | worker.tasks=three\n   |              ^^^^^ expected a whole number" in text


def test_problems_of_the_file_come_first() -> None:
    with pytest.raises(JobFileError) as caught:
        load("ps=x", file=HEAD + "jobs: {worker: 0, ps: 1}\n")
    assert [(problem.option, problem.line) for problem in caught.value.problems] == [("", 3), ("--set", 1)]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("worker.tasks=[1", "this is never closed"),
        ("worker.tasks=&a 3", "YAML anchors are not allowed"),
        ("worker.tasks=yes", 'YAML parsers disagree on what "yes" means'),
        ("jobs={worker: 2, worker: 3}", '"worker" is given twice'),
        ("volumes[1]={path: /a, claim: z}", "the other volume is on line 4"),
        ("name.x=3", '"name" is not a mapping'),
        ("volumes[4].path=/b", '"volumes" is not a list of 4 entries or more'),
        ("wroker.tasks=3", 'no key "wroker", and this one no job of that name'),
        ("wroker.tasks=3", "the jobs are worker, ps\n   = help: did you mean worker?"),
        ("worker=null", '"worker" has no value'),
        ("image=", '"" is not the name of an image'),
    ],
)
def test_a_setting_that_does_not_fit(setting: str, message: str) -> None:
    assert message in rejected(setting)


@pytest.mark.parametrize(
    "text", ["", "=3", "name", "a b=3", ".name=x", "[0]=x", 'labels["a=x', "name=x\ny: z", "a..b=3", r'labels["a\q"]=1']
)
def test_a_setting_without_a_field_and_a_value(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^--set .* sets no field") as caught:
        overrides.parse(text)
    assert "--set jobs.worker.tasks=4" in str(caught.value.help)


def test_a_problem_of_a_variable_hides_its_value() -> None:
    text = rejected(variables={"TF_CONFIG": "secret"})
    assert "--> --env:1:1" in text
    assert "secret" not in text


def test_a_variable_takes_the_value_of_the_shell() -> None:
    environment = {"KEY": "of the shell"}
    assert overrides.parse_variable("KEY", environment).value == "of the shell"
    assert overrides.parse_variable("KEY=a=b", environment).value == "a=b"
    with pytest.raises(InvalidInput, match='variable "KEY" is not UTF-8'):
        overrides.parse_variable("KEY=\udc80", environment)
    with pytest.raises(InvalidInput, match='no environment variable "NONE"') as caught:
        overrides.parse_variable("NONE", environment)
    assert caught.value.help == "export the variable, or write --env NONE=VALUE"
