"""What the command line takes and refuses, and how it says so."""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.command_line import Run
from fakes.terminal import Terminal

from tfk8s import __main__
from tfk8s.backends.local.supervision import supervisor_process
from tfk8s.cli import app, error_report
from tfk8s.cli.command import ScriptCommand
from tfk8s.errors import NoSuchCluster, Tfk8sError
from tfk8s.testing import FakeBackend
from tfk8s.version import __version__

pytest_plugins = ("fakes.command_line",)

HELP = """\
Usage: tfk8s [OPTIONS] COMMAND [ARGS]...

  Distributed TensorFlow on this machine or on Kubernetes, from one job file.

Options:
  --version   Print the version.
  -h, --help  Show this message and exit.

Commands:
  init         Write a commented job file, cluster.yaml.
  validate     Check a job file, and print every problem.
  explain      Describe a field of job files.
  schema       Print the JSON Schema of job files.
  render       Print Kubernetes objects, or a task's configuration.
  diff         Show what `up` would change, without changing anything.
  up           Start a cluster, and wait until every task is ready.
  submit       Run a session script next to the master.
  run          Start a cluster, run its programs or a script, and remove it.
  wait         Wait until the programs of a cluster have ended.
  stop         Stop a script that `tfk8s submit` started, and delete its log.
  connect      Forward a local port to the master, until Ctrl-C.
  notebook     Open JupyterLab with the cluster's sessions, until Ctrl-C.
  tensorboard  Open TensorBoard with what scripts write, until Ctrl-C.
  status       Show a cluster and its tasks.
  ls           List your clusters, of all namespaces without -n.
  history      List the clusters that ran, the newest first.
  devices      Show the devices of each task: CPUs, GPUs, their memory.
  logs         Print the output of tasks, or of a script.
  exec         Run a command beside a task's server.
  cp           Copy a file or a folder from a task's container, or to it.
  stacks       Show where tasks and scripts are, if nothing moves.
  top          Show what tasks and scripts use: CPU, memory, network, GPUs.
  dashboard    Open a live page of your clusters, until Ctrl-C.
  events       List the events of a cluster, oldest first.
  scale        Change the number of tasks of jobs.
  restart      Restart a task, or all tasks.
  suspend      End all tasks of a cluster, and keep the rest until `resume`.
  resume       Start a suspended cluster again, and wait until all is ready.
  down         Remove a cluster: all that `tfk8s up` created, but claims.
  roles        Print the Roles that users of a shared namespace need.
  doctor       Check what is missing here, and say how to fix it.
  image        Build images with TensorFlow, load them into kind, push them.
  kind         Create and delete kind clusters for trying tfk8s.
  completion   Print a script that completes commands in your shell.
  version      Print the version of tfk8s.
  server       Run one task's server by hand, in the foreground.

  Exit codes: 0 success; 1 the cluster failed; 2 bad input; 3 a task failed;
  124 timeout; 130 Ctrl-C.
"""

SUBMIT_HELP = """\
Usage: tfk8s submit [OPTIONS] NAME|FILE SCRIPT [ARGS...]

  Run a session script next to the master.

  Prints the script's output and returns its exit code. Arguments after SCRIPT
  go to the script. TFK8S_TARGET holds the master's address. On Kubernetes,
  --detach lets the script run without this command. Ctrl-C stops the script.
  --get copies PATH from the script's folder to LOCAL (default: the same path
  here), whatever the exit code. --trace shows what the tasks did in a step of
  the sessions, and what the step waited for.

  Examples:
      tfk8s submit --local mnist train.py --steps 1000
      tfk8s submit --tf1 mnist old_script.py
      tfk8s submit --get model mnist train.py
      tfk8s submit --trace steps.html mnist train.py
      tfk8s submit --detach mnist train.py
      tfk8s submit --watch mnist train.py
      tfk8s submit --retries 3 --without worker/3 mnist train.py

Arguments:
  NAME|FILE  The cluster's name, or its job file.
  SCRIPT     A Python file.
  ARGS       The script's own arguments.

Options:
  --tf1                    `import tensorflow` gives the script the TensorFlow
                           1 API.
  --fresh                  Run in a fresh Python interpreter.
  --isolate                Don't share variables with other sessions.
  --on-master              Run sessions without a target on the master.
  -r, --requirements FILE  On Kubernetes: install this requirements file with
                           pip first.
  --gpus N                 On Kubernetes: the number of GPUs for the script.
  --cpu CORES              On Kubernetes: the cores for the script, such as
                           500m.
  --memory SIZE            On Kubernetes: the memory for the script, such as
                           4Gi.
  --get PATH[:LOCAL]       Copy a file or folder of the script when it ends;
                           repeatable.
  --trace FILE             Record steps of the script's sessions; FILE becomes
                           a page (.html) of them.
  --trace-every N          With --trace: record every N-th call of
                           session.run; default: 100.
  --without TASK           Exclude this task from sessions.
  --retries N              Retry up to N times if a task is lost.
  -d, --detach             Print the script's name and return; the script
                           continues.
  --here                   Run on this machine; forward localhost:2222 and up
                           to the tasks.
  --watch                  Run again when a file of the script's folder
                           changes, until Ctrl-C.
  --timeout TIME           Wait up to TIME for the cluster to be ready, and as
                           long for the script's pod to start.
  --result FILE            Write the exit code, the times and an error to
                           FILE, as JSON.
  --python PATH            With --local: an interpreter or environment;
                           default: the active environment.
  --local                  Use this machine, not Kubernetes (the default with
                           TFK8S_LOCAL=1).
  --context NAME           The kubeconfig context; default: the current
                           context.
  -n, --namespace NAME     Default: the job file's namespace, else the
                           context's.
  -h, --help               Show this message and exit.
"""


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == (0, HELP, "")


