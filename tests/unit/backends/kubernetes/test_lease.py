"""The lease of `run`: renewals, which never end without a word, and clusters that get none."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from job_files import job_file

from tfk8s import polling
from tfk8s.backends.kubernetes import apply, backend, claims, default_deny, deletion
from tfk8s.backends.kubernetes.api_server.errors import ApiError, NoResponse
from tfk8s.backends.kubernetes.nodes import cluster_fit
from tfk8s.backends.kubernetes.workloads import lease, lifetime
from tfk8s.backends.kubernetes.workloads.lifetime import MayNotLimit
from tfk8s.core.lifetime import HOLDER, RENEWED
from tfk8s.core.plan import Action, Change, Plan
from tfk8s.errors import BackendUnreachable
from tfk8s.render import lifetime as rendered
from tfk8s.render.pods import Object

LEASED = job_file("demo", worker=1, image="tf:1", namespace="ns", lease=900)
JOB = rendered.job_name("demo", {})
REFUSED = MayNotLimit(ApiError(403, '"jo" may not patch roles in namespace "ns"'))
NONE = (
    "a lease needs a Job that may remove the cluster, and you can't create it: "
    '"jo" may not patch roles in namespace "ns"; so the cluster stays if this command is killed '
    "(`tfk8s doctor` shows the missing rights)"
)
START = "the cluster is removed if this command is gone for 15m"


class RenewalClient:
    """An API server that has an answer for each renewal in turn, and stops the test's thread after the last."""

    context, namespace = "test", "ns"

    def find(self, path: str) -> None:
        """Find nothing, such as a shared history of the namespace."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers, self.sent = list(answers), []  # type: ignore[var-annotated]
        self.annotations: dict[str, str] = {}
        self.is_over = threading.Event()

    def require_version(self) -> frozenset[str]:
        """Accept every version."""
        return frozenset()

    def send(self, method: str, path: str, query: object, change: Any, content_type: str) -> object:
        self.sent.append((method, path, content_type, list(change["metadata"]["annotations"])))
        answer = self.answers.pop(0) if self.answers else None
        if not self.answers:
            self.is_over.set()
        if answer:
            raise answer
        merged = {**self.annotations, **change["metadata"]["annotations"]}
        self.annotations = {key: value for key, value in merged.items() if value is not None}
        return {"metadata": {"annotations": self.annotations}}


def renew(client: Any) -> lease.Renewal:
    found = lease.Renewal(client, "ns", "demo", 0.015)
    assert client.is_over.wait(10)
    return found


def renewing() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "lease of demo"]


def until_ended() -> None:
    polling.wait_until(lambda: not renewing(), "the end of the thread", 10)


def test_renewals_change_an_annotation_of_the_jobs_account_until_the_end() -> None:
    client = RenewalClient(None, None, None)
    renewal = renew(client)
    path = "/api/v1/namespaces/ns/serviceaccounts/demo-lifetime"
    method, sent_path, content_type, (renewed, holder) = client.sent[0]
    assert (method, sent_path, content_type, renewed) == ("PATCH", path, "application/merge-patch+json", RENEWED)
    assert holder.startswith(HOLDER)
    assert renewing()
    renewal.end()
    until_ended()


def test_no_failure_ends_the_renewals_and_each_outage_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    silent = NoResponse("the API server does not answer", had_no_effect=True)
    client = RenewalClient(silent, BackendUnreachable("busy"), None, None, ZeroDivisionError("a bug"), None, None)
    renew(client).end()
    until_ended()
    assert [message for message in caplog.messages if "lease" in message] == [
        "the lease is not renewed: the API server does not answer; after 0s, the cluster is removed",
        "the lease is renewed again",
        "the lease is not renewed: ZeroDivisionError: a bug; after 0s, the cluster is removed",
        "the lease is renewed again",
    ]


def test_a_lease_that_another_command_took_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    renew(RenewalClient(None, ApiError(404, "not found")))
    until_ended()
    assert caplog.messages[-1] == 'cluster "demo" has no lease any more: another command took the lease'


def test_of_several_runs_all_but_the_last_leave_the_cluster_to_another() -> None:
    client = RenewalClient(None)
    held = [renew(client) for _ in range(3)]
    polling.wait_until(lambda: len(client.annotations) == 4, "all to hold the lease", 10)
    assert [renewal.release() for renewal in held] == [True, True, False]
    assert list(client.annotations) == [RENEWED]
    until_ended()


def test_a_run_is_seen_as_soon_as_it_holds_the_lease() -> None:
    client = RenewalClient()
    first = lease.Renewal(client, "ns", "demo", 900)  # type: ignore[arg-type]
    second = lease.Renewal(client, "ns", "demo", 900)  # type: ignore[arg-type]
    assert [first.release(), second.release()] == [True, False]


def test_nobody_shares_a_lease_that_another_command_took() -> None:
    client = RenewalClient(None)
    renewal = renew(client)
    client.answers = [ApiError(404, "not found")] * 2
    assert renewal.release() is False


def test_a_run_gives_back_its_own_lease_alone() -> None:
    assert lease.Renewals(RenewalClient()).release("demo") is False  # type: ignore[arg-type]


class Renewals(list[tuple[object, ...]]):
    """Stands for `lease.Renewal`: notes which begin and end."""

    def __call__(self, _: object, *arguments: object) -> Renewals:
        self.append(arguments)
        return self

    def end(self) -> None:
        self.append(("end",))


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> Renewals:
    found = Renewals()
    monkeypatch.setattr(lease, "Renewal", found)
    monkeypatch.setattr(backend, "Client", lambda _: RenewalClient())
    return found


def made_by(
    monkeypatch: pytest.MonkeyPatch, changes: Plan, may: Callable[..., object] = lambda *_: None
) -> tuple[backend.KubernetesBackend, list[float | None]]:
    """Return a backend whose `apply` makes these changes if the user may, and the leases that it applied."""
    applied: list[float | None] = []

    def noted(_: object, namespace: str, name: str, objects: list[Object], *more: object, **options: object) -> Plan:
        applied.append(lifetime.limits(item for item in objects if item["kind"] == "Job").lease)
        return changes

    for module, check in (
        (cluster_fit, "require_room"),
        (default_deny, "require_connections"),
        (claims, "require_driver"),
    ):
        monkeypatch.setattr(module, check, lambda *_: None)
    monkeypatch.setattr(claims, "usable", lambda *arguments: arguments[-1])
    monkeypatch.setattr(lifetime, "require_rights", may)
    monkeypatch.setattr(apply, "apply", noted)
    return backend.KubernetesBackend(), applied


class Unrecorded:
    """Stands for the history."""

    def removing(self, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def plan(*names: str) -> Plan:
    return Plan(name="demo", changes=tuple(Change(kind="Job", name=name, action=Action.CREATE) for name in names))


def test_a_new_cluster_has_a_lease_until_its_removal(monkeypatch: pytest.MonkeyPatch, renewals: Renewals) -> None:
    kube, applied = made_by(monkeypatch, plan("demo", "demo-lifetime", JOB))
    assert kube.apply(LEASED) is True
    assert (applied, renewals) == ([900], [("ns", "demo", 900)])
    monkeypatch.setattr(deletion, "delete", lambda *_, **__: [])
    monkeypatch.setattr(kube, "history", Unrecorded())
    kube.delete("demo")
    assert renewals[1:] == [("end",)]


def test_a_lease_is_given_back_by_an_apply_without_one(monkeypatch: pytest.MonkeyPatch, renewals: Renewals) -> None:
    kube, applied = made_by(monkeypatch, plan("demo", JOB))
    kube.apply(LEASED)
    kube.apply(lease.without(LEASED))
    assert (applied, renewals) == ([900, None], [("ns", "demo", 900), ("end",)])


def may_not(client: object, namespace: str, objects: list[Object]) -> None:
    if any(item["kind"] == "Role" for item in objects):
        raise REFUSED


def test_without_rights_there_is_no_lease_and_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, renewals: Renewals, caplog: pytest.LogCaptureFixture
) -> None:
    kube, applied = made_by(monkeypatch, plan("demo"), may_not)
    assert kube.apply(LEASED) is True
    assert (applied, renewals, caplog.messages) == ([None], [], [NONE])


def test_limits_of_the_job_file_need_the_rights_as_before(monkeypatch: pytest.MonkeyPatch, renewals: Renewals) -> None:
    kube, applied = made_by(monkeypatch, plan("demo"), may_not)
    with pytest.raises(MayNotLimit):
        kube.apply(job_file("demo", worker=1, image="tf:1", namespace="ns", lease=900, idle=60))
    assert (applied, renewals) == ([], [])


def test_a_cluster_that_another_command_made_in_the_meantime_gets_none(
    monkeypatch: pytest.MonkeyPatch, renewals: Renewals
) -> None:
    kube, applied = made_by(monkeypatch, plan("demo-lifetime", JOB))
    assert kube.apply(LEASED) is False
    assert (applied, renewals) == ([900, None], [])


def test_a_cluster_that_runs_with_a_lease_has_its_lease_renewed(
    monkeypatch: pytest.MonkeyPatch, renewals: Renewals
) -> None:
    kube, applied = made_by(monkeypatch, plan())
    assert kube.apply(LEASED) is False
    assert (applied, renewals) == ([900], [("ns", "demo", 900)])


def test_the_start_says_what_a_lease_does(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client: Any = RenewalClient(None)
    lease.Renewal(client, "ns", "demo", 900).end()
    until_ended()
    assert caplog.messages == [START]
