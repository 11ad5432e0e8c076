"""Makes a cluster so, and removes it: server-side apply and deletes, a constant number of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfk8s import manifests, waiting
from tfk8s.backends.kubernetes import observe, paths
from tfk8s.backends.kubernetes.client import APPLY, Client
from tfk8s.errors import InvalidInput
from tfk8s.pods import Object

FIELD_MANAGER = "tfk8s"
_DELETE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Change:
    """What applying an object does, or did.

    Attributes:
        kind, name: which object.
        before: as it was, or None.
        after: as it is then, or None.
    """

    kind: str
    name: str
    before: Object | None
    after: Object | None


def apply(
    client: Client, namespace: str, name: str, objects: Sequence[Object], *, dry_run: bool = False
) -> list[Change]:
    """Apply the objects and remove those of the cluster that are no longer among them; return what changed.

    Pods whose ClusterSpec changed are all started anew at once: a server can't change its own, and servers with
    different ones do not work together.

    Raises:
        InvalidInput: an object of that name is another's; nothing was changed.
    """
    before = [client.find(paths.path(made, namespace)) for made in objects]
    for made, found in zip(objects, before, strict=True):
        _require_own(made, found)
    obsolete = _obsolete(client, namespace, name, objects)
    query = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
    after = [client.send("PATCH", paths.path(made, namespace), query, made, APPLY) for made in objects]
    for old in () if dry_run else obsolete:
        client.send("DELETE", paths.path(old, namespace))
    changes = [
        Change(made["kind"], made["metadata"]["name"], old, new)
        for made, old, new in zip(objects, before, after, strict=True)
        if old is None or _content(old) != _content(new)
    ]
    restarted = [change for change in changes if _cluster_spec(change.before) != _cluster_spec(change.after)]
    if not dry_run and any(change.before for change in restarted):
        restart(client, namespace, manifests.selector(name))
    return changes + [Change(old["kind"], old["metadata"]["name"], old, None) for old in obsolete]


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
    _require_not_helm(found, what)


def _require_not_helm(found: Object, what: str) -> None:
    if found["metadata"]["labels"].get(manifests.MANAGED_BY) == "Helm":
        release = found["metadata"].get("annotations", {}).get("meta.helm.sh/release-name", "RELEASE")
        raise InvalidInput(
            f"{what} was installed by Helm", help=f"helm uninstall {release}, or helm upgrade {release} to change it"
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


def _cluster_spec(made: Object | None) -> tuple[str | None, ...] | None:
    """Return what of a StatefulSet decides how all tasks see the cluster; None for another object."""
    if made is None or made["kind"] != "StatefulSet":
        return None
    environment = observe.container_environment(made)
    return tuple(environment.get(name) for name in ("TFK8S_NAME", "TFK8S_JOBS", "TFK8S_PORT"))


def restart(client: Client, namespace: str, labels: dict[str, str]) -> None:
    """Delete the tasks' pods that have these labels, so that their StatefulSets make new ones."""
    query = paths.labelled(labels)
    query["labelSelector"] += f",{manifests.COMPONENT}!={manifests.SCRIPT}"
    client.send("DELETE", paths.collection("Pod", namespace), query)


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
        raise observe.no_such_cluster(client, namespace, name)
    for kind, items in found.items():
        for one in items:
            _require_not_helm(one, f'{kind} "{one["metadata"]["name"]}"')
    for kind in paths.GROUPS:
        if kind == "NetworkPolicy":  # the last: it holds as long as a pod runs
            client.send("DELETE", paths.collection("Pod", namespace), query)
            waiting.wait_until(
                lambda: not client.get(paths.collection("Pod", namespace), query)["items"],
                f'the pods of "{name}" to end',
                _DELETE_SECONDS,
            )
        if found.get(kind, True):
            client.send("DELETE", paths.collection(kind, namespace), {**query, "propagationPolicy": "Background"})
