from __future__ import annotations

import io
import json
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest
from bad_files import HEAD, RAW_FILES, TOO_MANY_PROBLEMS, brief, cases
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.job_file.mappings import Destination, Network, Security, Source
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile
from tfk8s.core.storage.volumes import Volume
from tfk8s.errors import JobFileError, Problem
from tfk8s.jobfile.loader import load, loads

REPOSITORY = Path(__file__).parents[3]


def rejected(text: str | bytes) -> JobFileError:
    with pytest.raises(JobFileError) as caught:
        loads(text, "job.yaml")
    return caught.value


def briefs(text: str | bytes) -> list[str]:
    return [brief(problem) for problem in rejected(text).problems]


def test_a_name_that_a_mapping_with_any_keys_lacks_is_missing_although_another_key_is_like_it() -> None:
    for keys in ("na8e: d", "nane: d, emptyDir: {}", "Name: d"):
        problems = rejected(HEAD + f"jobs: {{worker: {{pod: {{volumes: [{{{keys}}}]}}}}}}").problems
        assert [problem.code for problem in problems] == ["missing-key"]


# ---- valid files --------------------------------------------------------------------------------------------------


def test_minimal_file() -> None:
    assert loads(HEAD + "jobs: {worker: 2}", "job.yaml") == JobFile(
        name="mnist", jobs=(Job(name="worker", tasks=2),), master="worker"
    )


def test_folders_are_relative_to_the_job_file() -> None:
    text = (
        "jobs: {worker: {volumes: [{path: /c, claim: c, create: 1G, folder: ../ckpt/, local_mount: false}]}}\n"
        "volumes: [{path: /d, folder: ./data}, {path: /e, folder: /e}, {path: /b, bucket: 'gs://models/mnist/'}]"
    )
    job_file = loads(HEAD + text, "job.yaml", "/home/ann/jobs")
    assert [volume.folder for volume in job_file.volumes] == ["/home/ann/jobs/data", "/e", None]
    assert [volume.source for volume in job_file.volumes] == ["", "", "bucket"]
    assert job_file.volumes[2].bucket_parts == ("models", "mnist")
    assert job_file.jobs[0].volumes == (
        Volume(path="/c", claim="c", create=Quantity.parse("1G"), folder="/home/ann/ckpt", local_mount=False),
    )
    at_home = loads(HEAD + "volumes: [{path: /e, folder: ~/e}]\njobs: {a: 1}", "job.yaml")
    assert at_home.volumes[0].folder == str(Path.home() / "e")


def test_file_with_every_key() -> None:
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
  allow_to: [{cidr: 10.0.0.0/8, except: [10.0.0.1/32], ports: [443, 80]}, {pods: {db: ''}}]
security: {user: 1000, group: 1001, service_account: trainer}
ttl: 2h
warm: true
max_duration: 8h
idle: 90
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
    priority_class: high
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
        folder=str(Path.cwd()),
        port=3100,
        spot="gke",
        priority_class="high",
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
            allow_from=(Source(namespace="notebooks", pods={"app": "jupyter"}),),
            allow_to=(
                Destination(cidr="10.0.0.0/8", except_=("10.0.0.1/32",), ports=(443, 80)),
                Destination(pods={"db": ""}),
            ),
        ),
        security=Security(user=1000, group=1001, service_account="trainer"),
        ttl=7200,
        warm=True,
        max_duration=28800,
        idle=90,
    )


@pytest.mark.parametrize(
    ("text", "allow_to"), [("", None), ("network: {}", None), ("network: {allow_to: []}", ())], ids=str
)
def test_absent_destinations_differ_from_an_empty_list(text: str, allow_to: object) -> None:
    assert loads(f"{HEAD}jobs: {{worker: 1}}\n{text}", "job.yaml").network.allow_to == allow_to


def test_addresses() -> None:
    jobs = 'jobs: {b: [10.0.0.5:2222, "[fd00::5]:1"], a: [tf_ps.example.com:65535]}'
    assert loads(HEAD + jobs, "job.yaml").jobs == (
        Job(name="a", addresses=("tf_ps.example.com:65535",)),
        Job(name="b", tasks=2, addresses=("10.0.0.5:2222", "[fd00::5]:1")),
    )


QUANTITIES = [
    ("2", "2"),
    ("2.0", "2"),
    ("0.50", "0.5"),
    ('"2.0"', "2.0"),
    ("500m", "500m"),
    ('"1e1"', "1e1"),
    ("0.001", "0.001"),
]


def test_quantities_are_written_as_helm_writes_them() -> None:
    for written, text in QUANTITIES:
        assert str(loads(HEAD + f"jobs: {{worker: {{cpu: {written}}}}}", "job.yaml").jobs[0].cpu) == text, written


DURATIONS = [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200), ("7d", 604800), ('"5s"', 5)]


def test_durations() -> None:
    for written, seconds in DURATIONS:
        assert loads(HEAD + f"jobs: {{worker: 1}}\nttl: {written}", "job.yaml").ttl == seconds, written


