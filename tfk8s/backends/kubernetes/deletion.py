"""Deletes clusters, by deletes of collections, in a constant number of requests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from tfk8s.backends.kubernetes import claims, helm
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import PAGE_SIZE, Client
from tfk8s.backends.kubernetes.claims import DELETE_TIMEOUT
from tfk8s.backends.kubernetes.pods import containers, pod_ends
from tfk8s.backends.kubernetes.workloads import deployed, gangs, lifetime, record_notes
from tfk8s.render import manifests
from tfk8s.render.lifetime import COMPONENT
from tfk8s.render.pods import Object

EndRecord = Callable[[str, Sequence[Object]], None]


def delete(
    client: Client, namespace: str, name: str, *, end_record: EndRecord = lambda *_: None, delete_claims: bool = False
) -> list[str]:
    """Delete all objects of a cluster, and wait until its pods are gone; return the names of the claims that are kept.

    Args:
        name: the cluster's.
        end_record: is called with the name and the cluster's Jobs if the cluster has a record in a shared history.
        delete_claims: delete the claims that `apply` made, too.

    Raises:
        NoSuchCluster: no cluster has that name.
        InvalidInput: Helm installed the cluster.
    """
    query = paths.of_cluster(name)
    # Secrets are deleted without a list: the right to list them is the right to read all of the namespace.
    listed = (kind for kind in paths.GROUPS if kind != "Secret")
    objects = {kind: deployed.items_of(client, kind, namespace, query) for kind in listed}
    found = claims.names(client, namespace, name, is_needed=delete_claims)
    if not any(objects.values()):
        if not (found and delete_claims):
            raise deployed.no_such_cluster(client, namespace, name)
        claims.delete(client, namespace, name, found)
        return []
    for item in itertools.chain(*objects.values()):
        helm.require_other(item)
    if record_notes.is_recorded(objects["Job"]):
        end_record(name, objects["Job"])
    if gangs.is_gang(itertools.chain(*objects.values()), name):
        gangs.delete(client, namespace, name)
    _delete_all(client, namespace, name, objects)
    if found and delete_claims:
        claims.delete(client, namespace, name, found)
    return [] if delete_claims else found


def _delete_all(client: Client, namespace: str, name: str, objects: Mapping[str, Sequence[Object]]) -> None:
    """Delete a cluster's objects. Its limits are kept until nothing is left that costs: this process may be killed.

    Args:
        objects: the cluster's, by kind, without those that are not listed.
    """
    query = paths.of_cluster(name)
    costly = {"labelSelector": f"{query['labelSelector']},{manifests.COMPONENT}!={COMPONENT}"}
    for kind in paths.GROUPS:
        if kind == "PodDisruptionBudget":  # the first without pods
            delete_each(client, namespace, lifetime.with_rights(objects["Job"]))
        if kind == "NetworkPolicy":  # the last, because it isolates the pods until they end
            _delete_pods(client, namespace, name)
        if objects.get(kind, True):
            selected = costly if kind == "Job" else query
            client.send("DELETE", paths.collection(kind, namespace), {**selected, "propagationPolicy": "Background"})


def _delete_pods(client: Client, namespace: str, name: str) -> None:
    """Delete the pods of a cluster, and wait until they are gone.

    Kubelet takes a second and more to remove a program's pod whose containers have ended. Nothing runs in such pods any
    more, so they are deleted without kubelet.
    """
    path, query = paths.collection("Pod", namespace), paths.of_cluster(name)
    requests: list[dict[str, int]] = []
    wait = pod_ends.PodWait(f'the pods of "{name}"', DELETE_TIMEOUT)  # thousands of pods take minutes

    def are_gone() -> bool:
        answer = client.get(path, {**query, "limit": PAGE_SIZE})
        pods = answer["items"]
        wait.note(pods)
        are_all = not answer.get("metadata", {}).get("continue")
        have_ended = pods and are_all and all(map(containers.have_ended, pods))
        options = {"gracePeriodSeconds": 0} if have_ended else pod_ends.AT_ONCE if wait.is_hurried else {}
        if options not in requests and (pods or not requests):
            client.delete_all(path, {**query, **options})
            requests.append(options)
        return not pods

    wait.until_or_hurry(are_gone)


def delete_each(client: Client, namespace: str, objects: Iterable[Object]) -> None:
    """Delete objects, and what they own."""
    for item in objects:
        client.send("DELETE", paths.path(item, namespace), {"propagationPolicy": "Background"})
