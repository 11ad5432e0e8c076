"""The promises that every backend keeps, as tests: a subclass of `BackendContract` runs them on one backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job_files import job_file

from tfk8s.backends import devices
from tfk8s.backends.protocol import Backend
from tfk8s.cluster.program_run import wait_for_programs
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.plan import Scaling
from tfk8s.core.programs import Program
from tfk8s.core.script import LogOptions, Script
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.core.status import Phase
from tfk8s.errors import InvalidInput, NoSuchCluster

TIMEOUT = 120.0
FIRST, SECOND, PS = Task("worker", 0), Task("worker", 1), Task("ps", 0)

CALLS: dict[str, Callable[[Backend, str], object]] = {
    "delete": lambda backend, name: backend.delete(name),
    "dial": lambda backend, name: backend.dial(name, FIRST),
    "events": lambda backend, name: list(backend.events(name, follow=False)),
    "execute": lambda backend, name: backend.inside.execute(name, FIRST, ["true"]),
    "logs": lambda backend, name: list(backend.logs(name, [FIRST], LogOptions())),
    "observe": lambda backend, name: backend.observe(name),
    "restart": lambda backend, name: backend.restart(name, None),
    "run": lambda backend, name: backend.scripts.run(name, Script(path=Path(__file__))),
    "scale": lambda backend, name: backend.scale(name, {"worker": 1}),
    "script_log": lambda backend, name: backend.detached.log(name, "script-1"),
    "show": lambda backend, name: backend.detached.show(name, "script-1", LogOptions()),
    "stacks": lambda backend, name: backend.inside.stacks(name, [str(FIRST)]),
    "usage": lambda backend, name: backend.inside.usage(name, [str(FIRST)]),
    "start": lambda backend, name: backend.detached.start(name, Script(path=Path(__file__))),
    "stop": lambda backend, name: backend.detached.stop(name, "script-1"),
    "tensorboard": lambda backend, name: backend.scripts.tensorboard(
        name, folder="/", requirements=None, token="", port=0
    ),
}


class BackendContract:
    """The tests; a subclass has a fixture `backend`, and may change the job files that `make` builds."""

    make: Callable[..., JobFile] = staticmethod(job_file)

    @classmethod
    def up(cls, backend: Backend, name: str) -> str:
        """Make a cluster, and return its name when it is ready."""
        backend.apply(cls.make(name, worker=2, ps=1))
        return wait_until_ready(backend, name, TIMEOUT).name

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, backend: Backend) -> Iterator[str]:
        """The name of a cluster that tests leave as it is."""
        yield cls.up(backend, "contract")
        backend.delete("contract")

    @pytest.fixture
    def own(self, backend: Backend) -> Iterator[str]:
        """The name of a cluster for one test."""
        yield self.up(backend, "contract-own")
        if "contract-own" in [status.name for status in backend.clusters()]:
            backend.delete("contract-own")

    @pytest.fixture
    def script(self, tmp_path: Path) -> Script:
        """A script that exits with 7."""
        path = tmp_path / "script.py"
        path.write_text("import sys; sys.exit(7)")
        return Script(path=path)

    def test_status_lists_the_tasks_in_the_order_of_the_job_file(self, backend: Backend, shared: str) -> None:
        status = backend.observe(shared)
        assert (status.name, status.backend, status.phase) == (shared, backend.name, Phase.READY)
        assert [task.task for task in status.tasks] == [FIRST, SECOND, PS]
        assert [task.restarts for task in status.tasks] == [0, 0, 0]
        assert status.master == FIRST

    def test_stacks_and_usage_have_the_chosen_names(self, backend: Backend, shared: str) -> None:
        chosen = [str(PS), str(FIRST)]
        assert [found.name for found in backend.inside.stacks(shared, chosen)] == chosen
        assert [found.name for found in backend.inside.usage(shared, chosen)] == chosen

    def test_clusters_are_listed_by_name(self, backend: Backend, shared: str, own: str) -> None:
        names = [status.name for status in backend.clusters()]
        assert names == sorted(names)
        assert {shared, own} <= set(names)

    @pytest.mark.parametrize("call", CALLS)
    def test_an_unknown_name_is_an_error_with_help(self, backend: Backend, shared: str, call: str) -> None:
        with pytest.raises(NoSuchCluster, match='there is no cluster "absent"') as caught:
            CALLS[call](backend, "absent")
        assert caught.value.help

    def test_a_second_apply_changes_nothing(self, backend: Backend, shared: str) -> None:
        before = backend.observe(shared).tasks
        same = self.make(shared, worker=2, ps=1)
        assert not backend.plan(same)
        assert backend.apply(same) is False
        assert backend.observe(shared).tasks == before

    @pytest.mark.parametrize("name", ["contract", "planned"])
    def test_plan_changes_nothing(self, backend: Backend, shared: str, name: str) -> None:
        before = {status.name: status.tasks for status in backend.clusters()}
        assert backend.plan(self.make(name, worker=1, ps=1)).changes
        assert {status.name: status.tasks for status in backend.clusters()} == before

    def test_devices_of_all_tasks(self, backend: Backend, shared: str) -> None:
        answers = devices.list_devices(backend, backend.observe(shared))
        assert [answer.task for answer in answers] == [FIRST, SECOND, PS]
        for task, answer in zip((FIRST, SECOND, PS), answers, strict=True):
            (device,) = answer.devices
            assert device.name == f"/job:{task.job}/replica:0/task:{task.index}/device:CPU:0"

    def test_logs_have_the_last_lines_of_each_task(self, backend: Backend, shared: str) -> None:
        lines = list(backend.logs(shared, [FIRST, PS], LogOptions(tail=1)))
        assert [line.task for line in lines] == [FIRST, PS]
        assert all(line.text for line in lines)
        (line,) = backend.logs(shared, [FIRST], LogOptions(tail=1, timestamps=True, since=3600))
        assert line.text.endswith(lines[0].text)
        followed = backend.logs(shared, [FIRST, PS], LogOptions(follow=True, tail=1))
        assert {next(followed).task for _ in range(2)} == {FIRST, PS}

    def test_events_are_in_order_of_time(self, backend: Backend, shared: str) -> None:
        events = list(backend.events(shared, follow=False))
        assert {"worker/0", "worker/1", "ps/0"} <= {event.about for event in events}
        assert [event.time for event in events] == sorted(event.time for event in events)

    def test_run_returns_the_exit_code_of_the_script(self, backend: Backend, shared: str, script: Script) -> None:
        assert backend.scripts.run(shared, script).code == 7

    def test_a_command_beside_a_task_returns_its_exit_code(self, backend: Backend, shared: str) -> None:
        assert backend.inside.execute(shared, SECOND, ["sh", "-c", "exit 7"]) == 7

    def test_restart_replaces_one_task_or_all(self, backend: Backend, own: str) -> None:
        before = {task.task: task for task in backend.observe(own).tasks}
        backend.restart(own, PS)
        wait_until_ready(backend, own, TIMEOUT, before={PS: before[PS]})
        after = {task.task: task for task in backend.observe(own).tasks}
        assert {task for task in after if after[task] != before[task]} == {PS}
        assert {line.task for line in backend.logs(own, [FIRST, PS], LogOptions(previous=True))} == {PS}
        backend.restart(own, None)
        wait_until_ready(backend, own, TIMEOUT, before=after)

    def test_scale_changes_the_number_of_tasks(self, backend: Backend, own: str) -> None:
        before = {task.task: task for task in backend.observe(own).tasks}
        assert backend.scale(own, {"worker": 2}) is Scaling.UNCHANGED
        assert backend.observe(own).tasks == tuple(before.values())
        assert backend.scale(own, {"worker": 1}) is Scaling.IN_PLACE
        after = wait_until_ready(backend, own, TIMEOUT)
        assert {task.task: task.since for task in after.tasks} == {task: before[task].since for task in (FIRST, PS)}
        assert not backend.plan(self.make(own, worker=1, ps=1))
        assert len(devices.list_devices(backend, backend.observe(own))) == 2

    def test_programs_run_to_their_end_and_again(self, backend: Backend, script: Script) -> None:
        name, program = (
            "contract-programs",
            Program(("sh", "-c", 'test -n "$TF_CONFIG" && exit 7'), str(script.path.parent)),
        )
        backend.apply(self.make(name, Job(name="worker", program=program)))
        try:
            status = wait_for_programs(backend, name, TIMEOUT)
            assert (status.phase, status.exit_code, status.success) == (Phase.FAILED, 7, (FIRST,))
            assert [(task.phase, task.exit_code, task.is_program) for task in status.tasks] == [(Phase.FAILED, 7, True)]
            with pytest.raises(InvalidInput, match=f'cluster "{name}" has no server to connect to'):
                backend.scripts.run(name, script)
            backend.restart(name, None)
            again = wait_until_ready(backend, name, TIMEOUT, before={task.task: task for task in status.tasks})
            assert wait_for_programs(backend, again.name, TIMEOUT).exit_code == 7
        finally:
            backend.delete(name)

    def test_delete_removes_one_cluster(self, backend: Backend, shared: str, own: str) -> None:
        before = backend.observe(shared).tasks
        backend.delete(own)
        for call in (backend.observe, backend.delete):
            with pytest.raises(NoSuchCluster):
                call(own)
        assert own not in [status.name for status in backend.clusters()]
        assert backend.observe(shared).tasks == before
