"""Rows about many scripts and many faults: nothing is lost, and nothing is left.

The faults are random, and the same in each run.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.command import PATIENCE, Command, Ended
from harness.local import NAME, LocalEnvironment
from harness.row import NOTHING, Row

from tfk8s.backends.local import state

SUBMITS, SESSIONS, KILLS, RACES = 200, 100, 20, 20
_SEED = 31
_UNKNOWN_FAILURE = 70  # the exit code of a bug in tfk8s

Outcome = list[str]  # the problems


def measured(run: Callable[[LocalEnvironment], Outcome]) -> Callable[[LocalEnvironment], Ended]:
    """Return `run` as a row's: exit code 1 if there are problems, which the output names."""

    def timed(environment: LocalEnvironment) -> Ended:
        begin = time.monotonic()
        problems = run(environment)
        return Ended(time.monotonic() - begin, int(bool(problems)), "", "\n".join(problems))

    return timed


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def submits(environment: LocalEnvironment) -> Outcome:
    """Run scripts one after another; the supervisor keeps no descriptor of theirs."""
    script = environment.file("short.py", "print('done')\n")
    name = environment.cluster()
    problems, before = [], 0
    for number in range(SUBMITS):
        ended = environment.start("submit", "--local", name, script).end(PATIENCE)
        if (ended.code, ended.out) != (0, "done\n"):
            problems.append(f"script {number}: {ended}")
        environment.close()
        before = before or descriptors(environment.pid("supervisor"))
    after = descriptors(environment.pid("supervisor"))
    return problems + ([f"{before} descriptors at the start, {after} at the end"] if after > before else [])


def sessions(environment: LocalEnvironment) -> Outcome:
    """Open sessions at once in one script, each with five steps over a ps and a worker."""
    ended = environment.submit("many_sessions.py", SESSIONS).end(2 * PATIENCE)
    return [] if (ended.code, ended.out) == (0, f"{5 * SESSIONS} steps\n") else [str(ended)]


def kills(environment: LocalEnvironment) -> Outcome:
    """Kill a random process of `run` at a random moment; afterwards `down` leaves nothing."""
    chance, problems = random.Random(_SEED), []  # noqa: S311 - the same in each run
    script = environment.file("brief.py", "import time\ntime.sleep(1)\nprint('done')\n")
    for number in range(KILLS):
        environment.remove()
        command = environment.start("run", "--local", environment.job_file, script)
        time.sleep(chance.uniform(0.2, 3))
        victim = chance.choice(processes(command))
        _kill(victim)
        ended = command.end(PATIENCE)
        environment.start("down", "--local", NAME).end(PATIENCE)
        environment.close()
        problems += [f"kill {number} of {victim}: {ended}"] if ended.code == _UNKNOWN_FAILURE else []
        problems += left(f"kill {number} of {victim}")
    return problems


def races(environment: LocalEnvironment) -> Outcome:
    """Run two or three commands at once; none fails without a reason, and `down` leaves nothing."""
    chance, problems = random.Random(_SEED), []  # noqa: S311 - the same in each run
    script = environment.file("short.py", "print('done')\n")
    commands: list[tuple[object, ...]] = [
        ("up", "--local", environment.job_file), ("down", "--local", NAME), ("scale", "--local", NAME, "worker=3"),
        ("scale", "--local", NAME, "worker=2"), ("restart", "--local", NAME, "worker/0"), ("status", "--local", NAME),
        ("submit", "--local", NAME, script),
    ]  # fmt: skip
    for number in range(RACES):
        if number % 5 == 0:
            environment.cluster()
        started = [environment.start(*words) for words in chance.sample(commands, chance.choice((2, 3)))]
        for command in started:
            ended = command.end(2 * PATIENCE)
            if ended.code == _UNKNOWN_FAILURE or ended.code > 128:
                problems.append(f"race {number}: {command.process.args}: {ended}")
        environment.close()
    environment.remove()
    return problems + left("the races")


def processes(command: Command) -> list[int]:
    """Return the processes of a command and of its cluster."""
    supervisor = state.folder(NAME).supervisor()
    found = [command.process.pid, *([supervisor] if supervisor else [])]
    for pid in found:
        for thread in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, _read(thread).split())
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process has ended
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def left(after: str) -> Outcome:
    """Return what the cluster has left behind."""
    found = [str(path) for path in state.folder(NAME).path.glob("*")]
    return [f"{after}: {', '.join(found)} left"] if found else []


def rows() -> Iterator[Row]:
    for count, fault, run, what in (
        (SUBMITS, "scripts", submits, "one after another"),
        (SESSIONS, "sessions of one script", sessions, "at once"),
        (KILLS, "SIGKILLs of random processes", kills, "`run`, at random moments"),
        (RACES, "races", races, "`up`, `down`, `scale`, `restart`, `status` and `submit` at once"),
    ):
        leaves = {"left": NOTHING} if run in (kills, races) else {}
        yield Row(fault=f"{count} {fault}", when=what, run=measured(run), limit=10 * PATIENCE, thorough=True, **leaves)
