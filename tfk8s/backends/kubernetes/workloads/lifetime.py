"""A cluster's own Jobs, which keep its limits and its record, as the API server has them: rights, status and result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import FIELD_MANAGER, MERGE, Client, Reader
from tfk8s.backends.kubernetes.api_server.errors import ApiError, NamespaceTerminating
from tfk8s.backends.kubernetes.pods import containers, image_pull, pod_events, pod_status, queues
from tfk8s.backends.kubernetes.pods.pod_events import Events
from tfk8s.backends.kubernetes.workloads import script_status
from tfk8s.core import naming
from tfk8s.core.history.shared import RecordStatus
from tfk8s.core.lifetime import Limits
from tfk8s.core.status import Phase
from tfk8s.render import manifests
from tfk8s.render.lifetime import COMPONENT, IDLE, LEASE, MAX_DURATION, QUOTA_ADVICE, SUSPEND
from tfk8s.render.pods import Object

_MAX_WORD = 300  # characters
_KINDS = ("ServiceAccount", "Role", "RoleBinding", "Job")


class MayNotLimit(ApiError):
    """The user may not create the cluster's own Job, or may not give the Job's account its rights.

    Attributes:
        reason: the right that the user lacks.
    """

    def __init__(self, refusal: ApiError) -> None:
        super().__init__(
            403,
            "max_duration, idle, drain: idle and history need a Job that may remove the cluster, and you can't create "
            f"it: {refusal}",
            help=f"{refusal.help}; or remove max_duration, idle, drain and history from the job file",
        )
        self.reason = str(refusal)


def require_rights(client: Client, namespace: str, objects: Sequence[Object]) -> None:
    """Check by dry runs that the user may create the cluster's own Job, if the cluster has one, and its rights.

    Raises:
        MayNotLimit: nothing was changed.
        ApiError: the API server refuses for another reason.
    """
    for item in objects:
        if item["kind"] not in _KINDS or not is_lifetime(item):
            continue
        try:
            client.apply(paths.path(item, namespace), item, dry_run=True)
        except NamespaceTerminating:
            raise
        except ApiError as error:
            if error.code == 403:
                raise MayNotLimit(error) from error


def is_lifetime(item: Object) -> bool:
    """Return whether an object belongs to a cluster's own Jobs."""
    return bool(item["metadata"].get("labels", {}).get(manifests.COMPONENT) == COMPONENT)


def is_record(job: Object) -> bool:
    """Return whether a Job writes the record of its cluster."""
    return is_lifetime(job) and "TFK8S_HISTORY" in containers.template_variables(job)


def is_part(item: Object, cluster: str) -> bool:
    """Return whether an object is one of the cluster's own Jobs, or of their rights, which may lack the labels."""
    return is_lifetime(item) or item["metadata"]["name"] == naming.lifetime(cluster)


def is_ended(item: Object) -> bool:
    """Return whether an object is a Job that has removed its cluster."""
    return item["kind"] == "Job" and is_lifetime(item) and "completionTime" in item.get("status", {})


def with_owner(item: Object, account: Object) -> Object:
    """Return a Role or a RoleBinding as owned by the ServiceAccount, so that all three are deleted together."""
    metadata = account["metadata"]
    owner = {"apiVersion": "v1", "kind": "ServiceAccount", "name": metadata["name"], "uid": metadata["uid"]}
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}}


def with_rights(jobs: Iterable[Object]) -> list[Object]:
    """Return a cluster's own Jobs, and the objects that let them remove the cluster.

    The ServiceAccount owns the Role and the RoleBinding.
    """
    own = [job for job in jobs if is_lifetime(job)]
    if not own:
        return []
    name = naming.lifetime(own[0]["metadata"]["labels"][manifests.INSTANCE])
    return [*own, *({"kind": kind, "metadata": {"name": name}} for kind in ("ServiceAccount", "NetworkPolicy"))]


def annotate(
    client: Client, namespace: str, cluster: str, annotations: Mapping[str, str | None], command: str
) -> Mapping[str, str]:  # fmt: skip
    """Change annotations of the ServiceAccount of a cluster's own Jobs, as a command does; return all of them."""
    path, change = paths.named("ServiceAccount", naming.lifetime(cluster), namespace), {"annotations": annotations}
    answer = client.send("PATCH", path, {"fieldManager": f"{FIELD_MANAGER}-{command}"}, {"metadata": change}, MERGE)
    return answer.get("metadata", {}).get("annotations") or {}


