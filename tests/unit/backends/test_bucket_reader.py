"""A history in a bucket that others may write, read by commands."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import signal
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import google.auth.exceptions
import pytest
import urllib3
from fakes.lying_server import LyingServer, text
from moto_bucket import KEYS, make_bucket, moto_server

import tfk8s
from tests.unit.task.lifetime.test_observed import pod
from tests.unit.task.lifetime.test_record_writer import CREATED, OBJECTS, RecordedCluster, verb
from tfk8s.backends.history import bucket_reader, bucket_session, files
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
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name, value in {**KEYS, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


class KeptBucket:
    """A bucket by the XML API: lists of 500 names, and objects."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lists, self.reads = 0, list[str]()
        self.damaged = set[str]()

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urllib.parse.urlsplit(handler.path)
        if parts.query:
            self.lists += 1
            text(200, self._page(dict(urllib.parse.parse_qsl(parts.query))))(handler)
            return
        name = urllib.parse.unquote(parts.path.removeprefix("/team/"))
        self.reads.append(name)
        found = None if name in self.damaged else self.objects.get(name)
        handler.send_response(404 if found is None else 200)
        handler.send_header("content-length", str(len(found or b"")))
        handler.end_headers()
        handler.wfile.write(found or b"")

    def _page(self, query: dict[str, str]) -> str:
        start = query.get("continuation-token", "")
        names = [name for name in sorted(self.objects) if name.startswith(query["prefix"]) and name > start]
        tags = [hashlib.sha256(self.objects[name]).hexdigest() for name in names[:500]]
        sizes = [len(self.objects[name]) for name in names[:500]]
        return page(names[:500], names[499] if len(names) > 500 else "", tags, sizes)

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


def page(names: Sequence[str], more: str = "", tags: Sequence[str] = (), sizes: Sequence[int] = ()) -> str:
    """Return a part of a list."""
    items = "".join(
        f"<Contents><Key>{name}</Key><ETag>&quot;{tag}&quot;</ETag><Size>{size}</Size>"
        "<LastModified>2026-11-28T05:29:54.000Z</LastModified></Contents>"
        for name, tag, size in zip(names, tags or ["a"] * len(names), sizes or [5] * len(names), strict=True)
    )
    rest = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    return f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{items}{rest}</ListBucketResult>'


class FakeToken:
    """Credentials of google-auth that are valid."""

    valid, token = True, "ya29"


@pytest.fixture
def bucket(lying_server: LyingServer, monkeypatch: pytest.MonkeyPatch) -> KeptBucket:
    monkeypatch.setenv("AWS_ENDPOINT_URL", lying_server.url)
    monkeypatch.setattr(google.auth, "default", lambda scopes: (FakeToken(), "project"))
    monkeypatch.setattr(bucket_client, "home", lambda scheme, region: lying_server.url)
    lying_server.answer = found = KeptBucket()
    return found


def log(text: str) -> bytes:
    return gzip.compress(text.encode())


@pytest.mark.parametrize("url", [URL, "gs://team/past/"])
def test_the_newest_records_come_first_and_once(bucket: KeptBucket, url: str) -> None:
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


def test_the_first_page_of_ten_thousand_records_takes_few_requests(bucket: KeptBucket) -> None:
    for number in range(10_000):
        bucket.add(number)
    begin = time.monotonic()
    pulled = bucket_reader.pull(URL, None, cluster=None, last=30)
    assert time.monotonic() - begin < 5
    assert (pulled.new, pulled.older, pulled.has_more) == (30, 470, True)
    assert (bucket.lists, len(bucket.reads)) == (1, 60)


def test_a_name_is_looked_for_in_all_pages(bucket: KeptBucket) -> None:
    for number in range(2500):
        bucket.add(number, "toy")
    bucket.add(0)
    pulled = bucket_reader.pull(URL, None, cluster="mnist", last=5)
    assert (pulled.new, bucket.lists) == (1, 6)


def test_nothing_is_in_an_empty_bucket(bucket: KeptBucket) -> None:
    assert bucket_reader.pull(URL, None, cluster=None, last=5).new == 0


