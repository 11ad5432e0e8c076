"""Knows how a cluster's tasks were when all was well, and finds out what has become of them when a call fails."""

from __future__ import annotations

import sys
import time

from tfk8s import polling
from tfk8s.errors import TaskUnreachable, Tfk8sError, WaitTimeout
from tfk8s.sessions import error_names, preflight
from tfk8s.sessions.error_names import ProbeResult, TaskChanges
from tfk8s.sessions.lost_tasks import LostTasks, known
from tfk8s.sessions.preflight import ClusterView

# A pod that is made anew has another address. gRPC looks a name up again after 30 seconds at the earliest, and the
# cluster's DNS may give the old address for as long.
REACH_SECONDS = 90.0
OTHERS_SECONDS = 40.0  # the master's are needed by every session, other ways by some
_NEWS_SECONDS = 3.0  # a lost task is told of a moment after TensorFlow has noticed, and why by kubelet later yet


class ClusterProbe:
    """Asks all tasks at once.

    Args:
        view: the tasks.
        news: what else is known of them.
    """

    def __init__(self, view: ClusterView, news: LostTasks = known) -> None:
        self.view, self._news = view, news
        self._before: list[ProbeResult] = []

    def check(self) -> None:
        """Check that all is well; waits for a master that does not reach a task yet, which TensorFlow would not tell.

        Raises:
            TaskUnreachable, VersionSkew: as `preflight.require`; or the master does not find a task's new address.
        """
        self._accept(self.view.ask())
        self._wait_for_ways()

    def wait(self, timeout: float) -> None:
        """Wait until every task answers.

        Raises:
            WaitTimeout: with a table of what each said.
            VersionSkew: they answer, and do not fit.
        """
        answers: list[ProbeResult] = []

        def all_answer() -> bool:
            nonlocal answers
            answers = self.view.ask()
            return not any(answer.error for answer in answers)

        polling.wait_until(all_answer, lambda: f"all tasks to answer\n{preflight.table(answers)}", timeout)
        self._accept(answers)
        self._wait_for_ways()

    def _wait_for_ways(self) -> None:
        """Wait until the tasks, above all the master, reach each other; say so where that takes time."""
        missing: dict[str, list[str]] = {}
        trouble, patient_until = "", time.monotonic() + OTHERS_SECONDS

        def all_reached() -> bool:
            nonlocal trouble, missing
            missing = self.view.missing_ways()
            if missing and not trouble:
                trouble = preflight.not_reached(missing)
                _say(f"tfk8s: {trouble}; waiting up to {REACH_SECONDS:.0f} s until that is looked up again")
            return not missing or (self.view.master not in missing and time.monotonic() >= patient_until)

        try:
            polling.wait_until(all_reached, "the tasks to reach each other", REACH_SECONDS)
        except WaitTimeout as error:
            raise TaskUnreachable(
                trouble, help=f"`tfk8s restart NAME {self.view.master}` has it look up all addresses anew"
            ) from error
        if missing:
            _say(f"tfk8s: {preflight.not_reached(missing)}; going on, for scripts that need it not")
        elif trouble:
            _say("tfk8s: the tasks reach each other now")

    def _accept(self, answers: list[ProbeResult]) -> None:
        preflight.require(answers)
        preflight.warn(answers)
        self._before = answers

    def explain(self, error: Exception) -> Tfk8sError | None:
        """Return what an error of TensorFlow's means; None where it is not about tasks, devices or sizes."""
        kind, message = type(error).__name__, str(error)
        before = TaskChanges(master=self.view.master, without=sorted(self.view.without))
        if kind not in error_names.ABOUT_TASKS or not self._before:
            return error_names.classify(kind, message, before)
        now = self.view.ask(self._news.lost_now)
        since = error_names.compare(self._before, now, {}, before.without)
        reasons = self._news.reasons(_NEWS_SECONDS if since.lost or since.restarted else 0.0)
        return error_names.classify(kind, message, error_names.compare(self._before, now, reasons, before.without))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - for the script's user
