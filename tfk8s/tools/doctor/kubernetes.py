"""What clusters on Kubernetes need: an API server that answers, rights, GPUs, an enforced NetworkPolicy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tfk8s import concurrency
from tfk8s.backends.kubernetes.client import Client
from tfk8s.backends.kubernetes.errors import ApiError
from tfk8s.errors import Tfk8sError
from tfk8s.render import rbac
from tfk8s.render.pods import GKE_ACCELERATOR, Object
from tfk8s.render.rbac import Permission
from tfk8s.tools.doctor import network_policy as network_policy_module
from tfk8s.tools.doctor.check import Check, State

_COMMANDS = ("up", "submit", "down")
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_AT_ONCE = 8
_NAMED = 3


def checks(context: str | None, namespace: str | None, image: str | None) -> Iterator[Check]:
    """Yield one check after the other, up to one without which the rest can't be looked at.

    Args:
        context: of the kubeconfig; None is its current one.
        namespace: None is the context's.
        image: has Python, for the pods that try NetworkPolicy; None leaves that unknown.
    """
    try:
        client = Client(context)
        namespace = namespace or client.namespace
        yield Check("kubeconfig", State.OK, f'context "{client.context}", namespace "{namespace}"')
    except Tfk8sError as error:
        yield _failed("kubeconfig", error)
        return
    try:
        version = client.get("/version")["gitVersion"]
        client.require_version()
        yield Check("API server", State.OK, f"Kubernetes {version} at {client.url}")
    except Tfk8sError as error:
        yield _failed("API server", error)
        return
    yield (there := _namespace(client, namespace))
    if there.state is not State.MISSING:
        yield from _rights(client, namespace)
    yield _gpus(client)
    if there.state is not State.MISSING:
        yield network_policy(client, namespace, image)


def network_policy(client: Client, namespace: str, image: str | None) -> Check:
    """Return whether NetworkPolicy is enforced; with an image, two pods of it try."""
    name = "NetworkPolicy"
    if image is None:
        advice = f"tfk8s doctor --context {client.context} --image IMAGE tries it with two pods (IMAGE has Python)"
        return Check(name, State.UNKNOWN, "no object says whether the cluster's network enforces it", advice)
    try:
        if network_policy_module.enforced(client, namespace, image):
            return Check(name, State.OK, "enforced: a pod reached an allowed port, and not one that is not allowed")
    except Tfk8sError as error:
        return Check(name, State.UNKNOWN, f"it could not be tried: {error}", error.help or "")
    return Check(
        name,
        State.MISSING,
        "not enforced: every pod reaches every task, and can run any program in it",
        "a network that enforces it: Calico, Cilium, GKE's Dataplane V2, kind from 0.24",
    )


def _failed(name: str, error: Tfk8sError) -> Check:
    return Check(name, State.MISSING, str(error), error.help or "")


def _namespace(client: Client, namespace: str) -> Check:
    try:
        found = client.find(f"/api/v1/namespaces/{namespace}")
    except ApiError as error:
        return Check("namespace", State.UNKNOWN, str(error))
    if found is None:
        return Check(
            "namespace", State.MISSING, f'there is no namespace "{namespace}"', f"kubectl create namespace {namespace}"
        )
    return Check("namespace", State.OK, f'"{namespace}" is there')


# ---- rights --------------------------------------------------------------------------------------------------------


def _rights(client: Client, namespace: str) -> list[Check]:
    """Return a check for each of the commands that make, use and remove clusters."""
    wanted = [right for right in rbac.PERMISSIONS if not set(right.commands).isdisjoint(_COMMANDS)]
    try:
        answers = concurrency.map_parallel(lambda right: _may(client, namespace, right), wanted, _AT_ONCE)
    except Tfk8sError as error:
        return [Check("rights", State.UNKNOWN, str(error), error.help or "")]
    lacking = [right for right, allowed in zip(wanted, answers, strict=True) if not allowed]
    return [
        rights_check(command, namespace, [right for right in lacking if command in right.commands])
        for command in _COMMANDS
    ]


def rights_check(command: str, namespace: str, lacking: Sequence[Permission]) -> Check:
    """Return whether a command has all rights that it needs, and which Role has those that it lacks."""
    name = f"rights to {command}"
    if not lacking:
        return Check(name, State.OK, f'all, in namespace "{namespace}"')
    role = rbac.SUBMIT_ROLE if all(rbac.SUBMIT_ROLE in right.roles for right in lacking) else rbac.USER_ROLE
    named = ", ".join(map(str, lacking[:_NAMED])) + f" and {len(lacking) - _NAMED} more" * (len(lacking) > _NAMED)
    return Check(
        name,
        State.MISSING,
        f'you may not {named} in namespace "{namespace}"',
        f"ask for the Role {role}: tfk8s roles | kubectl apply -n {namespace} -f - makes it, "
        f"kubectl create rolebinding YOU -n {namespace} --role={role} --user=YOU gives it",
    )


def _may(client: Client, namespace: str, right: Permission) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "namespace": namespace, "verb": right.verb, "group": right.group,
        "resource": resource, "subresource": subresource,
    }  # fmt: skip
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return bool(client.send("POST", _REVIEWS, body=review)["status"]["allowed"])


# ---- GPUs ----------------------------------------------------------------------------------------------------------


def _gpus(client: Client) -> Check:
    try:
        nodes = client.get("/api/v1/nodes")["items"]
    except ApiError as error:
        return Check("GPUs", State.UNKNOWN, str(error))
    return Check("GPUs", State.OK, gpus(nodes))


def gpus(nodes: Sequence[Object]) -> str:
    """Return in words which GPUs the nodes offer."""
    found: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        model = node["metadata"].get("labels", {}).get(GKE_ACCELERATOR, "")
        for resource, amount in node["status"].get("allocatable", {}).items():
            if resource.endswith("/gpu") and amount.isdecimal():
                found[resource, model] += int(amount)
    words = [
        f"{count} {resource}" + (f" ({model})" if model else "")
        for (resource, model), count in sorted(found.items())
        if count
    ]
    of = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
    return f"{', '.join(words)} on {of}" if words else f"none on {of}: jobs with `gpus` would wait for such a node"
