"""The wait for the end of pods."""

from __future__ import annotations

import pytest

from tfk8s import polling
from tfk8s.backends.kubernetes.pods.pod_ends import PodWait
from tfk8s.errors import WaitTimeout
from tfk8s.render.pods import Object


def pod(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 33}}


def test_the_pods_are_said_once_and_a_timeout_names_those_that_are_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)
    wait, left = PodWait("the pods", -33.0), [pod("a"), pod("b"), pod("c"), pod("d"), pod("e")]

    def are_gone() -> bool:
        wait.note(left)
        del left[:1]
        return not left

    wait.until(are_gone)
    assert caplog.messages == ["waiting for the pods to end, at most 33 s: a, b, c and 2 more"]
    wait.note([pod("z")])
    with pytest.raises(WaitTimeout, match="for the pods to end, at most 33 s: z"):
        wait.until(lambda: False)
