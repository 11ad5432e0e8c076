"""Set-up of all tests."""

from __future__ import annotations

import gc
import os
import signal
import tempfile

import pytest

pytest.register_assert_rewrite("fakes", "backend_contract")

# A shell's background job ignores SIGINT, and so would all programs that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

_STATE = tempfile.TemporaryDirectory(prefix="tfk8s-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name  # else the user's history would have the tests' clusters

gc.disable()  # while tests are imported: their objects stay, and each collection would look through all of them


_MOST_RERUNS = 2  # more are no bad luck


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Count second runs in each process: pytest-rerunfailures asks another one before each test, and waits for ever."""
    if config.pluginmanager.hasplugin("rerunfailures") and hasattr(config, "workerinput"):  # of pytest-xdist
        from pytest_rerunfailures import StatusDB

        config.failures_db.sock.close()
        config.failures_db = StatusDB()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Limit the second run of a test as the first: pytest-timeout begins with the first run, and ends one run alone."""
    if getattr(item, "execution_count", 1) > 1 and item.config.pluginmanager.hasplugin("timeout"):
        from pytest_timeout import get_env_settings

        if (settings := get_env_settings(item.config)).timeout:
            item.ihook.pytest_timeout_set_timer(item=item, settings=settings)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if many tests needed a second run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and len(reporter.getreports("rerun")) > _MOST_RERUNS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show each first failure of a test that the gate ran twice: a race in a test, or in the product."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"failed, and ran again: {report.nodeid}", "_")
        terminalreporter.write_line(report.longreprtext)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
