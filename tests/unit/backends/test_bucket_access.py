"""The credentials of a user for a bucket, where AWS' tools and gcloud keep them."""

from __future__ import annotations

import json
import os
import ssl
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import botocore.exceptions
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fakes.lying_server import LyingServer, text

from tfk8s.backends.history import bucket_access
from tfk8s.backends.history.bucket_session import BucketUnreachable
from tfk8s.core.history.shared import BucketPlace
from tfk8s.task.buckets import bucket_client
from tfk8s.task.buckets.bucket_server import BucketFailure

pytest_plugins = ("fakes.lying_server",)
AWS, GCLOUD = BucketPlace("s3", "team", ""), BucketPlace("gs", "team", "")
SECRET = "hunter2-never-to-be-seen"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def asked(place: BucketPlace, lying_server: LyingServer, endpoint: str | None) -> dict[str, str]:
    """Return the headers by which an object is asked for."""
    if not lying_server.asked:
        lying_server.answer = text(200, "hello")
    noted = list[int]()
    with closing(bucket_access.find(place, endpoint, noted.append)()) as client:
        assert client.get("a", 10) == b"hello"
    assert sum(noted) == 5
    return lying_server.headers


def test_variables_come_first(lying_server: LyingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "AKIA", "SECRET_ACCESS_KEY": SECRET, "SESSION_TOKEN": "session",
                        "DEFAULT_REGION": "eu-north-1", "ENDPOINT_URL": "http://127.0.0.1:1"}.items():  # fmt: skip
        monkeypatch.setenv(f"AWS_{name}", value)
    headers = asked(AWS, lying_server, lying_server.url)  # the endpoint of the namespace counts
    assert "Credential=AKIA/" in headers["authorization"]
    assert "/eu-north-1/s3/" in headers["authorization"]
    assert headers["x-amz-security-token"] == "session"


def test_a_profile_has_keys_a_region_and_an_endpoint(
    lying_server: LyingServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "credentials").write_text(f"[team]\naws_access_key_id = AKIATEAM\naws_secret_access_key = {SECRET}\n")
    services = f"[services here]\ns3 =\n  endpoint_url = {lying_server.url}\n"
    (home / "config").write_text(f"[profile team]\nregion = eu-west-1\nservices = here\n{services}")
    monkeypatch.setenv("AWS_PROFILE", "team")
    headers = asked(AWS, lying_server, None)
    assert "Credential=AKIATEAM/" in headers["authorization"]
    assert "/eu-west-1/s3/" in headers["authorization"]


