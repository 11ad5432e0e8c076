"""Knows how a cluster's tasks were when all was well, and finds out what has become of them when a call fails."""

from __future__ import annotations

import sys

from tfk8s import preflight, verdicts, waiting
from tfk8s.errors import TaskUnreachable, Tfk8sError, WaitTimeout
from tfk8s.news import News, known
from tfk8s.preflight import View
from tfk8s.verdicts import Answer, Known

# A pod that is made anew has another address. gRPC looks a name up again after 30 seconds at the earliest, and the
# cluster's DNS may give the old address for as long.
REACH_SECONDS = 90.0
_NEWS_SECONDS = 3.0  # a lost task is told of a moment after TensorFlow has noticed, and why by kubelet later yet


class Witness:
    """Asks all tasks at once.

    Args:
        view: the tasks.
        news: what else is known of them.
    """

    def __init__(self, view: View, news: News = known) -> None:
        self.view, self._news = view, news
        self._before: list[Answer] = []

    def check(self) -> None:
        """Check that all is well; waits for a master that does not reach a task yet, which TensorFlow would not tell.

        Raises:
            TaskUnreachable, VersionSkew: as `preflight.require`; or the master does not find a task's new address.
        """
        self._accept(self.view.ask())
        self._wait_for_master()

    def wait(self, timeout: float) -> None:
        """Wait until every task answers.

        Raises:
            WaitTimeout: with a table of what each said.
            VersionSkew: they answer, and do not fit.
        """
        answers: list[Answer] = []

        def all_answer() -> bool:
            nonlocal answers
            answers = self.view.ask()
            return not any(answer.error for answer in answers)

        waiting.wait_until(all_answer, lambda: f"all tasks to answer\n{preflight.table(answers)}", timeout)
        self._accept(answers)
        self._wait_for_master()

    def _wait_for_master(self) -> None:
        """Wait until the master reaches every task; say so where that takes time."""
        trouble = ""

        def all_reached() -> bool:
            nonlocal trouble
            if not (missing := self.view.unreached()):
                return True
            if not trouble:
                trouble = preflight.not_reached(self.view.master, missing)
                _say(f"tfk8s: {trouble}; waiting up to {REACH_SECONDS:.0f} s until it looks that up again")
            return False

        try:
            waiting.wait_until(all_reached, "the master to reach all tasks", REACH_SECONDS)
        except WaitTimeout as error:
            raise TaskUnreachable(
                trouble, help=f"`tfk8s restart NAME {self.view.master}` has it look up all addresses anew"
            ) from error
        if trouble:
            _say(f"tfk8s: {self.view.master} reaches all tasks now")

    def _accept(self, answers: list[Answer]) -> None:
        preflight.require(answers)
        preflight.warn(answers)
        self._before = answers

    def explain(self, error: Exception) -> Tfk8sError | None:
        """Return what an error of TensorFlow's means; None where it is not about tasks, devices or sizes."""
        kind, message = type(error).__name__, str(error)
        before = Known(master=self.view.master, without=sorted(self.view.without))
        if kind not in verdicts.ABOUT_TASKS or not self._before:
            return verdicts.named(kind, message, before)
        now = self.view.ask(self._news.lost_now)
        since = verdicts.compare(self._before, now, {}, before.without)
        reasons = self._news.reasons(_NEWS_SECONDS if since.lost or since.restarted else 0.0)
        return verdicts.named(kind, message, verdicts.compare(self._before, now, reasons, before.without))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - for the script's user
