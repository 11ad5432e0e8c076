"""The client of a bucket, whose server hangs, refuses or lies; and the sources of its keys."""

from __future__ import annotations

import functools
import json
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from fakes.lying_server import LyingServer, text

from tfk8s.core.history.shared import BucketPlace
from tfk8s.task.buckets import bucket_client, bucket_keys, bucket_server
from tfk8s.task.buckets.bucket_client import BucketClient
from tfk8s.task.buckets.bucket_keys import BucketKeys, source_of
from tfk8s.task.buckets.bucket_server import BucketFailure, BucketServer
from tfk8s.task.buckets.bucket_signature import Keys

pytest_plugins = ("fakes.lying_server",)
SECRET = "hunter2-never-to-be-seen"
PLACE = BucketPlace("s3", "team", "past/")
BOMB = '<!DOCTYPE a [<!ENTITY b "cc"><!ENTITY d "&b;&b;">]><a>&d;</a>'


def static_keys() -> Keys:
    return Keys("AKIA", SECRET)


@pytest.fixture
def client(lying_server: LyingServer) -> Iterator[BucketClient]:
    with closing(BucketClient(PLACE, lying_server.url, static_keys, "eu-north-1")) as found:
        yield found


def page(names: list[str], more: str = "") -> str:
    items = "".join(
        f"<Contents><Key>{name}</Key><Size>5</Size><LastModified>2026-11-28T05:29:54.000Z</LastModified></Contents>"
        for name in names
    )
    rest = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    return f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{items}{rest}</ListBucketResult>'


def test_objects_are_below_the_prefix(client: BucketClient, lying_server: LyingServer) -> None:
    lying_server.answer = text(200, "hello")
    assert client.get("a b", 10) == b"hello"
    client.put("c", b"content")
    lying_server.answer = text(204, "")
    client.delete("d")
    assert lying_server.asked == ["GET /team/past/a%20b", "PUT /team/past/c", "DELETE /team/past/d"]
    assert lying_server.bodies == [b"", b"content", b""]
    lying_server.answer = text(404, "")
    assert client.get("e", 10) is None
    client.delete("e")


def test_a_list_has_pages(client: BucketClient, lying_server: LyingServer) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        is_second = "continuation-token=t%2F%3D" in handler.path
        text(200, page(["past/x/c"]) if is_second else page(["past/x/a", "other/b"], "t/="))(handler)

    lying_server.answer = answer
    assert [found.name for found in client.list("x/", 5000)] == ["x/a", "x/c"]
    assert lying_server.asked[0] == "GET /team?list-type=2&max-keys=500&prefix=past%2Fx%2F"


def test_a_list_without_an_end_ends(client: BucketClient, lying_server: LyingServer) -> None:
    lying_server.answer = text(200, page(["past/a"], "again"))
    assert len(list(client.list("", 1500))) == 3


def test_nonsense_in_a_list_is_left_out(client: BucketClient, lying_server: LyingServer) -> None:
    damaged = page(["past/a"]).replace("<Size>5", "<Size>-5") + page(["past/b"]).replace("2026", "x")
    lying_server.answer = text(200, f"<a>{damaged}{page(['past/c'])}</a>")
    assert list(client.list("", 1000)) == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (text(403, "<Error><Code>AccessDenied</Code><Message>x</Message></Error>"), "403 AccessDenied"),
        (text(503, '<Error xmlns="a"><Code>SlowDown</Code></Error>'), "503 SlowDown"),
        (text(403, f"<Error><Code>{SECRET} \x1b[2J</Code></Error>"), "403"),
        (text(500, "<"), "500"),
        (text(302, "", location="http://127.0.0.1:1/"), "302"),
        (text(200, "x" * 11), "has more than 10 bytes"),
        (text(500, "x" * (1 << 20)), ": 500"),
        (text(200, "x", 100), "is cut off"),
    ],
)
def test_a_refusal_or_a_wrong_answer_is_an_error(
    client: BucketClient, lying_server: LyingServer, answer: Callable[[BaseHTTPRequestHandler], None], words: str
) -> None:
    lying_server.answer = answer
    with pytest.raises(BucketFailure) as caught:
        client.get("a", 10)
    assert str(caught.value).endswith(words)
    assert SECRET not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("content", ["", "no XML", BOMB, page(["past/a"])[:-5]])
def test_a_list_of_a_wrong_form_is_an_error(client: BucketClient, lying_server: LyingServer, content: str) -> None:
    lying_server.answer = text(200, content)
    with pytest.raises(BucketFailure, match="the answer of the bucket"):
        list(client.list("", 1000))