def test_help_of_a_command(run: Run) -> None:
    assert run("submit", "--help") == (0, SUBMIT_HELP, "")


GROUPED = [f"{group} {name}" for group, functions in app.GROUPS.items() for name in functions]


COMMANDS = [*sorted(app.COMMANDS.keys() - app.GROUPS.keys() - {"server"}), *GROUPED]


def test_every_command_s_help_has_an_example_and_a_line_for_each_option(run: Run) -> None:
    for name in COMMANDS:
        first, *rest = name.split()
        code, text, _ = run(first, *rest, "--help")
        assert code == 0, name
        assert f"\n      tfk8s {name}" in text or f"(tfk8s {name}" in text, name
        command = app.program().get_command(None, first)
        for word in rest:
            command = command.commands[word]
        for param in command.params:
            assert param.help.endswith((".", ").")), f"{param.name}: {param.help}"
            assert len(param.help) < 110


def test_version(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["tfk8s", "--version"])
    assert __main__.main() == 0
    assert capsys.readouterr().out == f"tfk8s {__version__}\n"
    assert run("--version") == (0, f"tfk8s {__version__}\n", "")


def test_server_hands_its_arguments_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from tfk8s.task import server

    given: list[list[str]] = []
    monkeypatch.setattr(server, "main", lambda arguments: given.append(arguments) or 7)
    monkeypatch.setattr(sys, "argv", ["tfk8s", "server", "--job-name", "ps", "--help"])
    assert __main__.main() == 7
    assert given == [["--job-name", "ps", "--help"]]


END = """
import atexit, sys
from tfk8s import __main__
{}
atexit.register(lambda: print("cleaned up"))
sys.argv[1:] = {}
sys.exit(__main__.process())
"""


@pytest.mark.programs
@pytest.mark.parametrize(
    ("words", "before", "code", "out"),
    [
        (["--version"], "", 0, f"tfk8s {__version__}\ncleaned up\n"),
        (["upp"], "", 2, "cleaned up\n"),
        ([], "__main__.main = lambda: 1 / 0", 1, "cleaned up\n"),
    ],
    ids=["success", "failure", "bug"],
)
def test_a_process_ends_with_its_code_after_all_has_been_cleaned_up(
    words: list[str], before: str, code: int, out: str
) -> None:
    text = END.format(before, words)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (code, out)


@pytest.mark.programs
@pytest.mark.parametrize(("words", "code"), [("--version", 0), ("server --cluster-spec bad", 2), ("upp", 2)])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_changes_no_code(words: str, code: int, closed: str) -> None:
    command = f"{sys.executable} -m tfk8s {words} {closed}"
    assert subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60).returncode == code


# A thread says when the main thread waits for it.
WAITING = """
import threading, time, traceback

def wait():
    main = threading.main_thread().ident
    while "finish" not in [frame.name for frame in traceback.extract_stack(sys._current_frames()[main])]:
        time.sleep(0.01)
    print("waits", flush=True)
    time.sleep(60)

__main__.main = lambda: threading.Thread(target=wait).start() or 0
"""


