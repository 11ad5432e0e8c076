"""Forwards that give sessions the ClusterSpec, and those of clusters that an earlier version started."""

from __future__ import annotations

import dataclasses
import socket

import pytest
from job_files import job_file

from tfk8s.backends.elastic_forward import forward_to_task
from tfk8s.core.status import ClusterStatus
from tfk8s.errors import BackendUnreachable
from tfk8s.sessions.forward import Forward
from tfk8s.task import wire
from tfk8s.testing import FakeBackend

REQUEST = wire.request_frames(wire.CREATE_SESSION, wire.field(3, "grpc://127.0.0.1:5"))


class Backend(FakeBackend):
    """A cluster whose status can be set."""

    def __init__(self, *, is_elastic: bool) -> None:
        super().__init__(job_file("mnist", chief=1, worker=1))
        self.status: ClusterStatus | None = dataclasses.replace(super().observe("mnist"), is_elastic=is_elastic)
        self.observed = 0

    def observe(self, name: str) -> ClusterStatus:
        self.observed += 1
        if self.status is None:
            raise BackendUnreachable(f"{name} is silent")
        return self.status


def sent(backend: Backend, forward: Forward) -> bytes:
    """Return what the server gets of a request."""
    with socket.create_connection(("127.0.0.1", forward.port), timeout=5) as client:
        client.sendall(REQUEST)
        client.shutdown(socket.SHUT_WR)
        client.recv(1 << 16)
        with backend.connections[-1] as server:
            return b"".join(iter(lambda: server.recv(1 << 16), b""))


def test_requests_to_a_cluster_of_an_earlier_version_stay() -> None:
    backend = Backend(is_elastic=False)
    with forward_to_task(backend, backend.status, pytest.fail) as forward:
        assert sent(backend, forward) == REQUEST
    assert backend.observed == 0


def test_each_session_gets_the_tasks_of_now() -> None:
    backend = Backend(is_elastic=True)
    before = backend.status
    with forward_to_task(backend, before, print) as forward:
        assert backend.observed == 0
        both = sent(backend, forward)
        backend.status = dataclasses.replace(before, tasks=before.tasks[:1])
        one = sent(backend, forward)
        backend.status = None
        assert sent(backend, forward) == one
    assert [task.address.encode() in both for task in before.tasks] == [True, True]
    assert [task.address.encode() in one for task in before.tasks] == [True, False]
