"""Rows about commands on Kubernetes: Ctrl-C and SIGTERM in each of their phases, and several at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

from commands import PATIENCE, Command, Ended
from kube_place import NAME, Kube
from rows import NOTHING, STARTED, USABLE, Row

Begin = Callable[[Kube], Command]
ENDING = {signal.SIGINT: ("Ctrl-C", 130), signal.SIGTERM: ("SIGTERM", 143)}


def slow(place: Kube, verb: str, *words: object) -> Command:
    """Return a command that waits for a cluster one of whose tasks takes its time."""
    place.remove()
    text = place.text.replace("ps: {", "ps: {preload: [tensorflow], ")
    command = place.start(verb, place.file("slow.yaml", text), *words)
    command.until_says("ps/0")
    return command


def up_waits(place: Kube) -> Command:
    return slow(place, "up")


def run_waits(place: Kube) -> Command:
    return slow(place, "run", place.alone("sleeper.py"))


def up_unheard(place: Kube) -> Command:
    return _unheard(place, "up", place.job_file)


def submit_unheard(place: Kube) -> Command:
    return _unheard(place, "submit", NAME, place.alone("sleeper.py"))


def _unheard(place: Kube, *words: object) -> Command:
    """Return a command whose requests come to nothing."""
    place.cluster()
    place.way.go_dead()
    command = place.start(str(words[0]), *words[1:])
    place.way.until_asked()
    return command


def submit_starts(place: Kube) -> Command:
    """Return a `submit` whose pod is not made yet: a quota keeps it back."""
    place.cluster()
    place.quota(pods=4)
    command = place.start("submit", NAME, place.alone("sleeper.py"))
    place.until_made("Job")
    return command


def in_step(place: Kube) -> Command:
    return place.steps("during")


def here_in_step(place: Kube) -> Command:
    command = place.start("submit", "--here", place.cluster(), place.alone("steps.py"), "during")
    command.until_says("during")
    return command


def script_sleeps(place: Kube) -> Command:
    command = place.submit("sleeper.py")
    command.until_says("script is up")
    return command


def looks(*words: str, until: str) -> Begin:
    def begin(place: Kube) -> Command:
        command = place.start(words[0], place.cluster(), *words[1:])
        command.until_says(until)
        return command

    return begin


def down_waits(place: Kube) -> Command:
    """Return a `down` that waits for a pod which somebody else keeps."""
    place.cluster()
    place.keep("ps/0")
    command = place.start("down", NAME)
    place.until_deleted("ps/0")
    return command


def restart_waits(place: Kube) -> Command:
    up = slow(place, "up")
    assert up.end(2 * PATIENCE).code == 0, up.err
    command = place.start("restart", NAME, "ps/0")
    command.until_says("ps/0")
    return command


PHASES: dict[str, tuple[Begin, str]] = {
    "`connect`": (looks("connect", until="grpc://"), USABLE),
    "`status --watch`": (looks("status", "--watch", until="worker/1"), USABLE),
    "`logs --follow`": (looks("logs", "--follow", until="worker/1"), USABLE),
    "`submit`, while its pod is not made": (submit_starts, USABLE),
    "`submit`, while the API server does not answer": (submit_unheard, USABLE),
    "`submit`, in a step": (in_step, USABLE),
    "`submit`, while a script does something else": (script_sleeps, USABLE),
    "`submit --here`, in a step": (here_in_step, USABLE),
    "`up`, while the API server does not answer": (up_unheard, USABLE),
    "`down`, while pods end": (down_waits, NOTHING),
    "`restart`, while the task starts": (restart_waits, STARTED),
    "`up`, while tasks start": (up_waits, STARTED),
    "`run`, while tasks start": (run_waits, NOTHING),
}


def interrupted(begin: Begin, number: int) -> Callable[[Kube], Ended]:
    def act(place: Kube) -> Ended:
        command = begin(place)
        command.send(number)
        try:
            return command.end(PATIENCE)
        finally:
            if begin is down_waits:
                place.undo()
                place.remove()

    return act


def interrupts() -> Iterator[Row]:
    for index, (when, (begin, left)) in enumerate(PHASES.items()):
        for other, (number, (name, code)) in enumerate(ENDING.items()):
            yield Row(
                fault=name, when=when, act=interrupted(begin, number), code=code, left=left,
                thorough=(index + other) % 2 > 0,
            )  # fmt: skip


# ---- several at once -----------------------------------------------------------------------------------------------


def two_ups(place: Kube) -> Ended:
    place.remove()
    one, other = (place.start("up", place.job_file) for _ in range(2))
    first, second = one.end(PATIENCE), other.end(PATIENCE)
    return Ended(max(first.seconds, second.seconds), max(first.code, second.code), "", first.err + second.err)


def up_against_down(place: Kube) -> Ended:
    up = up_waits(place)
    down = place.start("down", NAME)
    assert down.end(PATIENCE).code == 0, down.err
    up.fault = down.fault
    return up.end(PATIENCE)


def rows() -> Iterator[Row]:
    yield from interrupts()
    yield Row(fault="two `up`s at once", when="from nothing", act=two_ups, limit=PATIENCE)
    yield Row(
        fault="`down`", when="while `up` waits", act=up_against_down, code=1, words=('cluster "faults" was removed',),
        left=NOTHING,
    )  # fmt: skip
