from __future__ import annotations

import io
import json
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest
from bad_files import HEAD, brief, cases
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile, Network, Peer, Security, Volume
from tfk8s.errors import JobFileError, Problem
from tfk8s.jobfile.codes import CODES
from tfk8s.jobfile.loader import load, loads

REPOSITORY = Path(__file__).parents[3]


def refused(text: str | bytes) -> JobFileError:
    with pytest.raises(JobFileError) as caught:
        loads(text, "job.yaml")
    return caught.value


def briefs(text: str | bytes) -> list[str]:
    return [brief(problem) for problem in refused(text).problems]


# ---- what is read --------------------------------------------------------------------------------------------------


def test_the_least() -> None:
    assert loads(HEAD + "jobs: {worker: 2}", "job.yaml") == JobFile(
        name="mnist", jobs=(Job(name="worker", tasks=2),), master="worker"
    )


def test_everything() -> None:
    text = """
# a comment
apiVersion: tfk8s.dev/v1
name: mnist
image: registry.example:5000/team/tf@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
master: boss
namespace: training
port: 3000
env: {A: "1", B: two words, C: ''}
volumes:
  - {path: /data, claim: datasets, read_only: true}
queue: team-a
network:
  allow_from: [{namespace: notebooks, pods: {app: jupyter}}]
  allow_to: [{cidr: 10.0.0.0/8, ports: [443, 80]}, {pods: {db: ''}}]
security: {user: 1000, group: 1001, service_account: trainer}
ttl: 2h
jobs:
  worker_:
    tasks: 3
    image: tf
    cpu: 0.50
    memory: 4Gi
    gpus: 2
    gpu_resource: amd.com/gpu
    accelerator: mi300
    node_selector: {example.com/disk: ssd}
    tolerations:
      - {key: dedicated, value: training, effect: NoExecute, tolerationSeconds: 60}
      - operator: Exists
    env: {TF_CPP_MIN_LOG_LEVEL: "0"}
    labels: {team: ads}
    annotations: {example.com/owner: "Ann <ann@example.com>"}
    volumes: [{path: /scratch, size: 10Gi}, {path: /keys, secret: s}, {path: /vocab, config_map: c.d}]
    preload: [tensorflow_text, a.b]
    port: 3100
    spot: true
    priority: high
  boss: 1
  evaluator: {}
"""
    worker = Job(
        name="worker_",
        tasks=3,
        image="tf",
        cpu=Quantity("0.5", Decimal("0.5")),
        memory=Quantity("4Gi", Decimal(4 << 30)),
        gpus=2,
        gpu_resource="amd.com/gpu",
        accelerator="mi300",
        node_selector={"example.com/disk": "ssd"},
        tolerations=(
            {"key": "dedicated", "value": "training", "effect": "NoExecute", "tolerationSeconds": 60},
            {"operator": "Exists"},
        ),
        env={"TF_CPP_MIN_LOG_LEVEL": "0"},
        labels={"team": "ads"},
        annotations={"example.com/owner": "Ann <ann@example.com>"},
        volumes=(
            Volume(path="/scratch", size=Quantity("10Gi", Decimal(10 << 30))),
            Volume(path="/keys", secret="s"),
            Volume(path="/vocab", config_map="c.d"),
        ),
        preload=("tensorflow_text", "a.b"),
        port=3100,
        spot=True,
        priority="high",
    )
    assert loads(text, "job.yaml") == JobFile(
        name="mnist",
        jobs=(Job(name="boss"), Job(name="evaluator"), worker),
        master="boss",
        image="registry.example:5000/team/tf@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        namespace="training",
        port=3000,
        env={"A": "1", "B": "two words", "C": ""},
        volumes=(Volume(path="/data", claim="datasets", read_only=True),),
        queue="team-a",
        network=Network(
            allow_from=(Peer(namespace="notebooks", pods={"app": "jupyter"}),),
            allow_to=(Peer(cidr="10.0.0.0/8", ports=(443, 80)), Peer(pods={"db": ""})),
        ),
        security=Security(user=1000, group=1001, service_account="trainer"),
        ttl=7200,
    )


