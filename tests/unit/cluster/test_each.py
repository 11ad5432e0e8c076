"""The tasks of `run --each`; the scripts are in tests/local."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tfk8s.cluster import each
from tfk8s.core.programs import Program
from tfk8s.core.script import Script
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.errors import InvalidInput


def test_the_tasks_of_a_job() -> None:
    program = Job(name="evaluator", program=Program(("train.py",)))
    spec = JobFile(name="demo", image="tf:1", master="ps", jobs=(Job(name="ps"), Job(name="worker", tasks=2), program))
    assert each.tasks_of(spec, "worker") == [Task("worker", 0), Task("worker", 1)]
    with pytest.raises(InvalidInput) as error:
        each.tasks_of(spec, "wroker")
    assert str(error.value) == 'there is no job "wroker"; the jobs are ps, worker, evaluator'
    assert error.value.help == "did you mean worker?"
    with pytest.raises(InvalidInput, match=r'(?m)^job "evaluator" has no servers for scripts$') as error:
        each.tasks_of(spec, "evaluator")
    assert error.value.help == "jobs with servers: ps, worker"


@pytest.mark.parametrize(("grace", "expected"), [(None, 15), (1, 4), (600, 600)])
def test_scripts_have_the_grace_of_their_job_file(
    monkeypatch: pytest.MonkeyPatch, grace: int | None, expected: float
) -> None:
    limits = []
    monkeypatch.setattr(each, "run_together", lambda commands, on_line, limit: limits.append(limit) or 0)
    backend = SimpleNamespace(locator=lambda name: None)
    assert each.run_each(backend, "demo", [], Script(path=Path("a.py")), lambda *_: None, grace) == 0  # type: ignore[arg-type]
    assert limits == [expected + 10]  # besides, the process of a script may end


def test_the_script_of_a_task() -> None:
    script = Script(
        path=Path("a.py"), arguments=("--at=$(TFK8S_JOB)/$(TFK8S_INDEX)", "$(HOME)"), environment={"A": "b"}
    )
    expected = Script(
        path=Path("a.py"), arguments=("--at=worker/1", "$(HOME)"),
        environment={"A": "b", "TFK8S_JOB": "worker", "TFK8S_INDEX": "1"},
    )  # fmt: skip
    assert each.script_of(Task("worker", 1), script) == expected
