"""The decisions about programs of several pods that run again together.

Process 1 of one pod makes them for all pods of the restart scope: when one program fails, the others get the order to
end theirs, and all start when the last one has ended. Standard library only: this file runs in pods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import astuple, dataclass

from tfk8s.core.programs import RestartGroup, RunPolicy

RETURN_TIMEOUT = 60.0  # seconds for a new pod, or for a program to end, before the others start without it
MAX_LINE = 1024  # bytes of a message
_MAX_NUMBER = 1 << 31
_MAX_TEXT = 128
_MOST_NAMES = 10
_SILENCE = 10.0  # seconds of a restart, after which a line says who is waited for
_SETTLE = 10.0  # seconds after the last pod has found a new coordinator, which does not know how many there are
_SLACK = 1.0  # seconds: an order takes its time
_TASK = re.compile(r"[A-Za-z]\w{0,62}/\d{1,6}", re.ASCII)

FAILED, STOPPED, ASKED, ENDED = NEWS = "failed", "stopped", "asked", "ended"
WELCOME, STOP, START, ALONE = ORDERS = "welcome", "stop", "start", "alone"


class BadMessage(ValueError):
    """A message is none of this module's."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a pod's connection.

    Attributes:
        task: the pod's.
        pod: an identity that no other pod has, not even the one that the pod replaces.
        coordinator: the identity of the coordinator that the pod spoke with last; "" before the first.
        turn: the number of restarts that the pod has seen, counted or not.
        restarts: those that count.
        code: the exit code of the program that has ended and waits; -1 if the program runs, or -2 without a code.
        age: the seconds since the program's start.
    """

    task: str
    pod: str
    coordinator: str
    turn: int
    restarts: int
    code: int
    age: int

    @property
    def runs(self) -> bool:
        """True while the program runs."""
        return self.code == RUNS


RUNS, WAITS = -1, -2  # in place of an exit code


@dataclass(frozen=True, slots=True)
class News:
    """The end of a pod's program.

    Attributes:
        kind: `FAILED`, and it may run again; `STOPPED` as ordered; `ASKED` to run again by the user; or `ENDED`.
        code: its exit code.
    """

    kind: str
    code: int


@dataclass(frozen=True, slots=True)
class Order:
    """A decision for a pod.

    Attributes:
        kind: `WELCOME` after a `Hello`; `STOP` or `START` for the program; `ALONE` if nobody decides any more.
        turn: the number of restarts, with this one. After `WELCOME`, a program that runs is of this turn.
        restarts: those that count.
        reason: why the programs run again.
        coordinator: the identity of who says so.
    """

    kind: str
    turn: int
    restarts: int
    reason: str
    coordinator: str


Message = Hello | News | Order


def to_line(message: Message) -> bytes:
    """Return a message as a line."""
    return json.dumps([type(message).__name__, *astuple(message)]).encode() + b"\n"


def parse(line: bytes) -> Message:
    """Return the message of a line.

    Raises:
        BadMessage: the line is cut, too long, or no message.
    """
    if len(line) > MAX_LINE or not line.endswith(b"\n"):
        raise BadMessage("the line is cut or too long")
    try:
        name, *values = json.loads(line)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadMessage("the line is no list") from error
    match name, values:
        case "Hello", [str(task), str(pod), str(coordinator), int(turn), int(restarts), int(code), int(age)]:
            message: Message = Hello(task, pod, coordinator, turn, restarts, code, age)
            is_known = bool(_TASK.fullmatch(task))
        case "News", [str(kind), int(code)]:
            message, is_known = News(kind, code), kind in NEWS
        case "Order", [str(kind), int(turn), int(restarts), str(reason), str(coordinator)]:
            message, is_known = Order(kind, turn, restarts, reason, coordinator), kind in ORDERS
        case _:
            raise BadMessage("the line is no message")
    if not is_known or not all(map(_is_in_range, values)):
        raise BadMessage("a value is out of range")
    return message


def _is_in_range(value: str | int) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_TEXT
    return type(value) is int and WAITS <= value < _MAX_NUMBER


@dataclass(slots=True)
class _Member:
    pod: str
    runs: bool
    gone_since: float | None = None


class Coordinator:
    """Decides for one restart scope.

    Args:
        task: the one in whose pod this runs.
        identity: of this coordinator.
        policy: the rules of the run.
        send: sends an order to the pod of a task, if the pod is connected.
        say: prints a line.
        clock: returns a time in seconds.
        grace: the seconds that a program has to save.
    """

    def __init__(
        self, task: str, identity: str, policy: RunPolicy, send: Callable[[str, Order], object],
        say: Callable[[str], object], clock: Callable[[], float], grace: float,
    ) -> None:  # fmt: skip
        self._task, self._identity, self._send, self._say, self._clock = task, identity, send, say, clock
        self._patience, self._has_said = RETURN_TIMEOUT + grace, False
        self._group = RestartGroup(policy)
        self._turn = 0
        self._members: dict[str, _Member] = {}
        self._begun = self._ready_since = 0.0
        self._started: float | None = None  # the last start of all programs, after a restart

    def welcome(self, hello: Hello) -> None:
        """Take a pod in, that is new or comes back."""
        before = self._members.get(hello.task)
        self._members[hello.task] = _Member(hello.pod, hello.runs)
        is_behind = before is not None and hello.turn < self._turn
        self._turn = max(self._turn, hello.turn)
        self._group.restarts = max(self._group.restarts, hello.restarts)
        self._ready_since = 0.0
        self._order(hello.task, WELCOME)
        if self._group.reason:
            if hello.runs:
                self._order(hello.task, STOP)
        elif hello.coordinator not in ("", self._identity):
            self._restart(f"{self._task} has a new pod", pause=_SETTLE)
        elif before and before.pod != hello.pod:
            self._restart(f"{hello.task} has a new pod")
        elif not hello.runs and not is_behind:
            self._fail(hello.task, hello.code)
        elif not hello.runs:  # the order to start has not reached the pod
            self._start(hello.task)
        elif is_behind or (self._started is not None and hello.age > self._clock() - self._started + _SLACK):
            self._restart(f"{hello.task} ran on")
        self._start_if_ready()

    def lose(self, task: str) -> None:
        """Note that a pod's connection has ended."""
        if member := self._members.get(task):
            member.gone_since = self._clock()
            self._start_if_ready()

    def learn(self, task: str, news: News) -> None:
        """Take the news of a pod's program."""
        member = self._members.get(task)
        if member is None:
            return
        if news.kind == ENDED:
            del self._members[task]
        else:
            member.runs = False
            if self._group.reason:
                if news.kind == ASKED:
                    self._group.restart_at_once(self._group.reason, counts_anew=True)
            elif news.kind == ASKED:
                self._restart(f"{task} was restarted", counts_anew=True)
            elif news.kind == STOPPED:
                self._restart(f"{task} has ended late")
            else:
                self._fail(task, news.code)
        self._start_if_ready()

    def leave(self) -> None:
        """Tell all pods that nobody decides any more."""
        for task in self._members:
            self._order(task, ALONE)
        self._members.clear()

    def look(self) -> None:
        """Start the programs whose pause is over. Call this about once a second."""
        self._start_if_ready()

    def _fail(self, task: str, code: int) -> None:
        """Begin a restart, which counts if the program has failed by itself."""
        if code < 0:
            self._restart(f"{task} waits")
            return
        counts = f"restart {self._group.restarts + 1} of {self._group.policy.max_restarts}"
        self._group.restart_after_failure(f"{task} ended with exit code {code}, {counts}", self._clock())
        self._stop_all()

    def _restart(self, reason: str, *, counts_anew: bool = False, pause: float = 0.0) -> None:
        self._group.restart_at_once(reason, counts_anew=counts_anew)
        self._group.pause = pause
        self._stop_all()

    def _stop_all(self) -> None:
        self._turn += 1
        self._begun, self._ready_since, self._has_said = self._clock(), 0.0, False
        for task, member in self._members.items():
            if member.runs:
                self._order(task, STOP)

    def _start_if_ready(self) -> None:
        """Start all programs if the last one has ended, and the pause is over."""
        if not self._group.reason:
            return
        now = self._clock()
        gone = [task for task, member in self._members.items() if member.gone_since is not None]
        running = [task for task, member in self._members.items() if member.runs and task not in gone]
        waited_for = [*(gone if now - self._begun < RETURN_TIMEOUT else ()),
                      *(running if now - self._begun < self._patience else ())]  # fmt: skip
        if waited_for:
            self._ready_since = 0.0
            if now - self._begun >= _SILENCE and not self._has_said:
                self._has_said = True
                self._say(f"the restart waits for {', '.join(waited_for[:_MOST_NAMES])}")
            return
        self._ready_since = self._ready_since or now
        if now - self._ready_since < self._group.pause:
            return
        for task in gone:
            del self._members[task]
        for task in self._members.keys() - set(running):
            self._start(task)
        self._group.start(now)
        self._started = now

    def _start(self, task: str) -> None:
        self._members[task].runs = True
        self._order(task, START)

    def _order(self, task: str, kind: str) -> None:
        reason = self._group.reason[:_MAX_TEXT]
        self._send(task, Order(kind, self._turn, self._group.restarts, reason, self._identity))
