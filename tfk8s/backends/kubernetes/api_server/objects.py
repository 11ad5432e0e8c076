"""Objects in the API server that other commands may create, too."""

from __future__ import annotations

from tfk8s.backends.kubernetes.api_server import errors, paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.render.pods import Object


def create_missing(client: Client, namespace: str, item: Object) -> None:
    """Create an object in a namespace unless it exists."""
    with errors.suppress(409):
        client.send("POST", paths.collection(item["kind"], namespace), body=item)
