"""Rows about a cluster without DNS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from harness.command import PATIENCE, Ended
from harness.kube import KubeEnvironment
from harness.row import DEADLINE, VERDICT, Row
from kube_api import MERGE

from tfk8s import polling

_DNS = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
_DNS_PODS = "/api/v1/namespaces/kube-system/pods"


@contextlib.contextmanager
def no_dns(environment: KubeEnvironment) -> Iterator[None]:
    """Take the cluster's DNS down for a `with` block."""
    before = environment.client.get(_DNS)["spec"]["replicas"]

    def scale(replicas: int) -> None:
        environment.client.send("PATCH", _DNS, body={"spec": {"replicas": replicas}}, content_type=MERGE)

    def pods() -> list[object]:
        return list(environment.client.get(_DNS_PODS, {"labelSelector": "k8s-app=kube-dns"})["items"])

    scale(0)
    try:
        polling.wait_until(lambda: not pods(), "DNS to be gone", PATIENCE)
        yield
    finally:
        scale(before)
        polling.wait_until(
            lambda: environment.client.get(_DNS)["status"].get("readyReplicas", 0) == before, "DNS to be back", PATIENCE
        )


def submit_without_dns(environment: KubeEnvironment) -> Ended:
    name, script = environment.cluster(), environment.alone("steps.py")
    with no_dns(environment):
        return environment.start("submit", name, script, "none").end(PATIENCE)


def up_without_dns(environment: KubeEnvironment) -> Ended:
    environment.remove()
    with no_dns(environment):
        return environment.start("up", "--timeout", f"{DEADLINE}s", environment.job_file).end(DEADLINE + PATIENCE)


def rows() -> Iterator[Row]:
    yield Row(
        fault="DNS down", when="before `submit`", run=submit_without_dns, code=3,
        words=("chief/0, ps/0, worker/0, worker/1 do not answer", "name resolution", "cluster's DNS"),
    )  # fmt: skip
    yield Row(
        fault="DNS down", when=f"in `up`, with a deadline of {DEADLINE} s", run=up_without_dns, code=124,
        words=("chief/0 can't reach",), limit=DEADLINE + VERDICT, thorough=True,
    )  # fmt: skip
