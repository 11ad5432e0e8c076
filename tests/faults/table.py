"""The table: what goes wrong, when, and how a user's command then ends. `docs/reliability.md` is made from its run."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator

import environment
from commands import PATIENCE, Command, Ended
from local_place import HERE, NAME, SLOW, Local
from rows import LOST, NOTHING, STARTED, USABLE, VERDICT, Row

from tfk8s import waiting
from tfk8s.backends.local import state

SCRIPT_STARTS = "script is up"
MOMENTS = {"before": "before a step", "during": "in a step", "after": "between steps"}


# ---- what happens to processes -------------------------------------------------------------------------------------


def hit(task: str, number: int, moment: str) -> Callable[[Local], Ended]:
    """A signal to a task's process, or the supervisor's, at some moment of a script."""

    def act(place: Local) -> Ended:
        script = place.steps(moment)
        script.now()
        os.kill(place.pid(task), number)
        script.go_on()
        try:
            return script.end(VERDICT)
        finally:
            if number == signal.SIGSTOP:
                os.kill(place.pid(task), signal.SIGCONT)

    return act


def lost_tasks() -> Iterator[Row]:
    for task, (moment, when) in itertools.product(("worker/1", "ps/0", "chief/0"), MOMENTS.items()):
        yield Row(
            fault=f"SIGKILL of {task}", when=when, act=hit(task, signal.SIGKILL, moment), code=3,
            words=(f"{task} was lost: killed by SIGKILL",),
        )  # fmt: skip
    for task, (moment, when) in itertools.product(("worker/1", "ps/0", "chief/0"), MOMENTS.items()):
        yield Row(
            fault=f"SIGSTOP of {task}", when=when, act=hit(task, signal.SIGSTOP, moment), code=3,
            words=(f"{task} was lost: stopped by a signal",),
        )  # fmt: skip


def lost_supervisor() -> Iterator[Row]:
    for moment, when in MOMENTS.items():
        yield Row(
            fault="SIGKILL of the supervisor", when=when, act=hit("supervisor", signal.SIGKILL, moment), code=1,
            words=("its supervisor is gone, and all tasks with it",), left=LOST,
        )  # fmt: skip
    yield Row(
        fault="SIGSTOP of the supervisor", when="in a step", act=hit("supervisor", signal.SIGSTOP, "during"), code=1,
        words=('the supervisor of cluster "faults" is stopped by a signal',),
    )  # fmt: skip


def client_dies(moment: str) -> Callable[[Local], Ended]:
    def act(place: Local) -> Ended:
        script = place.steps(moment)
        script.send(signal.SIGKILL)
        ended = script.end(VERDICT)
        waiting.wait_until(lambda: not place.status().scripts, "the script to end", VERDICT)
        return Ended(time.monotonic() - script.fault, ended.code, ended.out, ended.err)

    return act


def client_pauses(place: Local) -> Ended:
    script = place.steps("after")
    script.process.send_signal(signal.SIGSTOP)
    script.go_on()
    waiting.wait_until(lambda: not place.status().scripts, "the script to end", PATIENCE)
    script.send(signal.SIGCONT)
    return script.end(VERDICT)


def lost_client() -> Iterator[Row]:
    for moment, when in MOMENTS.items():
        yield Row(fault="SIGKILL of `submit`", when=when, act=client_dies(moment), code=137)
    yield Row(fault="SIGSTOP, then SIGCONT of `submit`", when="between steps", act=client_pauses)


# ---- Ctrl-C and SIGTERM --------------------------------------------------------------------------------------------

ENDING = {signal.SIGINT: ("Ctrl-C", 130), signal.SIGTERM: ("SIGTERM", 143)}


def slow_up(place: Local, *words: object) -> Command:
    """Return a command that waits for a cluster whose tasks take long to come up."""
    place.remove()
    command = place.start(words[0], "--local", place.file("slow.yaml", SLOW), *words[1:])
    folder = state.folder(NAME)
    waiting.wait_until(lambda: folder.control.exists(), "the supervisor to listen", PATIENCE)
    return command


def waits_for_up(place: Local) -> Command:
    return slow_up(place, "up")


def run_waits_for_up(place: Local) -> Command:
    return slow_up(place, "run", HERE / "steps.py", "before")


def run_has_a_script(place: Local) -> Command:
    place.remove()
    command = place.start("run", "--local", place.job_file, HERE / "steps.py", "before")
    command.until_says("before")
    return command


def script_sleeps(place: Local) -> Command:
    command = place.submit("sleeper.py")
    command.until_says(SCRIPT_STARTS)
    return command


def looking(*words: str, until: str) -> Callable[[Local], Command]:
    def begin(place: Local) -> Command:
        command = place.start(words[0], "--local", place.cluster(), *words[1:])
        command.until_says(until)
        return command

    return begin


PHASES: dict[str, tuple[Callable[[Local], Command], str]] = {
    "`up`, while tasks start": (waits_for_up, STARTED),
    "`run`, while tasks start": (run_waits_for_up, NOTHING),
    "`run`, while its script runs": (run_has_a_script, NOTHING),
    "`submit`, before a step": (lambda place: place.steps("before"), USABLE),
    "`submit`, in a step": (lambda place: place.steps("during"), USABLE),
    "`submit`, while a script does something else": (script_sleeps, USABLE),
    "`connect`": (looking("connect", until="grpc://"), USABLE),
    "`status --watch`": (looking("status", "--watch", until="worker/1"), USABLE),
    "`logs --follow`": (looking("logs", "--follow", until="worker/1"), USABLE),
}


def interrupted(begin: Callable[[Local], Command], number: int) -> Callable[[Local], Ended]:
    def act(place: Local) -> Ended:
        command = begin(place)
        command.send(number)
        return command.end(VERDICT)

    return act


def interrupts() -> Iterator[Row]:
    for (when, (begin, left)), (number, (name, code)) in itertools.product(PHASES.items(), ENDING.items()):
        yield Row(fault=name, when=when, act=interrupted(begin, number), code=code, left=left)


# ---- many at once --------------------------------------------------------------------------------------------------


def both(first: Command, second: Command, limit: float) -> Ended:
    one, other = first.end(limit), second.end(limit)
    return Ended(max(one.seconds, other.seconds), max(one.code, other.code), one.out + other.out, one.err + other.err)


def two_ups(place: Local) -> Ended:
    place.remove()
    return both(*(place.start("up", "--local", place.job_file) for _ in range(2)), PATIENCE)


def up_against_down(place: Local) -> Ended:
    up = slow_up(place, "up")
    down = place.start("down", "--local", NAME)
    return both(up, down, PATIENCE)


def crowds() -> Iterator[Row]:
    yield Row(fault="two `up`s at once", when="from nothing", act=two_ups, words=(), limit=PATIENCE)
    yield Row(
        fault="`down`", when="while `up` waits", act=up_against_down, code=1, words=('cluster "faults" ',),
        left=NOTHING, limit=PATIENCE,
    )  # fmt: skip


ROWS = [*lost_tasks(), *lost_supervisor(), *lost_client(), *interrupts(), *crowds(), *environment.rows()]