def test_the_first_bytes_of_an_object_are_taken(client: BucketClient, lying_server: LyingServer) -> None:
    lying_server.answer = text(200, "hello, you")
    assert [client.get("a", 5, is_cut=True), client.get("a", 20, is_cut=True)] == [b"hello", b"hello, you"]
    lying_server.answer = text(200, "hell", 10)
    with pytest.raises(BucketFailure, match="is cut off"):
        client.get("a", 5, is_cut=True)


def test_an_answer_without_an_end_is_cut_off(lying_server: LyingServer) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not lying_server.done.wait(0.02):
            handler.wfile.write(b"x: y\r\n")

    lying_server.answer = drip
    begin, serve = time.monotonic(), functools.partial(BucketServer, longest=0.3)
    client = BucketClient(PLACE, lying_server.url, static_keys, "auto", serve)
    with closing(client), pytest.raises(TimeoutError, match="no whole answer"):
        client.get("a", 10)
    assert time.monotonic() - begin < 5


def test_chunks_of_a_byte_take_no_more_memory_than_the_answer(client: BucketClient, lying_server: LyingServer) -> None:
    size = 100_000

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(100):
            handler.wfile.write(b"1\r\nx\r\n" * (size // 100))
        handler.wfile.write(b"0\r\n\r\n")

    lying_server.answer = answer
    tracemalloc.start()
    try:
        assert client.get("a", size) == b"x" * size
        assert tracemalloc.get_traced_memory()[1] < 10 * size
    finally:
        tracemalloc.stop()
    with pytest.raises(BucketFailure, match="has more than 99,999 bytes"):
        client.get("a", size - 1)
    assert client.get("a", 10, is_cut=True) == b"x" * 10


def test_an_answer_before_the_answer_shifts_none(client: BucketClient, lying_server: LyingServer) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if lying_server.asked[-1].endswith("early"):
            handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        text(200, lying_server.asked[-1])(handler)

    lying_server.answer = answer
    assert client.get("a", 100) == b"GET /team/past/a"
    with pytest.raises(BucketFailure, match="gives no answer: 103"):
        client.get("early", 100)
    assert client.get("b", 100) == b"GET /team/past/b"


def test_a_connection_that_is_not_made_in_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    released, ended = threading.Event(), threading.Event()

    def connect(connection: HTTPSConnection) -> None:
        released.wait(30)

    monkeypatch.setattr(HTTPSConnection, "connect", connect)
    monkeypatch.setattr(HTTPSConnection, "close", lambda connection: ended.set() if released.is_set() else None)
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no whole answer after 0\.3 s"):
        BucketServer("https://127.0.0.1:1", longest=0.3).send("GET", "/", {}, b"", 10)
    assert time.monotonic() - begin < 5
    released.set()
    assert ended.wait(10)  # what is made too late is closed


def test_a_request_that_took_its_time_is_not_made_again(lying_server: LyingServer) -> None:
    def hang(handler: BaseHTTPRequestHandler) -> None:
        lying_server.done.wait(30)

    lying_server.answer = text(200, "hello")
    serve = functools.partial(BucketServer, longest=0.5)
    with closing(BucketClient(PLACE, lying_server.url, static_keys, "auto", serve)) as client:
        client.get("a", 10)
        lying_server.answer = hang
        with pytest.raises(TimeoutError, match="no whole answer"):
            client.get("b", 10)
    assert lying_server.asked == ["GET /team/past/a", "GET /team/past/b"]


def test_a_connection_that_the_server_has_closed_is_made_again(client: BucketClient, lying_server: LyingServer) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        text(200, "hello")(handler)
        handler.close_connection = True  # without a word

    lying_server.answer = answer
    assert [client.get("a", 10) for _ in range(3)] == [b"hello"] * 3


def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConnectionRefusedError):
        BucketClient(PLACE, "http://127.0.0.1:1", static_keys, "auto").put("a", b"")


def test_a_certificate_that_nobody_trusts_is_a_failure_of_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(connection: HTTPSConnection) -> None:
        raise ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate")

    monkeypatch.setattr(HTTPSConnection, "connect", connect)
    with pytest.raises(BucketFailure, match="CERTIFICATE_VERIFY_FAILED") as caught:
        BucketClient(PLACE, "https://127.0.0.1:1", static_keys, "auto").put("a", b"")
    assert not isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("region", "url"),
    [
        ("eu-north-1", "https://s3.eu-north-1.amazonaws.com"),
        ("cn-north-1", "https://s3.cn-north-1.amazonaws.com.cn"),
        ("eusc-de-east-1", "https://s3.eusc-de-east-1.amazonaws.eu"),
        ("us-iso-east-1", "https://s3.us-iso-east-1.c2s.ic.gov"),
        ("us-gov-west-1", "https://s3.us-gov-west-1.amazonaws.com"),
    ],
)
def test_a_region_has_a_server(region: str, url: str) -> None:
    assert bucket_client.home("s3", region) == url