def limits(jobs: Iterable[Object]) -> Limits:
    """Return the limits of a cluster that has these Jobs."""
    own = (job["metadata"].get("annotations", {}) for job in jobs if is_lifetime(job) and not is_record(job))
    annotations: dict[str, str] = next(own, {})
    names = (MAX_DURATION, IDLE, LEASE, SUSPEND)
    return Limits(*(_seconds(annotations.get(name, "")) for name in names))


def _seconds(text: str) -> float | None:
    """Return a time from an annotation; None without one, or for the nonsense of somebody else."""
    return float(text) if text.isdecimal() else None


def keepers(jobs: Sequence[Object], pods: Sequence[Object]) -> list[tuple[Object, Object | None]]:
    """Return the cluster's own Jobs that have not ended, each with its pod."""
    own = [job for job in jobs if is_lifetime(job) and "completionTime" not in job.get("status", {})]
    by_job = script_status.pods_by_job(
        pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in ("Succeeded", "Failed")
    )
    return [(job, by_job.get(job["metadata"]["name"])) for job in own]


def limits_problem(keepers: Iterable[tuple[Object, Object | None]], events: Events) -> str:
    """Return why no pod removes the cluster at its limits; "" while a pod runs or starts.

    Args:
        keepers: what the function of this name returns.
        events: of the pods and Jobs.
    """
    problems = (_why_no_pod(job, pod, events) for job, pod in keepers if not is_record(job))
    return next(filter(None, problems), "")


def record(keepers: Iterable[tuple[Object, Object | None]], events: Events) -> RecordStatus | None:
    """Return the place of a cluster's record, and what keeps the record from being written; None without a record.

    Arguments are those of `limits_problem`.
    """
    for job, pod in keepers:
        if is_record(job):
            return RecordStatus(_place(job), _last_word(pod) or _why_no_pod(job, pod, events))
    return None


def _place(record: Object) -> str:
    """Return the claim or the bucket that a record's Job writes to; "" if somebody else has changed the Job."""
    if bucket := containers.template_variables(record).get("TFK8S_BUCKET"):
        return f"bucket {bucket}"
    volumes = record["spec"]["template"]["spec"].get("volumes", ())
    claims = (volume["persistentVolumeClaim"] for volume in volumes if "persistentVolumeClaim" in volume)
    return next((f"claim {claim['claimName']}" for claim in claims), "")


def _last_word(pod: Object | None) -> str:
    """Return what the program said at its end, while it waits to begin again: kubelet may show either state then."""
    for container in containers.statuses(pod) if pod else ():
        state = container["state"]
        last = container.get("lastState", {}) if "waiting" in state else {}
        end = state.get("terminated") or last.get("terminated") or {}
        if end.get("exitCode"):
            return str(end.get("message", "")).strip().partition("\n")[0][:_MAX_WORD]
    return ""


def _why_no_pod(job: Object, pod: Object | None, events: Events) -> str:
    """Return why the pod of a Job does not run; "" while it runs or starts."""
    found = pod_events.of(pod or job, events)
    if job["spec"].get("suspend"):
        return f"Job {job['metadata']['name']} has no pod: {queues.waits(job, found.queue)}"
    phase, reason = pod_status.phase_and_reason(script_status.master_job(job), pod, found, QUOTA_ADVICE)
    is_starting = pod_status.waits_for_node(pod, found) or image_pull.is_under_way(pod, found.pull)
    if reason and phase in (Phase.PENDING, Phase.FAILED) and not is_starting:
        return f"Job {job['metadata']['name']} has no {'running ' if pod else ''}pod: {reason}"
    return ""


def removal(client: Reader, namespace: str, name: str) -> tuple[str, float | None]:
    """Return why a cluster's own Job removed the cluster, and when; "" if the Job is gone, or did not.

    The time is in seconds since the epoch; None if it is not known.
    """
    labels = {**manifests.selector(name), manifests.COMPONENT: COMPONENT}
    try:
        pods = client.get(paths.collection("Pod", namespace), paths.labelled(labels))["items"]
    except ApiError:
        return "", None
    ends = (script_status.ended(pod) or {} for pod in pods)
    end = next((end for end in ends if end.get("exitCode") == 0 and "message" in end), {})
    finished = end.get("finishedAt")
    return end.get("message", ""), None if finished is None else pod_status.seconds(finished)