@pytest.mark.parametrize(
    "marker",
    [b"", b"[]", b"x" * 100, b"[" * 100_000, b'{"parts": 5}', b'{"parts": [[1, 2], ["a"], ["facts.jsonl", "x"]]}',
     b'{"parts": [["../../other", 5], ["logs/../../x.gz", 5], ["facts.jsonl", -1]]}'],
)  # fmt: skip
def test_a_marker_of_a_wrong_form_is_a_problem_of_its_record(bucket: KeptBucket, marker: bytes) -> None:
    bad, _ = bucket.add(1), bucket.add(0)
    bucket.objects[f"past/{marker_name(bad, 1.7e9 + 1)}"] = marker
    pulled = bucket_reader.pull(URL, None, cluster=None, last=5)
    assert pulled.new == 1
    (problem,) = pulled.problems
    assert problem.startswith(f"record {bad} is left out: ")
    assert not [name for name in bucket.reads if "other" in name or ".." in name]


def test_a_record_that_is_too_large_loses_logs_and_keeps_no_other_out(bucket: KeptBucket) -> None:
    sizes = {"facts.jsonl": 1 << 40} | {f"logs/worker-{number}.gz": 1 << 40 for number in range(5000)}
    large, _ = bucket.add(1, sizes=sizes), bucket.add(0)
    pulled = bucket_reader.pull(URL, None, cluster=None, last=5)
    assert (pulled.new, pulled.left_out) == (2, 0)
    assert any(problem.startswith(f"record {large} lacks ") for problem in pulled.problems)


def test_records_that_are_too_large_together_are_left_out(bucket: KeptBucket) -> None:
    for number in range(6):
        bucket.add(number, sizes={"facts.jsonl": 200} | {f"logs/w-{log}.gz": 2 << 20 for log in range(7)})
        for log in range(7):
            bucket.objects[f"past/{FOLDER}/mnist.{number:08x}-0000-4000-8000-000000000000/logs/w-{log}.gz"] = b""
    assert MAX_RECORD > 7 * (2 << 20)
    pulled = bucket_reader.pull(URL, None, cluster=None, last=6)
    assert (pulled.new, pulled.left_out) == (4, 2)
    assert bucket_reader.pull(URL, None, cluster=None, last=6).new == 2


def test_an_object_that_can_not_be_read_is_asked_for_again(bucket: KeptBucket) -> None:
    record = bucket.add(0, **{"logs/worker-0.gz": log("2026 0 a\n"), "logs/worker-1.gz": b"no gzip"})
    name = f"past/{FOLDER}/{record}/logs/worker-0.gz"
    bucket.damaged.add(name)
    assert bucket_reader.pull(URL, None, cluster=None, last=5).problems == [
        f"record {record} lacks logs/worker-0.gz: it is not there"
    ]
    bucket.damaged.clear()
    assert bucket_reader.pull(URL, None, cluster=None, last=5).changed == 1
    assert list(files.of_name("mnist")[0].logs()) == ["worker-0"]


def test_a_part_that_has_grown_since_its_marker_is_read_as_far_as_told(bucket: KeptBucket) -> None:
    record = bucket.add(0)
    bucket.objects[f"past/{FOLDER}/{record}/facts.jsonl"] += b'{"kind": "end", "time": 1.7e9}\n'
    pulled = bucket_reader.pull(URL, None, cluster=None, last=5)
    assert (pulled.new, pulled.problems) == (1, [])
    assert tfk8s.history()[0].state == "open"


@pytest.mark.parametrize("url", ["", "team", "http://team", "s3://", "s3://../x", "s3://Team", "gs:team", "s3://a b"])
def test_another_url_is_no_bucket(url: str) -> None:
    with pytest.raises(InvalidInput, match="is not a bucket"):
        bucket_reader.pull(url, None, cluster=None, last=5)


@pytest.mark.parametrize(
    ("url", "module", "package"),
    [("s3://team", "botocore.session", "botocore"), ("gs://team", "google.auth", "google-auth")],
)
def test_a_missing_package_has_a_cure(url: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidInput) as caught:
        tfk8s.history(bucket=url)
    assert str(caught.value) == f"a history in a bucket needs {package}"
    assert caught.value.help == "pip install 'tfk8s[buckets]'"


# ---- a server that lies --------------------------------------------------------------------------------------------


