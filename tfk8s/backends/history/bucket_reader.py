"""Brings records of a shared history in a bucket into this user's own, with fsspec's packages and their credentials.

Whoever may write to the bucket may have written anything there. So names are matched, lists are read page by page, and
of each object at most the bytes that its kind may have. An underscore of fsspec marks a coroutine, not a private name.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import importlib
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tfk8s import polling
from tfk8s.backends.history import index
from tfk8s.backends.history.merging import Merger, Pulled
from tfk8s.core.history import facts, records
from tfk8s.core.history.records import MAX_EVENTS, MAX_FACTS, MAX_LOG, MAX_PARTS, MAX_RECORD, MAX_RECORDS, SharedRecord
from tfk8s.core.history.shared import (
    EVENTS,
    FACTS,
    FOLDER,
    INDEX,
    BucketPlace,
    is_log,
    marked_record,
    parse_bucket,
    parse_record_name,
)
from tfk8s.errors import ClusterError, InvalidInput, Tfk8sError, quoted

TIMEOUT = 60.0  # seconds of a request with its repetitions, or of those that are made together
_PAGE = 1000  # names of a list
_MOST_PAGES = 20  # of all records
_TOGETHER = 100  # markers
_MAX_MARKER = 1 << 20  # bytes
_BATCH = 8 << 20  # bytes of records that are read together
_MAX_WORDS = 300  # characters of an error of others
_LIMITS = {FACTS: MAX_FACTS, EVENTS: MAX_EVENTS}  # bytes of parts, besides logs
_MODULES = {"s3": "s3fs", "gs": "gcsfs.core"}  # `gcsfs` first asks by gRPC whether the bucket is zonal
_ADVICE = {
    "s3": "the credentials of AWS' tools count: aws sts get-caller-identity",
    "gs": "the credentials of gcloud count: gcloud auth application-default login",
}
MISSING_HELP = "pip install 'tfk8s[buckets]'"


class _Listed(NamedTuple):
    name: str
    state: str  # differs after each change of the object


class _Told(NamedTuple):
    record: str
    mark: str
    sizes: dict[str, int]  # of the parts that are to be read
    problem: str


_Page = tuple[list[_Listed], str | None]  # and the token of the next one


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
            self._place = parse_bucket(url)
        except ValueError:
            raise InvalidInput(
                f"{quoted(url)} is not a bucket", help="write s3://NAME/PREFIX or gs://NAME/PREFIX"
            ) from None
        self._url = url
        with self._one_error():
            self._files = _file_system(self._place, endpoint)

    def newest(self, cluster: str | None, most: int, result: Pulled) -> Mapping[str, tuple[str, str]]:
        """Return the markers of the newest records and their marks, by the names of the records.

        Args:
            cluster: only records of clusters of this name; None for all.
            most: the number of records.
            result: gets the number of older ones, as far as the same pages list them.

        Raises:
            ClusterError: the bucket can't be read.
            WaitTimeout: the bucket does not answer in time.
        """
        found: dict[str, tuple[str, str]] = {}
        more: str | None = None
        for _ in range(_MOST_PAGES):
            page, more = self._run(_PAGES[self._place.scheme](self._files, self._place, f"{INDEX}/", more))
            for listed in page:
                record = marked_record(listed.name.removeprefix(self._place.prefix))
                if record is None or record in found or cluster not in (None, (parse_record_name(record) or "")[0]):
                    continue
                if len(found) < most:
                    found[record] = listed.name, hashlib.sha256(listed.state.encode()).hexdigest()[:16]
                else:
                    result.older += 1
            if not more or len(found) >= most:
                break
        result.has_more = bool(more)
        return found

    def records(self, wanted: Mapping[str, tuple[str, str]], result: Pulled) -> Iterator[SharedRecord]:
        """Yield records, until they are too large together.

        Args:
            wanted: the markers and marks, by the names of the records.
            result: gets the number of records that are left out.

        Raises:
            ClusterError: the bucket can't be read.
            WaitTimeout: the bucket does not answer in time.
        """
        left, batch, size = MAX_RECORDS, list[_Told](), 0
        for number, told in enumerate(self._told(wanted)):
            own = sum(told.sizes.values())
            left -= own
            if left < 0:
                result.left_out = len(wanted) - number
                break
            if size + own > _BATCH:
                yield from self._records(batch)
                batch, size = [], 0
            batch.append(told)
            size += own
        yield from self._records(batch)

    def _told(self, wanted: Mapping[str, tuple[str, str]]) -> Iterator[_Told]:
        """Yield what the markers of records tell."""
        names = list(wanted)
        for start in range(0, len(names), _TOGETHER):
            some = names[start : start + _TOGETHER]
            markers = self._read([wanted[name][0] for name in some], [_MAX_MARKER] * len(some))
            for name, marker in zip(some, markers, strict=True):
                yield _Told(name, wanted[name][1], *_parts(marker))

    def _records(self, batch: Sequence[_Told]) -> Iterator[SharedRecord]:
        prefix = f"{self._place.prefix}{FOLDER}"
        parts = [(f"{prefix}/{told.record}/{part}", size) for told in batch for part, size in told.sizes.items()]
        read = iter(self._read([name for name, _ in parts], [size for _, size in parts]))
        for told in batch:
            contents, problem, mark = dict[str, bytes](), told.problem, told.mark
            for part, content in zip(told.sizes, read, strict=False):
                if isinstance(content, bytes):
                    contents[part] = gzip.compress(content, 1) if part in _LIMITS else content
                else:
                    problem, mark = f"lacks {part}: {_words(content)}", ""  # the same command later asks again
            cluster, uid = parse_record_name(told.record) or ("", "")
            record = SharedRecord(cluster=cluster, uid=uid, mark=mark, problem=problem)
            yield records.with_contents(record, contents)

    def _read(self, names: Sequence[str], sizes: Sequence[int]) -> list[bytes | BaseException]:
        """Return the contents of objects, at most so many bytes of each; or why one can't be read."""
        if not names:
            return []
        paths = [f"{self._place.name}/{name}" for name in names]
        read: list[bytes | BaseException] = self._run(self._files._cat_ranges(paths, [0] * len(paths), list(sizes)))
        return read

    def _run(self, request: Coroutine[Any, Any, Any]) -> Any:
        """Return what a coroutine returns, which the thread of fsspec runs."""
        future = asyncio.run_coroutine_threadsafe(request, self._files.loop)
        try:
            with self._one_error():
                polling.wait_until(future.done, f'bucket "{self._url}" to answer', TIMEOUT, announce=True)
                return future.result()
        finally:
            future.cancel()

    @contextlib.contextmanager
    def _one_error(self) -> Iterator[None]:
        """Turn the errors of fsspec's packages, and of those below, into a ClusterError, in a `with`."""
        try:
            yield
        except Tfk8sError:
            raise
        except Exception as error:
            help_ = _ADVICE[self._place.scheme]
            raise ClusterError(f'bucket "{self._url}" can\'t be read: {_words(error)}', help=help_) from error


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
    bucket, result = HistoryBucket(url, endpoint), Pulled()
    with Merger(url, url) as merger:
        index.prune_daily()  # before, so that what is asked for stays
        listed = bucket.newest(cluster, last, result)
        wanted = {name: found for name, found in listed.items() if not merger.has(name, found[1])}
        result.same = len(listed) - len(wanted)
        for record in bucket.records(wanted, result):
            merger.take_into(record, result)
    return result


