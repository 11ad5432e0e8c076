"""The supervisor's answers to requests, good and bad, without a process of a cluster."""

from __future__ import annotations

import dataclasses
import errno
import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.supervisor import Supervised, good, make, supervised

from tfk8s import polling
from tfk8s.backends.local import cluster_status, supervisor_client
from tfk8s.backends.local.script_processes import ScriptRunner
from tfk8s.backends.local.supervision import requests
from tfk8s.backends.local.supervision.history import HistoryKeeper
from tfk8s.core.spec import Task
from tfk8s.core.status import Phase
from tfk8s.errors import ClusterError
from tfk8s.sessions.forks import event_loop
from tfk8s.task import ipc


@pytest.fixture(name="supervised")
def fixture(tmp_path: Path) -> Iterator[Supervised]:
    with supervised(tmp_path) as made:
        yield made


def descriptors() -> int:
    """Return the number of descriptors of this process, without those of earlier tests."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def until_only(before: int) -> None:
    """Wait until the supervisor has closed what came with requests."""
    polling.wait_until(lambda: descriptors() <= before, "the supervisor to close descriptors", 10)


def bad() -> Iterator[Any]:
    """Yield each message without one of its fields, and with wrong ones in that place."""
    yield from ({}, {"do": None}, {"do": []}, {"do": "run"}, {"do": "snapshot"}, [], None, 7, "run")
    for name, message in good().items():
        for field in message.keys() - {"do"} - ({"version"} if name == "stop" else set()):
            if field != "hurry":  # messages of earlier versions lack it
                yield {key: value for key, value in message.items() if key != field}
            other = 1 if field in ("fresh", "hurry") else field != "version"  # a number for a flag, a flag for a number
            yield from ({**message, field: value} for value in (7.5, [None], {"a": 1}, other))
    yield {**good()["dial"], "task": "worker/9"}
    yield {**good()["restart"], "task": "../worker"}


def test_all_kinds_are_tried() -> None:
    assert good().keys() == requests.KINDS.keys()


def test_another_field_has_another_version() -> None:
    """Whoever changes a field changes the number, too."""
    kinds = (*requests.KINDS.values(), requests.Snapshot)
    fields = {kind.__name__: " ".join(field.name for field in dataclasses.fields(kind)) for kind in kinds}
    assert (requests.VERSION, fields) == (
        3,
        {
            "Observe": "", "Dial": "task", "Restart": "task", "Scale": "record",
            "RunScript": "fresh python folder umask arguments progress environment", "Stop": "reason hurry",
            "Hold": "", "Keep": "",
            "Snapshot": "record tasks scripts idle_since holders isolation way_out proxy",
        },
    )  # fmt: skip


def test_a_bad_request_fails_alone(supervised: Supervised) -> None:
    before = descriptors()
    for message in bad():
        answer = supervised.ask(message, (0, 1, 2))
        assert list(answer) == ["refused"], message
    with supervised.connect() as connection:  # more than a message may have
        connection.sendall(b"\xff\xff\xff\xff")
        assert "at most" in ipc.receive(connection)[0]["refused"]
    assert supervised.ask(good()["observe"])["tasks"][0]["phase"] == Phase.PENDING
    until_only(before)


def waiting(supervised: Supervised) -> socket.socket:
    """Return the connection of a script that waits for its tasks."""
    connection = supervised.connect()
    ipc.send(connection, good()["run"], (0, 1, 2))
    supervised.ask(good()["observe"])  # now the supervisor has read the request
    return connection


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_a_script_that_waits_for_its_tasks(supervised: Supervised, number: int) -> None:
    before = descriptors()
    with waiting(supervised) as connection:
        ipc.send(connection, {"signal": number})
        assert ipc.receive(connection) == ({"exit": -number}, [])
    assert not supervised.supervisor._scripts.are_used
    until_only(before)


def test_a_client_that_goes_takes_its_waiting_script_along(supervised: Supervised) -> None:
    before = descriptors()
    waiting(supervised).close()
    until_only(before)
    assert not supervised.supervisor._scripts.are_used


def test_a_cluster_that_ends_starts_nothing(supervised: Supervised) -> None:
    supervised.supervisor._is_stopping = True  # its programs save
    for kind in ("restart", "scale", "run"):
        assert supervised.ask(good()[kind], (0, 1, 2)) == {"error": "the cluster ends"}
    with pytest.raises(ClusterError, match='cluster "demo": the cluster ends'):
        supervisor_client.send_request(supervised.folder, requests.Restart(task=None))


def test_the_end_of_a_cluster_ends_the_scripts_that_wait(supervised: Supervised) -> None:
    before = descriptors()
    with waiting(supervised) as connection:
        assert supervised.ask(good()["stop"]) == {}
        assert ipc.receive(connection) == ({"error": "the cluster was removed"}, [])
    assert not supervised.supervisor._scripts.are_used
    until_only(before)


def test_scripts_get_signals_before_the_history_is_written(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(HistoryKeeper, "stops", lambda *_: order.append("history"))
    monkeypatch.setattr(ScriptRunner, "stop", lambda *_: order.append("scripts"))
    assert supervised.ask(good()["stop"]) == {}
    assert order == ["scripts", "history"]


def test_a_script_that_can_not_start_does_not_hold_up_the_others(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised.supervisor._servers.clear()  # so that every script can start
    starts: list[Callable[[], None]] = []

    def start(script: Any, *_: object) -> None:
        starts.append(script)
        if len(starts) == 1:
            raise OSError("Too many open files")
        supervised.supervisor._scripts.finish(script, {"exit": 0})

    monkeypatch.setattr(supervised.supervisor._scripts, "fork", start)
    monkeypatch.setattr(supervised.supervisor._forks, "equals_interpreter", lambda *_: True)
    before = descriptors()
    assert supervised.ask(good()["run"], (0, 1, 2)) == {"error": "the script can't start: Too many open files"}
    assert supervised.ask(good()["run"], (0, 1, 2)) == {"exit": 0}
    until_only(before)


def test_the_status_is_of_one_moment(supervised: Supervised) -> None:
    read_before = make(5)  # and then another command has scaled the cluster
    found = cluster_status.status(supervised.folder, read_before)
    assert [task.task for task in found.tasks] == [Task("worker", 0), Task("worker", 1)]


def test_another_version_is_named(supervised: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(requests, "VERSION", 1)
        observe = requests.to_message(requests.Observe())
    monkeypatch.setattr(requests, "to_message", lambda _: observe)
    with pytest.raises(ClusterError) as caught:
        supervisor_client.observe(supervised.folder)
    assert "do not understand each other: this is version 3" in str(caught.value)
    assert "tfk8s down --local demo" in str(caught.value.help)


def test_a_record_that_can_not_be_read_is_refused(supervised: Supervised) -> None:
    record = make().to_dict()
    record["job_file"]["jobs"]["worker"]["tasks"] = 10**9
    assert "its tasks are not those" in supervised.ask({**good()["scale"], "record": record})["refused"]
    assert len(supervised.ask(good()["observe"])["tasks"]) == 2


def test_a_supervisor_without_descriptors_answers_later(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(event_loop, "PAUSE", 0.01)
    real, errors = supervised.supervisor._listener.socket, iter([errno.EMFILE, errno.EMFILE, errno.ENFILE])

    def accept() -> object:
        if number := next(errors, None):
            raise OSError(number, os.strerror(number))
        return real.accept()

    monkeypatch.setattr(supervised.supervisor._listener, "socket", SimpleNamespace(accept=accept))
    assert len(supervised.ask(good()["observe"])["tasks"]) == 2
    assert capsys.readouterr().err.count("Traceback") == 2  # one for each reason