def test_a_bucket_that_does_not_answer_has_a_limit(
    lying_server: LyingServer, bucket: KeptBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    lying_server.answer = lambda handler: lying_server.done.wait(60)
    monkeypatch.setattr(bucket_session, "TIMEOUT", 1.0)
    with pytest.raises(ClusterError) as caught:
        bucket_reader.pull(URL, None, cluster=None, last=5)
    host = lying_server.url.partition("://")[2]
    assert str(caught.value) == f'bucket "s3://team/past" can\'t be read: {host}: no answer for 1 s'
    assert caught.value.help == (
        "the bucket's region and server count: AWS_REGION, AWS_ENDPOINT_URL, or the profile of AWS' tools"
    )
    monkeypatch.setattr(bucket_session, "TIMEOUT", 20.0)
    monkeypatch.setattr(bucket_reader, "TIMEOUT", 1.0)
    with pytest.raises(WaitTimeout, match=r'waited [12] s for bucket "s3://team/past" to answer'):
        bucket_reader.pull(URL, None, cluster=None, last=5)


def test_bytes_that_drip_have_a_limit(
    lying_server: LyingServer, bucket: KeptBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not lying_server.done.wait(0.02):
            handler.wfile.write(b" ")

    monkeypatch.setattr(bucket_session, "TIMEOUT", 0.2)
    monkeypatch.setattr(bucket_session, "SLOWEST", 4 << 20)
    lying_server.answer = drip
    begin = time.monotonic()
    with pytest.raises(ClusterError, match="is too slow"):
        bucket_reader.pull(URL, None, cluster=None, last=5)
    assert time.monotonic() - begin < 5


def test_ctrl_c_ends_a_read(lying_server: LyingServer, bucket: KeptBucket) -> None:
    def interrupt(handler: BaseHTTPRequestHandler) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        lying_server.done.wait(60)

    lying_server.answer = interrupt
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        bucket_reader.pull(URL, None, cluster=None, last=5)
    assert time.monotonic() - begin < 5


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each block that the client takes."""
    found, read = list[int](), urllib3.HTTPResponse.read1

    def counted(response: urllib3.HTTPResponse, most: int, decode_content: bool) -> bytes:
        content = read(response, most, decode_content)
        found.append(len(content))
        return content

    monkeypatch.setattr(urllib3.HTTPResponse, "read1", counted)
    return found


@pytest.mark.parametrize("lies", ["-index/", f"{FOLDER}/"])
def test_objects_that_are_longer_than_told_are_read_as_far_as_told(
    lying_server: LyingServer, bucket: KeptBucket, accepted: list[int], lies: str
) -> None:
    def flood(handler: BaseHTTPRequestHandler) -> None:
        if "list-type" in handler.path or lies not in handler.path:
            bucket(handler)
            return
        handler.send_response(200)
        handler.send_header("content-length", str(800 << 20))
        handler.end_headers()
        for _ in range(800):
            handler.wfile.write(b" " * (1 << 20))

    for number in range(40):
        bucket.add(number, sizes={"facts.jsonl": 1 << 20})
    lying_server.answer = flood
    pulled = bucket_reader.pull(URL, None, cluster=None, last=40)
    assert (pulled.new, len(pulled.problems)) == (0, 40)
    assert sum(accepted) < 41 << 20  # 40 markers or parts, and a list


def test_a_list_without_an_end_ends(lying_server: LyingServer, bucket: KeptBucket, accepted: list[int]) -> None:
    names = [f"past/{marker_name(f'toy.{number:08x}-0000-4000-8000-000000000000', 1.7e9)}" for number in range(500)]
    lying_server.answer = text(200, page(names, "again"))
    pulled = bucket_reader.pull(URL, None, cluster="mnist", last=5)
    assert (pulled.new, pulled.has_more, len(lying_server.asked)) == (0, True, 2)
    lying_server.answer = text(200, page([], "again") + " " * (2 << 20))
    del accepted[:]
    with pytest.raises(ClusterError, match="has more than 1,048,576 bytes"):
        bucket_reader.pull(URL, None, cluster=None, last=5)
    assert sum(accepted) == (1 << 20) + 1


@pytest.mark.parametrize("content", ["", "{}", "<a>", '<!DOCTYPE a [<!ENTITY b "cc">]><a>&b;</a>', "\x00"])
def test_a_list_that_is_none_is_an_error(lying_server: LyingServer, bucket: KeptBucket, content: str) -> None:
    lying_server.answer = text(200, content)
    with pytest.raises(ClusterError, match=r"^bucket \"s3://team/past\" can't be read: the answer of the bucket"):
        bucket_reader.pull(URL, None, cluster=None, last=5)


def test_a_refusal_is_one_line_with_advice(lying_server: LyingServer, bucket: KeptBucket) -> None:
    told = 'bucket "s3://team/past" can\'t be read: GET s3://team/past/tfk8s-history-index/: 403'
    for code, words in (("no\u009b", told), ("AccessDenied", f"{told} AccessDenied")):
        lying_server.answer = text(403, f"<Error><Code>{code}</Code><Message>no\u009b</Message></Error>")
        with pytest.raises(ClusterError) as caught:
            bucket_reader.pull(URL, None, cluster=None, last=5)
        assert str(caught.value) == words
        assert caught.value.help == "the credentials of AWS' tools count: aws sts get-caller-identity"


def test_a_redirection_is_neither_followed_nor_read(
    lying_server: LyingServer, bucket: KeptBucket, accepted: list[int]
) -> None:
    away = f"{lying_server.url}/away"
    lying_server.answer = text(307, " " * (1 << 20), location=away, x_amz_bucket_region="evil.example/")
    with pytest.raises(ClusterError, match="307"):
        bucket_reader.pull(URL, None, cluster=None, last=5)
    assert len(lying_server.asked) == 1
    assert sum(accepted) == (64 << 10) + 1


@pytest.mark.parametrize(("status", "words"), [(404, "server count"), (400, "server count"), (401, "sts get-caller")])
def test_a_refusal_has_a_cure_of_its_own(
    lying_server: LyingServer, bucket: KeptBucket, status: int, words: str
) -> None:
    lying_server.answer = text(status, "<Error><Code>No</Code></Error>")
    with pytest.raises(ClusterError) as caught:
        bucket_reader.pull(URL, None, cluster=None, last=5)
    assert words in str(caught.value.help)


def test_logs_that_never_come_cost_no_other_record(
    lying_server: LyingServer, bucket: KeptBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, _ = bucket.add(1, **{"logs/worker-0.gz": log("2026 0 a\n")}), bucket.add(0)
    monkeypatch.setattr(bucket_session, "TIMEOUT", 0.5)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        bucket(handler) if "worker-0" not in handler.path else lying_server.done.wait(60)

    lying_server.answer = answer
    pulled = bucket_reader.pull(URL, None, cluster=None, last=5)
    host = lying_server.url.partition("://")[2]
    assert (pulled.new, pulled.problems) == (2, [f"record {slow} lacks logs/worker-0.gz: {host}: no answer for 0.5 s"])


def test_a_server_that_answers_no_object_is_an_error(
    lying_server: LyingServer, bucket: KeptBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        bucket.add(number)
    monkeypatch.setattr(bucket_session, "TIMEOUT", 0.2)
    lying_server.answer = lambda handler: bucket(handler) if "?" in handler.path else lying_server.done.wait(60)
    with pytest.raises(ClusterError, match=r"can't be read: .*: no answer for 0\.2 s"):
        bucket_reader.pull(URL, None, cluster=None, last=30)


def test_an_error_of_a_package_is_one_line(bucket: KeptBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(scopes: list[str]) -> None:
        raise google.auth.exceptions.DefaultCredentialsError("no\x1b[2J credentials\nand more")

    monkeypatch.setattr(google.auth, "default", refuse)
    with pytest.raises(ClusterError) as caught:
        bucket_reader.pull("gs://team", None, cluster=None, last=5)
    assert str(caught.value) == 'bucket "gs://team" can\'t be read: no?[2J credentials'
    assert caught.value.help == "the credentials of gcloud count: gcloud auth application-default login"


# ---- a server ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with moto_server() as url:
        make_bucket(url, "team")
        yield url


@pytest.fixture
def written(server: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[RecordedCluster, str], RecordWriter]:
    """Return a writer, as a pod has one, for the bucket of a server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)

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
    with pytest.raises(ClusterError, match=r"GET s3://nobody/tfk8s-history-index/: 404 NoSuchBucket"):
        tfk8s.history(bucket="s3://nobody")