def _file_system(place: BucketPlace, endpoint: str | None) -> Any:
    """Return the file system of fsspec, without the lists that it remembers.

    Raises:
        InvalidInput: its package is missing.
    """
    name = _MODULES[place.scheme]
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise InvalidInput(f"a history in a bucket needs {package}", help=MISSING_HELP) from error
    if place.scheme == "gs":
        return module.GCSFileSystem(access="read_only", use_listings_cache=False, skip_instance_cache=True)
    config = {"connect_timeout": 10, "read_timeout": 20, "retries": {"max_attempts": 2}}
    more = {"endpoint_url": endpoint} if endpoint else {}
    return module.S3FileSystem(use_listings_cache=False, skip_instance_cache=True, config_kwargs=config, **more)


async def _page_of_s3(files: Any, place: BucketPlace, prefix: str, more: str | None) -> _Page:
    options = {"ContinuationToken": more} if more else {}
    answer = await files._call_s3(
        "list_objects_v2", Bucket=place.name, Prefix=place.prefix + prefix, MaxKeys=_PAGE, **options
    )
    found = answer.get("Contents", ())
    return [_Listed(item["Key"], f"{item['ETag']} {item['LastModified']}") for item in found], answer.get(
        "NextContinuationToken"
    )


async def _page_of_gs(files: Any, place: BucketPlace, prefix: str, more: str | None) -> _Page:
    answer = await files._call(
        "GET", "b/{}/o", place.name, prefix=place.prefix + prefix, maxResults=_PAGE, pageToken=more, json_out=True
    )
    found = answer.get("items", ())
    return [_Listed(item["name"], str(item["generation"])) for item in found], answer.get("nextPageToken")


_PAGES = {"s3": _page_of_s3, "gs": _page_of_gs}


def _parts(marker: bytes | BaseException) -> tuple[dict[str, int], str]:
    """Return the sizes of a record's parts that are to be read, as its marker tells them; and what is left out."""
    told = facts.parse(marker) if isinstance(marker, bytes) else None
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
    lacks = len(sizes) - len(kept)
    return kept, f"lacks {lacks} logs: it is too large" if lacks else ""


def _words(error: BaseException) -> str:
    text = str(error).partition("\n")[0] or type(error).__name__
    return "".join(char if char.isprintable() else "?" for char in text[:_MAX_WORDS])
