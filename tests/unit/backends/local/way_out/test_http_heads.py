"""Tests of the heads that pass the proxy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.backends.local.way_out.http_heads import (
    BadHead,
    ProxyRequest,
    closing_response,
    error_response,
    is_informational,
    parse_request,
    status,
)  # fmt: skip


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("target", "host", "port"),
    [("pypi.org:443", "pypi.org", 443), ("[2001:db8::1]:8443", "2001:db8::1", 8443), ("10.0.0.1:80", "10.0.0.1", 80)],
)
def test_a_tunnel(target: str, host: str, port: int) -> None:
    request = parse_request(head(f"CONNECT {target} HTTP/1.1", "Host: elsewhere"))
    assert request == ProxyRequest("CONNECT", host, port, "", [])
    assert request.is_tunnel
    assert request.authority == target


def test_a_request_loses_what_is_for_the_proxy_alone() -> None:
    request = parse_request(
        head(
            "POST http://user:word@example.com/a?b=c HTTP/1.1", "Host: other.example", "Proxy-Authorization: Basic",
            "Connection: keep-alive, X-Own, Content-Length", "X-Own: 1", "Content-Length: 2", "Accept: */*",
        )
    )  # fmt: skip
    assert (request.host, request.port, request.path) == ("example.com", 80, "/a?b=c")
    assert request.head(request.path, []) == head(
        "POST /a?b=c HTTP/1.1", "Host: example.com", "Content-Length: 2", "Accept: */*", "Connection: close"
    )


@pytest.mark.parametrize(
    "line",
    ["GET / HTTP/1.1", "GET https://a/ HTTP/1.1", "GET ftp://a/ HTTP/1.1", "CONNECT a HTTP/1.1", "CONNECT a:0 HTTP/1.1",
     "CONNECT a:65536 HTTP/1.1", "CONNECT [::1:80 HTTP/1.1", "GET http:///x HTTP/1.1", "GET http://a:b/ HTTP/1.1",
     "GET http://[::1/ HTTP/1.1", "CONNECT a b:1 HTTP/1.1", "GET http://a/ HTTP/2", "get http://a/ HTTP/1.1", ""],
)  # fmt: skip
def test_other_requests_are_refused(line: str) -> None:
    with pytest.raises(BadHead):
        parse_request(head(line))


@pytest.mark.parametrize("line", [" folded", "no colon", "a b: c", ": empty", "a: b\nc: d", "a: b\x00"])
def test_other_headers_are_refused(line: str) -> None:
    with pytest.raises(BadHead):
        parse_request(head("GET http://a/ HTTP/1.1", "A: b", line))


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    try:
        parse_request(b"GET http://a/ HTTP/1.1\r\n" + data + b"\r\n\r\n")
        parse_request(data + b"\r\n\r\n")
    except BadHead:
        pass


@given(st.text(max_size=100))
def test_an_error_has_one_line_of_ascii(text: str) -> None:
    response = error_response(403, text)
    top, _, body = response.partition(b"\r\n\r\n")
    assert status(top + b"\r\n\r\n") == 403
    assert body.count(b"\n") == 1
    assert b"\r" not in body


def test_a_response_closes_its_connection() -> None:
    assert closing_response(head("HTTP/1.1 200 OK", "Connection: keep-alive", "Keep-Alive: 9", "A: b")) == head(
        "HTTP/1.1 200 OK", "A: b", "Connection: close"
    )
    assert is_informational(head("HTTP/1.1 100 Continue"))
    with pytest.raises(BadHead):
        status(head("ICY 200 OK"))


@pytest.mark.parametrize(
    ("framing", "size"),
    [
        ([], 0), (["Content-Length: 12"], 12), (["Transfer-Encoding: chunked"], None),
        (["Content-Length: 1", "Content-Length: 2"], None), (["Content-Length: -1"], None),
        (["Content-Length: 1", "Transfer-Encoding: chunked"], None),
    ],
)  # fmt: skip
def test_the_size_of_a_body(framing: list[str], size: int | None) -> None:
    assert parse_request(head("POST http://a/ HTTP/1.1", *framing)).body_bytes == size
