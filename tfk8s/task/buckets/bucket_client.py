"""The objects of a bucket, by the XML API of S3 and Cloud Storage, for pods that write and commands that read.

Whoever may write to the bucket may have written anything there, so each answer has a limit. Standard library only:
this file runs in pods.

Sources: GetObject, PutObject, DeleteObject and ListObjectsV2 in the Amazon S3 API Reference; "XML API overview" and
"Simple migration from Amazon S3" in Google's documentation of Cloud Storage. URLs have the name of the bucket in their
path, which each such server takes.
"""

from __future__ import annotations

import http
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple, Protocol
from xml.etree.ElementTree import Element

from tfk8s.core.history.shared import BucketPlace, parse_bucket
from tfk8s.task.buckets.bucket_keys import BucketKeys, Source, aws_url, source_of
from tfk8s.task.buckets.bucket_server import BucketFailure, BucketServer, HttpAnswer, parse_xml, refusal
from tfk8s.task.buckets.bucket_signature import sign

_PAGE = 500  # names of a list
_MOST_OF_LIST, _MOST_OF_REST = 1 << 20, 64 << 10  # bytes of an answer: a pod has little memory
DEFAULT_REGIONS = {"s3": "us-east-1", "gs": "auto"}
_REGION = re.compile(r"[a-z0-9-]{1,40}")
_MOVED = (301, 307, 400)


class ListedObject(NamedTuple):
    """An object in a list.

    Attributes:
        name: without the prefix of the history.
        size: in bytes.
        changed: the time in seconds since the epoch.
        tag: differs after each change of the content.
    """

    name: str
    size: int
    changed: float
    tag: str = ""


class ListedPage(NamedTuple):
    """A part of a list.

    Attributes:
        objects: in the order of their names.
        more: asks for the next part; "" if this is the last one.
    """

    objects: list[ListedObject]
    more: str