def test_addresses() -> None:
    jobs = 'jobs: {b: [10.0.0.5:2222, "[fd00::5]:1"], a: [tf_ps.example.com:65535]}'
    assert loads(HEAD + jobs, "job.yaml").jobs == (
        Job(name="a", addresses=("tf_ps.example.com:65535",)),
        Job(name="b", tasks=2, addresses=("10.0.0.5:2222", "[fd00::5]:1")),
    )


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("2", "2"),
        ("2.0", "2"),
        ("0.50", "0.5"),
        ('"2.0"', "2.0"),
        ("500m", "500m"),
        ('"1e1"', "1e1"),
        ("0.001", "0.001"),
    ],
)
def test_a_quantity_is_what_helm_would_write(written: str, text: str) -> None:
    assert str(loads(HEAD + f"jobs: {{worker: {{cpu: {written}}}}}", "job.yaml").jobs[0].cpu) == text


@pytest.mark.parametrize(
    ("written", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200), ("7d", 604800), ('"5s"', 5)]
)
def test_durations(written: str, seconds: int) -> None:
    assert loads(HEAD + f"jobs: {{worker: 1}}\nttl: {written}", "job.yaml").ttl == seconds


@pytest.mark.parametrize(
    ("jobs", "master"),
    [
        ("{a: 1, worker: 1, chief: 1, master: 1}", "master"),
        ("{a: 1, worker: 1, chief: 1}", "chief"),
        ("{a: 1, worker: 1}", "worker"),
        ("{b: 1, a: 1, Z: 1, evaluator: 1}", "Z"),
    ],
)
def test_the_master_where_none_is_given(jobs: str, master: str) -> None:
    job_file = loads(HEAD + f"jobs: {jobs}", "job.yaml")
    assert job_file.master == job_file.jobs[0].name == master


def test_the_same_file_as_json() -> None:
    data = {"apiVersion": "tfk8s.dev/v1", "name": "mnist", "jobs": {"worker": {"tasks": 2, "cpu": 0.5, "spot": False}}}
    assert loads(json.dumps(data), "job.json") == loads(
        HEAD + "jobs:\n  worker:\n    tasks: 2\n    cpu: 0.5\n    spot: false\n", "job.yaml"
    )


def test_windows_line_ends_and_a_byte_order_mark() -> None:
    text = f"\ufeff{HEAD}jobs: {{worker: 0}}\n".replace("\n", "\r\n")
    assert briefs(text) == ['3:16+1 out-of-range: the tasks of "worker" can\'t be 0 [at least 1]']


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("examples/**/*.yaml")), ids=str)
def test_the_examples(path: Path) -> None:
    assert load(path).image == "tensorflow/tensorflow:2.21.0"


# ---- where it is read from -----------------------------------------------------------------------------------------


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{HEAD}jobs: {{}}\n".encode())))
    with pytest.raises(JobFileError) as caught:
        load("-")
    assert str(caught.value) == (
        'error[empty]: "jobs" is empty\n'
        "  --> standard input:3:7\n"
        "   |\n"
        " 3 | jobs: {}\n"
        "   |       ^^ expected at least one entry"
    )


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    expected = {
        "missing.yaml": "error[no-such-file]: there is no such file\n --> missing.yaml\n"
        "  = help: write one with: tfk8s init",
        ".": "error[folder]: this is a folder, not a job file\n --> .",
        "loop": "error[unreadable]: the file can't be read: Too many levels of symbolic links\n --> loop",
        "a\0b": "error[unreadable]: the file can't be read: embedded null byte\n --> a\0b",
    }
    for name, message in expected.items():
        with pytest.raises(JobFileError) as caught:
            load(tmp_path / name)
        assert str(caught.value).replace(f"{tmp_path / name}", name) == message
        assert caught.value.exit_code == 2


