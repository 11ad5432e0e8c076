"""Finds the NetworkPolicies of others that cut a cluster's pods off from each other or from DNS.

Policies add up: a pod that a policy selects for Egress may connect only where some policy allows it. The cluster's own
policy rules Egress if the job file has `allow_to`. Then it allows the cluster and DNS, whatever other policies say.

A finding is certain. What the objects don't show counts as allowed: labels that controllers give to pods, labels of
namespaces, the addresses of pods and of DNS, and the numbers of named ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.workloads import deployed
from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput, quoted
from tfk8s.log import log
from tfk8s.render import manifests, other_pods
from tfk8s.render.pods import Object

CURE = "network: {allow_to: []}"

_NAMESPACE = "kubernetes.io/metadata.name"
_DNS_NAMESPACES = ("kube-system", "openshift-dns")
_DNS_PORTS = (53, 5353)  # OpenShift's DNS pods listen on 5353
_CONTROLLERS = ("kubernetes.io", "k8s.io")  # the domains of labels that controllers give to pods
_CONTROLLERS_LABELS = ("controller-revision-hash", "controller-uid", "job-name")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """Connections that a cluster needs, and that policies of others close.

    Attributes:
        policies: the names of the policies.
        from_tasks: whether pods of the cluster can't connect to its tasks.
        from_dns: whether pods of the cluster can't connect to DNS.
    """

    policies: tuple[str, ...]
    from_tasks: bool
    from_dns: bool

    def __str__(self) -> str:
        several = len(self.policies) > 1
        names = ", ".join(map(quoted, self.policies))
        what = " and ".join(["from each other"] * self.from_tasks + ["from DNS"] * self.from_dns)
        return f"NetworkPolic{'ies' if several else 'y'} {names} cut{'' if several else 's'} the tasks off {what}"


@dataclass(frozen=True, slots=True)
class _Pods:
    """The labels of similar pods, the port of their servers (None without one), and whether they have their own DNS."""

    labels: Mapping[str, str]
    port: int | None
    several: bool
    own_dns: bool


def require_connections(client: Client, namespace: str, job_file: JobFile, objects: Sequence[Object]) -> None:
    """Raise an InvalidInput if policies of others cut the cluster's pods off. Warn if the user may not list policies.

    Args:
        client: a client of the API server.
    """
    if job_file.network.allow_to is not None:
        return
    try:
        found = find(objects, listed(client, namespace), namespace)
    except ApiError as error:
        if error.code != 403:
            raise
        log.warning("%s; so a NetworkPolicy of others that cuts the tasks off would not be noticed", error)
        return
    if found:
        raise InvalidInput(
            str(found),
            help=f"write `{CURE}` in the job file: the cluster's own policy then allows the tasks and DNS, and "
            "entries of the list allow more; nothing was changed",
        )


def listed(client: Client, namespace: str) -> list[Object]:
    """Return all NetworkPolicies of a namespace."""
    return list(deployed.items_of(client, "NetworkPolicy", namespace, {}))


def find(objects: Sequence[Object], policies: Sequence[Object], namespace: str) -> CutOff | None:
    """Return what the policies close that the cluster needs; None if nothing certainly is.

    Args:
        policies: the policies of the namespace, those of an earlier `up` of the same cluster too.
    """
    own = [item for item in objects if item["kind"] == "NetworkPolicy"]
    names = {item["metadata"]["name"] for item in own}
    ruling = [*own, *(item for item in policies if item["metadata"]["name"] not in names)]
    closing: dict[str, None] = {}
    from_tasks = from_dns = False
    pods = list(_pods(objects))
    for source in pods:
        selecting = [(item, _matches(item["spec"].get("podSelector"), source.labels, _is_of_controllers))
                     for item in ruling if _rules_egress(item)]  # fmt: skip
        certain = [item["metadata"]["name"] for item, selects in selecting if selects]
        rules = [
            rule for item, selects in selecting if selects is not False for rule in item["spec"].get("egress") or ()
        ]
        targets = [target for target in pods if target.port and (target is not source or source.several)]
        no_task = not all(any(_allows_pod(rule, target, namespace) for rule in rules) for target in targets)
        no_dns = not source.own_dns and not any(_allows_dns(rule, namespace) for rule in rules)
        if certain and (no_task or no_dns):
            closing |= dict.fromkeys(certain)
            from_tasks, from_dns = from_tasks or no_task, from_dns or no_dns
    return CutOff(policies=tuple(closing), from_tasks=from_tasks, from_dns=from_dns) if closing else None


def _pods(objects: Sequence[Object]) -> Iterator[_Pods]:
    """Yield the pods of each job, and those of scripts."""
    workloads = [item for item in objects if manifests.has_tasks(item)]
    for item in workloads:
        template = item["spec"]["template"]
        port = template["spec"]["containers"][0]["ports"][0]["containerPort"]
        yield _Pods(template["metadata"]["labels"], port, manifests.task_count(item) > 1, _has_own_dns(template))
    for master in [item for item in workloads if item["kind"] == "StatefulSet"][:1]:
        template = master["spec"]["template"]
        labels = other_pods.metadata(template, {manifests.COMPONENT: manifests.SCRIPT})["labels"]
        yield _Pods(labels, None, several=False, own_dns=_has_own_dns(template))


def _has_own_dns(template: Object) -> bool:
    return not {"dnsPolicy", "dnsConfig"}.isdisjoint(template["spec"])


def _rules_egress(policy: Object) -> bool:
    types = policy["spec"].get("policyTypes")
    return "Egress" in types if types else bool(policy["spec"].get("egress"))


def _is_of_controllers(label: str) -> bool:
    domain = label.rpartition("/")[0]
    return label in _CONTROLLERS_LABELS or (domain != "app.kubernetes.io" and domain.endswith(_CONTROLLERS))


def _matches(selector: Object | None, labels: Mapping[str, str], is_unknown: Callable[[str], bool]) -> bool | None:
    """Return whether a selector matches labels; None if that depends on a label that is not known.

    Args:
        selector: a LabelSelector; None and an empty one match everything.
        labels: the known labels.
        is_unknown: returns whether a label that is not among the known ones may be there.
    """
    selector = selector or {}
    equal = [{"key": key, "operator": "In", "values": [value]}
             for key, value in (selector.get("matchLabels") or {}).items()]  # fmt: skip
    results = [_meets(one, labels, is_unknown) for one in (*equal, *(selector.get("matchExpressions") or ()))]
    return False if False in results else None if None in results else True


def _meets(requirement: Object, labels: Mapping[str, str], is_unknown: Callable[[str], bool]) -> bool | None:
    key, operator, values = requirement["key"], requirement["operator"], requirement.get("values") or ()
    if key not in labels and is_unknown(key):
        return None
    meets: dict[str, bool] = {
        "In": key in labels and labels[key] in values,
        "NotIn": key not in labels or labels[key] not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }
    return meets.get(operator)


def _allows_pod(rule: Object, pod: _Pods, namespace: str) -> bool:
    """Return whether a rule may allow connections to the servers in pods of the cluster."""
    peers = rule.get("to") or [{"ipBlock": {}}]
    return _may_match(rule, ("TCP",), [pod.port]) and any(_may_be_pod(peer, pod.labels, namespace) for peer in peers)


def _may_be_pod(peer: Object, labels: Mapping[str, str], namespace: str) -> bool:
    if peer.get("ipBlock") is not None:
        return True
    spaces = peer.get("namespaceSelector")  # without one, a peer's pods are those of the policy's own namespace
    return (
        spaces is None or _matches(spaces, {_NAMESPACE: namespace}, _any_label) is not False
    ) and _matches(peer.get("podSelector"), labels, _is_of_controllers) is not False  # fmt: skip


def _allows_dns(rule: Object, namespace: str) -> bool:
    """Return whether a rule may allow connections to DNS: to the ports of DNS anywhere, or to a place that has it."""
    if not _may_match(rule, ("UDP", "TCP"), _DNS_PORTS):
        return False
    peers = rule.get("to") or [{"ipBlock": {}}]
    return bool(rule.get("ports")) or any(_may_be_dns(peer, namespace) for peer in peers)


def _may_be_dns(peer: Object, namespace: str) -> bool:
    if peer.get("ipBlock") is not None:
        return True
    if peer.get("namespaceSelector") is None:
        return namespace in _DNS_NAMESPACES
    spaces = peer["namespaceSelector"]
    return any(_matches(spaces, {_NAMESPACE: space}, _any_label) is not False for space in _DNS_NAMESPACES)


def _any_label(_: str) -> bool:
    return True


def _may_match(rule: Object, protocols: Sequence[str], ports: Sequence[int | None]) -> bool:
    """Return whether a rule may allow one of the ports by one of the protocols."""
    return any(_is_one_of(entry, protocols, ports) for entry in rule.get("ports") or [{"protocol": protocols[0]}])


def _is_one_of(entry: Mapping[str, Any], protocols: Sequence[str], ports: Sequence[int | None]) -> bool:
    if entry.get("protocol", "TCP") not in protocols:
        return False
    first = entry.get("port")
    if not isinstance(first, int):  # all ports, or a name, which each pod gives to a port of its own
        return True
    last = entry.get("endPort", first)
    return any(port is not None and first <= port <= last for port in ports)