@pytest.mark.parametrize(
    ("jobs", "master"),
    [
        ("{a: 1, worker: 1, chief: 1, master: 1}", "master"),
        ("{a: 1, worker: 1, chief: 1}", "chief"),
        ("{a: 1, worker: 1}", "worker"),
        ("{b: 1, a: 1, Z: 1, evaluator: 1}", "Z"),
        ("{b: 1, master: {kind: data, tasks: 2}}", "b"),
        ("{a: {kind: data, tasks: 2}, b: {program: [a.py]}}", "b"),
    ],
)
def test_default_master(jobs: str, master: str) -> None:
    job_file = loads(HEAD + f"jobs: {jobs}", "job.yaml")
    assert job_file.master == job_file.jobs[0].name == master


def test_json_is_accepted() -> None:
    data = {"apiVersion": "tfk8s.dev/v1", "name": "mnist", "jobs": {"worker": {"tasks": 2, "cpu": 0.5, "spot": False}}}
    assert loads(json.dumps(data), "job.json") == loads(
        HEAD + "jobs:\n  worker:\n    tasks: 2\n    cpu: 0.5\n    spot: false\n", "job.yaml"
    )


def test_windows_line_ends_and_a_byte_order_mark() -> None:
    text = f"\ufeff{HEAD}jobs: {{worker: 0}}\n".replace("\n", "\r\n")
    assert briefs(text) == ['3:16+1 out-of-range: the tasks of "worker" can\'t be 0 [at least 1]']


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("examples/**/*.yaml")), ids=str)
def test_examples_load(path: Path) -> None:
    assert load(path).image == "tensorflow/tensorflow:2.21.0"


# ---- sources -----------------------------------------------------------------------------------------------


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


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    expected = {
        "missing.yaml": "error[no-such-file]: the file does not exist\n --> missing.yaml\n"
        "  = help: create a job file with: tfk8s init",
        ".": "error[folder]: this is a folder, not a job file\n --> .",
        "loop": "error[unreadable]: the file can't be read: Too many levels of symbolic links\n --> loop",
        "a\0b": "error[unreadable]: the file can't be read: embedded null byte\n --> a\0b",
    }
    for name, message in expected.items():
        with pytest.raises(JobFileError) as caught:
            load(tmp_path / name)
        assert str(caught.value).replace(f"{tmp_path / name}", name) == message
        assert caught.value.exit_code == 2


def test_reading_stops_at_the_largest_size() -> None:
    with pytest.raises(JobFileError) as caught:
        load("/dev/zero")
    assert [problem.code for problem in caught.value.problems] == ["too-large"]


# ---- invalid files ------------------------------------------------------------------------------------------------


def test_problems_and_their_locations() -> None:
    for text, problems in cases():
        assert briefs(text) == problems, text


def test_advice_names_no_key_that_is_there() -> None:
    (problem,) = rejected("apiVersion: tfk8s.dev/v1\nname: mnist\nkind: x\njobs: {worker: 1}").problems
    assert problem.message == 'there is no key "kind" here'
    assert str(problem.help).startswith("the keys here are apiVersion, ")


def test_problems_of_large_and_binary_files() -> None:
    for data, problem in RAW_FILES:
        assert briefs(data) == [problem], data


def test_a_file_that_the_parser_itself_finds_too_deep() -> None:
    (problem,) = rejected("[" * 100_000).problems
    assert (problem.code, problem.message.endswith("can have at most 32 levels")) == ("too-deep", True)


