"""The word of the Job that keeps the limits to the Job that writes the record. Standard library only: in pods.

The way of this word is that of commands' facts: annotations of the ServiceAccount.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from tfk8s.core.history.facts import Fact
from tfk8s.core.history.shared import NO_REQUESTS, to_notes
from tfk8s.core.lifetime import RECORD_TIMEOUT, RemovableObject
from tfk8s.task.lifetime.object_server import FAILURES, ObjectServer
from tfk8s.task.lifetime.output import say

_INTERVAL = 1.0


class RecordWitness:
    """Tells the pod that writes the record what the keeper does to the cluster. No failure keeps the keeper from it.

    Args:
        account: the ServiceAccount of both Jobs.
        job: the name of the Job that writes.
        clock: returns a time in seconds that only grows.
        sleep: waits for seconds.
    """

    def __init__(
        self, server: ObjectServer, account: RemovableObject, job: str, clock: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:  # fmt: skip
        self._server, self._account, self._clock, self._sleep = server, account, clock, sleep
        self._job = RemovableObject("batch/v1", "jobs", job)

    def suspended(self) -> None:
        """Tell that the cluster is suspended: its tasks request nothing. Who resumes it tells that, too."""
        self._try(lambda: self._leave({"kind": "requests", "time": time.time(), "requests": NO_REQUESTS}))

    def end(self, reason: str) -> None:
        """Tell why the cluster is going to be removed, and end the pod that writes, which writes what it knows last.

        Returns after 35 seconds at most, if the API server answers.
        """
        self._try(lambda: self._leave({"kind": "end", "time": time.time(), "reason": reason, "lost": False}))
        self._try(self._end_job)

    def _leave(self, fact: Fact) -> None:
        self._server.patch(self._account, {"metadata": {"annotations": to_notes([fact])}})

    def remove_job(self) -> None:
        """Remove the Job, if it is still there: an answer may have been lost."""
        self._try(self._delete_job)

    def _end_job(self) -> None:
        self._delete_job()
        deadline = self._clock() + RECORD_TIMEOUT
        while self._server.get(self._job).body is not None and self._clock() < deadline:
            self._sleep(_INTERVAL)

    def _delete_job(self) -> None:
        if found := self._server.get(self._job).body:
            self._server.delete(self._job, found["metadata"]["uid"], "Foreground")

    def _try(self, request: Callable[[], None]) -> None:
        try:
            request()
        except FAILURES as error:
            say(f"error: the history may lack what happens now: {error}")


def of_environment(
    server: ObjectServer, objects: Sequence[RemovableObject], environment: Mapping[str, str],
    clock: Callable[[], float], sleep: Callable[[float], object],
) -> RecordWitness | None:  # fmt: skip
    """Return the witness that the variables of the Job's pod ask for; None without a record."""
    job = environment.get("TFK8S_RECORD_JOB")
    account = next(item for item in objects if item.resource == "serviceaccounts")
    return RecordWitness(server, account, job, clock, sleep) if job else None
