"""A job file's content as plain data, which can be kept as JSON and compared, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfk8s.quantity import Quantity
from tfk8s.spec import Job, JobFile, Network, Peer, Security, Volume


def from_job_file(job_file: JobFile) -> dict[str, Any]:
    """Return a job file as plain data; `jobs` is a map by name, in the same order."""
    plain: dict[str, Any] = _plain(job_file)
    plain["jobs"] = {job["name"]: job for job in plain["jobs"]}
    return plain


def to_job_file(plain: Mapping[str, Any]) -> JobFile:
    """Return the job file that `from_job_file` was given."""
    network = {way: tuple(_peer(peer) for peer in peers) for way, peers in plain["network"].items()}
    return JobFile(
        **{
            **plain,
            "jobs": tuple(map(_job, plain["jobs"].values())),
            "volumes": tuple(map(_volume, plain["volumes"])),
            "network": Network(**network),
            "security": Security(**plain["security"]),
        }
    )


def _job(plain: Mapping[str, Any]) -> Job:
    tuples = {name: tuple(plain[name]) for name in ("addresses", "tolerations", "preload")}
    amounts = {name: _quantity(plain[name]) for name in ("cpu", "memory")}
    return Job(**{**plain, **tuples, **amounts, "volumes": tuple(map(_volume, plain["volumes"]))})


def _volume(plain: Mapping[str, Any]) -> Volume:
    return Volume(**{**plain, "size": _quantity(plain["size"])})


def _peer(plain: Mapping[str, Any]) -> Peer:
    return Peer(**{**plain, "ports": tuple(plain["ports"])})


def _quantity(text: str | None) -> Quantity | None:
    return None if text is None else Quantity.parse(text)


def _plain(value: Any) -> Any:
    if isinstance(value, Quantity):
        return value.text
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value
