"""The stream to a script in a pod of its own: the script's folder, input, an interrupt, the end, and files.

The script's output is the container's log. So the script goes on without this stream, which a thread serves here.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence

from tfk8s import spans
from tfk8s.backends import downloads
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.scripts.stream import arriving_files, script_stream
from tfk8s.backends.kubernetes.scripts.stream.script_stream import BLOCK, ScriptStream, Unusable, reason
from tfk8s.core.script import Download, Outcome
from tfk8s.errors import ClusterError, ScriptLost
from tfk8s.log import log
from tfk8s.render.pods import Object
from tfk8s.task.stream import channel

INTERRUPT_TIMEOUT = 60.0
_END_TIMEOUT = 5.0  # between the end in the log and the end of the stream
_CLOSE_TIMEOUT = 1.0
STDIN = 0
CURES = {  # for a script without a connection to its pod, by what comes or goes by the connection
    "files": "leave out --get and --trace",
    "standard input": "give it none: < /dev/null",
    "folder": "name in .tfk8signore what the script does not need: a small folder needs no connection",
}


class PodScript(ScriptStream):
    """A script in a pod of its own.

    Args:
        client: the API server.
        pod: the pod.
        wanted: the files to copy.
        begun: the begin of the script's input, which goes on at this process' standard input; None without input.
        grace: the seconds that the job file's `grace` gives the script to save.
    """

    _resume_timeout = channel.CLIENT_TIMEOUT
    _gone = "the script's pod takes this command's connection no more"
    _lost, _refused = "which goes on", "where the script goes on"
    _help = _without = None

    def __init__(
        self, client: Client, pod: Object, wanted: Sequence[Download] = (), begun: bytes | None = None, grace: int = 0
    ) -> None:
        super().__init__(client, pod)
        self._wanted, self._begun = wanted, begun
        self._problems: list[str] | None = None
        self._failure: Exception | None = None
        self._end_timeout = INTERRUPT_TIMEOUT + grace
        self._limit: threading.Timer | None = None
        self._is_discarded = False
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfk8s-script", daemon=True)

    # ---- the main thread ----

    def upload(self, archive: bytes) -> None:
        """Send the script's folder, before `start`.

        Raises:
            ClusterError: the pod is gone, has no room, or can't be reached.
        """
        with spans.part("upload folder") as part:
            part[spans.FOLDER_SIZE] = len(archive)
            try:
                self._connect()
            except Unusable as error:
                if isinstance(error.__cause__, ScriptLost):  # `--retries` runs the script again
                    raise error.__cause__ from error
                raise ClusterError(f"the script's folder can't be sent to its pod: {reason(error)}") from error
            for start in range(0, len(archive), BLOCK):
                self._channel.send(channel.ARCHIVE, archive[start : start + BLOCK])
                while self._end is None and self._channel.is_full:
                    self._reconnected_step()
            self._channel.send(channel.ARCHIVE)
            while self._end is None and not self._channel.is_acknowledged:
                self._reconnected_step()
        if self._end is not None and "error" in self._end:
            raise ClusterError(f"the script's folder can't be sent: {self._end['error']}")

    def start(self) -> None:
        """Serve the stream on a thread, until the script's end."""
        self._thread.start()

    def close(self) -> None:
        """End the stream; the script goes on."""
        self._cancel_limit()
        self.stop()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_TIMEOUT)
        if not self._thread.is_alive():
            self._close()

    def confirms(self, code: int) -> bool:
        """Return whether the script has ended with this exit code, as its log says; wait for the copy of its files."""
        if self._is_known:
            self._is_done.wait(_END_TIMEOUT)
        return self._is_done.is_set() and self._failure is None and (self._end or {}).get("exit") == code

    def interrupt(self) -> bool:
        """Interrupt the script, so that its files can be copied; return False if there is nothing to wait for."""
        if not self._wanted or self._end is not None or self._is_done.is_set():
            self.report_loss()
            return False
        log.warning("the script ends, then its files are copied; Ctrl-C again leaves them behind")
        self._signals_end.send(bytes([signal.SIGINT]))
        self._limit = threading.Timer(self._end_timeout, self._on_limit)
        self._limit.daemon = True
        self._limit.start()
        return True

    def report(self, outcome: Outcome) -> Outcome:
        """Return how the script ended, and report what was not copied.

        Raises:
            ClusterError: the script succeeded, but not everything was copied.
        """
        self._cancel_limit()
        if self._wanted and self._end is not None:
            self._is_done.wait()  # a copy has limits of its own
        if self._wanted and self._problems is None:
            cause = "its pod did not wait for that" if self._failure is None else reason(self._failure)
            self._problems = [f"its files were not copied: {cause}"]
        return downloads.report(self._problems or (), outcome)

    def report_loss(self) -> None:
        """Report that nothing was copied from a script that did not end by itself."""
        self._cancel_limit()
        if self._wanted and self._problems is None:
            log.warning("the script's files were not copied")

    def require_connection(self) -> None:
        """Check that a script that was ended had the connection that it needed.

        Raises:
            ClusterError: it had none.
        """
        if self._is_discarded:
            assert self._failure is not None
            what = "files" if self._begun is None else "standard input"
            raise ClusterError(
                f"the script's {what} can't be passed on: {reason(self._failure)}", help=CURES[what]
            ) from self._failure

    def _on_limit(self) -> None:
        if self._end is not None:  # its files are on their way
            return
        log.warning("the script did not end within %g s", self._end_timeout)
        self._delete()

    def _delete(self) -> None:
        metadata = self._pod["metadata"]
        try:
            self._client.send("DELETE", paths.pod(metadata["namespace"], metadata["name"]))
        except ClusterError as error:
            log.warning("the script's pod can't be deleted: %s", error)

    def _cancel_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    # ---- the thread ----

    def _run(self) -> None:
        if self._begun is not None:
            self._input = STDIN
            if self._begun:
                self._channel.send(channel.INPUT, self._begun)
        try:
            if not self._is_known:
                self._connect()
            while self._end is None and not self._is_stopped:
                self._reconnected_step()
            if self._end is not None and not self._is_stopped:
                self._cancel_limit()
                self._problems = arriving_files.copy(self, self._end, self._wanted)
        except (ClusterError, Unusable) as error:
            self._failure = error
            if not self._is_stopped:
                self._end_useless_script(error)
        finally:
            self._channel.detach()
            self._is_done.set()

    def _end_useless_script(self, error: Exception) -> None:
        """End a script that would go on with a part of its input, or that nobody can take files from."""
        try:
            script_stream.require_running(self._client, self._pod)
        except ClusterError:  # its pod has ended
            return
        is_sent = self._input is None and self._channel.is_acknowledged
        if (self._begun is not None and not is_sent) or (self._wanted and not self._is_known):
            self._is_discarded = True
            self._delete()
        elif self._wanted:
            log.warning("the script's files can't be copied: %s", reason(error))
