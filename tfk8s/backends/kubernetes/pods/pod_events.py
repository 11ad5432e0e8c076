"""The events that explain why pods wait: warnings, pulls of images, and the words of autoscalers.

The texts are those of the cluster autoscaler (TriggeredScaleUp, NotTriggerScaleUp), of GKE (FailedScaleUp) and of
Karpenter (Nominated, FailedScheduling). What Kueue says (`queues`) stands beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Reader
from tfk8s.backends.kubernetes.pods import image_pull, queues
from tfk8s.backends.kubernetes.pods.image_pull import Pull
from tfk8s.core.job_file.spot import KARPENTER, SPOT_NODES
from tfk8s.render import kueue
from tfk8s.render.pods import Object

# The scheduler's events are left out, because a pod that waits for the scheduler has them in its status. Those of
# probes are left out, because a server that does not listen yet explains nothing. The others are those of every start.
QUERY = {
    "fieldSelector": "source!=default-scheduler,reason!=Unhealthy,reason!=Pulled,reason!=Created,reason!=Started,"
    "reason!=Killing,reason!=SuccessfulCreate"
}
_WORKLOAD = "Workload/"  # the begin of the keys of what Kueue says, before the uid of a pod, or the name of a group
_EVICTED = "EvictedDueTo"  # the begin of Kueue's reasons
_COMBINED = "(combined from similar events): "
_GROUP = re.compile(r"\{(\S+) \d+->\d+ \(max: \d+\)\}")
_NODE_CLAIM = re.compile(r"nodeclaim/(\S+?)(?:-[a-z0-9]{5})?(?:,|$)")
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_POOLS = tuple(map(re.compile, (r"gk[e3]-(.+)-[0-9a-f]{8}-grp", rf"eks-(.+)-{_UUID}", r"aks-(.+)-\d+-vmss")))
_FULL = ("size reached", "limit reached", "exceed limits")
_OTHERS_SPOT = ((spot.label, name) for name, spot in SPOT_NODES.items() if name != KARPENTER)
_CURES = (  # for a part of Karpenter's words: the first counts
    *((words, "raise the limits of the NodePool") for words in _FULL),
    *((label, f"write spot: {KARPENTER} in place of spot: {name}") for label, name in _OTHERS_SPOT),
)
_REPEATED = re.compile(r",? (?:daemonset overhead=\{[^}]*\}|requirements=.*?resources=\{[^}]*\})")
_BACKOFF = "in backoff after failed scale-up"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """The last word of an autoscaler about a pod.

    Attributes:
        reason: in words.
        is_starting: whether a node for the pod is being started.
        is_misfit: whether no node that the autoscaler can start fits, so that the scheduler's reason counts, too.
    """

    reason: str
    is_starting: bool = False
    is_misfit: bool = False


@dataclass(slots=True)
class PodEvents:
    """The events of one pod or of its controller.

    Attributes:
        warnings: their messages, the latest last.
        node: what an autoscaler said last, if anything.
        pull: the last pull of an image, unless a warning came later.
        queue: what Kueue says about the pod's Workload; "" if nothing.
    """

    warnings: list[str] = field(default_factory=list)
    node: NodeEvent | None = None
    pull: Pull | None = None
    queue: str = ""


Events = Mapping[str, PodEvents]


def read(client: Reader, namespace: str) -> list[Object]:
    """Return the events of a namespace that `QUERY` selects."""
    events: list[Object] = client.get(paths.collection("Event", namespace), QUERY)["items"]
    return events


def group(events: Iterable[Object], context: str, said: Mapping[str, str] | None = None) -> Events:
    """Return the events of a namespace by the uid of their object.

    Args:
        events: as `QUERY` selects them.
        context: the kubeconfig's context. GKE's contexts name the cluster, which begins the names of pools' groups.
        said: what Kueue says of those that wait, as `queues.read` returns it.
    """
    groups = {f"{_WORKLOAD}{uid}": PodEvents(queue=text) for uid, text in (said or {}).items()}
    for event in sorted(events, key=_order):
        subject, message = event["involvedObject"], event.get("message", "").removeprefix(_COMBINED)
        found = groups.setdefault(subject.get("uid", ""), PodEvents())
        if subject.get("kind") == "Workload":
            _note_eviction(groups.setdefault(f"{_WORKLOAD}{subject.get('name')}", PodEvents()), event)
        elif pull := image_pull.of_event(event):
            found.pull = pull
        elif node := _node_event(event, message, context):
            found.node = node
        elif event.get("type") == "Warning" and event.get("reason") != "FailedScheduling":
            found.warnings.append(message)
            found.pull = None
    return groups


def _note_eviction(group: PodEvents, event: Object) -> None:
    """Note the eviction of a group of pods, until the next admission.

    The Workload has the eviction as a condition. Kueue makes the Workload anew if all pods of the group end at once.
    """
    reason = str(event.get("reason"))
    if reason.startswith(_EVICTED):
        group.queue = queues.evicted(reason.removeprefix(_EVICTED), event.get("message", ""))
    elif reason == "Admitted":
        group.queue = ""


def _order(event: Object) -> tuple[str, bool]:
    """Return the time of an event; within a second, a pull comes before its failure."""
    return str(event.get("lastTimestamp") or event.get("eventTime")), event.get("reason") != "Pulling"


def of(source: Object, events: Events) -> PodEvents:
    """Return the events of a pod, or of another object."""
    metadata = source["metadata"]
    found = events.get(metadata["uid"], PodEvents())
    owners = (owner["uid"] for owner in metadata.get("ownerReferences", ()))
    said = (events.get(f"{_WORKLOAD}{uid}") for uid in (metadata["uid"], *owners, ""))
    queue = next((item.queue for item in said if item), "")
    group = events.get(f"{_WORKLOAD}{metadata.get('labels', {}).get(kueue.GROUP)}", PodEvents())
    if queues.EVICTED not in queue:
        queue = "; ".join(filter(None, (queue, group.queue)))
    return PodEvents(found.warnings, found.node, found.pull, queue)


def _node_event(event: Object, message: str, context: str) -> NodeEvent | None:
    """Return what an autoscaler says by an event; None for another event."""
    is_karpenter = "karpenter" in (event.get("reportingComponent") or event.get("source", {}).get("component", ""))
    match event.get("reason"):
        case "TriggeredScaleUp":
            return _starting([_pool(name, context) for name in _GROUP.findall(message)])
        case "Nominated":
            return _starting(_NODE_CLAIM.findall(message))
        case "FailedScaleUp":
            return NodeEvent(reason=f"the autoscaler could not start a node for it: {message}")
        case "NotTriggerScaleUp":
            return _not_starting(message.partition(": ")[2] or message)
        case "FailedScheduling" if is_karpenter:
            return _without_karpenter(message)
    return None


def _starting(pools: Sequence[str]) -> NodeEvent:
    of_pool = f" of pool {' or '.join(dict.fromkeys(pools))}" if pools else ""
    return NodeEvent(reason=f"a node{of_pool} is being started", is_starting=True)


def _without_karpenter(message: str) -> NodeEvent:
    """Return what Karpenter says, without the requirements and resources that its messages repeat for each pool."""
    cause = _REPEATED.sub("", message.removeprefix("Failed to schedule pod, "))
    cure = next((f"; {cure}" for words, cure in _CURES if words in cause), "")
    return NodeEvent(reason=f"Karpenter starts no node for it: {cause}{cure}", is_misfit=True)


def _not_starting(cause: str) -> NodeEvent:
    if _BACKOFF in cause:
        return NodeEvent(
            reason=f"the autoscaler failed to start a node, and tries again later ({cause}): the provider has no "
            "quota, no machine or no address for it"
        )
    if any(words in cause for words in _FULL):
        return NodeEvent(reason=f"the autoscaler may start no more nodes ({cause}): raise the maximum of the pool")
    return NodeEvent(reason=f"the autoscaler starts no node for it ({cause})", is_misfit=True)


def _pool(name: str, context: str) -> str:
    """Return the pool of a provider's group of nodes, or the group's name."""
    name = name.rpartition("/")[2]
    for pattern in _POOLS:
        if match := pattern.fullmatch(name):
            cluster = context.rpartition("_")[2] if context.startswith("gke_") else ""
            return match[1].removeprefix(f"{cluster}-")
    return name
