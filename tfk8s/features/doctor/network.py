"""Checks of the network: the policies of others, whether the network enforces policies, and what pods reach."""

from __future__ import annotations

from collections.abc import Iterator

from tfk8s import render
from tfk8s.backends.kubernetes import default_deny
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.cluster import network_policy
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import Tfk8sError
from tfk8s.features.doctor.check import Check, State

_ANY = JobFile(name="any", master="worker", image="any", jobs=(Job(name="worker", tasks=2),))


def egress(client: Client, namespace: str, job_file: JobFile | None) -> Check:
    """Return whether policies of others cut the tasks of a job file, or (None) of any, off from each other or DNS."""
    name = "Egress policies"
    try:
        policies = default_deny.listed(client, namespace)
        found = default_deny.find(render.objects(job_file or _ANY, namespace), policies, namespace)
    except Tfk8sError as error:
        return Check(name, State.UNKNOWN, str(error), error.help or "")
    if not found:
        return Check(name, State.OK, "none cuts the tasks off from each other or from DNS")
    cure = f"write `{default_deny.CURE}` in the job file"
    return Check(name, State.MISSING if job_file else State.NOTE, str(found), cure)


def policies(client: Client, namespace: str, image: str | None) -> Iterator[Check]:
    """Yield whether NetworkPolicy is enforced, and what a pod reaches. Two pods test both if there is an image."""
    name = "NetworkPolicy"
    if image is None:
        advice = (
            f"to test it with two pods: tfk8s doctor --context {client.context} --image IMAGE (an image with Python)"
        )
        yield Check(name, State.UNKNOWN, "not tested: no object shows whether the network enforces it", advice)
        return
    try:
        found = network_policy.test(client, namespace, image)
    except Tfk8sError as error:
        yield Check(name, State.UNKNOWN, f"could not be tested: {error}", error.help or "")
        return
    if found.enforced:
        yield Check(name, State.OK, found.isolation)
    else:
        cure = "use a network that enforces it: Calico, Cilium, GKE's Dataplane V2, kind from 0.24"
        yield Check(name, State.MISSING, found.isolation, cure)
    yield _metadata(reached=found.metadata)
    yield _api_server(reached=found.api_server)


def _metadata(*, reached: bool) -> Check:
    name, address = "metadata server", network_policy.METADATA
    if not reached:
        return Check(name, State.OK, f"a pod gets no answer from {address}")
    host = address.rpartition(":")[0]
    return Check(
        name,
        State.NOTE,
        f"a pod reaches {address}, which may give the node's credentials to whoever asks",
        f"to close it, unless the pods use Workload Identity: network: {{allow_to: [{{cidr: 0.0.0.0/0, "
        f"except: [{host}/32]}}]}} in the job file",
    )


def _api_server(*, reached: bool) -> Check:
    name = "API server, from pods"
    if not reached:
        return Check(name, State.OK, "a pod gets no answer from the API server")
    return Check(
        name,
        State.NOTE,
        "a pod reaches the API server; the pods of tasks and scripts have no token for it",
        "to close it, name what the tasks connect to: network: {allow_to: […]} in the job file",
    )
