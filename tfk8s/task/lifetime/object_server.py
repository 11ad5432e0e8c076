"""The API server's objects for a cluster's own Job. Standard library only: this file runs in pods."""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tfk8s.core.lifetime import RemovableObject

_AUTHORITY = "/var/run/secrets/tfk8s/ca.crt"
TOKEN = "/var/run/secrets/tfk8s/token"  # noqa: S105 - kubelet writes and renews it
_REQUEST_TIMEOUT = 10.0
_PAGE = 50  # objects of a list: a pod may have 30 kB, and this pod has little memory
_MAX_ANSWER = 32 << 20  # bytes
_CONTENT_TYPES = {"PATCH": "application/merge-patch+json"}


class ApiFailure(Exception):
    """The API server refuses a request."""


class NoAnswer(ApiFailure):
    """The API server does not answer, or its answer is cut."""


class TokenRefused(ApiFailure):
    """The API server refuses the token: it has expired, or its ServiceAccount is gone."""


class Forbidden(ApiFailure):
    """The API server knows the ServiceAccount, which lacks the right, or has lost it."""


FAILURES = (ApiFailure, ValueError)  # of a request, and of an answer of another form


_REFUSALS: Mapping[int, type[ApiFailure]] = {401: TokenRefused, 403: Forbidden}


class Answer(NamedTuple):
    """An answer of the API server.

    Attributes:
        body: the object; None if it does not exist.
        time: the API server's time, in seconds since the epoch.
    """

    body: dict[str, Any] | None
    time: float


class ObjectServer:
    """Gets, deletes and patches objects of one namespace, with the credentials of the pod's ServiceAccount."""

    def __init__(self, namespace: str, environment: Mapping[str, str]) -> None:
        self._namespace = namespace
        self._host = environment["KUBERNETES_SERVICE_HOST"]
        self._port = int(environment["KUBERNETES_SERVICE_PORT"])

    def get(self, item: RemovableObject) -> Answer:
        """Return an object.

        Raises:
            ApiFailure: the API server refuses, or does not answer.
        """
        return self._send("GET", item, None)

    def delete(self, item: RemovableObject, uid: str, propagation: str) -> None:
        """Delete an object, unless it is gone or another one has its name.

        Raises:
            ApiFailure: the API server refuses, or does not answer.
        """
        self._send("DELETE", item, {"propagationPolicy": propagation, "preconditions": {"uid": uid}})

    def patch(self, item: RemovableObject, change: dict[str, Any], subresource: str = "") -> bool:
        """Change fields of an object or its subresource (a JSON merge patch); return False if the object is gone.

        Raises:
            ApiFailure: the API server refuses, or does not answer.
        """
        target = item._replace(name=f"{item.name}/{subresource}") if subresource else item
        return self._send("PATCH", target, change).body is not None

    def items(self, resource: str, selector: str = "") -> Iterator[dict[str, Any]]:
        """Yield the objects of a resource of the core group, as `get` raises errors.

        Args:
            resource: such as "pods".
            selector: of labels; "" is all objects.
        """
        query = {"limit": _PAGE} | ({"labelSelector": selector} if selector else {})
        more: dict[str, Any] = {}
        while True:
            path = f"{self._path('v1', resource)}?{urllib.parse.urlencode(query | more)}"
            body = self._answer("GET", path, *self._request("GET", path, None)).body or {}
            yield from body.get("items") or ()
            token = body.get("metadata", {}).get("continue")
            del body  # before the next page is there
            if not token:
                return
            more = {"continue": token}

    def log(self, pod: str, container: str, options: Mapping[str, Any]) -> bytes:
        """Return the log of a container, as kubelet's `options` choose; errors as `get`, also for a pod without a log.

        Args:
            pod, container: their names.
            options: such as `tailLines`.
        """
        query = urllib.parse.urlencode({"container": container, **options})
        path = f"{self._path('v1', 'pods')}/{pod}/log?{query}"
        response, content = self._request("GET", path, None)
        if response.status != http.HTTPStatus.OK:
            raise ApiFailure(f"GET {path}: {response.status}")
        return content

    def _send(self, method: str, item: RemovableObject, body: dict[str, Any] | None) -> Answer:
        path = f"{self._path(item.api, item.resource)}/{item.name}"
        return self._answer(method, path, *self._request(method, path, body))

    def _path(self, api: str, resource: str) -> str:
        return f"/{'apis' if '/' in api else 'api'}/{api}/namespaces/{self._namespace}/{resource}"

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> tuple[http.client.HTTPResponse, bytes]:  # fmt: skip
        try:
            return self._connect(method, path, json.dumps(body) if body else None)
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"{method} {path}: {type(error).__name__}: {error}") from error

    def _connect(self, method: str, path: str, body: str | None) -> tuple[http.client.HTTPResponse, bytes]:
        context = ssl.create_default_context(cafile=_AUTHORITY)
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=_REQUEST_TIMEOUT, context=context)
        with open(TOKEN) as token:
            headers = {
                "authorization": f"Bearer {token.read()}",
                "content-type": _CONTENT_TYPES.get(method, "application/json"),
            }
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response, response.read(_MAX_ANSWER)

    def _answer(self, method: str, path: str, response: http.client.HTTPResponse, content: bytes) -> Answer:
        try:
            answer = json.loads(content)
        except ValueError as error:
            raise NoAnswer(f"{method} {path}: its answer is cut") from error
        moment = email.utils.parsedate_to_datetime(response.headers["date"]).timestamp()
        if response.status == http.HTTPStatus.NOT_FOUND or (method, response.status) == ("DELETE", 409):
            return Answer(None, moment)
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            failure = _REFUSALS.get(response.status, ApiFailure)
            raise failure(f"{method} {path}: {answer.get('message', response.status)}")
        return Answer(answer, moment)
