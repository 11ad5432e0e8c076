"""Keeps gRPC's clients from a proxy: they send even loopback addresses to `http_proxy` where they are not told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def without_proxy(environment: Mapping[str, str], hosts: Iterable[str] = LOOPBACK) -> dict[str, str]:
    """Return the variables under which clients in `environment` connect to `hosts` directly."""
    before = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    value = ",".join(dict.fromkeys(filter(None, (*before.split(","), *hosts))))
    return {"no_proxy": value, "NO_PROXY": value, "no_grpc_proxy": value}
