"""JSON of verbs that change clusters, of logs, and of commands whose standard output is a script's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.command_line import Run

from tfk8s.cli.app import program
from tfk8s.core.script import LogLine
from tfk8s.core.spec import Task
from tfk8s.testing import FakeBackend

pytest_plugins = ("fakes.command_line",)

pytestmark = pytest.mark.usefixtures("folder")

# Commands whose standard output is a script's, a stream, a page or a file.
WITHOUT = {
    "completion", "connect", "cp", "dashboard", "exec", "explain", "image", "init", "kind", "notebook", "render",
    "roles", "run", "schema", "server", "submit", "tensorboard", "version",
}  # fmt: skip


def test_each_verb_has_json() -> None:
    commands = {name: program().get_command(None, name) for name in program().list_commands(None)}
    options = {
        name: {option for param in command.params for option in param.opts} for name, command in commands.items()
    }
    assert {name for name, found in options.items() if "--output" not in found} == WITHOUT
    assert {name for name, found in options.items() if "--result" in found} == {"submit", "run", "exec"}


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        (("up", "new.yaml"), True),
        (("up", "mnist.yaml"), False),
        (("restart", "mnist", "worker/1"), True),
        (("scale", "mnist", "worker=3"), True),
        (("scale", "mnist", "worker=2"), False),
    ],
)
def test_a_change_ends_with_the_status(
    run: Run, backend: FakeBackend, arguments: tuple[str, ...], changed: bool
) -> None:
    code, out, _ = run(*arguments, "-o", "json")
    found = json.loads(out)
    assert (code, found.pop("changed")) == (0, changed)
    assert found == json.loads(run("status", found["name"], "-o", "json")[1])


def test_a_dry_run_is_a_plan(run: Run, backend: FakeBackend) -> None:
    code, out, err = run("up", "--dry-run", "new.yaml", "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads(run("diff", "new.yaml", "-o", "json")[1])


def test_the_end_of_a_cluster(run: Run, backend: FakeBackend) -> None:
    code, out, err = run("down", "mnist", "-o", "json")
    assert (code, json.loads(out), err) == (0, {"name": "mnist", "kept_claims": []}, "")


def test_lines_of_logs(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, time, text = Task("worker", 1), "2026-11-26T04:01:15.000001Z", "a \x1b[31mred\x1b[0m line\u2028"
    lines = [LogLine(task=worker, text=f"{time} {text}"), LogLine(task=worker, text="without its time")]
    monkeypatch.setattr(backend, "logs", lambda name, tasks, options: iter(lines if options.timestamps else ()))
    code, out, err = run("logs", "mnist", "worker/1", "-o", "json")
    assert (code, err) == (0, "")
    task = {"task": "worker/1", "job": "worker", "index": 1}
    assert [json.loads(line) for line in out.rstrip("\n").split("\n")] == [
        {**task, "time": time, "text": text},
        {**task, "time": None, "text": "without its time"},
    ]


def test_logs_of_a_script_are_as_the_script_wrote_them(run: Run, backend: FakeBackend) -> None:
    code, out, _ = run("logs", "mnist", "script-4e9c21", "-o", "json")
    assert (code, json.loads(out)["code"]) == (2, "invalid-input")


def result(path: Path) -> dict[str, Any]:
    """Return the document of a result, without its times."""
    document = json.loads(path.read_text())
    times = (document.pop("started"), document.pop("ended"))
    assert times[0] <= times[1]
    assert document.pop("kind") == "Result"
    return dict(document)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("submit", "mnist", "train.py", "a"), 3), (("run", "mnist.yaml", "train.py"), 3)],
)
def test_a_result_has_the_exit_code(
    run: Run, backend: FakeBackend, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    backend.exit_code = code
    assert run(arguments[0], "--result", "result.json", *arguments[1:])[0] == code
    assert result(tmp_path / "result.json") == {"command": arguments[0], "exit_code": code, "error": None}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mnist.yaml", "new.yaml", "result.json", "train.py"]


def test_a_result_has_the_error(run: Run, backend: FakeBackend, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("of an earlier command")
    assert run("exec", "--result", "result.json", "other", "worker/0", "--", "true")[0] == 2
    found = result(tmp_path / "result.json")
    assert (found["exit_code"], found["error"]["code"]) == (2, "no-such-cluster")


@pytest.mark.parametrize("file", [".", "missing/result.json"])
def test_a_result_that_can_not_be_written_ends_the_command_before(run: Run, backend: FakeBackend, file: str) -> None:
    code, _, err = run("submit", "--result", file, "mnist", "train.py")
    assert (code, backend.calls) == (2, [])
    assert err.startswith(f'error: --result can\'t write "{file}"')
