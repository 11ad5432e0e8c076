"""A history in a bucket that others may write, read by commands."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import os
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import fsspec.asyn
import pytest
from fakes.lying_server import LyingServer, text
from moto_bucket import KEYS, make_bucket, moto_server

import tfk8s
from tests.unit.task.lifetime.test_observed import pod
from tests.unit.task.lifetime.test_record_writer import CREATED, OBJECTS, RecordedCluster, verb
from tfk8s.backends.history import bucket_reader, files
from tfk8s.core.history.records import MAX_RECORD
from tfk8s.core.history.shared import FOLDER, marker_name, to_notes
from tfk8s.errors import ClusterError, InvalidInput, WaitTimeout
from tfk8s.features.history.here import Past
from tfk8s.task.buckets import bucket_client
from tfk8s.task.lifetime.record.record_mirror import RecordMirror
from tfk8s.task.lifetime.record.record_writer import RecordWriter

pytest_plugins = ("fakes.lying_server",)
URL = "s3://team/past"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


class PretendedFiles:
    """What the reader asks of fsspec's packages: lists of 1,000 names, and the begins of objects."""

    def __init__(self) -> None:
        self.loop = fsspec.asyn.get_loop()
        self.objects: dict[str, bytes] = {}
        self.lists, self.reads = 0, list[str]()
        self.damaged, self.hangs = set[str](), False
        self.error: Exception | None = None
        self.options: dict[str, Any] = {}

    def __call__(self, **options: Any) -> PretendedFiles:
        self.options = options
        return self

    async def _page(self, prefix: str, start: str) -> tuple[list[str], str | None]:
        self.lists += 1
        if self.error:
            raise self.error
        if self.hangs:
            await asyncio.sleep(60)
        names = [name for name in sorted(self.objects) if name.startswith(prefix) and name > start]
        return names[:1000], names[999] if len(names) > 1000 else None

    async def _call_s3(self, method: str, *, Bucket: str, Prefix: str, MaxKeys: int, **more: str) -> dict[str, Any]:  # noqa: N803
        assert (method, Bucket, MaxKeys) == ("list_objects_v2", "team", 1000)
        names, token = await self._page(Prefix, more.get("ContinuationToken", ""))
        listed = [{"Key": name, "ETag": str(hash(self.objects[name])), "LastModified": "x"} for name in names]
        return {"Contents": listed} | ({"NextContinuationToken": token} if token else {})

    async def _call(self, method: str, path: str, bucket: str, *, pageToken: str | None, **more: Any) -> dict[str, Any]:  # noqa: N803
        assert (method, path, bucket, more["maxResults"], more["json_out"]) == ("GET", "b/{}/o", "team", 1000, True)
        names, token = await self._page(more["prefix"], pageToken or "")
        items = [{"name": name, "generation": str(hash(self.objects[name]))} for name in names]
        return {"items": items} | ({"nextPageToken": token} if token else {})

    async def _cat_ranges(self, paths: list[str], starts: list[int], ends: list[int]) -> list[bytes | Exception]:
        names = [path.removeprefix("team/") for path in paths]
        self.reads += names
        return [
            FileNotFoundError(name) if name not in self.objects or name in self.damaged
            else self.objects[name][start:end]
            for name, start, end in zip(names, starts, ends, strict=True)
        ]  # fmt: skip

    def add(self, number: int, name: str = "mnist", *, sizes: dict[str, int] | None = None, **parts: bytes) -> str:
        """Add a record; return its name."""
        record = f"{name}.{number:08x}-0000-4000-8000-000000000000"
        start = {"kind": "start", "time": 1.7e9 + number, "location": "elsewhere", "who": "ada", "requests": {}}
        contents = {"facts.jsonl": json.dumps(start).encode() + b"\n", **parts}
        told = sizes or {part: len(content) for part, content in contents.items()}
        for part, content in contents.items():
            self.objects[f"past/{FOLDER}/{record}/{part}"] = content
        marker = {"parts": [[part, size] for part, size in told.items()], "state": str(number)}
        self.objects[f"past/{marker_name(record, 1.7e9 + number)}"] = json.dumps(marker).encode()
        return record


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> PretendedFiles:
    import gcsfs.core
    import s3fs

    found = PretendedFiles()
    monkeypatch.setattr(s3fs, "S3FileSystem", found)
    monkeypatch.setattr(gcsfs.core, "GCSFileSystem", found)
    return found


def log(text: str) -> bytes:
    return gzip.compress(text.encode())


@pytest.mark.parametrize("url", [URL, "gs://team/past/"])
def test_the_newest_records_come_first_and_once(bucket: PretendedFiles, url: str) -> None:
    for number in range(5):
        bucket.add(number, **{"logs/worker-0.gz": log(f"2026-11-22T10:17:03.120395Z 0 hello {number}\n")})
    pulled = bucket_reader.pull(url, None, cluster=None, last=2)
    assert (pulled.new, pulled.same, pulled.older, pulled.has_more, pulled.problems) == (2, 0, 3, False, [])
    rows = tfk8s.history()
    assert [row.started for row in rows] == [1.7e9 + 4, 1.7e9 + 3]
    assert {row.location for row in rows} == {url}
    assert [line.text for line in Past("mnist", rows[0].number).logs(["worker/0"])] == ["hello 4"]
    bucket.reads.clear()
    assert bucket_reader.pull(url, None, cluster=None, last=2).same == 2
    assert bucket.reads == []
    bucket.add(4, **{"events.jsonl": b""})
    assert bucket_reader.pull(url, None, cluster=None, last=2).changed == 1


