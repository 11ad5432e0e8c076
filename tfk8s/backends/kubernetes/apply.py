"""Applies and scales clusters, by server-side apply and deletes, in a constant number of requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tfk8s.backends.kubernetes import helm, pod_refusals, restart, suspend
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.deletion import delete_each
from tfk8s.backends.kubernetes.pods import containers
from tfk8s.backends.kubernetes.pods.total_requests import billed_workloads, requested
from tfk8s.backends.kubernetes.scripts.programs import program_archives
from tfk8s.backends.kubernetes.workloads import (
    changes,
    gangs,
    lifetime,
    ownership,
    pods_dry_run,
    program_jobs,
    queue_changes,
    suspension,
)
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core.plan import Plan, Scaling
from tfk8s.core.spec import Task
from tfk8s.core.task_names import require_no_variables
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests
from tfk8s.render.pods import Object


def apply(
    client: Client, namespace: str, name: str, objects: Sequence[Object], secrets: Sequence[Object] = (), *,
    keeps_record: bool = False, dry_run: bool = False,
) -> Plan:  # fmt: skip
    """Apply the objects, and delete the cluster's other objects; return the changes.

    All tasks whose pods change restart at once. In a cluster with programs, a change of the ClusterSpec restarts all
    tasks: their servers can't change it, and servers with different ones do not work together. The Job of a changed
    program is created again.

    Args:
        name: the cluster's.
        objects: the cluster's objects, in order.
        secrets: the Secrets with the folder of the programs' scripts.
        keeps_record: leave the Job that writes the cluster's record, if no other Job keeps its limits.
        dry_run: change nothing.

    A suspended cluster is resumed, which is no change.

    Raises:
        InvalidInput: an object of that name belongs to somebody else, tasks would go that may hold variables, or the
            namespace refuses the pods that would replace running ones; nothing was changed.
        NamespaceTerminating: the namespace is being deleted.
    """
    before = [gangs.living(client, namespace, client.find(paths.path(item, namespace))) for item in objects]
    obsolete = ownership.obsolete(client, namespace, name, objects)
    if keeps_record and not any(map(lifetime.is_lifetime, objects)):
        obsolete = [item for item in obsolete if not lifetime.is_part(item, name)]
    wish = suspension.read([*filter(None, before), *obsolete])
    before = [item and suspension.awake(item, wish) for item in before]
    for item, existing in zip(objects, before, strict=True):
        ownership.require_own(item, existing)
    obsolete += gangs.obsolete(name, before, objects)
    by_helm = next(filter(None, map(helm.refusal, filter(None, before))), None)
    refusal = by_helm or _why_refused(name, zip(before, objects, strict=True))
    if not refusal:
        running = _previewed(client, namespace, before, objects, force=wish is not None)
        changed = [(old, new) for old, new in running if changes.template(old) != changes.template(new)]
        refusal = queue_changes.refusal(name, changed) or pods_dry_run.refusal(client, namespace, changed)
        objects = gangs.without_ended(objects, [new for _, new in running])
    if refusal and not dry_run:
        raise refusal
    if all(before):  # else the API server tells
        pod_refusals.require_lasting(client, namespace, name)
    ended = [item for item in before if item and lifetime.is_ended(item)]
    before = [None if item in ended else item for item in before]
    if not dry_run:
        delete_each(client, namespace, ended)
    wanted = list(zip(before, objects, strict=True))
    after = (
        [helm.preview(client, namespace, item, old) for old, item in wanted]
        if by_helm
        else list(_apply_all(client, namespace, wanted, secrets, dry_run=dry_run, force=wish is not None))
    )
    pairs = [*zip(before, after, strict=True), *((old, None) for old in obsolete)]
    restarted = [(old, new) for old, new in pairs if old and new and changes.template(old) != changes.template(new)]
    if not dry_run:
        if wish:  # which an obsolete Job may have
            suspend.finish_resume(client, [*after, *filter(lifetime.is_lifetime, obsolete)])
        delete_each(client, namespace, obsolete)
        restart.recover(client, namespace, name, after)
        restart.recreate_pods(client, namespace, name, [new for _, new in restarted])
        program_archives.delete_obsolete(client, namespace, name, [old for old, _ in pairs], after)
    return Plan(
        name=name,
        changes=tuple(filter(None, (changes.change(old, new) for old, new in pairs))),
        requests_before=requested(old for old, _ in pairs if old and manifests.has_tasks(old)),
        requests=requested(new for _, new in pairs if new and manifests.has_tasks(new)),
        billed_before=billed_workloads(old for old, _ in pairs if old and manifests.has_tasks(old)),
        billed=billed_workloads(new for _, new in pairs if new and manifests.has_tasks(new)),
        restarts=tuple(task for old, new in restarted for task in changes.tasks(old, new)),
        refusal=f"{refusal}: {refusal.help}" if refusal else "",
    )


def _previewed(
    client: Client, namespace: str, before: Iterable[Object | None], objects: Iterable[Object], *, force: bool
) -> list[tuple[Object, Object]]:
    """Return the StatefulSets and Jobs of programs that exist, each with what the API server would make of it."""
    running = [(old, item) for old, item in zip(before, objects, strict=True) if old and manifests.has_tasks(item)]
    after = _apply_all(client, namespace, running, (), dry_run=True, force=force)
    return [(old, new) for (old, _), new in zip(running, after, strict=True)]


def _why_refused(name: str, pairs: Iterable[tuple[Object | None, Object]]) -> InvalidInput | None:
    """Return the error if a job would lose servers that may hold variables, and None otherwise.

    A job that is no longer in the job file goes as a whole.
    """
    counts, tasks = {}, []
    for old, new in pairs:
        if old and old["kind"] == "StatefulSet":
            job = containers.template_variables(old)["TFK8S_JOB"]
            tasks += [Task(job, index) for index in range(manifests.task_count(old))]
            counts[job] = manifests.task_count(new)
    try:
        require_no_variables(counts, tasks, f"save them; then run: tfk8s scale {name} {{count}} --yes")
    except InvalidInput as error:
        return error
    return None


def _apply_all(
    client: Client,
    namespace: str,
    pairs: Sequence[tuple[Object | None, Object]],
    secrets: Sequence[Object],
    *,
    dry_run: bool,
    force: bool = False,
) -> Iterator[Object]:
    """Apply objects, each beside what the API server has; yield what it has then. `force` takes back task counts."""
    account = None
    for existing, item in pairs:
        owned = lifetime.with_owner(item, account) if account and item["kind"] in ("Role", "RoleBinding") else item
        is_set = item["kind"] == "StatefulSet"
        try:
            if manifests.is_program(item):
                applied = program_jobs.apply(client, namespace, item, existing, dry_run=dry_run)
            else:
                applied = client.apply(paths.path(item, namespace), owned, dry_run=dry_run, force=force and is_set)
        except ApiError as error:
            if not dry_run or (item["kind"], error.code) != ("RoleBinding", 404):
                raise
            applied = owned  # a dry run has created no Role
        if item["kind"] == "ConfigMap" and not dry_run:
            program_archives.create(client, namespace, secrets, applied, [old for old, _ in pairs])
        account = applied if item["kind"] == "ServiceAccount" else account
        yield applied


def scale(client: Client, cluster: DeployedCluster, tasks: Mapping[str, int]) -> Scaling:
    """Set the number of tasks of jobs; return the effect. Tasks that know their ClusterSpec restart.

    Raises:
        InvalidInput: Helm installed the cluster, or the cluster is in a queue.
    """
    changed = []
    for existing in cluster.workloads.values():
        helm.require_other(existing)
        queue_changes.require_unqueued(cluster.name, existing)
        scaled = manifests.scaled(existing, tasks)
        if scaled != manifests.scaled(existing, {}):
            changed.append(scaled)
    if changed:
        gangs.scale(client, cluster.namespace, cluster.name, cluster.workloads.values(), tasks)
    for item in changed:
        if not manifests.is_program(item):
            client.apply(paths.path(item, cluster.namespace), item)
    if not changed or cluster.is_elastic:
        return Scaling.IN_PLACE if changed else Scaling.UNCHANGED
    restart.recreate_pods(client, cluster.namespace, cluster.name, changed)
    for item in filter(manifests.is_program, changed):
        program_jobs.replace(client, cluster.namespace, item)
    return Scaling.RESTARTED
