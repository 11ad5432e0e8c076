"""Waits for the end of pods, whose programs and scripts may save for as long as `grace` in the job file says."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tfk8s import polling
from tfk8s.errors import listed
from tfk8s.render.pods import POD_GRACE, Object
from tfk8s.sessions.forks.escalation import forwarded_signals

# Kubelet shortens the grace period of a pod that ends already (kubernetes.io/docs/concepts/workloads/pods/
# pod-lifecycle, "Pod Termination"). With 0, the API server would forget a pod that still runs.
AT_ONCE = {"gracePeriodSeconds": 1}
_NAMES = 3


class PodWait:
    """A wait for pods.

    Args:
        what: the pods, for messages.
        seconds: the limit after each change of the pods, besides their grace period.

    Attributes:
        is_hurried: the user wants pods to end that still save, by a signal in `until_or_hurry`.
    """

    def __init__(self, what: str, seconds: float) -> None:
        self._what, self._timeout = what, polling.TimeoutWithoutChange(seconds)
        self._names: list[str] = []
        self._grace = 0
        self.is_hurried = self._can_hurry = False

    def note(self, pods: Sequence[Object]) -> None:
        """Note the pods that are left."""
        self._names = sorted(pod["metadata"]["name"] for pod in pods)
        self._grace = max((pod["spec"].get("terminationGracePeriodSeconds", 0) for pod in pods), default=0)
        self._timeout.note(self._names, self._grace)

    def until(self, are_gone: Callable[[], bool]) -> None:
        """Wait until `are_gone` returns True; show once, after two seconds, what this waits for.

        Raises:
            WaitTimeout: the pods do not end.
        """
        polling.wait_until(are_gone, self._awaited, self._timeout, announce=functools.cache(self._awaited))

    def until_or_hurry(self, are_gone: Callable[[], bool]) -> None:
        """Wait likewise. The first signal sets `is_hurried` while pods may save; `are_gone` has to end them then."""
        self._can_hurry = True
        with forwarded_signals(self._hurry):
            self.until(are_gone)

    def _hurry(self, _: int) -> bool:
        if self.is_hurried or self._grace <= POD_GRACE:
            return False
        self.is_hurried = True
        return True

    def _awaited(self) -> str:
        if self._grace <= POD_GRACE:
            return f"{self._what} to end"
        names = listed(self._names, _NAMES)
        advice = "; Ctrl-C ends them at once" * self._can_hurry
        return f"{self._what} to end, at most {self._grace} s: {names}{advice}"
