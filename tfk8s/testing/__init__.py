"""A backend in memory, for tests of programs that use tfk8s.

docs/testing.md has a complete example. The shortest test::

    with use_backend(FakeBackend()) as backend:
        train.main(["cluster.yaml"])
    assert backend.calls == ["apply mnist", "run mnist train.py", "delete mnist"]
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from tfk8s import api
from tfk8s.backends.protocol import Backend
from tfk8s.core.status import ClusterStatus
from tfk8s.testing.fake import FakeBackend
from tfk8s.testing.statuses import CREATED

__all__ = ["CREATED", "FakeBackend", "change", "use_backend"]


@contextlib.contextmanager
def use_backend(backend: FakeBackend) -> Iterator[FakeBackend]:
    """Make `tfk8s.up`, `tfk8s.connect` and the command line of this process use a fake backend in a `with` block."""
    chosen: Backend = backend
    with mock.patch.object(api, "choose", return_value=chosen), contextlib.closing(backend):
        yield backend


def change(task: str, **values: Any) -> Callable[[ClusterStatus], ClusterStatus]:
    """Return a function that changes fields of one task ("worker/1") of a status, for `FakeBackend.updates`."""
    return lambda status: replace(
        status, tasks=tuple(replace(one, **values) if str(one.task) == task else one for one in status.tasks)
    )