def test_a_token_without_a_file_is_an_error(tmp_path: Path) -> None:
    environment = {"AWS_ROLE_ARN": "a", "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "none")}
    with pytest.raises(BucketFailure, match="the token's file can't be read: No such file or directory"):
        source_of(environment, "s3", "us-east-1")()


def test_the_bucket_tells_its_region(lying_server: LyingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    regions: list[str] = []

    def home(scheme: str, region: str) -> str:
        regions.append(region)
        return lying_server.url

    def answer(handler: BaseHTTPRequestHandler) -> None:
        is_there = "/eu-north-1/" in handler.headers["authorization"]
        moved = text(301, "", x_amz_bucket_region="eu-north-1" if regions[:1] == ["us-east-1"] else "e.com/")
        (text(200, "hello") if is_there else moved)(handler)

    monkeypatch.setattr(bucket_client, "home", home)
    lying_server.answer = answer
    with closing(BucketClient(PLACE, "", static_keys, "us-east-1")) as client:
        assert [client.get("a", 10), client.get("a", 10)] == [b"hello", b"hello"]
    assert regions == ["us-east-1", "eu-north-1"]
    del regions[:]
    other = BucketClient(PLACE, "", static_keys, "us-west-1")
    with closing(other), pytest.raises(BucketFailure, match="301"):  # no region has such a name
        other.get("a", 10)


# ---- keys ----------------------------------------------------------------------------------------------------------


def test_keys_of_a_secret_come_first() -> None:
    environment = {
        "TFK8S_SECRET": "keys", "AWS_ACCESS_KEY_ID": "AKIA\n", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ROLE_ARN": "a",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/none",
    }  # fmt: skip
    assert source_of(environment, "gs", "auto")() == Keys("AKIA", SECRET)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "the pod has no keys for the bucket: the history's secret in the job file names some"),
        ({"TFK8S_SECRET": "keys"}, "the Secret keys is missing, or lacks AWS_ACCESS_KEY_ID"),
        (
            {"TFK8S_SECRET": "keys", "AWS_ACCESS_KEY_ID": "a"},
            "the Secret keys is missing, or lacks AWS_SECRET_ACCESS_KEY",
        ),
        (
            {"TFK8S_SECRET": "keys", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": f"{SECRET}\nx: y"},
            "AWS_SECRET_ACCESS_KEY has characters that no key has",
        ),
    ],
)
def test_missing_and_wrong_keys_have_their_names(environment: dict[str, str], words: str) -> None:
    with pytest.raises(BucketFailure) as caught:
        source_of(environment, "s3", "us-east-1")()
    assert str(caught.value) == words


def roles(lying_server: LyingServer, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "token").write_text("eyJ0b2tlbg\n")
    return {
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/history", "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "AWS_ENDPOINT_URL_STS": lying_server.url,
    }  # fmt: skip


STS = (
    '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>'
    f"<Credentials><AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>t</SessionToken>"
    "<Expiration>2026-11-28T05:29:54Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
    "</AssumeRoleWithWebIdentityResponse>"
)


def test_a_role_is_assumed_with_the_token_of_the_pod(lying_server: LyingServer, tmp_path: Path) -> None:
    lying_server.answer = text(200, STS)
    found = source_of(roles(lying_server, tmp_path), "s3", "eu-north-1")()
    assert found == Keys("ASIA", SECRET, "t", 1795843794.0)
    assert lying_server.asked == ["POST /"]
    assert b"WebIdentityToken=eyJ0b2tlbg" in lying_server.bodies[0]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (text(400, "<ErrorResponse><Error><Code>ExpiredTokenException</Code></Error></ErrorResponse>"), "400 Expired"),
        (text(200, STS.replace("AccessKeyId", "Other")), "are incomplete"),
        (text(200, STS.replace("2026", "x")), "have no time of their end"),
        (text(200, BOMB), "has declarations"),
        (text(200, ""), "is no XML"),
        (text(200, STS.replace(SECRET, "a\r\nb: c")), "has characters that no key has"),
    ],
)
def test_a_wrong_answer_has_no_keys(
    lying_server: LyingServer, tmp_path: Path, answer: Callable[[BaseHTTPRequestHandler], None], words: str
) -> None:
    lying_server.answer = answer
    with pytest.raises(BucketFailure, match=words):
        source_of(roles(lying_server, tmp_path), "s3", "eu-north-1")()


