"""What happened to a cluster's objects and pods, as the namespace's events tell."""

from __future__ import annotations

from collections.abc import Iterator

from tfk8s import events
from tfk8s.backends.kubernetes import observe, paths
from tfk8s.backends.kubernetes.client import Client
from tfk8s.backends.kubernetes.watch import Watch
from tfk8s.errors import NoSuchCluster
from tfk8s.events import Event
from tfk8s.pods import Object


def read(client: Client, cluster: observe.Cluster, *, follow: bool) -> Iterator[Event]:
    """Yield a cluster's events in the order of time; then, with `follow`, each new one until the cluster is gone."""
    path = paths.collection("Event", cluster.namespace)
    so_far = sorted(_own(cluster, client.get(path)["items"]), key=lambda event: event.time)
    yield from so_far
    if not follow:
        return
    told = {(event.id, event.count) for event in so_far}
    for change in Watch(client, path, {}).changes(lambda: _exists(client, cluster)):
        for event in () if change.gone else _own(cluster, [change.now]):
            if (event.id, event.count) not in told:
                told.add((event.id, event.count))
                yield event


def _own(cluster: observe.Cluster, found: list[Object]) -> Iterator[Event]:
    jobs = {component: observe.container_environment(made)["TFK8S_JOB"] for component, made in cluster.sets.items()}
    for event in found:
        thing = event["involvedObject"]
        if about := events.about(thing["kind"], thing.get("name", ""), cluster.name, jobs):
            yield events.read(event, about)


def _exists(client: Client, cluster: observe.Cluster) -> bool:
    try:
        observe.find(client, cluster.namespace, cluster.name)
    except NoSuchCluster:
        return False
    return True