def test_the_first_page_of_ten_thousand_records_takes_few_requests(bucket: PretendedFiles) -> None:
    for number in range(10_000):
        bucket.add(number)
    begin = time.monotonic()
    pulled = bucket_reader.pull(URL, None, cluster=None, last=30)
    assert time.monotonic() - begin < 5
    assert (pulled.new, pulled.older, pulled.has_more) == (30, 970, True)
    assert (bucket.lists, len(bucket.reads)) == (1, 60)


def test_a_name_is_looked_for_in_all_pages(bucket: PretendedFiles) -> None:
    for number in range(2500):
        bucket.add(number, "toy")
    bucket.add(0)
    pulled = bucket_reader.pull(URL, None, cluster="mnist", last=5)
    assert (pulled.new, bucket.lists) == (1, 3)


def test_nothing_is_in_an_empty_bucket(bucket: PretendedFiles) -> None:
    assert bucket_reader.pull(URL, None, cluster=None, last=5).new == 0


@pytest.mark.parametrize(
    "marker",
    [b"", b"[]", b"x" * 100, b"[" * 100_000, b'{"parts": 5}', b'{"parts": [[1, 2], ["a"], ["facts.jsonl", "x"]]}',
     b'{"parts": [["../../other", 5], ["logs/../../x.gz", 5], ["facts.jsonl", -1]]}'],
)  # fmt: skip
def test_a_marker_of_a_wrong_form_is_a_problem_of_its_record(bucket: PretendedFiles, marker: bytes) -> None:
    bad, _ = bucket.add(1), bucket.add(0)
    bucket.objects[f"past/{marker_name(bad, 1.7e9 + 1)}"] = marker
    pulled = bucket_reader.pull(URL, None, cluster=None, last=5)
    assert pulled.new == 1
    (problem,) = pulled.problems
    assert problem.startswith(f"record {bad} is left out: ")
    assert not [name for name in bucket.reads if "other" in name or ".." in name]


def test_a_record_that_is_too_large_loses_logs_and_keeps_no_other_out(bucket: PretendedFiles) -> None:
    sizes = {"facts.jsonl": 1 << 40} | {f"logs/worker-{number}.gz": 1 << 40 for number in range(5000)}
    large, _ = bucket.add(1, sizes=sizes), bucket.add(0)
    pulled = bucket_reader.pull(URL, None, cluster=None, last=5)
    assert (pulled.new, pulled.left_out) == (2, 0)
    assert any(problem.startswith(f"record {large} lacks ") for problem in pulled.problems)


def test_records_that_are_too_large_together_are_left_out(bucket: PretendedFiles) -> None:
    for number in range(6):
        bucket.add(number, sizes={"facts.jsonl": 200} | {f"logs/w-{log}.gz": 2 << 20 for log in range(7)})
        for log in range(7):
            bucket.objects[f"past/{FOLDER}/mnist.{number:08x}-0000-4000-8000-000000000000/logs/w-{log}.gz"] = b""
    assert MAX_RECORD > 7 * (2 << 20)
    pulled = bucket_reader.pull(URL, None, cluster=None, last=6)
    assert (pulled.new, pulled.left_out) == (4, 2)
    assert bucket_reader.pull(URL, None, cluster=None, last=6).new == 2


def test_an_object_that_can_not_be_read_is_asked_for_again(bucket: PretendedFiles) -> None:
    record = bucket.add(0, **{"logs/worker-0.gz": log("2026 0 a\n"), "logs/worker-1.gz": b"no gzip"})
    name = f"past/{FOLDER}/{record}/logs/worker-0.gz"
    bucket.damaged.add(name)
    assert bucket_reader.pull(URL, None, cluster=None, last=5).problems == [
        f"record {record} lacks logs/worker-0.gz: {name}"
    ]
    bucket.damaged.clear()
    assert bucket_reader.pull(URL, None, cluster=None, last=5).changed == 1
    assert list(files.of_name("mnist")[0].logs()) == ["worker-0"]


def test_a_bucket_that_does_not_answer_has_a_limit(bucket: PretendedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_reader, "TIMEOUT", 0.1)
    bucket.hangs = True
    with pytest.raises(WaitTimeout, match=r'waited 0\.1 s for bucket "s3://team/past" to answer'):
        bucket_reader.pull(URL, None, cluster=None, last=5)


def test_an_error_of_others_is_one_line(bucket: PretendedFiles) -> None:
    bucket.error = RuntimeError("no\x1b[2J credentials\nand more")
    with pytest.raises(ClusterError) as caught:
        bucket_reader.pull(URL, None, cluster=None, last=5)
    assert str(caught.value) == 'bucket "s3://team/past" can\'t be read: no?[2J credentials'
    assert caught.value.help == "the credentials of AWS' tools count: aws sts get-caller-identity"


