"""Makes a cluster so, and removes it: server-side apply and deletes, a constant number of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tfk8s import polling
from tfk8s.backends.kubernetes import paths, status
from tfk8s.backends.kubernetes.client import APPLY, Client
from tfk8s.backends.kubernetes.restart import recreate_pods
from tfk8s.core.plan import Change, Plan, compare
from tfk8s.core.spec import Task
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests
from tfk8s.render.pods import Object

FIELD_MANAGER = "tfk8s"
_DELETE_SECONDS = 60.0


def apply(client: Client, namespace: str, name: str, objects: Sequence[Object], *, dry_run: bool = False) -> Plan:
    """Apply the objects and remove those of the cluster that are no longer among them; return what changed.

    Tasks whose pods change are all started anew at once. Where the ClusterSpec changes these are all there are: a
    server can't change its own, and servers with different ones do not work together.

    Raises:
        InvalidInput: an object of that name is another's; nothing was changed.
    """
    before = [client.find(paths.path(made, namespace)) for made in objects]
    for made, found in zip(objects, before, strict=True):
        _require_own(made, found)
    obsolete = _obsolete(client, namespace, name, objects)
    query = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
    after = [client.send("PATCH", paths.path(made, namespace), query, made, APPLY) for made in objects]
    pairs = [*zip(before, after, strict=True), *((old, None) for old in obsolete)]
    restarted = [(old, new) for old, new in pairs if old and new and _template(old) != _template(new)]
    if not dry_run:
        for old in obsolete:
            client.send("DELETE", paths.path(old, namespace))
        if restarted:
            recreate_pods(
                client, namespace, name, [new["metadata"]["labels"][manifests.COMPONENT] for _, new in restarted]
            )
    return Plan(
        name=name,
        changes=tuple(filter(None, (_change(old, new) for old, new in pairs))),
        restarts=tuple(task for old, new in restarted for task in _tasks(old, new)),
    )


def _change(old: Object | None, new: Object | None) -> Change | None:
    thing = old or new
    assert thing is not None
    return compare(thing["kind"], thing["metadata"]["name"], *(one and _content(one) for one in (old, new)))


def _template(made: Object) -> Object | None:
    """Return what a StatefulSet makes its pods of; None for another object."""
    template: Object | None = made["spec"]["template"] if made["kind"] == "StatefulSet" else None
    return template


def _tasks(old: Object, new: Object) -> Iterator[Task]:
    """Yield the tasks that both of a job's StatefulSets have."""
    job = status.container_environment(new)["TFK8S_JOB"]
    return (Task(job, index) for index in range(min(old["spec"]["replicas"], new["spec"]["replicas"])))


def _require_own(made: Object, found: Object | None) -> None:
    """Raise an InvalidInput if an object exists that is another's."""
    if found is None:
        return
    labels = found["metadata"].get("labels", {})
    wanted = made["metadata"]["labels"]
    what = f'{made["kind"]} "{made["metadata"]["name"]}"'
    if any(labels.get(label) != wanted[label] for label in (manifests.NAME, manifests.INSTANCE)):
        owner = (
            f'cluster "{labels.get(manifests.INSTANCE)}"'
            if labels.get(manifests.NAME) == "tfk8s"
            else labels.get(manifests.MANAGED_BY) or "somebody else"
        )
        raise InvalidInput(f"{what} exists already and belongs to {owner}", help="give this cluster another `name`")
    _require_not_helm(found)


def _require_not_helm(found: Object) -> None:
    """Raise an InvalidInput if an object is of a cluster that Helm made; to change that is Helm's."""
    metadata = found["metadata"]
    if metadata["labels"].get(manifests.MANAGED_BY) == "Helm":
        release = metadata.get("annotations", {}).get("meta.helm.sh/release-name", "RELEASE")
        place = f"{release} --namespace {metadata['namespace']}"
        raise InvalidInput(
            f'cluster "{metadata["labels"][manifests.INSTANCE]}" was installed by Helm, as release "{release}"',
            help=f"`helm upgrade {place} …` changes it, `helm uninstall {place}` removes it",
        )


def _obsolete(client: Client, namespace: str, name: str, objects: Sequence[Object]) -> list[Object]:
    """Return the cluster's objects that a job made which is no longer in the job file."""
    kept = {(made["kind"], made["metadata"]["name"]) for made in objects}
    query = paths.of_cluster(name)
    return [
        {**found, "kind": kind}
        for kind in ("StatefulSet", "PodDisruptionBudget")
        for found in client.get(paths.collection(kind, namespace), query)["items"]
        if (kind, found["metadata"]["name"]) not in kept
    ]


def _content(thing: Object) -> Object:
    """Return an object without what the API server keeps in it for itself."""
    metadata = {
        key: value
        for key, value in thing["metadata"].items()
        if key not in ("managedFields", "resourceVersion", "generation", "creationTimestamp")
    }
    return {key: value for key, value in thing.items() if key != "status"} | {"metadata": metadata}


def scale(client: Client, cluster: status.DeployedCluster, tasks: Mapping[str, int]) -> bool:
    """Give jobs so many tasks each, and start all tasks anew; return whether anything changed.

    Raises:
        InvalidInput: Helm made the cluster.
    """
    changed = []
    for component, found in cluster.sets.items():
        _require_not_helm(found)
        made = manifests.scaled(found, tasks)
        if made["spec"] != found["spec"]:
            client.send("PATCH", paths.path(made, cluster.namespace), {"fieldManager": FIELD_MANAGER}, made, APPLY)
            changed.append(component)
    if changed:
        recreate_pods(client, cluster.namespace, cluster.name, changed)
    return bool(changed)


def delete(client: Client, namespace: str, name: str) -> None:
    """Remove all objects of a cluster, and wait until its pods are gone too.

    Raises:
        NoSuchCluster: there is none.
        InvalidInput: Helm made it.
    """
    query = paths.of_cluster(name)
    # Secrets are removed unseen: the right to list them is the right to read all of the namespace.
    seen = (kind for kind in paths.GROUPS if kind != "Secret")
    found = {kind: client.get(paths.collection(kind, namespace), query)["items"] for kind in seen}
    if not any(found.values()):
        raise status.no_such_cluster(client, namespace, name)
    for one in (one for items in found.values() for one in items):
        _require_not_helm(one)
    for kind in paths.GROUPS:
        if kind == "NetworkPolicy":  # the last: it holds as long as a pod runs
            client.send("DELETE", paths.collection("Pod", namespace), query)
            polling.wait_until(
                lambda: not client.get(paths.collection("Pod", namespace), query)["items"],
                f'the pods of "{name}" to end',
                _DELETE_SECONDS,
                announce=True,
            )
        if found.get(kind, True):
            client.send("DELETE", paths.collection(kind, namespace), {**query, "propagationPolicy": "Background"})