def test_error_text_has_all_problems_in_order() -> None:
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
        "\n" + str(rejected(text))
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
    |           ^^^ expected true, false, gke, karpenter, aks or eks
    = help: write true"""
    )


quantity_texts = st.text("0123456789.+-eEmkKMGTPinu _", max_size=70) | st.from_regex(
    r"\A[0-9]{0,40}\.?[0-9]{0,40}([eE][+-]?[0-9]{1,3}|[EPTGMK]i|[numkMGTPE])?\Z"
)


@pytest.mark.parametrize(("key", "least", "most"), [("cpu", Decimal("0.001"), 10**6), ("memory", 1 << 20, 1 << 63)])
@given(quantity_texts)
def test_every_quantity_is_in_range_or_refused_at_its_place(key: str, least: Decimal, most: int, text: str) -> None:
    problems: tuple[Problem, ...] = ()
    quantities: list[Quantity] = []
    try:
        job = loads(f"{HEAD}jobs: {{worker: {{{key}: {json.dumps(text)}}}}}", "job.yaml").jobs[0]
        quantities = [getattr(job, key)]
    except JobFileError as error:
        problems = error.problems
    assert all((problem.code, problem.line) == ("bad-quantity", 3) for problem in problems)
    assert all(least <= quantity.value <= most for quantity in quantities)
    assert len(problems) + len(quantities) == 1


def test_long_lines_are_cut_and_control_characters_replaced() -> None:
    problems = rejected(f"{HEAD}jobs: {{worker: 1}}\nenv: {{A: '漢字\t', B\u200b: '{'x' * 100}', C: 1}}")
    label = 'U+200B ZERO WIDTH SPACE is not allowed; expected letters, digits and "_", not starting with a digit'
    assert str(problems).splitlines()[:5] == [
        'error[bad-env-name]: "B\\u200b" is not the name of an environment variable',
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
        f"   | {' ' * 61}^ expected text, or a mapping with a source",
        '   = help: write "1", in quotes',
    ]


def test_at_most_100_problems_are_listed() -> None:
    problems = rejected(TOO_MANY_PROBLEMS).problems
    assert len(problems) == 101
    assert (
        brief(problems[99])
        == '104:8+2 wrong-type: "A99" can\'t be 99 [expected text, or a mapping with a source] -> write "99", in quotes'
    )
    assert brief(problems[100]) == (
        "too-many-problems: the job file has more than 100 problems; the first 100 are above"
    )


def test_misspelled_required_keys_are_not_reported_as_missing() -> None:
    volume = "- {paths: /a, claim: b}\n"
    problems = briefs(HEAD + "jobs: {worker: 1}\nvolumes:\n" + volume * 60)
    assert problems == [f'{n}:4+5 unknown-key: there is no key "paths" here -> write path' for n in range(5, 65)]


@pytest.mark.parametrize("word", ["resources", "limits", "requests", "command", "args"])
def test_keys_of_containers_are_led_to_those_of_jobs(word: str) -> None:
    (in_job,) = briefs(HEAD + f"jobs: {{worker: {{{word}: [a]}}}}\n")
    (at_top,) = briefs(HEAD + f"jobs: {{worker: 1}}\n{word}: [a]\n")
    for found in (in_job, at_top):
        meant = "program" if word in ("command", "args") else "cpu, memory and gpus"
        assert f'there is no key "{word}" here -> a job has {meant} instead, as in ' in found
        advised = found.partition("as in ")[2].removeprefix("jobs: {worker: ").replace("}}", "}")
        assert loads(HEAD + f"jobs: {{worker: {advised}}}\n", "job.yaml")


# ---- hostile files -------------------------------------------------------------------------------------------------

_WORDS = [
    "apiVersion", "tfk8s.dev/v1", "name", "jobs", "worker", "tasks", "volumes", "path", "/data", "env", "network",
    "allow_from", "cidr", "tolerations", "yes", "010", "~", "1", "0.5", "4Gi", "true", "'x'", '"\\0"', "a:1", ": ",
    ":\n", "\n", "\n  ", "\n    ", "- ", "[", "]", "{", "}", ", ", "#", "&a ", "*a", "<<", "!t ", "---\n", "? ", "|\n",
    "%YAML", "\t", "\u200b", "\x85",
]  # fmt: skip
_KEYS = [
    *JobFile.__dataclass_fields__, *Job.__dataclass_fields__, *Volume.__dataclass_fields__,
    *Destination.__dataclass_fields__,
    "apiVersion", "allow_from", "allow_to", "except", "key", "operator", "effect", "value", "tolerationSeconds",
    "[key]", "user",
]  # fmt: skip
_SCALARS = st.none() | st.booleans() | st.integers(-2, 70000) | st.floats(0, 9) | st.text(max_size=9)


def _containers(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    keys = st.sampled_from(_KEYS) | st.text(max_size=5)
    return st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4)


_VALUES = st.recursive(_SCALARS | st.sampled_from(_WORDS), _containers, max_leaves=12)


def problems_of(data: str | bytes) -> tuple[Problem, ...]:
    try:
        loads(data, "job.yaml")
    except JobFileError as error:
        return error.problems
    return ()


@given(st.one_of(st.text(), st.binary(), st.lists(st.sampled_from(_WORDS), max_size=60).map("".join)))
def test_random_text_raises_job_file_errors_only(data: str | bytes) -> None:
    problems = problems_of(data)
    assert problems
    places = [(problem.line, problem.column) for problem in problems]
    assert places == sorted(places)


@given(st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=8), _VALUES)
def test_random_data_raises_job_file_errors_only(data: dict[str, object], job: object) -> None:
    data |= {"apiVersion": "tfk8s.dev/v1", "name": "a", "jobs": {"worker": 1, "ps": job}}
    problems_of(json.dumps(data))


def test_ten_thousand_addresses_load_within_a_second() -> None:
    text = HEAD + "jobs:\n  worker:\n" + "".join(f"  - 10.0.{n >> 8}.{n & 255}:2222\n" for n in range(10_000))
    start = time.process_time()
    assert loads(text, "job.yaml").jobs[0].tasks == 10_000
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "text",
    [
        "[&a x" + ",*a" * 50_000 + "]",
        "".join(f"k{n}:\n" for n in range(7_000)),
        HEAD + "jobs:\n  worker:\n" + "  - 1\n" * 200 + "  - {a: b}\n",
        "a:\n" * 100_000,
        HEAD + "jobs: {" + ", ".join(f"a{n}: 0" for n in range(2_000)) + "}",
        HEAD + "jobs: {worker: 1}\nimage: " + "x-" * 50_000 + "!",
        "? " * 500_000,
        "a: {" * 200_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_file_is_rejected_within_seconds(text: str) -> None:
    start = time.process_time()
    assert len(str(rejected(text))) < 40_000
    assert time.process_time() - start < 6
