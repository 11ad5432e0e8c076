"""Copies the files of a script from its pod, when the script has ended and its pod waits for that."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Sequence

from tfk8s import polling
from tfk8s.backends import downloads
from tfk8s.backends.kubernetes.api_server import commands, paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.core.naming import SCRIPT_CONTAINER
from tfk8s.core.script import Download, Outcome
from tfk8s.errors import ClusterError
from tfk8s.log import log
from tfk8s.sessions.pod import file_server
from tfk8s.task.files import received

RETRY_TIMEOUT = 60.0  # of a copy whose stream breaks
INTERRUPT_TIMEOUT = 60.0
_TEMPORARY = 500
_INTERRUPT = ("python3", "-c", "import os; os.kill(1, 2)")  # SIGINT for process 1, which passes it on to the script
_NOTHING = ("python3", "-c", "")


class ScriptFiles:
    """The files to copy from one script's pod.

    Args:
        client: the API server.
        namespace: the pod's.
        pod: the pod's name.
        wanted: the files.
        grace: the seconds that the job file's `grace` gives the script to save.
    """

    def __init__(self, client: Client, namespace: str, pod: str, wanted: Sequence[Download], grace: int = 0) -> None:
        self._client, self._namespace, self._pod, self._wanted = client, namespace, pod, wanted
        self._begun = False
        self._furthest = 0  # the most bytes that a copy has received
        self._problems: list[str] | None = None
        self._end_timeout = INTERRUPT_TIMEOUT + grace
        self._limit: threading.Timer | None = None

    def check(self) -> None:
        """Run a command in the pod, so that a missing permission is known before the script has worked for hours.

        Raises:
            ClusterError: commands can't run in the pod.
        """
        if self._wanted:
            commands.execute(self._client, self._namespace, self._pod, _NOTHING, (), container=SCRIPT_CONTAINER)

    def copy(self) -> None:
        """Copy the files; repeat that if the stream breaks. A failure is one of the problems of `report`.

        The timeout of retries begins again when a copy that came further than each before breaks. That copy's error is
        reported: a later one says no more than that nobody answers.
        """
        if not self._wanted:
            return
        self._begun = True
        self._cancel_limit()
        retries = polling.Retries(RETRY_TIMEOUT)
        while self._problems is None:
            before = self._furthest
            try:
                self._problems = self._copy_once()
            except ClusterError as error:
                if self._furthest > before:
                    retries = polling.Retries(RETRY_TIMEOUT)
                if self._furthest > before or not self._furthest:
                    cause = error
                is_refused = isinstance(error, ApiError) and error.code < _TEMPORARY
                if is_refused or isinstance(error, received.BadArchive) or not retries.wait():
                    self._problems = [downloads.failure(cause)]

    def _copy_once(self) -> list[str]:
        with commands.RemoteCommand(
            self._client,
            self._namespace,
            self._pod,
            file_server.COMMAND,
            container=SCRIPT_CONTAINER,
            timeout=file_server.STALL_TIMEOUT,
        ) as command:
            output = commands.Output(command)
            try:
                problems = received.receive(io.BufferedReader(output), self._wanted)
            finally:
                self._furthest = max(self._furthest, output.count)
            with contextlib.suppress(ClusterError):  # the files are here, and the pod may end with the receipt
                command.send(b"\n")
                command.wait(file_server.STALL_TIMEOUT)
        return problems

    def interrupt(self) -> bool:
        """Interrupt the script, so that its files can be copied; return False if there is nothing to wait for."""
        if not self._wanted or self._begun:
            return False
        log.warning("the script ends, then its files are copied; Ctrl-C again leaves them behind")
        try:
            commands.execute(self._client, self._namespace, self._pod, _INTERRUPT, (), container=SCRIPT_CONTAINER)
        except ClusterError as error:
            log.warning("the script can't be interrupted: %s", error)
            return False
        self._limit = threading.Timer(self._end_timeout, self._delete)
        self._limit.daemon = True
        self._limit.start()
        return True

    def _delete(self) -> None:
        log.warning("the script did not end within %g s", self._end_timeout)
        try:
            self._client.send("DELETE", paths.pod(self._namespace, self._pod))
        except ClusterError as error:
            log.warning("the script's pod can't be deleted: %s", error)

    def _cancel_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def report(self, outcome: Outcome) -> Outcome:
        """Return how the script ended, and report what was not copied.

        Raises:
            ClusterError: the script succeeded, but not everything was copied.
        """
        self._cancel_limit()
        if self._wanted and self._problems is None:
            self._problems = ["its files were not copied: its pod did not wait for that"]
        return downloads.report(self._problems or (), outcome)

    def report_loss(self) -> None:
        """Report that nothing was copied from a script that did not end by itself."""
        self._cancel_limit()
        if self._wanted and self._problems is None:
            log.warning("the script's files were not copied")
