"""The rates by which a user's clusters have a price: the user's own file, else a ConfigMap of the namespace."""

from __future__ import annotations

import os
from pathlib import Path

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.core.price.rates import Rates, parse
from tfk8s.errors import Tfk8sError
from tfk8s.log import log

FILE = "rates.yaml"
CONFIG_MAP = "tfk8s-rates"


def user_file() -> Path | None:
    """Return the path of the user's file, which may not exist; None without a home folder."""
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    try:
        return (given if given.is_absolute() else Path.home() / ".config") / "tfk8s" / FILE
    except RuntimeError:
        return None


def read(client: Client, namespace: str) -> Rates | None:
    """Return the rates that hold in a namespace; None if nobody gives any.

    Of rates that can't be read there is one warning: no start of a cluster fails for them.
    """
    path = user_file()
    try:
        if path is not None and path.exists():
            return _parse(path.read_bytes(), str(path))
        found = client.find(paths.named("ConfigMap", CONFIG_MAP, namespace))
    except OSError as error:
        log.warning("the rates in %s can't be read: %s", path, error.strerror)
        return None
    except Tfk8sError:  # such as of a user who may not read ConfigMaps
        return None
    match found:
        case {"data": {"rates.yaml": str(text)}}:
            where = f"ConfigMap {CONFIG_MAP} of namespace {namespace}, {FILE}"
            return _parse(text.encode(errors="replace"), where)
    return None


def _parse(data: bytes, where: str) -> Rates | None:
    from tfk8s.jobfile import reader  # most users have no rates

    document = reader.read(data)
    try:
        if document.problems:
            problem = document.problems[0]
            raise ValueError(f"line {problem.line}: {problem.message}")
        return parse(document.data)
    except ValueError as error:
        log.warning("the rates in %s are left out: %s", where, error)
        return None
