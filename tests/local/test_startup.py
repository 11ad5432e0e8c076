"""Commands that must be quick import little. bench/ measures their times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clusters import REPOSITORY, start_tfk8s, tfk8s

from tfk8s import polling
from tfk8s.backends.local import state
from tfk8s.sessions.forks import processes

CLUSTER = REPOSITORY / "examples" / "tutorial" / "cluster.yaml"

HEAVY = {"tensorflow", "kubernetes", "rich", "pydantic", "yaml", "grpc", "numpy"}

# Runs the command, and says on standard error which modules it has imported.
_COMMAND = "import atexit, json, sys; atexit.register(lambda: print(json.dumps(list(sys.modules)), file=sys.stderr)); "
_COMMAND += "from tfk8s.__main__ import main; sys.exit(main())"


def imported(*arguments: object, **environment: str) -> set[str]:
    """Return the packages that a command imports."""
    command = [sys.executable, "-c", _COMMAND, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


def test_version_needs_no_typer() -> None:
    assert imported("--version") & (HEAVY | {"typer", "dataclasses"}) == set()


@pytest.mark.parametrize("words", ["tfk8s ", "tfk8s status --local ", "tfk8s restart --local mnist "])
def test_a_tab_needs_nothing_heavy(words: str) -> None:
    line = {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert imported(_TFK8S_COMPLETE="complete_fish", **line) & (HEAVY - {"rich"} | {"rich.console"}) == set()


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["submit", "--help"], ["server", "--help"], ["completion", "bash"], ["ls", "--local"]],
)
def test_nothing_heavy(arguments: list[str]) -> None:
    assert imported(*arguments) & HEAVY == set()


def test_job_files_need_no_more_than_their_parser() -> None:
    for arguments in (["validate", CLUSTER], ["render", CLUSTER, "--task", "local/0"], ["schema"]):
        assert imported(*arguments) & HEAVY <= {"yaml"}


@pytest.mark.parametrize("arguments", [["render", CLUSTER], ["roles"], ["doctor", "--local"], ["image", "--help"]])
def test_other_commands_import_no_kubernetes_client(arguments: list[object]) -> None:
    assert "kubernetes" not in imported(*arguments)


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        ("tfk8s.backends.local.supervisor", {"tfk8s.backends.local.backend", "tfk8s.sessions.runner"}),
        (
            "tfk8s.cluster.handle",
            {"tfk8s.backends.local_scripts", "tfk8s.sessions.call_guard", "tfk8s.sessions.forward"},
        ),
    ],
)
def test_sessions_are_loaded_for_sessions_alone(module: str, unneeded: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert unneeded & set(done.stdout.split()) == set()


def test_the_package_needs_next_to_nothing() -> None:
    code = "import sys; before = set(sys.modules); import tfk8s; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    names = {name.partition(".")[0] for name in done.stdout.split()}
    assert names <= {"__future__", "importlib", "tfk8s", "types", "warnings"}


def test_command_and_module_are_equal() -> None:
    done = tfk8s("--version")
    assert (done.returncode, done.stdout) == (0, f"tfk8s {_version()}\n")


def _version() -> str:
    import tfk8s as package

    return package.__version__


def test_head_ends_the_output_quietly() -> None:
    command = f"{sys.executable} -m tfk8s schema | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert (done.stdout.split("\n")[0], done.stderr) == ("{", "")


@pytest.mark.parametrize(
    ("number", "delay"),
    [(signal.SIGINT, 0.3), (signal.SIGINT, 1.2), (signal.SIGTERM, 0.6)],
)
def test_whenever_a_signal_comes_run_leaves_nothing(tmp_path: Path, delay: float, number: signal.Signals) -> None:
    path, script = tmp_path / "brief.yaml", tmp_path / "script.py"
    path.write_text("apiVersion: tfk8s.dev/v1\nname: brief\njobs: {worker: 2}\n")
    script.write_text("import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); signal.pause()")
    process = start_tfk8s("run", "--local", path, script)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(delay)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode in (128 + number, -number), err  # the latter before the program has begun
    if process.returncode == 128 + number:
        assert "Traceback" not in err
    assert state.folder("brief").read() is None


def test_ctrl_c_at_a_terminal_leaves_the_supervisor_that_up_starts(tmp_path: Path) -> None:
    path = tmp_path / "terminal.yaml"
    # Importing TensorFlow takes long enough: `up` still waits when the signal comes.
    path.write_text("apiVersion: tfk8s.dev/v1\nname: terminal\njobs: {worker: {preload: [tensorflow]}}\n")
    folder = state.folder("terminal")
    process = start_tfk8s("up", "--local", path, start_new_session=True)
    try:
        polling.wait_until(folder.supervisor_log.exists, "the supervisor to start", 60)
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends the signal to all processes of the group
        _, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        assert folder.is_running()
    finally:
        tfk8s("down", "--local", "terminal")


def test_a_signal_before_a_program_has_its_own_session_is_dropped() -> None:
    code = "from tfk8s.sessions.forks import processes; processes.drop_signals(); print('goes on')"
    with processes.signals_blocked():
        program = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY,
            preexec_fn=lambda: os.kill(os.getpid(), signal.SIGINT),
        )  # fmt: skip
    assert program.communicate(timeout=120)[0] == "goes on\n"
    assert program.returncode == 0


def test_closed_streams_are_no_error() -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        command = f"{sys.executable} -m tfk8s validate {CLUSTER} {closed}"
        assert subprocess.run(["bash", "-c", command], check=False, cwd=REPOSITORY).returncode == 0


def test_sigterm_ends_a_command_as_an_exception_does(tmp_path: Path) -> None:
    path = tmp_path / "there.yaml"
    path.write_text('apiVersion: tfk8s.dev/v1\nname: there\njobs: {worker: ["127.0.0.1:9"]}\n')
    process = start_tfk8s("connect", path)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith("grpc://127.0.0.1:")
    assert process.stderr.readline() == 'forwarding sessions to cluster "there", until Ctrl-C\n'
    assert process.stderr.readline().startswith("the strategies of tf.distribute find no cluster at this address")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (143, "")
