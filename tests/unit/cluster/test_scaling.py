"""Other numbers of tasks, by the handle of a cluster."""

from __future__ import annotations

import pytest
from job_files import job_file

from tfk8s.cluster import readiness, scaling
from tfk8s.core.plan import Scaling
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job
from tfk8s.core.status import Phase
from tfk8s.errors import InvalidInput, WaitTimeout
from tfk8s.testing import FakeBackend, change


def test_tasks_of_ps_go_only_if_their_variables_may() -> None:
    backend = FakeBackend(job_file("mnist", chief=1, ps=2))
    with pytest.raises(InvalidInput) as caught:
        scaling.scale(backend, "mnist", {"ps": 1}, 1.0, None, lose_variables=False)
    assert str(caught.value) == "ps/1 may hold variables, which would be lost"
    assert caught.value.help == "save them; then add --yes (in Python: lose_variables=True)"
    assert backend.calls == []
    changed = scaling.scale(backend, "mnist", {"ps": 1}, 1.0, None, lose_variables=True)
    assert changed is Scaling.IN_PLACE
    assert len(backend.observe("mnist").tasks) == 2


def test_programs_restart_for_other_numbers() -> None:
    backend = FakeBackend(job_file("mnist", Job(name="worker", tasks=2, program=Program(("a",)))))
    assert scaling.scale(backend, "mnist", {"worker": 3}, 1.0, None, lose_variables=False) is Scaling.RESTARTED


@pytest.mark.parametrize("is_pulling", [True, False])
def test_scale_waits_longer_than_the_default_for_a_pull(monkeypatch: pytest.MonkeyPatch, *, is_pulling: bool) -> None:
    monkeypatch.setattr(readiness, "TIMEOUT", 0.01)
    backend = FakeBackend(job_file("mnist", chief=1, worker=2))
    waiting = change("worker/1", phase=Phase.PENDING, is_pulling=is_pulling)
    backend.updates = [change("chief/0"), *[waiting] * 20, change("worker/1", phase=Phase.READY, is_pulling=False)]
    if is_pulling:
        scaling.scale(backend, "mnist", {"worker": 2}, readiness.TIMEOUT, None, lose_variables=False)
        assert backend.updates == []
    else:
        with pytest.raises(WaitTimeout, match=r"worker/1 is pending"):
            scaling.scale(backend, "mnist", {"worker": 2}, readiness.TIMEOUT, None, lose_variables=False)
