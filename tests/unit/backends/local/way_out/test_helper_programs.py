"""Tests of the programs that give a network a way out."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tfk8s.backends.local.way_out import helper_programs
from tfk8s.core.network.way_out import Way


class Probe(socket.socket):
    """A socket whose messages reach the other end of its pair, whatever address they have."""

    def sendto(self, data: bytes, _: object) -> int:  # type: ignore[override]
        return self.send(data)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, way: Way, command: str) -> None:
    (folder / way).write_text(f"#!/bin/sh\n{command}\n")
    (folder / way).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_what_is_installed_is_tried_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for way in (Way.PASTA, Way.SLIRP):
        install(monkeypatch, tmp_path, way, "true")
    devices = [True]
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: devices[0] if path == helper_programs.DEVICE else access(path, mode)
    )
    assert helper_programs.installed() == [Way.SLIRP, Way.PASTA]
    devices[0] = False
    assert helper_programs.installed() == []


@pytest.mark.programs
@pytest.mark.parametrize("way", [Way.SLIRP, Way.PASTA])
def test_a_program_that_ends_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: Way) -> None:
    install(monkeypatch, tmp_path, way, "exit 1")
    ours, silent = socket.socketpair(type=socket.SOCK_DGRAM)
    with Probe(fileno=ours.detach()) as probe, silent, pytest.raises(OSError, match=f"{way} "):
        helper_programs.start(way, os.getpid(), probe)


@pytest.mark.programs
def test_pasta_works_when_a_resolver_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, Way.PASTA, "exec sleep 10")
    ours, theirs = socket.socketpair(type=socket.SOCK_DGRAM)
    with Probe(fileno=ours.detach()) as probe, theirs as resolver:
        resolver.send(b"something else")
        resolver.send(helper_programs.QUESTION)
        helper_programs.start(Way.PASTA, os.getpid(), probe).end()
        assert resolver.recv(100) == helper_programs.QUESTION
