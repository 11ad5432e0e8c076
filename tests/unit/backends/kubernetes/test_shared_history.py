"""The claim that a namespace names for its shared history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes.config_map import NamespaceSettings
from job_files import job_file

from tfk8s import render
from tfk8s.backends.history import bucket_reader
from tfk8s.backends.history.merging import Pulled
from tfk8s.backends.kubernetes import shared_history
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.parts import SharedNamespace
from tfk8s.core.job_file.mappings import SharedHistory
from tfk8s.errors import ClusterError


def read(found: Any) -> SharedHistory | None:
    return shared_history.find(NamespaceSettings(found), "ns")  # type: ignore[arg-type]


def config_map(text: str) -> dict[str, Any]:
    return {"data": {"history.yaml": text}}


@pytest.mark.parametrize(
    ("text", "logs"), [("claim: tfk8s-history\nlogs: true\n", True), ("{claim: tfk8s-history}", False)]
)
def test_a_config_map_names_the_claim(text: str, logs: bool) -> None:
    namespace = NamespaceSettings(config_map(text))
    found = shared_history.find(namespace, "ns")  # type: ignore[arg-type]
    assert found == SharedHistory(claim="tfk8s-history", logs=logs)
    assert namespace.asked == ["/api/v1/namespaces/ns/configmaps/tfk8s-history"]


@pytest.mark.parametrize(
    "found",
    [None, {}, {"data": None}, {"data": {"other": "1"}}, {"data": {"history.yaml": 5}}],
)
def test_nobody_names_a_claim(found: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert read(found) is None
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected keys and values, such as claim: tfk8s-history"),
        ("claim", "expected keys and values, such as claim: tfk8s-history"),
        ("[claim]", "expected keys and values, such as claim: tfk8s-history"),
        ("logs: true", "line 1: this history has no source"),
        ("claim: a\nbucket: s3://ab", "line 1: a history can't have claim and bucket at once"),
        ("claim: a\nsecret: b", "line 1: secret has no effect on a claim"),
        ("bucket: b", 'line 1: "b" is not a bucket'),
        ("bucket: s3://ab\nendpoint: ftp://c", 'line 2: "ftp://c" is not the URL of a server'),
        ("claim: ../x", 'line 1: "../x" is not a Kubernetes name'),
        ("claim: [a]", "line 1: "),
        ("claim: a\nlogs: 7", 'line 2: "logs" can\'t be 7'),
        ("claim: a\nlog: true", 'line 2: there is no key "log" here'),
        ("claim: a\nclaim: b", "line 2: "),
        ("a: &a [1]\nclaim: *a\n", "line 1: "),
        ("\x1b[31m: x", ""),
    ],
)
def test_nonsense_is_one_warning(text: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    assert read(config_map(text)) is None
    (message,) = caplog.messages
    assert message.startswith(
        f"the shared history in ConfigMap tfk8s-history of namespace ns, history.yaml is left out: {reason}"
    )
    assert message.isprintable()


def test_a_refusal_is_an_error_for_those_who_ask() -> None:
    with pytest.raises(ClusterError, match="no"):
        shared_history.find(NamespaceSettings(ClusterError("no")), "ns")  # type: ignore[arg-type]


class Applied(NamespaceSettings):
    """The same, which takes the objects of a cluster, or refuses them."""

    def __init__(self, found: Any, claim: Any, refusal: ApiError | None) -> None:
        super().__init__(found)
        self.claim, self.refusal = claim, refusal

    def find(self, path: str) -> Any:
        return self.claim if "persistentvolumeclaims" in path else super().find(path)

    def apply(self, path: str, item: Any, *, dry_run: bool) -> None:
        assert dry_run
        if self.refusal:
            raise self.refusal


@pytest.mark.parametrize(
    ("claim", "refusal", "warning"),
    [
        ({}, None, ""),
        (None, None, 'namespace "ns" has no claim "past" for the history'),
        ({}, ApiError(403, "ada may not create roles"), "ada may not create roles"),
    ],
)
def test_the_claim_of_the_namespace_costs_no_start(
    claim: Any, refusal: ApiError | None, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Applied(config_map("claim: past"), claim, refusal)
    plain = job_file("demo", worker=1, image="tf:1")
    found = shared_history.decided(server, "ns", plain, render.objects)  # type: ignore[arg-type]
    recorded = replace(plain, history=SharedHistory(claim="past"))
    assert found == ((plain, True) if warning else (recorded, False))
    told = f"you can't keep a record in the shared history of the namespace: {warning}"
    assert caplog.messages == ([told] if warning else [])


def test_a_bucket_of_the_namespace_needs_no_claim() -> None:
    server = Applied(config_map("bucket: s3://team/past\nsecret: keys\n"), ClusterError("is not asked"), None)
    plain = job_file("demo", worker=1, image="tf:1")
    found = shared_history.decided(server, "ns", plain, render.objects)  # type: ignore[arg-type]
    assert found == (replace(plain, history=SharedHistory(bucket="s3://team/past", secret="keys")), False)


def test_the_bucket_of_the_namespace_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def pull(url: str, endpoint: str | None, *, cluster: str | None, last: int) -> Pulled:
        asked.append((url, endpoint, cluster, last))
        return Pulled(new=1)

    monkeypatch.setattr(bucket_reader, "pull", pull)
    server = NamespaceSettings(config_map("{bucket: 's3://team', endpoint: 'http://minio.example'}"))
    place = SharedNamespace(server, "ns", lambda name: "ns")  # type: ignore[arg-type]
    assert place.pull_history(None, cluster="mnist", last=5, image=None).new == 1
    assert asked == [("s3://team", "http://minio.example", "mnist", 5)]


def test_the_job_file_comes_before_the_namespace() -> None:
    own = job_file("demo", worker=1, image="tf:1", history=SharedHistory(claim="own"))
    server = NamespaceSettings(ClusterError("is not asked"))
    assert shared_history.decided(server, "ns", own, render.objects) == (own, False)  # type: ignore[arg-type]
    assert server.asked == []


@pytest.mark.parametrize(("answer", "stays"), [(None, False), (ApiError(403, "no"), True)])
def test_a_record_that_another_user_keeps_stays_where_this_user_can_not_tell(answer: Any, stays: bool) -> None:
    plain = job_file("demo", worker=1, image="tf:1")
    found = shared_history.decided(NamespaceSettings(answer), "ns", plain, render.objects)  # type: ignore[arg-type]
    assert found == (plain, stays)
