"""Tests of Python commands as programs: what tfk8s' runner adds to them, and that the rest is as Python has it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tfk8s.core.programs import Program
from tfk8s.task.programs import command

pytestmark = pytest.mark.programs

SAYS = """
import os, sys, warnings
import beside
print(__name__, __package__, __spec__ and __spec__.name, __file__, sys.argv, sys.path[0], beside.word)
print(sys.flags.optimize, sys.flags.safe_path, sys.warnoptions, sys._xoptions, "" in sys.path)
print(sys.modules["__main__"].__dict__ is globals())
print(os.getcwd(), sys.executable, sys.stdin.read(), file=sys.stderr)
warnings.warn("old", DeprecationWarning)
"""
FORKS = """
import multiprocessing, os, sys
def double(x): return 2 * x
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [1, 2]), flush=True)
"""
FILES = {
    "beside.py": "word = 'beside'",
    "says.py": SAYS,
    "package/__init__.py": "",
    "package/__main__.py": SAYS,
    "package/part.py": SAYS,
    "forks.py": FORKS,
    "raises.py": "def f():\n    raise ValueError(3)\ntry:\n    f()\nexcept ValueError as e:\n    raise KeyError from e",
    "hooked.py": "import sys, traceback\nsys.excepthook = lambda *a: traceback.print_exception(*a, limit=1)\n1 / 0",
    "wrong.py": "a b",
    "ends.py": "import atexit, sys\natexit.register(print, 'exits')\nprint('no line', end='')\nsys.exit(*sys.argv[1:])",
    "killed.py": "import os, signal, sys\nos.kill(os.getpid(), int(sys.argv[1]))",
}  # fmt: skip


def run(folder: Path, words: Sequence[str], **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **environment}, input="input", capture_output=True, text=True, timeout=20,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["$FOLDER/says.py", "--steps", "3"],
        ["-u", "$FOLDER/says.py", "-m"],
        ["-O", "-W", "ignore", "-Xa=b", "-X", "c", "-Werror::UserWarning", "-m", "package", "--flag"],
        ["-m", "package.part", "-c", "x"],
        ["-m", "says"],
        ["-m", "none.such"],
        ["none.py"],
        ["forks.py"],
        ["-m", "forks"],
        ["$FOLDER/raises.py"],
        ["-m", "raises"],
        ["$FOLDER/wrong.py"],
        ["$FOLDER/hooked.py"],
        ["ends.py"],
        ["ends.py", "no data"],
        ["killed.py", str(int(signal.SIGTERM))],
        ["killed.py", str(int(signal.SIGABRT))],
    ],
    ids=" ".join,
)
def test_a_python_command_runs_as_before(folder: Path, words: list[str]) -> None:
    program = Program((sys.executable, *(word.replace("$FOLDER", str(folder)) for word in words)))
    assert program.python_arguments
    assert run(folder, command.through_runner(program)) == run(folder, program.words)


LOST = """
E = type("UnavailableError", (Exception,), {"__module__": "tensorflow.python.framework.errors_impl"})
raise E("Socket closed")
"""


@pytest.mark.parametrize("words", [["lost.py"], ["-u", "-m", "lost"]], ids=" ".join)
def test_a_lost_task_has_its_exit_code(folder: Path, words: list[str]) -> None:
    (folder / "lost.py").write_text(LOST)
    (folder / "socket.py").write_text("raise SystemExit('tfk8s imports a file of the user')")
    (folder / "tfk8s.py").write_text("raise SystemExit('tfk8s is a file of the user')")
    program = Program((sys.executable, *words))
    code, _, errors = run(folder, command.through_runner(program))
    before = run(folder, program.words)
    assert (before[0], code) == (1, 138)
    assert errors.replace(f"{folder}/", "") == (
        f"{before[2].replace(f'{folder}/', '')}tfk8s: another task was lost; exit code 138\n"
    )


def test_an_interpreter_that_can_not_have_tfk8s_runs_the_plain_command(folder: Path) -> None:
    (folder / "root/tfk8s").mkdir(parents=True)
    (folder / "root/tfk8s/__init__.py").write_text("raise ImportError('no such luck')")
    program = Program((sys.executable, "-u", "says.py", "--steps"))
    words = command.through_runner(program)
    words[-len(program.words) - 1] = str(folder / "root")
    plain = run(folder, program.words)
    line = f"tfk8s: {sys.executable} runs without help, and ends with 1 if another task is lost: no such luck\n"
    assert run(folder, words) == (0, plain[1], line + plain[2])