@pytest.mark.programs
def test_an_interrupt_at_the_end_leaves_the_clean_up() -> None:
    command = [sys.executable, "-c", END.format(WAITING, [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=40)
    assert (process.returncode, out) == (130, "cleaned up\n")


def full() -> int:
    """Return a descriptor of a device that is full."""
    return os.open("/dev/full", os.O_WRONLY)


def unread() -> int:
    """Return a descriptor of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.programs
@pytest.mark.parametrize(
    ("target", "code", "said"),
    [(full, 1, "error: No space left on device\n  = help: df and df -i show what is free\n"), (unread, 141, "")],
)
def test_what_can_not_be_written_at_the_end_is_one_error(target: Callable[[], int], code: int, said: str) -> None:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open(target(), "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "tfk8s", "--version"], stdout=output, stderr=subprocess.PIPE, text=True,
            check=False, timeout=60, env=buffered,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, said)


REFUSED = [
    (["upp"], "No such command 'upp'. Did you mean 'up'?", "tfk8s --help"),
    (["render"], "Missing argument 'FILE'.", "tfk8s render --help"),
    (["up", "--nope", "x.yaml"], "No such option: --nope", "tfk8s up --help"),
    (["up", "a.yaml", "b.yaml"], "Got unexpected extra argument(s) (b.yaml)", "tfk8s up --help"),
    (
        ["up", "--timeout", "soon", "x.yaml"],
        "Invalid value for '--timeout': \"soon\" is not a duration, such as 90s, 2m or 1h30m",
        "tfk8s up --help",
    ),
    (
        ["status", "mnist", "-o", "xml"],
        "Invalid value for '--output' / '-o': \"xml\" is not an output format; use json",
        "tfk8s status --help",
    ),
    (
        ["logs", "mnist", "--tail", "-1"],
        "Invalid value for '--tail': \"-1\" is not a whole number of 0 or more",
        "tfk8s logs --help",
    ),
    (
        ["submit", "--trace", "a.html", "--trace-every", "0", "mnist", "train.py"],
        "Invalid value for '--trace-every': \"0\" is not a whole number of 1 or more",
        "tfk8s submit --help",
    ),
    (
        ["connect", "mnist", "--port", "70000"],
        "Invalid value for '--port': \"70000\" is not a port number from 0 to 65535",
        "tfk8s connect --help",
    ),
    (["completion", "tcsh"], 'no completion for shell "tcsh"', "use bash, zsh, fish"),
    (["--local", "up"], "No such option: --local", "tfk8s --help"),
]


def test_refused_arguments(run: Run) -> None:
    for arguments, message, advice in REFUSED:
        assert run(*arguments) == (2, "", f"error: {message}\n  = help: {advice}\n"), arguments


SUBMITTED = [
    ("mnist train.py --steps 5", "mnist train.py -- --steps 5"),
    ("mnist --tf1 train.py --tf1", "mnist --tf1 train.py -- --tf1"),
    ("--timeout 5 mnist train.py --help", "--timeout 5 mnist train.py -- --help"),
    ("--timeout=5 mnist train.py a", "--timeout=5 mnist train.py -- a"),
    ("-n team mnist train.py -n x", "-n team mnist train.py -- -n x"),
    ("mnist train.py -- --steps 5", "mnist train.py -- --steps 5"),
    ("mnist train.py -- -- x", "mnist train.py -- -- x"),
    ("--local -- mnist train.py --steps 5", "--local -- mnist train.py --steps 5"),
    ("mnist", "mnist"),
    ("mnist train.py", "mnist train.py --"),
    ("--help", "--help"),
]


def test_words_after_the_script_are_its_arguments() -> None:
    for given, passed_on in SUBMITTED:
        command = app.program().get_command(None, "submit")
        assert isinstance(command, ScriptCommand), given
        assert command.split(given.split()) == passed_on.split(), given


# ---- failures ------------------------------------------------------------------------------------------------------


def test_bug_is_one_line_without_tfk8s_debug(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def observe(name: str) -> None:
        raise KeyError("tasks")

    monkeypatch.setattr(backend, "observe", observe)
    code, out, err = run("status", "mnist")
    assert (code, out) == (error_report.BUG, "")
    assert err.startswith("error: this is a bug in tfk8s: KeyError: 'tasks' (at /")
    assert err.endswith(")\n  = help: please report it, with the traceback that TFK8S_DEBUG=1 shows\n")
    assert err.count("\n") == 2
    monkeypatch.setenv("TFK8S_DEBUG", "1")
    assert "Traceback (most recent call last)" in run("status", "mnist")[2]


def test_an_error_is_a_document_where_the_result_would_be_one(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(error: Exception) -> dict[str, object]:
        def observe(name: str) -> None:
            raise error

        monkeypatch.setattr(backend, "observe", observe)
        code, out, err = run("status", "mnist", "-o", "json")
        found = json.loads(out)
        assert (found.pop("kind"), found.pop("exit_code"), err) == ("Error", code, "")
        return dict(found)

    assert failing(NoSuchCluster("no mnist", help="tfk8s ls")) == {
        "code": "no-such-cluster", "message": "no mnist", "help": "tfk8s ls",
    }  # fmt: skip
    assert failing(KeyError("tasks"))["code"] == "bug"
    assert failing(PermissionError(13, "Permission denied", "/state")) == {
        "code": "system", "message": "Permission denied: /state", "help": None,
    }  # fmt: skip


def test_a_job_file_error_is_a_document_with_its_problems(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("apiVersion: tfk8s.dev/v1\nname: mnist\njobs: {worker: 0}\n")
    code, out, err = run("diff", str(tmp_path / "bad.yaml"), "-o", "json")
    found = json.loads(out)
    assert (code, err, found["kind"], found["code"], found["exit_code"]) == (2, "", "Error", "job-file-error", 2)
    assert (found["file"], found["problems"][0]["line"]) == (str(tmp_path / "bad.yaml"), 3)


def test_errors_of_the_system_are_no_bugs(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def observe(name: str) -> None:
        raise PermissionError(13, "Permission denied", "/state/mnist")

    monkeypatch.setattr(backend, "observe", observe)
    assert run("status", "mnist") == (1, "", "error: Permission denied: /state/mnist\n")


def test_a_missing_package_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert error_report.report(ModuleNotFoundError("No module named 'typer'", name="typer")) == 1
    assert capsys.readouterr().err == (
        f"error: tfk8s is not fully installed for {sys.executable}: No module named 'typer'\n"
        "  = help: pip install tfk8s\n"
    )


def test_a_limit_of_threads_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert error_report.report(RuntimeError("can't start new thread")) == 1
    assert capsys.readouterr().err == (
        "error: the system starts no more threads: a limit of processes or of memory is reached\n"
        "  = help: ulimit -u and ulimit -v show the limits\n"
    )


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EAGAIN, "Resource temporarily unavailable\n  = help: ulimit -u shows the limit of processes"),
        (errno.EMFILE, "Too many open files\n  = help: ulimit -n shows the limit of open files"),
        (errno.ENOSPC, "No space left on device\n  = help: df and df -i show what is free"),
    ],
)
def test_a_limit_of_the_system_names_the_command_that_shows_it(
    capsys: pytest.CaptureFixture[str], number: int, message: str
) -> None:
    assert error_report.report(OSError(number, os.strerror(number))) == 1
    assert capsys.readouterr().err == f"error: {message}\n"


def test_ctrl_c(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def observe(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(backend, "observe", observe)
    assert run("status", "mnist") == (130, "", "")


def test_nobody_reads_on(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert run("status", "mnist")[0] == 141


def test_characters_outside_the_locale_are_escaped(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(shown, encoding="ascii"))

    def observe(name: str) -> None:
        raise Tfk8sError("jobs.local.tasks: 2 → 3")

    monkeypatch.setattr(backend, "observe", observe)
    assert __main__._command(["status", "mnist"]) == 1
    assert shown.getvalue() == b"error: jobs.local.tasks: 2 \\u2192 3\n"


def test_errors_are_red_on_a_terminal_that_shows_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> str:
        monkeypatch.setattr(sys, "stderr", Terminal())
        error_report.report(Tfk8sError("no"))
        return sys.stderr.getvalue()  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert shown() == "\x1b[1;31merror:\x1b[0m no\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown() == "error: no\n"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert shown() == "error: no\n"


@pytest.mark.parametrize("name", app.COMMANDS)
def test_the_table_has_the_first_line_of_each_help(name: str) -> None:
    module, line = app.COMMANDS[name]
    function = getattr(importlib.import_module(f"tfk8s.{module}"), name)
    assert (function.__doc__ or "").partition("\n")[0] == line


@pytest.mark.parametrize(
    ("words", "variable", "starts"),
    [
        ("up --local a.yaml", "", True),
        ("run --local a.yaml a.py", "", True),
        ("up a.yaml", "1", True),
        ("up a.yaml", "", False),
        ("up --local --dry-run a.yaml", "", False),
        ("run --help", "1", False),
        ("up --context kind-test a.yaml", "1", False),
        ("run a.yaml a.py -- --local", "", False),
        ("status --local a", "", False),
    ],
)
def test_only_a_command_that_may_start_a_cluster_here_starts_a_supervisor_early(
    monkeypatch: pytest.MonkeyPatch, words: str, variable: str, starts: bool
) -> None:
    started: list[str] = []
    ended: list[str] = []

    class Waiting:
        def __init__(self, name: str) -> None:
            self.id = name

        def end_waiting(self) -> None:
            ended.append(self.id)

    monkeypatch.setenv("TFK8S_LOCAL", variable)
    monkeypatch.setattr(sys, "argv", ["tfk8s", *words.split()])
    monkeypatch.setattr(supervisor_process, "SupervisorProcess", lambda name: started.append(name) or Waiting(name))
    monkeypatch.setattr(app, "main", lambda _: 0)
    assert __main__.main() == 0
    assert len(started) == len(ended) == (starts and sys.platform == "linux")
