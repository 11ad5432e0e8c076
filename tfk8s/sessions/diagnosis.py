"""Probes a cluster's tasks before a session, and again when a call fails, to explain the failure."""

from __future__ import annotations

import time

from tfk8s import polling
from tfk8s.errors import TaskUnreachable, Tfk8sError, WaitTimeout
from tfk8s.log import log
from tfk8s.sessions import error_names, preflight
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.error_names import ProbeResult, TaskChanges
from tfk8s.sessions.lost_tasks import LostTasks
from tfk8s.sessions.timing import TIMING, Timing

NAME_INTERVAL = 0.5
_ADVICE = (
    "`tfk8s restart NAME {}` makes it look up all addresses again; if that does not help, a NetworkPolicy or a "
    "firewall keeps the tasks apart"
)


class ClusterProbe:
    """Probes all tasks at once.

    Args:
        view: the tasks.
        losses: the lost tasks, with reasons that a probe does not show.
    """

    def __init__(self, view: ClusterView, losses: LostTasks, timing: Timing = TIMING) -> None:
        self.view, self._losses, self._timing = view, losses, timing
        self._before: list[ProbeResult] = []

    def check(self) -> None:
        """Check that all tasks answer; wait for a master that can't reach a task yet, since TensorFlow waits silently.

        Raises:
            TaskUnreachable, VersionSkew: as `preflight.require`; or the master does not find a task's new address.
        """
        self._accept(self._probe_names())
        self._wait_for_connections()

    def _probe_names(self) -> list[ProbeResult]:
        """Probe all tasks, again while DNS does not know a name: a DNS server keeps for 30 s that it knew none."""
        answers, is_said = self.view.probe_all(), False
        for _ in polling.poll(self._timing.partial_lookup_timeout, least_interval=NAME_INTERVAL):
            if not (nameless := preflight.nameless(answers)):
                break
            if not is_said:
                named = f"DNS does not know {', '.join(nameless)} yet"
                log.warning("%s; waiting up to %.0f s", named, self._timing.partial_lookup_timeout)
                is_said = True
            answers = self.view.probe_all()
        return answers

    def wait(self, timeout: float) -> None:
        """Wait until every task answers.

        Raises:
            WaitTimeout: not all tasks answer; the text has a table of all.
            VersionSkew: their versions do not match.
        """
        answers: list[ProbeResult] = []

        def all_answer() -> bool:
            nonlocal answers
            answers = self.view.probe_all()
            return not any(answer.error for answer in answers)

        polling.wait_until(all_answer, lambda: f"all tasks to answer\n{preflight.table(answers)}", timeout)
        self._accept(answers)
        self._wait_for_connections()

    def _wait_for_connections(self) -> None:
        """Wait until the tasks, above all the master, can reach each other."""
        pairs: dict[str, list[str]] = {}
        # The master's connections are for every session, others for some.
        trouble, others_until = "", time.monotonic() + self._timing.partial_lookup_timeout

        def is_connected() -> bool:
            nonlocal trouble, pairs
            pairs = self.view.unreachable_pairs()
            if pairs and not trouble:
                trouble = preflight.unreachable(pairs)
                log.warning("%s; waiting up to %.0f s", trouble, self._timing.lookup_timeout)
            return not pairs or (self.view.master not in pairs and time.monotonic() >= others_until)

        try:
            polling.wait_until(is_connected, "the tasks to reach each other", self._timing.lookup_timeout)
        except WaitTimeout as error:
            raise TaskUnreachable(trouble, help=_ADVICE.format(self.view.master)) from error
        finally:
            self.view.close_questions()
        if pairs:
            log.warning("%s; continuing, since not every script needs that", preflight.unreachable(pairs))
        elif trouble:
            log.warning("the tasks can reach each other now")

    def _accept(self, answers: list[ProbeResult]) -> None:
        preflight.require(answers)
        preflight.warn(answers)
        self._before = answers

    def explain(self, error: Exception) -> Tfk8sError | None:
        """Return the named error for an error of TensorFlow; None if it is not about tasks, devices or sizes."""
        kind, message = error_names.kind(error), str(error)
        changes = TaskChanges(master=self.view.master, without=sorted(self.view.without))
        if kind in error_names.ABOUT_TASKS and self._before:
            now = self.view.probe_all(self._losses.lost_now)
            changes = error_names.compare(self._before, now, {}, changes.without)
            reasons = self._losses.reasons(self._timing.reason_timeout if changes.lost or changes.restarted else 0.0)
            changes = error_names.compare(self._before, now, reasons, changes.without)
        return error_names.classify(kind, message, changes)