def test_no_more_is_read_than_a_job_file_may_have() -> None:
    with pytest.raises(JobFileError) as caught:
        load("/dev/zero")
    assert [problem.code for problem in caught.value.problems] == ["too-large"]


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problems"), cases(), ids=lambda value: repr(value)[:60] if isinstance(value, str) else ""
)
def test_problems(text: str, problems: list[str]) -> None:
    assert briefs(text) == problems


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("", "empty-file: the job file is empty -> write one with: tfk8s init"),
        (b"\x89PNG\x00\xff", "binary-file: this is a binary file, not a job file"),
        ("a: 1".encode("utf-16"), "not-utf8: the file is UTF-16, not UTF-8 -> save it as UTF-8"),
        ("a: 1\nb: caf\xe9".encode("latin-1"), "2:7+1 not-utf8: byte 0xe9 is not UTF-8 -> save the file as UTF-8"),
        ("\ud800", "1:1+1 not-utf8: byte 0xed is not UTF-8 -> save the file as UTF-8"),
        (b"#" * (2 << 20), "too-large: a job file has at most 1 MiB"),
        ("[" * 100_000, "1:33+1 too-deep: a job file has at most 32 levels"),
        (HEAD + "jobs: {" + "a" * 64 + ": 1}", f'3:8+64 name-too-long: "{"a" * 64}" has 64 characters [at most 63] -> remove 1 character'),  # noqa: E501
        (
            HEAD + "jobs: {" + ", ".join(f"a{n}: 1" for n in range(101)) + "}",
            '3:7+799 too-many: "jobs" has more than 100 entries [at most 100]',
        ),
        (
            HEAD + "jobs: {worker: 1}\nenv: {A: '" + "x" * 131_070 + "'}",
            '4:10+131072 too-large: variable "A" has 131072 bytes [at most 131071, with its name]',
        ),
    ],
)  # fmt: skip
def test_problems_of_large_and_binary_files(data: str | bytes, problem: str) -> None:
    assert briefs(data) == [problem]


def test_every_code_is_explained_and_every_explanation_is_of_a_code() -> None:
    seen = {line.split(": ")[0].split()[-1] for _, problems in cases() for line in problems}
    elsewhere = {"binary-file", "not-utf8", "too-large", "too-many", "too-many-problems"}
    assert seen | elsewhere | {"no-such-file", "folder", "unreadable"} == set(CODES)


def test_all_problems_are_told_as_text_in_the_order_of_the_file() -> None:
    text = """\
apiVersion: tfk8s.dev/v1
name: mnist
master: cheif
jobs:
  chief: 1
  my-job: 2
  worker:
    tasks: "2"
    memory: 4GB
    spot: yes
"""
    assert (
        "\n" + str(refused(text))
        == """
error[unknown-master]: there is no job "cheif"
  --> job.yaml:3:9
   |
 3 | master: cheif
   |         ^^^^^ the jobs are chief, my-job, worker
   = help: write chief

error[bad-job-name]: "my-job" is not a TensorFlow job name
  --> job.yaml:6:3
   |
 6 |   my-job: 2
   |   ^^^^^^ letters, digits and "_" only, starting with a letter
   = help: write my_job

error[wrong-type]: "tasks" can't be text
  --> job.yaml:8:12
   |
 8 |     tasks: "2"
   |            ^^^ expected a whole number
   = help: write 2, without quotes

error[bad-quantity]: "4GB" is not a quantity
  --> job.yaml:9:13
   |
 9 |     memory: 4GB
   |             ^^^ expected a number of bytes, such as 4Gi or 512Mi
   = help: write 4Gi or 4G

error[unclear]: YAML parsers disagree on what "yes" means
   --> job.yaml:10:11
    |
 10 |     spot: yes
    |           ^^^ expected true or false
    = help: write true"""
    )


def test_long_and_strange_lines_fit_a_screen() -> None:
    problems = refused(f"{HEAD}jobs: {{worker: 1}}\nenv: {{A: '漢字\t', B\u200b: '{'x' * 100}', C: 1}}")
    label = 'U+200B ZERO WIDTH SPACE can\'t stand in it; expected letters, digits and "_", not starting with a digit'
    assert str(problems).splitlines()[:5] == [
        'error[bad-env-name]: "B\\u200b" is not the name of a variable',
        "  --> job.yaml:4:17",
        "   |",
        f" 4 | env: {{A: '漢字 ', B�: '{'x' * 99}…",
        f"   |{' ' * 19}^^ {label}",
    ]
    assert str(problems).splitlines()[7:] == [
        'error[wrong-type]: "C" can\'t be 1',
        "  --> job.yaml:4:128",
        "   |",
        f" 4 | …{'x' * 54}', C: 1}}",
        f"   | {' ' * 61}^ expected text",
        '   = help: write "1", in quotes',
    ]


