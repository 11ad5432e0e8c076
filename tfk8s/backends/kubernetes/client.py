"""Requests to the API server, with objects as plain dicts.

The official client reads the kubeconfig, keeps its credentials fresh, and brings the connections; its thousand
generated classes are left aside, since what tfk8s sends is what `manifests` renders.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import urlencode

import kubernetes.client
import urllib3
from kubernetes.client.rest import RESTClientObject

from tfk8s.backends.kubernetes import errors, kubeconfig
from tfk8s.pods import Object

CONNECT_SECONDS = 3.0
READ_SECONDS = 6.0
OLDEST = (1, 28)  # gives a StatefulSet's pods the label apps.kubernetes.io/pod-index

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"

Query = Mapping[str, str | int | bool]


class Client:
    """One API server, as one context of the kubeconfig names it.

    Args:
        context: None is the kubeconfig's current one.

    Attributes:
        context: its name; "in-cluster" in a pod without a kubeconfig.
        namespace: the one that the context names.
    """

    def __init__(self, context: str | None) -> None:
        self.configuration = kubernetes.client.Configuration()
        self.context, self.namespace = kubeconfig.load(context, self.configuration)
        self.configuration.retries = False
        self.configuration.connection_pool_maxsize = 32
        self._pool = RESTClientObject(self.configuration).pool_manager

    def get(self, path: str, query: Query | None = None) -> Object:
        """Return an object, or a list of them."""
        return self.send("GET", path, query)

    def find(self, path: str) -> Object | None:
        """Return an object, or None where there is none."""
        try:
            return self.send("GET", path)
        except errors.ApiError as error:
            if error.code == 404:
                return None
            raise

    def send(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Make a request and return the object in its answer.

        Raises:
            ApiError: the API server refuses.
            ClusterError: it does not answer.
        """
        answer = self._open(method, path, query, body, content_type, READ_SECONDS)
        return cast(Object, json.loads(answer.data))

    def text(self, path: str, query: Query | None = None) -> str:
        """Return a text, such as a log."""
        return self._open("GET", path, query, None, "", READ_SECONDS).data.decode(errors="replace")

    def lines(self, path: str, query: Query | None = None) -> Iterator[str]:
        """Yield the lines of a text while it is written, to its end; a broken connection ends it too."""
        answer = self._open("GET", path, query, None, "", None)
        rest = b""
        try:
            for block in answer.stream(1 << 16):
                *whole, rest = (rest + block).split(b"\n")
                for line in whole:
                    yield line.decode(errors="replace")
        except (urllib3.exceptions.HTTPError, OSError):
            return
        finally:
            answer.close()
        if rest:
            yield rest.decode(errors="replace")

    def headers(self) -> dict[str, str]:
        """Return the headers that say who asks."""
        auth = self.configuration.auth_settings().get("BearerToken")
        return {"authorization": auth["value"]} if auth and auth["value"] else {}

    def _open(
        self, method: str, path: str, query: Query | None, body: Object | None, content_type: str, seconds: float | None
    ) -> urllib3.BaseHTTPResponse:
        url = self.url(path, query)
        headers = self.headers()
        if body is not None:
            headers["content-type"] = content_type
        try:
            answer = self._pool.request(
                method,
                url,
                headers=headers,
                body=None if body is None else json.dumps(body),
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds),
                preload_content=False,
            )
            if answer.status < 400:
                return answer
            data = answer.data
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise errors.unreachable(error, self.context, self.configuration.host) from error
        raise errors.refused(answer.status, data, self.context)

    def url(self, path: str, query: Query | None = None) -> str:
        """Return the address of a path on the API server."""
        words = {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (query or {}).items()
        }
        return f"{self.configuration.host}{path}" + (f"?{urlencode(words)}" if words else "")

    def require_version(self) -> None:
        """Raise a ClusterError if the API server is too old."""
        version = self.get("/version")
        numbers = tuple(int("".join(filter(str.isdigit, version.get(part, "0"))) or 0) for part in ("major", "minor"))
        if numbers < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise errors.ApiError(
                0,
                f'context "{self.context}" runs Kubernetes {version.get("gitVersion")}; tfk8s needs {oldest} or newer',
            )