@pytest.mark.parametrize("url", ["", "team", "http://team", "s3://", "s3://../x", "s3://Team", "gs:team", "s3://a b"])
def test_another_url_is_no_bucket(url: str) -> None:
    with pytest.raises(InvalidInput, match="is not a bucket"):
        bucket_reader.pull(url, None, cluster=None, last=5)


@pytest.mark.parametrize(("url", "package"), [("s3://team", "s3fs"), ("gs://team", "gcsfs")])
def test_a_missing_package_has_a_cure(url: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (package, f"{package}.core"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InvalidInput) as caught:
        tfk8s.history(bucket=url)
    assert str(caught.value) == f"a history in a bucket needs {package}"
    assert caught.value.help == "pip install 'tfk8s[buckets]'"


def test_an_endpoint_is_that_of_the_namespace_or_of_the_aws_tools(bucket: PretendedFiles) -> None:
    bucket_reader.pull(URL, "http://minio.example", cluster=None, last=5)
    assert bucket.options["endpoint_url"] == "http://minio.example"
    bucket_reader.pull(URL, None, cluster=None, last=5)
    assert "endpoint_url" not in bucket.options  # AWS_ENDPOINT_URL counts


# ---- a server ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with moto_server() as url:
        make_bucket(url, "team")
        yield url


@pytest.fixture
def written(server: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[RecordedCluster, str], RecordWriter]:
    """Return a writer, as a pod has one, for the bucket of a server."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": server, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)

    def make(cluster: RecordedCluster, volume: str) -> RecordWriter:
        environment = {**KEYS, "TFK8S_SECRET": "keys", "TFK8S_BUCKET": URL, "TFK8S_ENDPOINT": server}
        cluster.volume = home / volume
        copy = RecordMirror(lambda: bucket_client.of_environment(environment), cluster.volume, cluster.said.append)
        return RecordWriter(
            cluster,  # type: ignore[arg-type]
            OBJECTS, cluster.volume, True, cluster.said.append, lambda: cluster.now, copy,
        )  # fmt: skip

    return make


@pytest.mark.programs
def test_what_pods_have_written_is_read(written: Callable[[RecordedCluster, str], RecordWriter], home: Path) -> None:
    cluster = RecordedCluster(home)
    cluster.notes, cluster.pods = to_notes([verb()]), [pod()]
    cluster.logs = {"demo-my-ps-1234-2": ["2026-11-28T05:30:00.1Z one"]}
    written(cluster, "first").step()
    (row,) = tfk8s.history(bucket=URL)
    assert (row.name, row.state, row.location) == ("demo", "open", URL)
    cluster.logs["demo-my-ps-1234-2"].append("2026-11-28T05:30:00.2Z two")
    successor = written(cluster, "second")
    successor.step()
    cluster.now += 100
    cluster.notes |= to_notes([{"kind": "end", "time": cluster.now, "reason": "removed, idle for 1h"}])
    successor.end()
    (row,) = tfk8s.history(bucket=URL)
    assert (row.state, row.reason, row.ended) == ("ended", "removed, idle for 1h", CREATED + 101)
    past = Past("demo", row.number)
    assert [line.text for line in past.logs(["My_ps/2"])] == ["one", "two"]
    assert [command.verb for command in past.read().verbs] == ["up"]
    assert cluster.said == []
    planted = KEYS["AWS_SECRET_ACCESS_KEY"].encode()
    kept = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    assert kept
    assert not [content for content in kept if planted in content]


@pytest.mark.programs
def test_a_bucket_that_is_not_there_is_an_error(written: Callable[[RecordedCluster, str], RecordWriter]) -> None:
    with pytest.raises(ClusterError, match='bucket "s3://nobody" can\'t be read: The specified bucket does not exist'):
        tfk8s.history(bucket="s3://nobody")


def test_cloud_storage_is_asked_by_gcsfs(lying_server: LyingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import gcsfs.core

    objects = PretendedFiles()
    objects.add(0)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        path = urllib.parse.unquote(handler.path.partition("?")[0])
        found = objects.objects.get(path.rpartition("/o/")[2])
        if path.endswith("/b/team/o"):
            items = [{"name": name, "generation": "1"} for name in sorted(objects.objects) if "-index/" in name]
            text(200, json.dumps({"items": items}))(handler)
        else:
            text(404 if found is None else 200, (found or b"").decode())(handler)

    lying_server.answer = answer
    files_of = functools.partial(gcsfs.core.GCSFileSystem, token="anon", endpoint_url=lying_server.url)
    monkeypatch.setattr(gcsfs.core, "GCSFileSystem", files_of)
    pulled = bucket_reader.pull("gs://team/past", None, cluster=None, last=5)
    assert (pulled.new, pulled.problems) == (1, [])
    (listed,) = [path for path in lying_server.asked if "/b/team/o?" in path]
    assert "prefix=past/tfk8s-history-index/" in urllib.parse.unquote(listed)
