"""The table of faults on this machine. A run of the tables writes `docs/reliability.md`."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

from harness.command import PATIENCE, Command, Ended
from harness.local import NAME, SCRIPTS, LocalEnvironment
from harness.row import CONNECTED, LOST, MOMENTS, NOTHING, OWN_SESSION, STARTED, USABLE, Row, both_said
from harness.signals import send_signal
from rows import endurance, packets, programs, scaling, scripts, surroundings

from tfk8s import polling
from tfk8s.backends.local import state
from tfk8s.task import ipc

SCRIPT_STARTS = "script is up"


# ---- what happens to processes -------------------------------------------------------------------------------------


def lost_tasks() -> Iterator[Row]:
    for task, (moment, when) in itertools.product(("worker/1", "ps/0", "chief/0"), MOMENTS.items()):
        yield Row(
            fault=f"SIGKILL of {task}", when=when, run=send_signal(task, signal.SIGKILL, moment), code=3,
            words=(f"{task} was lost: killed by SIGKILL",),
        )  # fmt: skip
    for task, (moment, when) in itertools.product(("worker/1", "ps/0", "chief/0"), MOMENTS.items()):
        yield Row(
            fault=f"SIGSTOP of {task}", when=when, run=send_signal(task, signal.SIGSTOP, moment), code=3,
            words=(f"{task} was lost: stopped by a signal",),
        )  # fmt: skip


def lost_supervisor() -> Iterator[Row]:
    for moment, when in MOMENTS.items():
        yield Row(
            fault="SIGKILL of the supervisor", when=when, run=send_signal("supervisor", signal.SIGKILL, moment), code=1,
            words=("its supervisor is gone, and all tasks with it",), left=LOST,
        )  # fmt: skip
    for moment, when in MOMENTS.items():
        yield Row(
            fault="SIGSTOP of the supervisor", when=when, run=send_signal("supervisor", signal.SIGSTOP, moment), code=1,
            words=('the supervisor of cluster "faults" is stopped by a signal',),
        )  # fmt: skip


def client_dies(moment: str) -> Callable[[LocalEnvironment], Ended]:
    def run(environment: LocalEnvironment) -> Ended:
        script = environment.steps(moment)
        script.send(signal.SIGKILL)
        ended = script.end(PATIENCE)
        polling.wait_until(lambda: not environment.status().scripts, "the script to end", PATIENCE)
        return Ended(time.monotonic() - script.fault, ended.code, ended.out, ended.err)

    return run


def client_pauses(environment: LocalEnvironment) -> Ended:
    script = environment.steps("after")
    script.process.send_signal(signal.SIGSTOP)
    script.go_on()
    polling.wait_until(lambda: not environment.status().scripts, "the script to end", PATIENCE)
    script.send(signal.SIGCONT)
    return script.end(PATIENCE)


def run_dies(*flags: str) -> Callable[[LocalEnvironment], Ended]:
    """Return a fault: SIGKILL of a `run` whose script waits; the verdict is the end of the script or of the cluster."""

    def run(environment: LocalEnvironment) -> Ended:
        environment.remove()
        script = environment.file("waits.py", "import time\nprint('waits', flush=True)\ntime.sleep(600)\n")
        command = environment.start("run", "--local", *flags, environment.job_file, script)
        command.until_says("waits")
        supervisor = environment.pid("supervisor")
        command.send(signal.SIGKILL)
        ended = command.end(PATIENCE)
        over = (lambda: not environment.status().scripts) if flags else lambda: not state.start_time(supervisor)
        polling.wait_until(over, "the script or the cluster to end", PATIENCE)
        return Ended(time.monotonic() - command.fault, ended.code, ended.out, ended.err)

    return run


def lost_client() -> Iterator[Row]:
    script = "while its script runs"
    yield Row(fault="SIGKILL of `run`", when=script, run=run_dies(), code=137, left=NOTHING)
    yield Row(fault="SIGKILL of `run --keep`", when=script, run=run_dies("--keep"), code=137)
    for moment, when in MOMENTS.items():
        yield Row(fault="SIGKILL of `submit`", when=when, run=client_dies(moment), code=137)
    yield Row(fault="SIGSTOP, then SIGCONT of `submit`", when="between steps", run=client_pauses)


# ---- sessions that no script of tfk8s' opens ----------------------------------------------------------------------


def own(task: str, number: int) -> Callable[[LocalEnvironment], Ended]:
    """Send a signal to a task, or to the program if `task` is "", while the program is in a step."""

    def run(environment: LocalEnvironment) -> Ended:
        program = environment.notebook()
        return send_signal_to(environment, program, task, number)

    return run


def connected(task: str, number: int) -> Callable[[LocalEnvironment], Ended]:
    """Do the same to a program that has only the address of `connect`."""

    def run(environment: LocalEnvironment) -> Ended:
        connect = environment.start("connect", "--local", environment.cluster())
        connect.until_says("until Ctrl-C")
        program = environment.notebook(connect.out.strip())
        return both_said(send_signal_to(environment, program, task, number), connect)

    return run


def send_signal_to(environment: LocalEnvironment, program: Command, task: str, number: int) -> Ended:
    pid = environment.pid(task) if task else program.process.pid
    program.now()
    os.kill(pid, number)
    try:
        return program.end(PATIENCE)
    finally:
        if number == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)


def sessions() -> Iterator[Row]:
    stopped = "worker/1 was lost: stopped by a signal"
    yield Row(
        fault="SIGSTOP of worker/1", when=OWN_SESSION, run=own("worker/1", signal.SIGSTOP), code=3,
        words=(stopped, f"TaskLost: {stopped}"),
    )  # fmt: skip
    yield Row(
        fault="SIGKILL of chief/0", when=OWN_SESSION, run=own("chief/0", signal.SIGKILL), code=3, words=("chief/0 was",)
    )
    yield Row(fault="Ctrl-C", when=OWN_SESSION, run=own("", signal.SIGINT), code=130)
    yield Row(
        fault="SIGSTOP of worker/1", when=CONNECTED, run=connected("worker/1", signal.SIGSTOP), code=1,
        words=(stopped, "AbortedError", stopped),
    )  # fmt: skip


# ---- Ctrl-C, SIGTERM, and a terminal that closes -------------------------------------------------------------------

ENDING = {"Ctrl-C": 130, "SIGTERM": 143, "the terminal closes": 129}
NUMBERS = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM}

Begin = Callable[[LocalEnvironment, bool], Command]  # with a terminal or without


def gated_up(environment: LocalEnvironment, terminal: bool, *words: object) -> Command:
    """Return a command that waits for a task that does not start."""
    environment.remove()
    environment.close_gate()
    command = environment.start(words[0], "--local", environment.job_file, *words[1:], terminal=terminal)
    command.until_says("ps/0")
    return command


def waits_for_up(environment: LocalEnvironment, terminal: bool) -> Command:
    return gated_up(environment, terminal, "up")


def run_waits_for_up(environment: LocalEnvironment, terminal: bool) -> Command:
    return gated_up(environment, terminal, "run", SCRIPTS / "steps.py", "before")


def run_has_a_script(environment: LocalEnvironment, terminal: bool) -> Command:
    environment.remove()
    # In an interpreter of its own: it need not wait until the new cluster has TensorFlow imported for scripts.
    command = environment.start(
        "run", "--local", "--fresh", environment.job_file, SCRIPTS / "sleeper.py", terminal=terminal
    )
    command.until_says(SCRIPT_STARTS)
    return command


def restarts(environment: LocalEnvironment, terminal: bool) -> Command:
    """Return a command that waits for a restarted task, which is ready a second later."""
    name = environment.cluster()
    environment.close_gate()
    command = environment.start("restart", "--local", name, "ps/0", terminal=terminal)
    command.until_says("Starting")
    threading.Timer(1, environment.open_gate).start()
    return command


def down_waits(environment: LocalEnvironment, terminal: bool) -> Command:
    """Return a `down` that waits for a supervisor that does not respond."""
    folder = state.folder(environment.cluster())
    aside = folder.control.rename(folder.control.with_suffix(".aside"))
    with ipc.listen(folder.control) as listener:
        listener.settimeout(PATIENCE)
        command = environment.start("down", "--local", NAME, terminal=terminal)
        asked, _ = listener.accept()
    environment.keep(asked)
    aside.rename(folder.control)
    return command


def in_steps(moment: str) -> Begin:
    return lambda environment, terminal: environment.steps(moment, terminal=terminal)


def script_sleeps(environment: LocalEnvironment, terminal: bool) -> Command:
    command = environment.submit("sleeper.py", terminal=terminal)
    command.until_says(SCRIPT_STARTS)
    return command


def looking(*words: str, until: str) -> Begin:
    def begin(environment: LocalEnvironment, terminal: bool) -> Command:
        command = environment.start(words[0], "--local", environment.cluster(), *words[1:], terminal=terminal)
        command.until_says(until)
        return command

    return begin


PHASES: dict[str, tuple[Begin, str, str]] = {
    "`submit`, before a step": (in_steps("before"), USABLE, ""),
    "`submit`, in a step": (in_steps("during"), USABLE, ""),
    "`submit`, while a script does something else": (script_sleeps, USABLE, ""),
    "`connect`": (looking("connect", until="grpc://"), USABLE, ""),
    "`status --watch`": (looking("status", "--watch", until="worker/1"), USABLE, ""),
    "`logs --follow`": (looking("logs", "--follow", until="worker/1"), USABLE, ""),
    "`down`, while the supervisor does not answer": (down_waits, USABLE, "interrupted: parts of the cluster"),
    "`restart`, while the task starts": (restarts, USABLE, "interrupted: a restart that has begun continues"),
    "`up`, while tasks start": (waits_for_up, STARTED, "interrupted: a cluster that starts already continues"),
    "`run`, while tasks start": (run_waits_for_up, NOTHING, ""),
    "`run`, while its script runs": (run_has_a_script, NOTHING, ""),
}


def interrupted(begin: Begin, fault: str) -> Callable[[LocalEnvironment], Ended]:
    def run(environment: LocalEnvironment) -> Ended:
        command = begin(environment, fault not in NUMBERS)
        if fault in NUMBERS:
            command.send(NUMBERS[fault])
        else:
            command.hang_up()
        return command.end(PATIENCE)

    return run


def interrupts() -> Iterator[Row]:
    for (when, (begin, left, says)), (fault, code) in itertools.product(PHASES.items(), ENDING.items()):
        words = (says,) if says else ()
        yield Row(fault=fault, when=when, run=interrupted(begin, fault), code=code, left=left, words=words)


# ---- many at once --------------------------------------------------------------------------------------------------


def both(first: Command, second: Command, limit: float) -> Ended:
    one, other = first.end(limit), second.end(limit)
    return Ended(max(one.seconds, other.seconds), max(one.code, other.code), one.out + other.out, one.err + other.err)


def two_ups(environment: LocalEnvironment) -> Ended:
    environment.remove()
    return both(*(environment.start("up", "--local", environment.job_file) for _ in range(2)), PATIENCE)


def up_against_down(environment: LocalEnvironment) -> Ended:
    up = waits_for_up(environment, terminal=False)
    up.now()
    down = environment.start("down", "--local", NAME)
    return both(up, down, PATIENCE)


def script_against_down(environment: LocalEnvironment) -> Ended:
    script = script_sleeps(environment, terminal=False)
    script.now()
    down = environment.start("down", "--local", NAME)
    assert down.end(PATIENCE).code == 0, down.err
    return script.end(PATIENCE)


def script_at_limit(environment: LocalEnvironment) -> Ended:
    environment.remove()
    file = environment.file("limited.yaml", f"{environment.job_file.read_text()}\nmax_duration: 20s\n")
    up = environment.start("up", "--local", file)
    assert up.end(PATIENCE).code == 0, up.err
    # In an interpreter of its own: a slow machine imports TensorFlow until the limit.
    script = environment.start("submit", "--local", "--fresh", NAME, SCRIPTS / "sleeper.py")
    script.until_says(SCRIPT_STARTS)
    polling.wait_until(lambda: bool(state.folder(NAME).end()), "the limit", PATIENCE)
    script.now()
    return script.end(PATIENCE)


def crowds() -> Iterator[Row]:
    yield Row(fault="two `up`s at once", when="from nothing", run=two_ups, words=(), limit=PATIENCE)
    yield Row(
        fault="`down`", when="while `up` waits", run=up_against_down, code=1, words=('cluster "faults" ',),
        left=NOTHING,
    )  # fmt: skip
    yield Row(
        fault="`down`", when="while `submit` runs a script", run=script_against_down, code=1, left=NOTHING,
        words=('cluster "faults" was removed by `tfk8s down`, while ',),
    )  # fmt: skip
    yield Row(
        fault="`max_duration`", when="while `submit` runs a script", run=script_at_limit, code=1, left=LOST,
        words=('cluster "faults" has ended 20s after its first `up` (max_duration), while ',),
    )  # fmt: skip


# Rows that need a cluster and leave it usable come first: one serves them all.
ROWS = [
    *lost_tasks(), *scripts.losses("ps/0 was lost: killed by SIGKILL"),
    *scripts.coordinators("stopped by a signal"), *sessions(), *lost_client(),
    *surroundings.in_scripts(), *interrupts(), *scaling.rows(), *lost_supervisor(), *crowds(), *scripts.removals(),
    *packets.rows(), *programs.faults(), *endurance.rows(), *surroundings.of_clusters(),
]  # fmt: skip
