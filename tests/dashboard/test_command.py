"""The command, as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import Window
from playwright.sync_api import Browser, expect

TFK8S = Path(sys.executable).with_name("tfk8s")


@contextmanager
def dashboard(*words: str, state: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "XDG_STATE_HOME": str(state), "KUBECONFIG": str(state / "none")}
    command = [str(TFK8S), "dashboard", "--no-browser", *words]
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def test_ctrl_c_ends_the_command_while_pages_are_open(browser: Browser, tmp_path: Path) -> None:
    with dashboard(state=tmp_path) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        with browser.new_context() as context:
            window = Window(context.new_page(), url)
            expect(window.page.locator("#empty")).to_contain_text("No cluster runs")
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=20)
            assert (process.returncode, out, errors) == (130, "", "the page shows your clusters, until Ctrl-C\n")
            expect(window.page.locator("#connection")).to_have_text("not connected; trying again …")


def test_a_cluster_that_nobody_has(tmp_path: Path) -> None:
    with dashboard("--local", "mnist", state=tmp_path) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.startswith('error: there is no cluster "mnist" on this machine')
