"""Brings records of a shared history in a bucket into this user's own.

Whoever may write to the bucket may have written anything there, and its server may answer anything. So names are
matched, lists are read page by page, and of each object at most the bytes that its kind may have.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from tfk8s import concurrency, polling
from tfk8s.backends.history import bucket_access, bucket_errors, index
from tfk8s.backends.history.merging import Merger, Pulled
from tfk8s.core.history import facts, records
from tfk8s.core.history.records import MAX_EVENTS, MAX_FACTS, MAX_LOG, MAX_PARTS, MAX_RECORD, MAX_RECORDS, SharedRecord
from tfk8s.core.history.shared import (
    EVENTS,
    FACTS,
    FOLDER,
    INDEX,
    is_log,
    marked_record,
    parse_bucket,
    parse_record_name,
)
from tfk8s.errors import InvalidInput, quoted
from tfk8s.task.buckets.bucket_client import BucketClient, BucketRefusal, ListedPage

TIMEOUT = 60.0  # seconds without a byte
_LONGEST = 600.0  # seconds of a list, or of requests that are made together
_MOST_PAGES = 40  # of 500 names each, of all records
_AT_ONCE = 8  # requests, each on a connection of its own
_TOGETHER = 32  # markers
_MAX_MARKER = 1 << 20  # bytes
_GROWTH = 4 << 10  # bytes of a marker that a pod adds after the list
_BATCH = 8 << 20  # bytes of records that are read together
_LIMITS = {FACTS: MAX_FACTS, EVENTS: MAX_EVENTS}  # bytes of parts, besides logs
T = TypeVar("T")


class _Marker(NamedTuple):
    name: str
    mark: str  # differs after each change
    size: int


class _Told(NamedTuple):
    record: str
    mark: str
    sizes: dict[str, int]  # of the parts that are to be read
    problem: str


class HistoryBucket:
    """A bucket with a history.

    Args:
        url: s3://NAME/PREFIX or gs://NAME/PREFIX.
        endpoint: the URL of the server of an s3:// bucket; None is what AWS' tools use.

    Raises:
        InvalidInput: the URL names no bucket, or a package is missing.
        ClusterError: there are no credentials.
    """

    def __init__(self, url: str, endpoint: str | None) -> None:
        try:
            place = parse_bucket(url)
        except ValueError:
            raise InvalidInput(
                f"{quoted(url)} is not a bucket", help="write s3://NAME/PREFIX or gs://NAME/PREFIX"
            ) from None
        self._url = url
        self._idle: list[BucketClient] = []
        self._closed = threading.Event()
        self._bytes = self._unanswered = 0
        with bucket_errors.one_error(self._url):  # on this thread, whose terminal the packages may use
            self._connect = bucket_access.find(place, endpoint, self._note)

    def close(self) -> None:
        """Close the connections; a request that still runs closes its own."""
        self._closed.set()
        while self._idle:
            self._idle.pop().close()

    def newest(self, cluster: str | None, most: int, result: Pulled) -> Mapping[str, _Marker]:
        """Return the markers of the newest records, by the names of the records.

        Args:
            cluster: only records of clusters of this name; None for all.
            most: the number of records.
            result: gets the number of older ones, as far as the same pages list them.

        Raises:
            ClusterError: the bucket can't be read.
            WaitTimeout: the bucket does not answer in time.
        """
        found: dict[str, _Marker] = {}
        older = 0

        def read() -> str:
            nonlocal older
            more = ""
            for _ in range(_MOST_PAGES):
                before, (page, more) = more, self._page(more)
                for listed in page:
                    record = marked_record(listed.name)
                    if record is None or record in found or cluster not in (None, (parse_record_name(record) or "")[0]):
                        continue
                    if len(found) < most:
                        state = hashlib.sha256(f"{listed.tag} {listed.changed}".encode()).hexdigest()
                        found[record] = _Marker(listed.name, state[:16], min(listed.size, _MAX_MARKER))
                    else:
                        older += 1
                if more in ("", before) or len(found) >= most:
                    break
            return more

        result.has_more = bool(self._run(read))
        result.older += older
        return found

    def records(self, wanted: Mapping[str, _Marker], result: Pulled) -> Iterator[SharedRecord]:
        """Yield records, until they are too large together.

        Args:
            wanted: the markers, by the names of the records.
            result: gets the number of records that are left out.

        Raises:
            ClusterError: the bucket can't be read.
            WaitTimeout: the bucket does not answer in time.
        """
        left, batch, size = MAX_RECORDS, list[_Told](), 0
        for number, told in enumerate(self._told(wanted)):
            own = sum(told.sizes.values())
            left -= own + wanted[told.record].size
            if left < 0:
                result.left_out += len(wanted) - number
                break
            if size + own > _BATCH:
                yield from self._records(batch)
                batch, size = [], 0
            batch.append(told)
            size += own
        yield from self._records(batch)

    def _told(self, wanted: Mapping[str, _Marker]) -> Iterator[_Told]:
        """Yield what the markers of records tell."""
        names = list(wanted)
        for start in range(0, len(names), _TOGETHER):
            some = names[start : start + _TOGETHER]
            markers = self._read([(wanted[name].name, wanted[name].size + _GROWTH) for name in some])
            for name, marker in zip(some, markers, strict=True):
                yield _Told(name, wanted[name].mark, *_parts(marker))

    def _records(self, batch: Sequence[_Told]) -> Iterator[SharedRecord]:
        parts = [(f"{FOLDER}/{told.record}/{part}", size) for told in batch for part, size in told.sizes.items()]
        read = iter(self._read(parts))
        for told in batch:
            contents, problem, mark = dict[str, bytes](), told.problem, told.mark
            for part, content in zip(told.sizes, read, strict=False):
                if isinstance(content, bytes):
                    contents[part] = gzip.compress(content, 1) if part in _LIMITS else content
                else:
                    problem = f"lacks {part}: {bucket_errors.words(content)}"
                    mark = ""  # the same command later asks again
            cluster, uid = parse_record_name(told.record) or ("", "")
            record = SharedRecord(cluster=cluster, uid=uid, mark=mark, problem=problem)
            yield records.with_contents(record, contents)

    def _page(self, more: str) -> ListedPage:
        with self._client() as client:
            return client.page(f"{INDEX}/", more)

    def _read(self, wanted: Sequence[tuple[str, int]]) -> list[bytes | Exception]:
        """Return the contents of objects, by their names at most so many bytes; or why one can't be read."""
        return self._run(lambda: concurrency.map_parallel(self._content, wanted, _AT_ONCE))

    def _content(self, wanted: tuple[str, int]) -> bytes | Exception:
        name, most = wanted
        with self._client() as client:
            try:
                content = client.get(name, most, is_cut=True)  # the pod may have written more since it wrote the marker
            except BucketRefusal as error:
                return error
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._unanswered += 1
                if self._unanswered > _AT_ONCE:  # so a server that drips bytes does not hold this up for hours
                    raise
                return error
        return FileNotFoundError("it is not there") if content is None else content

    @contextlib.contextmanager
    def _client(self) -> Iterator[BucketClient]:
        """Lend a client to this thread, in a `with`."""
        if self._closed.is_set():
            raise InterruptedError
        try:
            client = self._idle.pop()
        except IndexError:
            client = self._connect()
        try:
            yield client
        finally:
            self._idle.append(client)
            if self._closed.is_set():
                self.close()

    def _note(self, size: int) -> None:
        self._bytes += size

    def _run(self, request: Callable[[], T]) -> T:
        """Return what a function returns, which runs on another thread: this one ends at the limit, or by Ctrl-C."""
        future = Future[T]()
        limit = polling.TimeoutWithoutChange(TIMEOUT)

        def run() -> None:
            try:
                future.set_result(request())
            except Exception as error:
                future.set_exception(error)

        def is_done() -> bool:
            limit.note(self._bytes)
            return future.done()

        threading.Thread(target=run, name="tfk8s-bucket", daemon=True).start()
        with bucket_errors.one_error(self._url):
            what = f"bucket {quoted(self._url)} to answer"
            polling.wait_until(is_done, what, lambda: min(limit(), _LONGEST), announce=True)
            return future.result()


