"""The API server through the official client: what the tests on a real cluster check tfk8s with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import urllib3
from kubernetes import config
from kubernetes.client import ApiException, Configuration
from kubernetes.client.api_client import ApiClient

APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


class KubeApi:
    """The API server of the kubeconfig's current context, with objects as plain dicts.

    Attributes:
        context: the context's name.
        configuration: the official client's.
    """

    def __init__(self) -> None:
        self.context: str = config.list_kube_config_contexts()[1]["name"]
        self.configuration = Configuration()
        config.load_kube_config(context=self.context, client_configuration=self.configuration)
        self.configuration.retries = urllib3.Retry(  # some faults restart the API server
            10, backoff_factor=0.1, status_forcelist=(429, 503), allowed_methods=("GET", "PATCH", "DELETE")
        )
        self.url: str = self.configuration.host
        self._client = ApiClient(self.configuration)

    def request(
        self, method: str, path: str, query: Mapping[str, object] | None = None, body: object = None,
        content_type: str = "application/json",
    ) -> Any:  # fmt: skip
        """Return the response to a request, whatever its status."""
        headers = {"Accept": "application/json", "Content-Type": content_type}
        request = self._client.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        response = self._client.call_api(*request)
        response.read()
        return response

    def text(self, path: str) -> str:
        """Return a text, such as a log."""
        return self._checked("GET", path).decode()

    def send(self, method: str, path: str, *arguments: Any, **options: Any) -> Any:
        """Return the object in the answer to a request; deleting what is gone is no failure."""
        try:
            return json.loads(self._checked(method, path, *arguments, **options))
        except ApiException as error:
            if (method, error.status) == ("DELETE", 404):
                return {}
            raise

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """Return an object, or a list of them."""
        return self.send("GET", path, query)

    def find(self, path: str, query: Any = None) -> Any:
        """Return an object or a list, or None."""
        try:
            return self.get(path, query)
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def _checked(self, *arguments: Any, **options: Any) -> bytes:
        response = self.request(*arguments, **options)
        if response.status >= 400:
            raise ApiException.from_response(http_resp=response, body=response.data.decode(), data=None)
        return bytes(response.data)


def post_event(client: KubeApi, pod: Mapping[str, Any], reason: str, message: str) -> None:
    """Create an event of a pod, as an autoscaler does."""
    metadata = pod["metadata"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {
        "apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": reason, "message": message,
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod",
            **{key: metadata[key] for key in ("name", "namespace", "uid")},
        },
        "source": {"component": "cluster-autoscaler"}, "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    }  # fmt: skip
    client.send("POST", f"/api/v1/namespaces/{metadata['namespace']}/events", body=body)
