"""Other numbers of tasks, by the handle of a cluster."""

from __future__ import annotations

import pytest
from job_files import job_file

from tfk8s.cluster import scaling
from tfk8s.core.plan import Scaling
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job
from tfk8s.errors import InvalidInput
from tfk8s.testing import FakeBackend


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
