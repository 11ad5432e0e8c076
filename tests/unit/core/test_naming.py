from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core import naming
from tfk8s.errors import JobFileError
from tfk8s.jobfile.loader import loads

JOB_NAMES = st.from_regex(naming.JOB_NAME, fullmatch=True).filter(lambda name: len(name) <= naming.MAX_JOB_NAME)
# Names that are more alike than those of users ever are.
ALIKE = st.text("aA_0", min_size=1, max_size=6).filter(naming.is_job_name)


DNS_LABELS = [
    ("worker", "worker"),
    ("ps2", "ps2"),
    ("Worker", "worker-a67b"),
    ("worker_", "worker-b2b3"),
    ("My_Job", "my-job-1ce4"),
    ("a__b", "a--b-63e5"),
]


def test_dns_labels() -> None:
    for name, label in DNS_LABELS:
        assert naming.dns_label(name) == label, name


@given(JOB_NAMES)
def test_derived_names_are_dns_labels(name: str) -> None:
    label = naming.dns_label(name)
    assert naming.DNS_LABEL.fullmatch(label)
    assert label == name or len(label) <= len(name) + 5


@given(st.lists(JOB_NAMES | ALIKE, min_size=2, max_size=8, unique=True))
def test_derived_names_of_a_valid_job_file_are_unique(names: list[str]) -> None:
    try:
        loads(
            "apiVersion: tfk8s.dev/v1\nname: a\njobs: {x: 1, " + ", ".join(f'"{name}": 1' for name in names) + "}", "f"
        )
    except JobFileError:
        return
    assert len({naming.dns_label(name) for name in names}) == len(names)


@given(
    st.from_regex(naming.DNS_LABEL, fullmatch=True).filter(naming.is_dns_label),
    JOB_NAMES,
    st.integers(1, 10_000),
)
def test_derived_names_of_a_valid_job_file_fit(cluster: str, job: str, tasks: int) -> None:
    try:
        loads(f'apiVersion: tfk8s.dev/v1\nname: "{cluster}"\nmaster: m\njobs: {{"{job}": {tasks}, m: 1}}', "f")
    except JobFileError:
        fits = False
    else:
        fits = True
    assert fits == (
        len(naming.stateful_set(cluster, job)) <= 52
        and len(naming.pod(cluster, job, tasks - 1)) <= 63
        and len(naming.master_service(cluster)) <= 63
        and job not in ("evaluator", "m")
    ) or job in ("evaluator", "m")


INVALID_JOB_NAMES = ["", "1abc", "my-job", "a.b", "_a", "a" * 64, "é", "a\n", "worker "]


def test_invalid_job_names() -> None:
    for name in INVALID_JOB_NAMES:
        assert not naming.is_job_name(name), name


INVALID_SERVICE_NAMES = ["", "1a", "-a", "a-", "A", "a.b", "a_b", "a" * 64, "a\n"]


def test_invalid_service_names() -> None:
    for name in INVALID_SERVICE_NAMES:
        assert not naming.is_dns_label(name), name


def test_addresses_and_devices() -> None:
    assert naming.pod_address("mnist", "ml", "worker_", 3, 2222) == "mnist-worker-b2b3-3.mnist.ml.svc:2222"
    assert naming.master_service("mnist") == "mnist-master"
    assert naming.task("worker", 1) == "worker/1"
    assert naming.device("worker", 1) == "/job:worker/task:1"
