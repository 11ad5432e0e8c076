"""TensorBoard on this machine: real event files of a script, and a server that ends with its command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import urllib3
from clusters import children, start_tfk8s, tfk8s, wait_until_gone
from event_files import LOSSES, WRITE, losses

from tfk8s import polling

Start = Callable[..., subprocess.Popen[str]]
EMPTY = "tfk8s: there are no event files below logs yet: TensorBoard looks again every 5 s\n"


@pytest.fixture
def start(pair: str, tmp_path: Path) -> Iterator[Start]:
    """Starts `tfk8s tensorboard` in a folder with empty `logs`; what its browser gets is in the file `opened`."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "browser").write_text('#!/bin/sh\necho "$1" "$(cat "${1#file://}")" >> opened\n')
    (tmp_path / "browser").chmod(0o755)
    browser = f"{tmp_path}/browser %s"
    started: list[subprocess.Popen[str]] = []

    def start(**variables: str) -> subprocess.Popen[str]:
        command = "tensorboard", "--local", pair
        started.append(start_tfk8s(*command, cwd=tmp_path, env={**os.environ, "BROWSER": browser, **variables}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def server_of(command: subprocess.Popen[str]) -> int:
    """Return the pid of a command's only child, as soon as there is one."""
    (server,) = polling.wait_until(lambda: children(command.pid), "the server to start", 60)
    return server


def at_any_speed(errors: str) -> str:
    """Return messages without the one that only a slow machine shows."""
    return errors.replace("tfk8s: waiting for TensorBoard to start\n", "")


def test_page_shows_what_a_script_writes(start: Start, pair: str, tmp_path: Path) -> None:
    command = start()
    server = server_of(command)
    assert command.stdout is not None
    url = command.stdout.readline().strip()
    match = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)([0-9a-f]{48})/", url)
    assert match, url
    (tmp_path / "write.py").write_text(WRITE)
    script = tfk8s("submit", "--local", pair, "write.py", "logs", cwd=tmp_path, timeout=120)
    assert script.returncode == 0, script.stderr
    assert losses(url) == LOSSES
    assert urllib3.request("GET", f"{match[1]}data/runs").status == 404  # the path is a secret
    assert match[2] not in Path(f"/proc/{server}/cmdline").read_text()
    opened = tmp_path / "opened"
    polling.wait_until(lambda: opened.exists() and opened.read_text().endswith("\n"), "the browser", 60)
    address, page = opened.read_text().split(" ", 1)
    assert address.startswith("file://")
    assert page == f'<meta http-equiv="refresh" content="0; url={url}">\n'
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=60)
    assert command.returncode == 130
    assert at_any_speed(errors).startswith(f'{EMPTY}TensorBoard shows the event files below "logs", until Ctrl-C\n')
    wait_until_gone(server)
    assert not Path(address.removeprefix("file://")).exists()


def test_server_ends_with_a_killed_command(start: Start) -> None:
    command = start()
    server = server_of(command)
    command.kill()
    wait_until_gone(server)


def test_tensorboard_that_does_not_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "tensorboard.py").write_text("import sys; sys.exit(5)")
    out, errors = start(PYTHONPATH=str(tmp_path)).communicate(timeout=60)
    assert out == ""
    assert at_any_speed(errors) == f"{EMPTY}error: TensorBoard ended with exit code 5: its messages are above\n"