def test_problems_that_nobody_would_read_are_counted_only() -> None:
    problems = refused(HEAD + "jobs: {worker: 1}\nenv:\n" + "".join(f"  A{n}: {n}\n" for n in range(5000))).problems
    assert len(problems) == 101
    assert brief(problems[99]) == '104:8+2 wrong-type: "A99" can\'t be 99 [expected text] -> write "99", in quotes'
    assert brief(problems[100]) == (
        "too-many-problems: the job file has more than 100 problems; the first of them are above"
    )


def test_all_problems_are_told_where_unknown_keys_stand_for_missing_ones() -> None:
    volume = "- {paths: /a, claim: b}\n"
    problems = briefs(HEAD + "jobs: {worker: 1}\nvolumes:\n" + volume * 60)
    assert problems == [f'{n}:4+5 unknown-key: there is no key "paths" here -> write path' for n in range(5, 65)]


# ---- hostile files -------------------------------------------------------------------------------------------------

_WORDS = [
    "apiVersion", "tfk8s.dev/v1", "name", "jobs", "worker", "tasks", "volumes", "path", "/data", "env", "network",
    "allow_from", "cidr", "tolerations", "yes", "010", "~", "1", "0.5", "4Gi", "true", "'x'", '"\\0"', "a:1", ": ",
    ":\n", "\n", "\n  ", "\n    ", "- ", "[", "]", "{", "}", ", ", "#", "&a ", "*a", "<<", "!t ", "---\n", "? ", "|\n",
    "%YAML", "\t", "\u200b", "\x85",
]  # fmt: skip
_KEYS = [
    *JobFile.__dataclass_fields__, *Job.__dataclass_fields__, *Volume.__dataclass_fields__, *Peer.__dataclass_fields__,
    "apiVersion", "allow_from", "allow_to", "key", "operator", "effect", "value", "tolerationSeconds", "[key]", "user",
]  # fmt: skip
_SCALARS = st.none() | st.booleans() | st.integers(-2, 70000) | st.floats(0, 9) | st.text(max_size=9)


def _containers(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    keys = st.sampled_from(_KEYS) | st.text(max_size=5)
    return st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4)


_VALUES = st.recursive(_SCALARS | st.sampled_from(_WORDS), _containers, max_leaves=12)


def judged(data: str | bytes) -> tuple[Problem, ...]:
    try:
        loads(data, "job.yaml")
    except JobFileError as error:
        return error.problems
    return ()


@given(st.one_of(st.text(), st.binary(), st.lists(st.sampled_from(_WORDS), max_size=60).map("".join)))
def test_nothing_but_a_job_file_error(data: str | bytes) -> None:
    problems = judged(data)
    assert problems
    assert {problem.code for problem in problems} <= set(CODES)
    places = [(problem.line, problem.column) for problem in problems]
    assert places == sorted(places)


@given(st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=8), _VALUES)
def test_every_shape_of_data_is_judged(data: dict[str, object], job: object) -> None:
    data |= {"apiVersion": "tfk8s.dev/v1", "name": "a", "jobs": {"worker": 1, "ps": job}}
    assert {problem.code for problem in judged(json.dumps(data))} <= set(CODES)


def test_ten_thousand_addresses_load_in_a_moment() -> None:
    text = HEAD + "jobs:\n  worker:\n" + "".join(f"  - 10.0.{n >> 8}.{n & 255}:2222\n" for n in range(10_000))
    start = time.process_time()
    assert loads(text, "job.yaml").jobs[0].tasks == 10_000
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "text",
    [
        "[&a x" + ",*a" * 300_000 + "]",
        "".join(f"k{n}:\n" for n in range(20_000)),
        HEAD + "jobs:\n  worker:\n" + "  - 1\n" * 200 + "  - {a: b}\n",
        "a:\n" * 300_000,
        HEAD + "jobs: {" + ", ".join(f"a{n}: 0" for n in range(15_000)) + "}",
        HEAD + "jobs: {worker: 1}\nimage: " + "x-" * 200_000 + "!",
        "? " * 500_000,
        "a: {" * 200_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_megabyte_is_refused_in_seconds(text: str) -> None:
    start = time.process_time()
    assert len(str(refused(text))) < 40_000
    assert time.process_time() - start < 6
