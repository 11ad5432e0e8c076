"""The logs of tasks and scripts on their way into a record. Standard library only: this file runs in pods."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence

from tfk8s.core.naming import SCRIPT_MARK
from tfk8s.core.progress import latest
from tfk8s.task.lifetime.object_server import FAILURES, ObjectServer
from tfk8s.task.lifetime.record.observed import ObservedPod
from tfk8s.task.lifetime.record.record_files import RecordFiles

_MOST = 32  # read in one look; the next look goes on
_TIMEOUT = 10.0  # seconds of a look for logs: the end of the cluster comes after them
_PART = {"timestamps": "true", "tailLines": 10_000, "limitBytes": 4 << 20}
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")


class RecordLogs:
    """Reads the logs look by look.

    Args:
        server: the API server.
        stopped: ends a look that is not the last.
        with_logs: whether the record keeps them; else their progress alone.

    Attributes:
        progress: the last line of `tfk8s.progress`, by the name of the log.
    """

    def __init__(self, server: ObjectServer, stopped: threading.Event, *, with_logs: bool) -> None:
        self._server, self._stopped, self._with_logs = server, stopped, with_logs
        self._ends: dict[str, tuple[str, int]] = {}  # the time of the last line, and the run; read last comes last
        self.progress: dict[str, str] = {}

    def read(self, files: RecordFiles, pods: Mapping[str, ObservedPod], *, is_last: bool) -> None:
        """Read what is new in a few logs, those that were read least recently; in the last look, in all of them.

        Args:
            pods: by the names of their logs.

        Raises:
            OSError: the volume can't be written.
        """
        order = {name: place for place, name in enumerate(self._ends, 1)}
        readable = sorted((name for name, pod in pods.items() if pod.runs), key=lambda name: order.get(name, 0))
        begin = time.monotonic()
        for name in readable if is_last else readable[:_MOST]:
            if time.monotonic() - begin > _TIMEOUT or self._stopped.is_set() is not is_last:
                break
            self._read_log(files, name, pods[name])

    def _read_log(self, files: RecordFiles, name: str, pod: ObservedPod) -> None:
        if name not in self._ends:  # an earlier pod may have written
            self._ends[name] = (files.resume_log(name) if self._with_logs else "", pod.restarts)
        last, run = self._ends[name]
        try:
            if run < pod.restarts:
                last = self._keep_lines(files, name, run, last, self._lines(pod, last, previous=True))
                run = pod.restarts
            last = self._keep_lines(files, name, run, last, self._lines(pod, last))
        finally:  # the next look begins with others, also if this node does not answer
            del self._ends[name]
            self._ends[name] = last, run

    def _keep_lines(self, files: RecordFiles, name: str, run: int, last: str, lines: Sequence[tuple[str, str]]) -> str:
        """Keep lines of a log, and the progress in them; return the time of the last line."""
        if said := latest(text for _, text in lines):
            self.progress[name] = str(said)
        if self._with_logs:
            files.add_log(name, [f"{moment} {run} {text}".encode(errors="replace") for moment, text in lines])
        return lines[-1][0] if lines else last

    def _lines(self, pod: ObservedPod, last: str, *, previous: bool = False) -> list[tuple[str, str]]:
        """Return the lines of a log after a time, each with kubelet's time of it; none if there is no log."""
        moment = _MOMENT.fullmatch(last)
        since = {"sinceTime": f"{moment[1]}{moment[2]}"} if moment else {}
        of_run = {"previous": "true"} if previous else {}
        try:
            content = self._server.log(pod.name, pod.container, _PART | since | of_run)
        except FAILURES:  # there is no log, or the node does not answer
            return []
        whole = content.decode(errors="replace").split("\n")[:-1]  # `limitBytes` may cut the last line
        pairs = (line.partition(" ") for line in whole)
        return [
            (moment, text.removeprefix(SCRIPT_MARK)) for moment, _, text in pairs
            if moment > last and not text.startswith(SCRIPT_MARK * 2) and _MOMENT.fullmatch(moment)
        ]  # fmt: skip