@pytest.mark.parametrize(
    ("region", "host"),
    [("eu-north-1", "sts.eu-north-1.amazonaws.com"), ("cn-north-1", "sts.cn-north-1.amazonaws.com.cn")],
)
def test_a_role_is_assumed_in_the_partition_of_the_region(
    region: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def connect(connection: HTTPSConnection) -> None:
        asked.append(connection.host)
        raise ConnectionRefusedError

    monkeypatch.setattr(HTTPSConnection, "connect", connect)
    (tmp_path / "token").write_text("eyJ0b2tlbg\n")
    environment = {"AWS_ROLE_ARN": "a", "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token")}
    with pytest.raises(ConnectionRefusedError):
        source_of(environment, "s3", region)()
    assert asked == [host]


def test_the_agent_of_pod_identity_gives_keys(lying_server: LyingServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("eyJ0b2tlbg")
    environment = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{lying_server.url}/v1/credentials",
                   "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token")}  # fmt: skip
    told = {"AccessKeyId": "ASIA", "SecretAccessKey": SECRET, "Token": "t", "Expiration": "2026-11-28T05:29:54Z"}
    lying_server.answer = text(200, json.dumps(told))
    assert source_of(environment, "s3", "eu-north-1")() == Keys("ASIA", SECRET, "t", 1795843794.0)
    assert lying_server.headers["authorization"] == "eyJ0b2tlbg"
    for content in ("[]", "{", "{}", "[" * 100_000, json.dumps({**told, "Token": 5})):
        lying_server.answer = text(200, content)
        with pytest.raises(BucketFailure):
            source_of(environment, "s3", "eu-north-1")()


ENDS = ("1e400", "1" + "0" * 400, "-1", "true", '"9"')  # of a token


def test_the_metadata_server_gives_a_token(lying_server: LyingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_keys, "METADATA", f"{lying_server.url}/token")
    lying_server.answer = text(200, '{"access_token": "ya29", "expires_in": 3599}')
    found = source_of({}, "gs", "auto")()
    assert (found.id, found.token) == ("", "ya29")
    assert abs(found.expires - time.time() - 3599) < 60
    assert lying_server.headers["metadata-flavor"] == "Google"
    place, keys = BucketPlace("gs", "team", ""), BucketKeys(source_of({}, "gs", "auto"))
    with closing(BucketClient(place, lying_server.url, keys.get, "auto")) as client:
        client.get("a", 100)
    assert lying_server.headers["authorization"] == "Bearer ya29"
    for wrong in ('{"access_token": 5}', *(f'{{"access_token": "a", "expires_in": {end}}}' for end in ENDS)):
        lying_server.answer = text(200, wrong)
        with pytest.raises(BucketFailure, match="gives no token"):
            source_of({}, "gs", "auto")()


def test_keys_are_renewed_before_they_expire() -> None:
    now, made = 1000.0, list[Keys]()

    def source() -> Keys:
        if len(made) == 2:
            raise BucketFailure("no")
        made.append(Keys(f"key{len(made)}", "s", "t", now + 3600))
        return made[-1]

    keys = BucketKeys(source, lambda: now)
    assert [keys.get().id for _ in range(3)] == ["key0"] * 3
    now += 3400
    assert keys.get().id == "key1"
    now += 3500  # the source refuses, and the keys hold a little longer
    assert keys.get().id == "key1"
    now += 200
    with pytest.raises(BucketFailure):
        keys.get()


@pytest.mark.parametrize("url", ["https://a..b", f"https://{'a' * 64}", "https://[:::]", "https://a:99999", "ftp://a"])
def test_an_endpoint_that_no_server_can_have_is_an_error_of_the_bucket(url: str) -> None:
    with pytest.raises(BucketFailure):
        bucket_server.BucketServer(url).send("GET", "/", {}, b"", 10)


@pytest.mark.parametrize("url", [f"https://ada:{SECRET}", f"https://{SECRET}\u2100:a@b", f"http://{SECRET}:a@[b"])
def test_no_words_of_an_endpoint_are_those_of_its_user(url: str) -> None:
    environment = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url}
    for ask in (lambda: BucketServer(url), source_of(environment, "s3", "us-east-1")):
        with pytest.raises(BucketFailure) as caught:
            ask()
        assert str(caught.value) == "the endpoint has no valid host or port"
        assert caught.value.__suppress_context__


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_no_encoding_hides_declarations(encoding: str) -> None:
    with pytest.raises(BucketFailure):
        bucket_server.parse_xml(BOMB.encode(encoding))