class BucketRefusal(BucketFailure):
    """A bucket refuses a request.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


class HttpServer(Protocol):
    """A server that answers requests: `BucketServer` in pods, and another class in commands."""

    host: str

    def send(self, method: str, target: str, headers: Mapping[str, str], content: bytes, most: int) -> HttpAnswer:
        """As of `BucketServer`."""

    def close(self) -> None:
        """As of `BucketServer`."""


class BucketClient:
    """Reads and writes the objects of a history, below the prefix of its place.

    Args:
        place: the bucket.
        endpoint: the URL of the server, perhaps with a path; "" is that of the bucket's provider.
        keys: returns what a request is signed with.
        region: the bucket's. Of S3 itself, an answer tells another one.
        serve: makes the server of a URL.
    """

    def __init__(
        self, place: BucketPlace, endpoint: str, keys: Source, region: str,
        serve: Callable[[str], HttpServer] = BucketServer,
    ) -> None:  # fmt: skip
        self._place, self._endpoint, self._keys, self._serve = place, endpoint, keys, serve
        self._region = region
        self._server = serve(endpoint or home(place.scheme, region))
        self._root = urllib.parse.urlsplit(endpoint).path.rstrip("/")

    def get(self, name: str, most: int, *, is_cut: bool = False) -> bytes | None:
        """Return the content of an object; None if there is none.

        Args:
            most: the greatest number of bytes.
            is_cut: return the first bytes of a larger object.

        Raises:
            OSError, HTTPException, ValueError: the object can't be read, or is too large.
        """
        answer = self._ask("GET", name, most=most, is_cut=is_cut)
        if answer.status == http.HTTPStatus.NOT_FOUND:
            return None
        return self._accepted("GET", name, answer).body[:most]

    def put(self, name: str, content: bytes) -> None:
        """Write an object; errors as for `get`."""
        self._accepted("PUT", name, self._ask("PUT", name, content))

    def delete(self, name: str) -> None:
        """Remove an object if there is one; errors as for `get`."""
        answer = self._ask("DELETE", name)
        if answer.status != http.HTTPStatus.NOT_FOUND:
            self._accepted("DELETE", name, answer)

    def list(self, prefix: str, most: int) -> Iterator[ListedObject]:
        """Yield the objects whose names begin so, in the order of their names; errors as for `get`.

        Args:
            most: the greatest number of objects.
        """
        more = ""
        for _ in range(-(-most // _PAGE)):
            objects, more = self.page(prefix, more)
            yield from objects
            if not more:
                return

    def page(self, prefix: str, more: str = "") -> ListedPage:
        """Return a part of that list.

        Args:
            more: what the part before it says; "" for the first part.
        """
        query = {"list-type": "2", "max-keys": str(_PAGE), "prefix": self._place.prefix + prefix}
        if more:
            query["continuation-token"] = more
        answer = self._accepted("GET", prefix, self._ask("GET", None, query=query, most=_MOST_OF_LIST))
        root = parse_xml(answer.body)
        found = (self._listed(item) for item in root.iterfind("{*}Contents"))
        is_last = root.findtext("{*}IsTruncated") != "true"
        return ListedPage(
            [item for item in found if item], "" if is_last else root.findtext("{*}NextContinuationToken") or ""
        )

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        self._server.close()

    def _listed(self, item: Element) -> ListedObject | None:
        name, size, changed = (item.findtext(f"{{*}}{part}") or "" for part in ("Key", "Size", "LastModified"))
        if not name.startswith(self._place.prefix) or not re.fullmatch("[0-9]{1,15}", size):
            return None
        try:
            moment = datetime.fromisoformat(changed).timestamp()
        except ValueError:
            return None
        return ListedObject(name.removeprefix(self._place.prefix), int(size), moment, item.findtext("{*}ETag") or "")

    def _ask(
        self, method: str, name: str | None, content: bytes = b"", *, query: Mapping[str, str] | None = None,
        most: int = _MOST_OF_REST, is_cut: bool = False,
    ) -> HttpAnswer:  # fmt: skip
        path = f"{self._root}/{self._place.name}" + ("" if name is None else f"/{self._place.prefix}{name}")
        target = urllib.parse.quote(path, safe="/-_.~")
        if query:
            target += "?" + urllib.parse.urlencode(sorted(query.items()), quote_via=urllib.parse.quote, safe="-_.~")
        answer = self._send(method, target, content, most)
        if answer.status in _MOVED and self._moves(answer.headers.get("x-amz-bucket-region", "")):
            answer = self._send(method, target, content, most)
        if answer.status == http.HTTPStatus.OK and len(answer.body) > most and not is_cut:
            raise BucketFailure(f"the answer of {self._server.host} has more than {most:,} bytes")
        return answer

    def _send(self, method: str, target: str, content: bytes, most: int) -> HttpAnswer:
        headers = sign(self._keys(), self._region, method, self._server.host, target, content, time.time())
        return self._server.send(method, target, headers, content, most)

    def _moves(self, region: str) -> bool:
        """Take another region of S3 itself; return whether there is one."""
        if self._endpoint or self._place.scheme != "s3" or region == self._region or not _REGION.fullmatch(region):
            return False
        self.close()
        self._region, self._server = region, self._serve(home("s3", region))
        return True

    def _accepted(self, method: str, name: str, answer: HttpAnswer) -> HttpAnswer:
        if answer.status not in (http.HTTPStatus.OK, http.HTTPStatus.NO_CONTENT):
            words = refusal(answer.status, answer.body)
            scheme, bucket, prefix = self._place
            raise BucketRefusal(f"{method} {scheme}://{bucket}/{prefix}{name}: {words}", answer.status)
        return answer


def home(scheme: str, region: str) -> str:
    """Return the URL of a provider's own server."""
    if scheme == "gs":
        return "https://storage.googleapis.com"
    return aws_url("s3", region)


def of_environment(environment: Mapping[str, str]) -> BucketClient:
    """Return the client of the bucket that the variables of the Job's pod name."""
    place = parse_bucket(environment["TFK8S_BUCKET"])
    told = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""
    region = told.strip() if _REGION.fullmatch(told.strip()) else DEFAULT_REGIONS[place.scheme]
    keys = BucketKeys(source_of(environment, place.scheme, region))
    return BucketClient(place, environment.get("TFK8S_ENDPOINT", ""), keys.get, region)