def pull(url: str, endpoint: str | None, *, cluster: str | None, last: int) -> Pulled:
    """Bring the newest records of a bucket into the history of this user.

    Args:
        url, endpoint: as for `HistoryBucket`.
        cluster: only records of clusters of this name; None for all.
        last: the number of records.

    Raises:
        InvalidInput: the URL names no bucket, or a package is missing.
        ClusterError: the bucket can't be read.
        WaitTimeout: the bucket does not answer in time.
    """
    result = Pulled()
    with contextlib.closing(HistoryBucket(url, endpoint)) as bucket, Merger(url, url) as merger:
        index.prune_daily()  # before, so that what is asked for stays
        listed = bucket.newest(cluster, last, result)
        wanted = {name: found for name, found in listed.items() if not merger.has(name, found.mark)}
        result.same = len(listed) - len(wanted)
        for record in bucket.records(wanted, result):
            merger.take_into(record, result)
    return result


def _parts(marker: bytes | Exception) -> tuple[dict[str, int], str]:
    """Return the sizes of a record's parts that are to be read, as its marker tells them; and what is left out."""
    if isinstance(marker, Exception):
        return {}, f"its marker: {bucket_errors.words(marker)}"
    told = facts.parse(marker)
    named = told.get("parts") if told else None
    sizes: dict[str, int] = {}
    for item in named if isinstance(named, list) else ():
        match item:
            case [str(part), int(size)] if size > 0 and (part in _LIMITS or is_log(part)):
                sizes[part] = min(size, _LIMITS.get(part, MAX_LOG))
    kept, total = dict[str, int](), 0
    for part in sorted(sizes, key=lambda part: part not in _LIMITS):
        total += sizes[part]
        if len(kept) < MAX_PARTS and total <= MAX_RECORD:
            kept[part] = sizes[part]
    return kept, records.lacks_logs(len(sizes) - len(kept))
