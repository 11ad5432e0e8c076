"""Objects in the API server that other commands may create, too."""

from __future__ import annotations

from http import HTTPStatus

from tfk8s.backends.kubernetes.api_server import errors, paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.render.pods import Object


def create_missing(client: Client, namespace: str, item: Object) -> None:
    """Create an object in a namespace unless it exists."""
    with errors.suppress(409):
        client.send("POST", paths.collection(item["kind"], namespace), body=item)


def exists(client: Client, namespace: str, item: Object) -> bool:
    """Return whether an object with data exists. This needs the right to create the object, and sends no data.

    The right to read Secrets would show those of everybody. If the API server refuses to say, the object counts as
    missing.
    """
    try:
        client.send("POST", paths.collection(item["kind"], namespace), {"dryRun": "All"}, {**item, "data": {}})
    except ApiError as error:
        return error.code == HTTPStatus.CONFLICT
    return False
