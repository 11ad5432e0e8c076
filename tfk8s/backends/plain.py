"""Job files and other frozen data as plain data: mappings, lists and scalars."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfk8s.core.programs import Program, RunPolicy
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import ScriptResources
from tfk8s.core.spec import Env, EnvSource, Job, JobFile, Network, Peer, Security, Topology
from tfk8s.core.storage.volumes import Volume


def job_file_to_dict(job_file: JobFile) -> dict[str, Any]:
    """Return a job file as plain data, with `jobs` as a map by name in the same order."""
    data: dict[str, Any] = as_plain(job_file)
    return {**data, "jobs": {job["name"]: job for job in data["jobs"]}}


def as_plain(value: Any) -> Any:
    """Return a value with its dataclasses as mappings, its tuples as lists, and its quantities as their text."""
    if isinstance(value, Quantity):
        return value.text
    if dataclasses.is_dataclass(value):
        return {field.name: as_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: as_plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [as_plain(part) for part in value]
    return value


def job_file_from_dict(plain: Mapping[str, Any]) -> JobFile:
    """Return the job file from the data of `job_file_to_dict`."""
    network: dict[str, Any] = {
        direction: None if peers is None else tuple(map(_peer, peers)) for direction, peers in plain["network"].items()
    }
    return JobFile(
        **{
            **plain,
            "jobs": tuple(map(_job, plain["jobs"].values())),
            "env": _env(plain["env"]),
            "avoid": tuple(plain.get("avoid", ())),
            "image_pull_secrets": tuple(plain["image_pull_secrets"]),
            "volumes": tuple(map(_volume, plain["volumes"])),
            "network": Network(**network),
            "security": Security(**plain["security"]),
            "script": _resources(plain.get("script", {})),
            "run": _run(plain.get("run", {})),
        }
    )


def _job(plain: Mapping[str, Any]) -> Job:
    tuples = {name: tuple(plain[name]) for name in ("addresses", "tolerations", "preload")}
    quantities = {name: _quantity(plain[name]) for name in ("cpu", "memory", "shm")}
    topology = plain["topology"] and Topology(**plain["topology"])
    volumes = tuple(map(_volume, plain["volumes"]))
    program = plain.get("program")
    return Job(**{
        **plain, **tuples, **quantities, "env": _env(plain["env"]), "topology": topology, "volumes": volumes,
        "program": program and Program(tuple(program["words"]), program["folder"]),
    })  # fmt: skip


def _run(plain: Mapping[str, Any]) -> RunPolicy:
    codes = plain.get("restart_on")
    return RunPolicy(**{**plain, "restart_on": tuple(codes)} if isinstance(codes, list) else plain)


def _resources(plain: Mapping[str, Any]) -> ScriptResources:
    quantities = {name: _quantity(value) for name, value in plain.items() if name != "gpus"}
    return ScriptResources(gpus=plain.get("gpus"), **quantities)


def _env(plain: Mapping[str, Any]) -> Env:
    return {name: value if isinstance(value, str) else EnvSource(**value) for name, value in plain.items()}


def _volume(plain: Mapping[str, Any]) -> Volume:
    return Volume(**{**plain, **{name: _quantity(plain.get(name)) for name in ("create", "size")}})


def _peer(plain: Mapping[str, Any]) -> Peer:
    return Peer(**{**plain, "except_": tuple(plain.get("except_", ())), "ports": tuple(plain["ports"])})


def _quantity(text: str | None) -> Quantity | None:
    return None if text is None else Quantity.parse(text)
