"""Which proxy leads to an API server, by Go's rules (golang.org/x/net/http/httpproxy)."""

from __future__ import annotations

import pytest

from tfk8s.backends.kubernetes.access import Server, proxy
from tfk8s.errors import InvalidInput


def find(url: str, environment: dict[str, str], named: str = "") -> str | None:
    found = proxy.find(Server(about='cluster "c"', url=url, proxy=named), environment)
    return found and found.url


@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        ("https://api", {}, None),
        ("https://api", {"https_proxy": "http://p:1"}, "http://p:1"),
        ("https://api", {"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:1"}, "http://upper:1"),
        ("https://api", {"http_proxy": "http://p:1", "all_proxy": "http://p:1"}, None),
        ("http://api", {"HTTP_PROXY": "p:3128"}, "http://p:3128"),
        ("https://api", {"https_proxy": "http://p"}, "http://p:80"),
        ("https://api", {"https_proxy": "https://p"}, "https://p:443"),
        ("https://api", {"https_proxy": "http://[fd00::1]:1"}, "http://[fd00::1]:1"),
        *((f"https://{here}", {"https_proxy": "p:1"}, None) for here in ("localhost", "127.0.0.2", "[::1]:6443")),
    ],
)
def test_the_environments_proxy(url: str, environment: dict[str, str], expected: str | None) -> None:
    assert find(url, environment) == expected


@pytest.mark.parametrize(
    ("exceptions", "direct"),
    [
        ("", False),
        ("*", True),
        ("a.example.org", True),
        ("A.Example.ORG ", True),
        ("b.example.org, example.org", True),
        ("ample.org", False),
        (".example.org", True),
        ("*.example.org", True),
        ("*example.org", False),
        ("x.a.example.org", False),
        ("example.org:6443", True),
        ("example.org:443", False),
        (":6443", False),
    ],
)
@pytest.mark.parametrize("variable", ["no_proxy", "NO_PROXY"])
def test_names_that_no_proxy_is_for(exceptions: str, direct: bool, variable: str) -> None:
    environment = {"https_proxy": "http://p:1", variable: exceptions}
    assert find("https://a.example.org:6443", environment) == (None if direct else "http://p:1")


@pytest.mark.parametrize(
    ("url", "exceptions", "direct"),
    [
        ("https://10.1.2.3", "10.0.0.0/8", True),
        ("https://10.1.2.3", "10.1.2.3/8", True),
        ("https://11.1.2.3", "10.0.0.0/8,nonsense/8", False),
        ("https://10.1.2.3", "10.1.2.3", True),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
        ("https://10.1.2.3", "10.1.2.3:6443", False),
        ("https://110.1.2.3", "10.1.2.3", False),
        ("https://[fd00::5]", "fd00::/16", True),
        ("https://[fd00::5]", "fd00:0::5", True),
        ("https://[fd00::5]:1", "[fd00::5]:1", True),
        ("https://[fd00::5]:1", "[fd00::5]:2", False),
        ("https://api", "10.0.0.0/8", False),
        ("https://api.", ",", False),
    ],
)
def test_addresses_that_no_proxy_is_for(url: str, exceptions: str, direct: bool) -> None:
    environment = {"https_proxy": "http://p:1", "NO_PROXY": exceptions}
    assert find(url, environment) == (None if direct else "http://p:1")


def test_the_kubeconfigs_proxy_is_for_all() -> None:
    environment = {"https_proxy": "http://other:1", "NO_PROXY": "*"}
    assert find("https://127.0.0.1", environment, named="http://p:1") == "http://p:1"


def test_a_login_is_told_to_the_proxy_alone() -> None:
    found = proxy.find(Server(about="", url="https://api", proxy="http://me:a%40b@p:1"), {})
    assert found is not None
    assert (found.url, found.login) == ("http://p:1", ("me", "a@b"))
    assert found.headers == {"Proxy-Authorization": "Basic bWU6YUBi"}
    assert "a@b" not in repr(found)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("socks5://me:SECRET@p:1", "HTTPS_PROXY names a proxy that tfk8s can't use: it speaks socks5"),
        ("http://:SECRET@", "HTTPS_PROXY names no proxy"),
        ("http://p:SECRET", "HTTPS_PROXY names no proxy"),
        ("http://[SECRET", "HTTPS_PROXY names no proxy"),
    ],
)
def test_what_is_no_proxy(value: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        find("https://api", {"HTTPS_PROXY": value})
    assert str(caught.value) == words
