"""Rows about commands on Kubernetes: Ctrl-C and SIGTERM in each phase, and concurrent commands."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

from harness.command import PATIENCE, Command, Ended
from harness.kube import NAME, KubeEnvironment
from harness.row import NOTHING, STARTED, USABLE, Row

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths

Begin = Callable[[KubeEnvironment], Command]
ENDING = {signal.SIGINT: ("Ctrl-C", 130), signal.SIGTERM: ("SIGTERM", 143)}


def slow(environment: KubeEnvironment, verb: str, *words: object) -> Command:
    """Return a command that waits for a slow task."""
    environment.remove()
    text = environment.text.replace("ps: {", "ps: {preload: [tensorflow], ")
    command = environment.start(verb, environment.file("slow.yaml", text), *words)
    command.until_says("ps/0")
    return command


def up_waits(environment: KubeEnvironment) -> Command:
    return slow(environment, "up")


def run_waits(environment: KubeEnvironment) -> Command:
    return slow(environment, "run", environment.alone("sleeper.py"))


def up_unheard(environment: KubeEnvironment) -> Command:
    return _unheard(environment, "up", environment.job_file)


def submit_unheard(environment: KubeEnvironment) -> Command:
    return _unheard(environment, "submit", NAME, environment.alone("sleeper.py"))


def _unheard(environment: KubeEnvironment, *words: object) -> Command:
    """Return a command whose requests get no response."""
    environment.cluster()
    environment.proxy.go_dead()
    command = environment.start(str(words[0]), *words[1:])
    environment.proxy.until_asked()
    return command


def submit_starts(environment: KubeEnvironment) -> Command:
    """Return a `submit` whose pod a quota holds back."""
    environment.cluster()
    environment.quota(pods=4)
    command = environment.start("submit", NAME, environment.alone("sleeper.py"))
    environment.until_made("Job")
    return command


def in_step(environment: KubeEnvironment) -> Command:
    return environment.steps("during")


def here_in_step(environment: KubeEnvironment) -> Command:
    command = environment.start("submit", "--here", environment.cluster(), environment.alone("steps.py"), "during")
    command.until_says("during")
    return command


def script_sleeps(environment: KubeEnvironment) -> Command:
    command = environment.submit("sleeper.py")
    command.until_says("script is up")
    return command


def looks(*words: str, until: str) -> Begin:
    def begin(environment: KubeEnvironment) -> Command:
        command = environment.start(words[0], environment.cluster(), *words[1:])
        command.until_says(until)
        return command

    return begin


def down_waits(environment: KubeEnvironment) -> Command:
    """Return a `down` that waits for a pod with a finalizer."""
    environment.cluster()
    environment.keep("ps/0")
    command = environment.start("down", NAME)
    environment.until_deleted("ps/0")
    return command


def restart_waits(environment: KubeEnvironment) -> Command:
    up = slow(environment, "up")
    assert up.end(2 * PATIENCE).code == 0, up.err
    command = environment.start("restart", NAME, "ps/0")
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


def interrupted(begin: Begin, number: int) -> Callable[[KubeEnvironment], Ended]:
    def run(environment: KubeEnvironment) -> Ended:
        command = begin(environment)
        command.send(number)
        try:
            return command.end(PATIENCE)
        finally:
            if begin is down_waits:
                environment.undo()
                environment.remove()

    return run


def interrupts() -> Iterator[Row]:
    for index, (when, (begin, left)) in enumerate(PHASES.items()):
        for other, (number, (name, code)) in enumerate(ENDING.items()):
            yield Row(
                fault=name, when=when, run=interrupted(begin, number), code=code, left=left,
                thorough=(index + other) % 2 > 0,
            )  # fmt: skip


def killed_submit(environment: KubeEnvironment) -> Ended:
    """Kill a `submit`; its script ends, and the warm pod stays."""
    command = script_sleeps(environment)
    pod = environment.script_pod()
    command.send(signal.SIGKILL)
    ended = command.end(PATIENCE)
    polling.wait_until(lambda: not environment.running_scripts(), "the script to end", 2 * PATIENCE)
    assert "deletionTimestamp" not in environment.client.get(paths.pod(environment.namespace, pod))["metadata"]
    return ended


# ---- several at once -----------------------------------------------------------------------------------------------


def two_ups(environment: KubeEnvironment) -> Ended:
    environment.remove()
    one, other = (environment.start("up", environment.job_file) for _ in range(2))
    first, second = one.end(2 * PATIENCE), other.end(2 * PATIENCE)
    return Ended(max(first.seconds, second.seconds), max(first.code, second.code), "", first.err + second.err)


def up_against_down(environment: KubeEnvironment) -> Ended:
    environment.remove()
    environment.quota(pods=1)  # on a busy machine, a slow task may be ready before `down` has started
    up = environment.start("up", environment.job_file)
    up.until_says('quota "small"')
    down = environment.start("down", NAME)
    assert down.end(PATIENCE).code == 0, down.err
    up.fault = down.fault
    return up.end(PATIENCE)


def script_against_down(environment: KubeEnvironment) -> Ended:
    script = script_sleeps(environment)
    script.now()
    down = environment.start("down", NAME)
    ended = script.end(PATIENCE)
    assert down.end(PATIENCE).code == 0, down.err
    return ended


def rows() -> Iterator[Row]:
    yield from interrupts()
    yield Row(
        fault="SIGKILL of `submit`", when="while its script runs in a warm pod, which then ends the script",
        run=killed_submit, code=137,
    )  # fmt: skip
    yield Row(fault="two `up`s at once", when="from nothing", run=two_ups, limit=PATIENCE)
    yield Row(
        fault="`down`", when="while `up` waits", run=up_against_down, code=1, words=('cluster "faults" was removed',),
        left=NOTHING,
    )  # fmt: skip
    yield Row(
        fault="`down`", when="while `submit` runs a script", run=script_against_down, code=1, left=NOTHING,
        words=('cluster "faults" was removed by `tfk8s down`, while ',),
    )  # fmt: skip
