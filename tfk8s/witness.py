"""Knows how a cluster's tasks were when all was well, and finds out what has become of them when a call fails."""

from __future__ import annotations

from tfk8s import preflight, verdicts, waiting
from tfk8s.errors import Tfk8sError
from tfk8s.news import News, known
from tfk8s.preflight import View
from tfk8s.verdicts import Answer, Known

_NEWS_SECONDS = 1.0  # a lost task is told of a moment after TensorFlow has noticed


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
        """Check that all is well.

        Raises:
            TaskUnreachable, VersionSkew: as `preflight.require`.
        """
        self._accept(self.view.ask())

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
        now = self.view.ask()
        since = verdicts.compare(self._before, now, {}, before.without)
        reasons = self._news.reasons(_NEWS_SECONDS if since.lost or since.restarted else 0.0)
        return verdicts.named(kind, message, verdicts.compare(self._before, now, reasons, before.without))