def test_without_an_endpoint_the_region_has_a_server(
    lying_server: LyingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_client, "home", lambda scheme, region: f"{lying_server.url}/{region}")
    for region in ("us-east-1", "eu-north-1", "cn-north-1"):
        for name, value in {"ACCESS_KEY_ID": "A", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": region}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        assert f"/{region}/s3/" in asked(AWS, lying_server, None)["authorization"]


def test_without_credentials_there_is_an_error() -> None:
    with pytest.raises(botocore.exceptions.NoCredentialsError, match="Unable to locate credentials"):
        bucket_access.find(AWS, None, print)


def test_a_token_that_would_end_a_header_is_not_shown(
    lying_server: LyingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"ACCESS_KEY_ID": "A", "SECRET_ACCESS_KEY": "b", "SESSION_TOKEN": f"{SECRET}\nx: y"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with pytest.raises(BucketFailure) as caught:
        asked(AWS, lying_server, lying_server.url)
    assert str(caught.value) == "the session's token has characters that no key has"


def test_certificates_of_ones_own_count(lying_server: LyingServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    lying_server.socket = context.wrap_socket(lying_server.socket, server_side=True)
    authority.cert_pem.write_to_path(home / "ca.pem")
    for name, value in {"ACCESS_KEY_ID": "A", "SECRET_ACCESS_KEY": "b", "CA_BUNDLE": str(home / "ca.pem")}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    url = lying_server.url.replace("http:", "https:")
    assert asked(AWS, lying_server, url)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(home / "none.pem"))
    with pytest.raises(BucketUnreachable, match="suitable TLS CA certificate bundle") as missing:
        asked(AWS, lying_server, url)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(home / "ca.pem"))
    (home / "ca.pem").write_text("")
    with pytest.raises(BucketUnreachable) as caught:
        asked(AWS, lying_server, url)
    assert caught.value.help == missing.value.help == "REQUESTS_CA_BUNDLE=FILE names certificates of your own"
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BucketUnreachable, match=r"^127.0.0.1:[0-9]+: unable to get local issuer certificate"):
        asked(AWS, lying_server, url)


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:{}", "127.0.0.1:{}", f"http://ada:{SECRET}@127.0.0.1:{{}}"])
def test_a_proxy_of_the_variables_is_asked(
    lying_server: LyingServer, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    url = proxy.format(lying_server.server_port)
    for name, value in {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "b", "HTTPS_PROXY": url,
                        "https_proxy": url, "no_proxy": ".example"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    with closing(bucket_access.find(AWS, None, print)()) as client, pytest.raises(BucketUnreachable) as caught:
        client.get("a", 10)
    host = f"127.0.0.1:{lying_server.server_port}"
    assert str(caught.value) == (
        f"s3.us-east-1.amazonaws.com through the proxy {host}: Tunnel connection failed: 404 Not Found"
    )
    assert lying_server.asked == ["CONNECT s3.us-east-1.amazonaws.com:443"]
    assert ("proxy-authorization" in lying_server.headers) == (SECRET in proxy)
    with (
        closing(bucket_access.find(AWS, "https://127.0.0.1.example", print)()) as client,
        pytest.raises(BucketUnreachable, match=r"^127\.0\.0\.1\.example: "),
    ):
        client.get("a", 10)
    assert len(lying_server.asked) == 1


@pytest.mark.parametrize("proxy", [f"http://ada:{SECRET}/x@127.0.0.1:1", "socks5://127.0.0.1:1", "http://", "ftp://x"])
def test_a_wrong_proxy_is_an_error_without_its_password(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "b", "HTTPS_PROXY": proxy,
                        "https_proxy": proxy}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    with closing(bucket_access.find(AWS, None, print)()) as client, pytest.raises(BucketUnreachable) as caught:
        client.get("a", 10)
    assert "proxy" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.help == "HTTPS_PROXY, HTTP_PROXY and NO_PROXY name the proxy"


@pytest.mark.parametrize("url", ["127.0.0.1:9000", "ftp://a", f"http://ada:{SECRET}/x@h", "http://a:x", "http://[::1"])
def test_a_wrong_endpoint_is_an_error_without_its_password(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name, value in {"ACCESS_KEY_ID": "A", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with pytest.raises(BucketFailure, match="the endpoint is no URL with http or https") as caught:
        bucket_access.find(AWS, url, print)()
    assert SECRET not in str(caught.value)


def test_the_region_and_the_path_of_an_endpoint_count(
    lying_server: LyingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"ACCESS_KEY_ID": "A", "SECRET_ACCESS_KEY": "b", "REGION": "eu-north-1",
                        "ENDPOINT_URL": f"{lying_server.url}/storage/v1/"}.items():  # fmt: skip
        monkeypatch.setenv(f"AWS_{name}", value)
    assert "/eu-north-1/s3/" in asked(AWS, lying_server, None)["authorization"]
    assert lying_server.asked == ["GET /storage/v1/team/a"]


def test_a_busy_server_is_asked_again(lying_server: LyingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "A", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    lying_server.answer = lambda handler: text(503 if len(lying_server.asked) < 3 else 200, "hello")(handler)
    with closing(bucket_access.find(AWS, lying_server.url, print)()) as client:
        assert client.get("a", 10) == b"hello"
    assert len(lying_server.asked) == 3


def test_an_answer_of_another_request_is_not_taken(lying_server: LyingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "A", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)

    def early(handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/team/a":
            handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        text(200, handler.path)(handler)

    lying_server.answer = early
    with closing(bucket_access.find(AWS, lying_server.url, print)()) as client:
        with pytest.raises(BucketFailure, match="103"):
            client.get("a", 10)
        assert client.get("b", 10) == b"/team/b"


def test_a_service_account_gets_a_token_to_read(
    lying_server: LyingServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {"type": "service_account", "project_id": "p", "private_key_id": "1", "private_key": key.decode(),
               "client_email": "a@p.iam.gserviceaccount.com", "token_uri": f"{lying_server.url}/token"}  # fmt: skip
    (home / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(home / "account.json"))
    monkeypatch.setattr(bucket_client, "home", lambda scheme, region: lying_server.url)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        token = json.dumps({"access_token": "ya29", "expires_in": 3600, "token_type": "Bearer"})
        text(200, token if handler.path == "/token" else "hello", content_type="application/json")(handler)

    lying_server.answer = answer
    with closing(bucket_access.find(GCLOUD, "http://127.0.0.1:1", print)()) as client:  # which is for s3:// alone
        assert [client.get("a", 10), client.get("b", 10)] == [b"hello", b"hello"]
    assert lying_server.asked == ["POST /token", "GET /team/a", "GET /team/b"]
    assert lying_server.headers["authorization"] == "Bearer ya29"
