"""The history of clusters on this machine, through kills."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pty
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest
from clusters import start_tfk8s, tfk8s, wait_until_gone

from tfk8s.backends.history import files
from tfk8s.backends.local import state
from tfk8s.core.history.entry import LOST, OPEN
from tfk8s.core.history.facts import Fact
from tfk8s.features.history.here import parse
from tfk8s.polling import wait_until

SECRETS = ("sesame-of-env", "sesame-of-pod", "sesame-of-argument", "sesame-of-url", "sesame-of-remote", "sesame-of-set")
JOB_FILE = """\
apiVersion: tfk8s.dev/v1
name: {name}
env: {{MINE: sesame-of-env}}
pod: {{containers: [{{name: side, image: x, env: [{{name: MORE, value: sesame-of-pod}}]}}]}}
jobs:
  worker:
    tasks: 2
    cpu: 1
    program: [sh, -c, "echo begins; echo 'tfk8s: step 3/4 (75%), loss=0.5' > $TFK8S_PROGRESS; sleep 100"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of git, with a remote that has a secret."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    (tmp_path / "script.py").write_text("import sys\nsys.exit(3)\n")
    for words in (["init"], ["add", "script.py"], ["commit", "-m", "one"],
                  ["remote", "add", "origin", "https://ada:sesame-of-remote@example.com/x.git"]):  # fmt: skip
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def write(folder: Path, name: str) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(JOB_FILE.format(name=name))
    return str(path)


def facts(name: str, number: int = 1) -> list[Fact]:
    return files.find(name, number).facts()


def content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def test_no_secret_gets_into_an_entry(folder: Path) -> None:
    servers = folder / "cluster.yaml"
    servers.write_text(
        "apiVersion: tfk8s.dev/v1\nname: hidden\nenv: {MINE: sesame-of-env}\njobs: {worker: 1}\n"
        "pod: {containers: [{name: side, image: x, env: [{name: MORE, value: sesame-of-pod}]}]}\n"
    )
    options = ("--set", "worker.env.HIS=sesame-of-set")
    assert tfk8s("up", "--local", *options, str(servers), cwd=folder).returncode == 0
    again = tfk8s("up", "--local", "--env", "MINE=sesame-of-env-2", str(servers), cwd=folder)  # says both values
    assert again.returncode == 2
    words = ("--api-key", "sesame-of-argument", "--password=sesame-of-argument", "https://a:sesame-of-url@host/x")
    assert tfk8s("submit", "--local", "hidden", "script.py", *words, cwd=folder).returncode == 3
    assert tfk8s("down", "--local", "hidden", cwd=folder).returncode == 0
    found = parse("hidden@1").read()
    assert [verb.exit_code for verb in found.verbs] == [0, 3, 0]  # nothing was changed by the second
    assert found.verbs[1].remote == "https://example.com/x.git"
    assert len(found.row.commit) == 40
    every = [path for path in files.root().rglob("*") if path.is_file()]
    assert len(every) > 4
    leaks = [(path, secret) for path in every for secret in SECRETS if secret.encode() in content(path)]
    assert leaks == []


@pytest.mark.parametrize("delay", [0.1, 0.35, 0.6, 1.5])
def test_an_entry_survives_the_kill_of_its_supervisor(folder: Path, delay: float) -> None:
    name = f"killed-{int(delay * 100)}"
    up = start_tfk8s("up", "--local", write(folder, name), cwd=folder)
    wait_until(lambda: state.folder(name).supervisor() is not None, "a supervisor", 60)
    time.sleep(delay)  # a moment of the start, or after it
    before = facts(name)
    os.kill(supervisor := state.folder(name).supervisor() or 0, signal.SIGKILL)
    wait_until_gone(supervisor)
    up.communicate(timeout=120)
    past = parse(f"{name}@1")
    assert facts(name)[: len(before)] == before
    found = past.read()
    assert (found.row.state, found.row.number) == (LOST, 1)
    assert found.row.ended is not None
    assert found.row.started <= found.row.ended <= time.time()
    assert {task.task for task in found.tasks} <= {"worker/0", "worker/1"}  # an early kill leaves none
    lines = [line.text for line in past.logs(())]
    assert lines == [line.text for line in past.logs(())]
    assert tfk8s("down", "--local", name).returncode == 0
    assert [line.text for line in parse(f"{name}@1").logs(())] == lines  # packed now


@pytest.mark.parametrize("delay", [0.0, 0.3, 0.5, 0.8, 1.2])
def test_an_entry_survives_the_kill_of_its_up(folder: Path, delay: float) -> None:
    name = f"up-{int(delay * 100)}"
    up = start_tfk8s("up", "--local", write(folder, name), cwd=folder)
    time.sleep(delay)  # any moment, before the entry's begin too
    up.kill()
    up.communicate(timeout=60)
    assert tfk8s("up", "--local", write(folder, name), cwd=folder).returncode == 0
    assert tfk8s("down", "--local", name).returncode == 0
    listed = json.loads(tfk8s("history", name, "-o", "json").stdout)
    assert {entry["state"] for entry in listed} <= {"ended", LOST}
    assert all(parse(entry["entry"]).read().row.ended for entry in listed)
    assert listed[0]["state"] == "ended"


def test_a_killed_command_has_no_end_and_a_run_the_code_of_its_programs(folder: Path) -> None:
    run = start_tfk8s("run", "--local", write(folder, "gone"), cwd=folder)
    wait_until(
        lambda: all(path.exists() and "begins" in path.read_text() for path in _logs("gone")),
        "the programs to write",
        60,
    )
    assert files.find("gone", 1).read().row.state == OPEN
    run.kill()
    run.communicate(timeout=60)
    wait_until(lambda: not files.find("gone", 1).live.exists(), "the supervisor to remove its cluster", 60)
    found = parse("gone@1").read()
    assert [(verb.verb, verb.exit_code) for verb in found.verbs] == [("run", None)]
    assert found.row.reason == "has ended because its `run` is gone (lease)"
    assert found.row.progress == "3/4 (75%), loss=0.5"
    assert [line.text for line in parse("gone@1").logs(["worker/0"])] == ["begins"]


def _logs(name: str) -> list[Path]:
    return [files.root() / name / "1" / "live" / "logs" / f"worker-{index}.log" for index in range(2)]


def test_the_error_for_a_cluster_that_is_gone_names_its_entry(folder: Path) -> None:
    assert tfk8s("up", "--local", write(folder, "past"), cwd=folder).returncode == 0
    assert tfk8s("down", "--local", "past").returncode == 0
    for command in ("status", "logs", "events"):
        assert "tfk8s status past@1 shows how the last one ended" in tfk8s(command, "--local", "past").stderr


PRINTS = """
import os, sys
print("on a terminal" if os.isatty(0) and os.isatty(1) else "in pipes", *sys.argv[1:])
print("an error", file=sys.stderr)
if os.isatty(1):
    print(*os.get_terminal_size(), input("name? "))
print("no end", end="", flush=True)
sys.exit(4)
"""


def on_terminal(*arguments: str, text: str, cwd: Path) -> tuple[int, str]:
    """Run the command line on a terminal of 90 columns where somebody types a text; return its exit code and output."""
    near, far = pty.openpty()
    termios.tcsetwinsize(far, (30, 90))
    process = start_tfk8s(*arguments, cwd=cwd, stdin=far, stdout=far, stderr=far, start_new_session=True)
    os.close(far)
    os.write(near, text.encode())
    shown = b""
    with contextlib.suppress(OSError):  # at the end of the last process that has the terminal
        while block := os.read(near, 1 << 16):
            shown += block
    os.close(near)
    return process.wait(60), shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("options", [(), ("--fresh",)])
def test_what_a_script_printed_is_read_after_down(
    folder: Path, options: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    name = f"prints-{'fresh' if options else 'fork'}"
    (folder / "cluster.yaml").write_text(f"apiVersion: tfk8s.dev/v1\nname: {name}\njobs: {{worker: 1}}\n")
    (folder / "prints.py").write_text(PRINTS)
    assert tfk8s("up", "--local", "cluster.yaml", cwd=folder).returncode == 0
    request.addfinalizer(lambda: tfk8s("down", "--local", name))
    submit = ("submit", "--local", *options, name, "prints.py")
    piped = tfk8s(*submit, "one", cwd=folder)
    assert (piped.returncode, piped.stdout, piped.stderr) == (4, "in pipes one\nno end", "an error\n")
    code, shown = on_terminal(*submit, text="Ada\n", cwd=folder)
    assert code == 4
    assert [line for line in shown.splitlines() if "Ada" not in line or "90" in line] == [
        "on a terminal", "an error", "name? 90 30 Ada", "no end",
    ]  # fmt: skip
    started = [("in pipes one", "an error", "no end"), ("on a terminal", "an error", "90 30 Ada", "no end")]
    assert tfk8s("submit", "--local", *options, name, "script.py", cwd=folder).returncode == 3  # prints nothing
    scripts = parse(f"{name}@1").read().scripts
    assert [(script.command, script.exit_code) for script in scripts] == [
        ("prints.py one", 4), ("prints.py", 4), ("script.py", 3),
    ]  # fmt: skip
    for is_gone in (False, True):
        for script, lines in zip(scripts, started, strict=False):
            assert tuple(tfk8s("logs", f"{name}@1", script.name).stdout.splitlines()) == lines
        if not is_gone:
            assert tfk8s("down", "--local", name).returncode == 0
    assert scripts[0].name in tfk8s("status", f"{name}@1").stdout
    assert scripts[2].name not in parse(f"{name}@1").files.logs()


def test_what_a_killed_script_printed_is_kept(folder: Path) -> None:
    (folder / "cluster.yaml").write_text("apiVersion: tfk8s.dev/v1\nname: prints\njobs: {worker: 1}\n")
    (folder / "killed.py").write_text("import os\nprint('last words')\nos.kill(os.getpid(), 9)\n")
    assert tfk8s("run", "--local", "cluster.yaml", "killed.py", cwd=folder).returncode == 137
    past = parse("prints@1")
    (script,) = past.read().scripts
    assert [line.text for line in past.logs([script.name])] == ["last words"]
