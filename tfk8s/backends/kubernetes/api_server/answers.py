"""The answers of an API server: of a limited size and time, and objects. A kubeconfig may name any server."""

from __future__ import annotations

import errno
import json
import time
from typing import Any

from tfk8s.backends.kubernetes.api_server import paths, shapes
from tfk8s.backends.kubernetes.api_server.transport import Response
from tfk8s.polling import Clock
from tfk8s.render.pods import Object

MAX_BODY = 256 << 20  # bytes: a page of 250 objects, of which etcd takes 1.5 MiB at most, and small ones mostly
MAX_SECONDS = 60.0
_BLOCK = 1 << 16


def body(response: Response, *, clock: Clock = time.monotonic) -> bytes:
    """Return the body of a response.

    Raises:
        urllib3.exceptions.HTTPError: it was cut off.
        OSError: it is too large or too slow.
    """
    content, end = bytearray(), clock() + MAX_SECONDS
    for block in response.stream(_BLOCK, decode_content=True):
        content += block
        if len(content) > MAX_BODY or clock() > end:
            response.close()
            raise invalid(f"its answer does not end within {MAX_BODY >> 20} MiB and {MAX_SECONDS:.0f} s")
    return bytes(content)


def parse(data: bytes, method: str = "GET", path: str = "") -> Object:
    """Return the object in the answer to a request.

    Raises:
        ValueError: it was cut off.
        OSError: there is no object, or one with fields of other types than those of Kubernetes, or without fields that
            Kubernetes always sends.
    """
    try:
        answer = json.loads(data)
    except RecursionError:
        answer = None
    if not isinstance(answer, dict):
        raise invalid("its answer is no object of Kubernetes")
    if path := _problem(answer, method, paths.resource(path)):
        raise invalid(f"the field {path} in its answer has no value of Kubernetes")
    return answer


def _problem(answer: Object, method: str, resource: paths.Resource | None) -> str:
    """Return the path of the first field that is not as Kubernetes sends it; "" if there is none.

    The answer to a DELETE is the object, a list, or a Status, of which tfk8s reads no more than the metadata.
    """
    if resource is None or method == "DELETE" or not (resource.kind or method == "GET"):
        return shapes.problem({**answer, "status": {}} if answer.get("kind") == "Status" else answer)
    if resource.name or method != "GET":
        if answer.get("kind") in (None, "Status") or resource.kind not in ("", answer["kind"]):
            return "kind"
        return shapes.problem(answer, resource.kind)
    if not is_list(answer):
        return "items"
    if "resourceVersion" not in answer["metadata"]:
        return "metadata.resourceVersion"
    problems = (shapes.problem(item, resource.kind, is_stored=True) for item in answer["items"])
    return shapes.problem(answer) or next(filter(None, problems), "")


def is_list(answer: Object) -> bool:
    """Return whether an answer is a list of objects, which all have metadata."""
    items = answer.get("items")
    return isinstance(items, list) and all(map(_has_metadata, [answer, *items]))


def invalid(reason: str) -> OSError:
    """Return the error for an answer that Kubernetes does not give."""
    return OSError(errno.EBADMSG, reason)


def _has_metadata(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("metadata"), dict)
