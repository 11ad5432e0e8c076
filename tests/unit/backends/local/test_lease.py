"""The lease of a cluster on this machine: the cluster ends with the last process that holds the lease."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.supervisor import Supervised, good, make, supervised
from job_files import job_file

from tfk8s import polling
from tfk8s.backends.local import cluster_status, starting, state
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.backends.local.supervision import lease
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import ClusterError, InvalidInput

WITHOUT = job_file("demo", Job(name="worker", tasks=2))
WITH = dataclasses.replace(WITHOUT, lease=0)


@pytest.fixture(name="supervised")
def fixture(tmp_path: Path) -> Iterator[Supervised]:
    with supervised(tmp_path) as made:
        yield made


@pytest.fixture
def run(supervised: Supervised) -> Iterator[socket.socket]:
    """Yield the connection of the `run` that has started the cluster."""
    own, theirs = socket.socketpair()
    supervised.supervisor._record = dataclasses.replace(supervised.supervisor._record, is_leased=True)
    supervised.supervisor.lease.hold(theirs)
    supervised.folder.write_supervisor(os.getpid())
    yield own
    own.close()


def has_lease(supervised: Supervised) -> bool:
    return bool(supervised.ask(good()["observe"])["holders"])


def has_ended(supervised: Supervised) -> bool:
    supervised.thread.join(10)
    return not supervised.thread.is_alive() and supervised.supervisor.lease.has_run_out


def test_a_cluster_ends_with_the_run_that_started_it(supervised: Supervised, run: socket.socket) -> None:
    assert cluster_status.status(supervised.folder, supervised.supervisor._record).limits.lease == 0
    run.sendall(b"nothing that a holder says ends the lease")
    assert has_lease(supervised)
    run.close()
    assert has_ended(supervised)
    assert supervised.folder.end() == "because its `run` is gone (lease)"


def test_a_cluster_whose_run_is_gone_keeps_its_lease_until_its_end(tmp_path: Path) -> None:
    folder = state.Folder(tmp_path / "demo")  # without a supervisor, as before the start's end, or at the end
    record = dataclasses.replace(make(), is_leased=True)
    folder.create(record)
    assert cluster_status.status(folder, record).limits.lease == 0


def test_a_cluster_whose_supervisor_does_not_respond_may_have_a_lease(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    def observe(_: object) -> None:
        raise ClusterError("the supervisor does not respond")

    monkeypatch.setattr(cluster_status.supervisor_client, "observe", observe)
    assert cluster_status.status(supervised.folder, supervised.supervisor._record).limits.lease == 0


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_a_second_run_holds_the_lease_too(supervised: Supervised, run: socket.socket, first_ends_first: bool) -> None:
    second = LocalBackend()
    assert second.apply(WITH) is False  # nothing has changed
    ends = [run.close, lambda: second.leases.close("demo")]
    for number, end in enumerate(ends if first_ends_first else reversed(ends)):
        assert number == 0 or has_lease(supervised)
        end()
    assert has_ended(supervised)


def test_a_run_that_is_refused_holds_no_lease(supervised: Supervised, run: socket.socket) -> None:
    second, other = LocalBackend(), dataclasses.replace(WITH, env={"A": "other"})
    with pytest.raises(InvalidInput, match="another job file"):
        second.apply(other)
    run.close()
    assert has_ended(supervised)


def test_a_cluster_that_ends_is_not_changed_before(
    supervised: Supervised, run: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised.supervisor._is_stopping = True
    monkeypatch.setattr(starting, "restart_failed", lambda folder: pytest.fail("restarted"))
    with pytest.raises(ClusterError, match="the cluster ends"):
        LocalBackend().apply(WITH)


def test_up_ends_the_lease_and_the_cluster_stays(supervised: Supervised, run: socket.socket) -> None:
    second = LocalBackend()
    second.apply(WITH)
    LocalBackend().apply(WITHOUT)  # as `up` and `run --keep`
    record = supervised.folder.read()
    assert record is not None
    assert not record.is_leased
    assert cluster_status.status(supervised.folder, record).limits.lease is None
    second.leases.close("demo")
    run.close()
    assert not has_lease(supervised)
    assert not supervised.supervisor.lease.has_run_out


def test_a_run_that_leaves_the_cluster_to_scripts_ends_its_lease(supervised: Supervised, run: socket.socket) -> None:
    second = LocalBackend()
    second.apply(WITH)
    run.close()
    second.apply(WITHOUT)
    assert not has_lease(supervised)
    assert not supervised.supervisor.lease.has_run_out


def test_a_run_that_leaves_the_cluster_to_another_run_lets_it_remove_the_cluster(
    supervised: Supervised, run: socket.socket
) -> None:
    second = LocalBackend()
    second.apply(WITH)
    assert second.leases.release("demo") is True
    assert has_lease(supervised)
    run.close()
    assert has_ended(supervised)


def test_a_cluster_that_ran_before_gets_no_lease(supervised: Supervised) -> None:
    supervised.folder.write_supervisor(os.getpid())
    second = LocalBackend()
    second.apply(WITH)  # another command has started the cluster since `run` looked
    assert not has_lease(supervised)
    assert not supervised.supervisor.lease.has_run_out


def test_nobody_holds_a_cluster_that_ends(supervised: Supervised, run: socket.socket) -> None:
    supervised.supervisor._is_stopping = True
    second = LocalBackend()
    with pytest.raises(ClusterError, match='cluster "demo": the cluster ends'):
        second.apply(WITH)


@pytest.mark.parametrize("asked", [WITH, WITHOUT])
def test_a_new_cluster_is_leased_as_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: JobFile) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    own, theirs = socket.socketpair()
    started: list[tuple[JobFile, bool]] = []

    def start(_: object, spec: JobFile, *, leased: bool, **__: object) -> socket.socket | None:
        started.append((spec, leased))
        return own if leased else None

    monkeypatch.setattr(starting, "start", start)
    backend = LocalBackend()
    with own, theirs:
        assert backend.apply(asked) is True
        assert started == [(WITHOUT, asked is WITH)]  # the record has no lease
        del backend
        assert polling.readable(theirs.fileno(), 0) is False  # the test still holds the connection


@pytest.mark.parametrize(("is_own", "left"), [(True, False), (False, True)])
def test_only_its_own_supervisor_removes_a_folder(supervised: Supervised, is_own: bool, left: bool) -> None:
    supervised.folder.write_supervisor(os.getpid() if is_own else os.getppid())
    lease.remove(supervised.folder)
    assert state.folder("demo").exists() is left
