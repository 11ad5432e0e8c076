"""The end of what `--watch` shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from tfk8s.cli.output import note
from tfk8s.errors import NoSuchCluster

T = TypeVar("T")


def until_removed(name: str, looks: Iterable[T]) -> Iterator[T]:
    """Yield looks at a cluster until the cluster is removed, and say so.

    Raises:
        NoSuchCluster: there is no such cluster at the first look.
    """
    exists = False
    try:
        for look in looks:
            exists = True
            yield look
    except NoSuchCluster:
        if not exists:
            raise
        note(f'cluster "{name}" was removed')
