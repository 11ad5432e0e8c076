"""`tfk8s stacks`: the choice of tasks and scripts, and how what they do is shown."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence

import pytest
from documented_commands import page_output
from fakes.command_line import Run
from job_files import job_file

from tfk8s.backends.stacks import ProcessStacks, PythonThread, StackFrame, Stacks, TensorFlowCall
from tfk8s.core.status import Phase, ScriptPhase, ScriptStatus
from tfk8s.testing import CREATED, FakeBackend, change, use_backend

pytest_plugins = ("fakes.command_line",)

CALL = TensorFlowCall(name="session.run", seconds=41.2, needs=("chief/0", "worker/1"), is_same=True)
MAIN = PythonThread("MainThread", True, (StackFrame("train.py", 7, "<module>", "session.run(loss)"),), CALL)
READER = PythonThread("reader", False, (StackFrame("train.py", 3, "read", ""),), None)
FOUND = {
    "chief/0": ProcessStacks(pid=101, state="S", computes=True),
    "worker/0": ProcessStacks(pid=102, state="S", computes=False),
    "worker/1": ProcessStacks(pid=103, state="T", computes=False),
    "pid 9": ProcessStacks(pid=9, state="S", computes=False, threads=(MAIN, READER)),
    "pid 8": ProcessStacks(pid=8, state="S", computes=True, problem="no answer in 3 s"),
}

TEXT = """\
TASK      PHASE    DOES                                              NEEDED BY
chief/0   Ready    computes                                          pid 9
worker/0  Ready    waits
worker/1  Unknown  stopped by a signal; kill -CONT 103 continues it  pid 9

pid 9: train.py --steps 9

MainThread, in TensorFlow's session.run for 41.2 s; waits for worker/1 (stopped by a signal)
  File "train.py", line 7, in <module>
    session.run(loss)

reader
  File "train.py", line 3, in read

pid 8: other.py
no answer in 3 s

pid 7: third.py
has no process
"""


class Looking(FakeBackend):
    """A backend that finds `found`."""

    found = FOUND

    def stacks(self, name: str, chosen: Sequence[str]) -> list[Stacks]:
        self.calls.append(f"stacks {name} {chosen}")
        found = super().stacks(name, chosen)
        return [Stacks(other.name, (self.found[other.name],)) if other.name in self.found else other for other in found]


def script(pid: int, command: str, phase: ScriptPhase = ScriptPhase.RUNNING) -> ScriptStatus:
    return ScriptStatus(name=f"pid {pid}", phase=phase, command=command, since=CREATED)


@pytest.fixture
def backend() -> Iterator[Looking]:
    """A cluster with a stopped task, and scripts."""
    backend = Looking(job_file())
    ended = script(6, "ended.py", ScriptPhase.SUCCEEDED)
    scripts = (script(9, "train.py --steps 9"), script(8, "other.py"), script(7, "third.py"), ended)
    reason = "stopped by a signal; kill -CONT 103 continues it"
    stopped = change("worker/1", phase=Phase.UNKNOWN, reason=reason)
    restarted = change("worker/0", restarts=1, reason="killed by SIGKILL")
    backend.updates = [lambda status: restarted(stopped(dataclasses.replace(status, scripts=scripts)))]
    with use_backend(backend):
        yield backend


def test_stacks(run: Run, backend: Looking) -> None:
    code, out, err = run("stacks", "mnist")
    assert (code, out, err) == (0, TEXT, "")


def test_the_page_of_commands_has_such_an_output(run: Run) -> None:
    call = dataclasses.replace(CALL, needs=("worker/0", "worker/1", "ps/0"))
    main = PythonThread("MainThread", True, (StackFrame("train.py", 21, "main", "session.run(total)"),), call)
    backend = Looking(job_file(worker=2, ps=1))
    backend.found = {
        "worker/0": ProcessStacks(pid=4701, state="S", computes=False),
        "worker/1": ProcessStacks(pid=4702, state="T", computes=False),
        "ps/0": ProcessStacks(pid=4703, state="S", computes=True),
        "pid 4711": ProcessStacks(pid=4711, state="S", computes=False, threads=(main,)),
    }
    stopped = change("worker/1", phase=Phase.UNKNOWN, reason="stopped by a signal; kill -CONT 4702 continues it")
    backend.updates = [lambda status: stopped(dataclasses.replace(status, scripts=(script(4711, "train.py"),)))]
    with use_backend(backend):
        assert f"{run('stacks', 'mnist')[1]}  …\n" == page_output("docs/commands.md", "tfk8s stacks --local mnist")


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["worker"], ["worker/0", "worker/1"]),
        (["worker/1", "9"], ["worker/1", "pid 9"]),
        (["pid 8", "8"], ["pid 8"]),
    ],
)
def test_names(run: Run, backend: Looking, words: list[str], chosen: list[str]) -> None:
    assert run("stacks", "mnist", *words)[0] == 0
    assert backend.calls == [f"stacks mnist {chosen}"]


def test_script_that_does_not_run(run: Run, backend: Looking) -> None:
    assert run("stacks", "mnist", "6") == (
        2, "", 'error: "6" is not a task\n  = help: write JOB/INDEX; there are chief/0, worker/0 to worker/1\n',
    )  # fmt: skip
    assert backend.calls == []


def test_json(run: Run, backend: Looking) -> None:
    document = json.loads(run("stacks", "mnist", "worker/1", "9", "-o", "json")[1])
    assert document == {
        "tasks": [
            {
                "task": "worker/1", "job": "worker", "index": 1, "phase": "Unknown", "problem": "",
                "reason": "stopped by a signal; kill -CONT 103 continues it", "needed_by": ["pid 9"],
                "processes": [
                    {
                        "pid": 103, "state": "T", "computes": False, "threads": None, "problem": "",
                        "activity": "stopped by a signal",
                    }
                ],
            }
        ],
        "scripts": [
            {
                "script": "pid 9", "command": "train.py --steps 9", "problem": "",
                "processes": [
                    {
                        "pid": 9, "state": "S", "computes": False, "problem": "", "activity": "waits",
                        "threads": [
                            {
                                "name": "MainThread", "is_main": True,
                                "frames": [
                                    {
                                        "file": "train.py", "line": 7, "function": "<module>",
                                        "source": "session.run(loss)",
                                    }
                                ],
                                "call": {
                                    "name": "session.run", "seconds": 41.2, "needs": ["chief/0", "worker/1"],
                                    "is_same": True,
                                    "text": "in TensorFlow's session.run for 41.2 s; waits for worker/1 "
                                    "(stopped by a signal)",
                                },
                            },
                            {
                                "name": "reader", "is_main": False, "call": None,
                                "frames": [{"file": "train.py", "line": 3, "function": "read", "source": ""}],
                            },
                        ],
                    }
                ],
            }
        ],
    }  # fmt: skip
