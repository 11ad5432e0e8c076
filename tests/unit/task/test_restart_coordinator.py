"""Tests of the decisions about programs of several pods that run again together."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.programs import RunPolicy
from tfk8s.task.programs.restarts import restart_coordinator as messages
from tfk8s.task.programs.restarts.restart_coordinator import (
    ALONE,
    ASKED,
    ENDED,
    FAILED,
    RETURN_TIMEOUT,
    START,
    STOP,
    STOPPED,
    WAITS,
    WELCOME,
    BadMessage,
    Coordinator,
    Hello,
    Message,
    News,
    Order,
)

POLICY = RunPolicy(restart_on="failure", max_restarts=1000)


@dataclass
class Pod:
    """A pod as its link and process 1 make it: what it tells, and what it does after an order."""

    identity: str
    turn: int = 0
    told: int = 0
    restarts: int = 0
    coordinator: str = ""
    code: int = messages.RUNS
    started: float = 100.0
    is_connected: bool = False
    is_stuck: bool = False

    def hello(self, task: str, now: float) -> Hello:
        age = int(now - self.started)
        return Hello(task, self.identity, self.coordinator, self.turn, self.restarts, self.code, age)


@dataclass
class Scene:
    """Pods and their coordinator, whose messages arrive when the test says so."""

    pods: dict[str, Pod]
    now: float = 100.0
    coordinators: int = 0
    orders: list[tuple[str, Order]] = field(default_factory=list)
    names: int = 0
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.replace_coordinator()

    def replace_coordinator(self) -> None:
        for pod in self.pods.values():
            pod.is_connected = False
        self.orders.clear()
        self.coordinators += 1
        self.coordinator = Coordinator(
            "worker/0", f"coordinator {self.coordinators}", POLICY, self.send, self.said.append, lambda: self.now, 2.0
        )

    def send(self, task: str, order: Order) -> None:
        if self.pods[task].is_connected:
            self.orders.append((task, order))
            if order.kind in (WELCOME, START):
                self.pods[task].told = order.turn
            others = [other for other in self.pods.values() if other.is_connected and other.told != order.turn]
            is_free = all(other.code != messages.RUNS or other.is_stuck for other in others)
            assert order.kind != START or is_free, "no barrier"

    def connect(self, task: str) -> None:
        if not self.pods[task].is_connected:
            self.pods[task].is_connected = True
            self.coordinator.welcome(self.pods[task].hello(task, self.now))

    def cut(self, task: str) -> None:
        """End a connection; what is on its way is lost."""
        if self.pods[task].is_connected:
            self.pods[task].is_connected = False
            self.orders = [(one, order) for one, order in self.orders if one != task]
            self.coordinator.lose(task)

    def replace(self, task: str) -> None:
        self.cut(task)
        self.names += 1
        self.pods[task] = Pod(f"new {self.names}", started=self.now)
        if task == "worker/0":
            self.replace_coordinator()

    def end(self, task: str, kind: str, code: int) -> None:
        pod = self.pods[task]
        if pod.code != messages.RUNS:
            return
        pod.code = code if kind == FAILED else WAITS
        if pod.is_connected:
            self.coordinator.learn(task, News(kind, code))

    def deliver(self) -> None:
        """Let all orders arrive, and what they lead to."""
        while self.orders:
            task, order = self.orders.pop(0)
            pod = self.pods[task]
            pod.coordinator = order.coordinator
            if order.kind == WELCOME and pod.code == messages.RUNS:
                pod.turn = order.turn
            elif order.kind == STOP:
                self.end(task, STOPPED, 143)
            elif order.kind == START:
                assert pod.code != messages.RUNS, "a program is started twice"
                pod.turn, pod.restarts, pod.code = order.turn, order.restarts, messages.RUNS
                pod.started = self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.coordinator.look()

    def settle(self) -> None:
        """Let all pods come back, and time pass."""
        for _ in range(4):
            for task in self.pods:
                self.connect(task)
            self.deliver()
            for _ in range(3):
                self.wait(RETURN_TIMEOUT)
                self.deliver()


def scene(count: int = 3) -> Scene:
    made = Scene({f"worker/{index}": Pod(f"pod {index}") for index in range(count)})
    for task in made.pods:
        made.connect(task)
    made.deliver()
    return made


def turns(scene: Scene) -> list[tuple[int, int, int]]:
    return [(pod.turn, pod.restarts, pod.code) for pod in scene.pods.values()]


def test_all_programs_run_again_after_one_has_failed() -> None:
    made = scene()
    made.end("worker/1", FAILED, 137)
    assert [(task, order.kind) for task, order in made.orders] == [("worker/0", STOP), ("worker/2", STOP)]
    made.deliver()
    assert turns(made) == [(1, 1, messages.RUNS)] * 3


def test_the_last_end_comes_before_the_first_start() -> None:
    made = scene()
    made.end("worker/1", FAILED, 137)
    made.orders.clear()
    made.end("worker/0", STOPPED, 143)
    made.wait(RETURN_TIMEOUT - 1)
    assert made.orders == []
    made.end("worker/2", STOPPED, 143)
    assert {order.kind for _, order in made.orders} == {START}
    assert {order.reason for _, order in made.orders} == {"worker/1 ended with exit code 137, restart 1 of 1000"}


def test_pauses_grow_and_requests_have_none() -> None:
    made = scene()
    made.end("worker/1", FAILED, 137)
    made.deliver()
    made.end("worker/2", FAILED, 138)
    made.deliver()
    assert {code for *_, code in turns(made)} == {WAITS, 138}
    made.wait(1.0)
    made.deliver()
    assert turns(made) == [(2, 2, messages.RUNS)] * 3
    made.end("worker/0", ASKED, 143)
    made.deliver()
    assert turns(made) == [(3, 0, messages.RUNS)] * 3


def test_new_pod_starts_with_the_others_and_does_not_count() -> None:
    made = scene()
    made.replace("worker/2")
    made.connect("worker/2")
    made.deliver()
    assert turns(made) == [(1, 0, messages.RUNS)] * 3


def test_restart_waits_for_a_pod_that_is_replaced() -> None:
    made = scene()
    made.cut("worker/2")
    made.end("worker/1", FAILED, 138)
    made.deliver()
    made.wait(RETURN_TIMEOUT - 1)
    assert made.orders == []
    made.replace("worker/2")
    made.connect("worker/2")
    made.deliver()
    assert turns(made) == [(1, 1, messages.RUNS)] * 3


def test_restart_goes_on_without_a_pod_that_stays_away() -> None:
    made = scene()
    made.cut("worker/2")
    made.end("worker/1", FAILED, 138)
    made.deliver()
    made.wait(RETURN_TIMEOUT)
    made.deliver()
    assert turns(made)[:2] == [(1, 1, messages.RUNS)] * 2
    made.connect("worker/2")  # whose program still runs: it is stopped, and starts with the others
    made.deliver()
    assert turns(made) == [(2, 1, messages.RUNS)] * 3


def test_program_that_does_not_end_keeps_the_others_waiting_for_a_while_only() -> None:
    made = scene()
    made.end("worker/1", FAILED, 138)
    made.orders = [(task, order) for task, order in made.orders if task != "worker/2"]
    made.pods["worker/2"].is_stuck = True
    made.deliver()
    made.wait(11)
    made.wait(11)
    assert made.said == ["the restart waits for worker/2"]
    made.wait(RETURN_TIMEOUT)
    made.deliver()
    assert turns(made) == [(1, 1, messages.RUNS), (1, 1, messages.RUNS), (0, 0, messages.RUNS)]
    made.end("worker/2", STOPPED, 143)
    made.deliver()
    assert turns(made) == [(2, 1, messages.RUNS)] * 3


def test_pod_that_stays_away_is_waited_for_once() -> None:
    made = scene()
    made.cut("worker/2")
    for turn in (1, 2):
        made.end("worker/1", FAILED, 138)
        made.deliver()
        made.wait(RETURN_TIMEOUT if turn == 1 else 1.0)
        made.deliver()
        assert turns(made)[:2] == [(turn, turn, messages.RUNS)] * 2


def test_request_while_programs_wait_counts_anew() -> None:
    made = scene()
    made.end("worker/1", FAILED, 138)
    made.end("worker/2", ASKED, 143)
    made.deliver()
    assert turns(made) == [(1, 0, messages.RUNS)] * 3


def test_new_coordinator_waits_until_the_pods_have_found_it() -> None:
    made = scene()
    made.replace("worker/0")
    for task in made.pods:
        made.connect(task)
        made.wait(5)
        made.deliver()
    assert {code for *_, code in turns(made)} == {WAITS}
    made.wait(10)
    made.deliver()
    assert turns(made) == [(1, 0, messages.RUNS)] * 3


def test_pod_whose_link_is_late_starts_with_the_others_unless_its_program_is_new() -> None:
    made = scene(2)
    made.end("worker/1", FAILED, 137)
    made.now += 10
    made.deliver()
    made.now += 10
    made.pods |= {"worker/2": Pod("late", started=made.now - 5), "worker/3": Pod("old")}
    made.connect("worker/2")
    made.deliver()
    assert turns(made)[:3] == [(1, 1, messages.RUNS), (1, 1, messages.RUNS), (1, 0, messages.RUNS)]
    made.connect("worker/3")
    made.deliver()
    assert turns(made) == [(2, 1, messages.RUNS)] * 4


def test_lost_order_to_start_is_repeated() -> None:
    made = scene()
    made.end("worker/1", FAILED, 137)
    made.end("worker/0", STOPPED, 143)
    made.end("worker/2", STOPPED, 143)
    made.orders = [(task, order) for task, order in made.orders if order.kind == START]
    made.cut("worker/1")
    made.deliver()
    made.connect("worker/1")
    made.deliver()
    assert turns(made) == [(1, 1, messages.RUNS)] * 3


def test_ended_program_takes_no_part_any_more() -> None:
    made = scene()
    made.end("worker/2", ENDED, 0)
    made.end("worker/1", FAILED, 137)
    made.deliver()
    assert turns(made)[:2] == [(1, 1, messages.RUNS)] * 2
    made.coordinator.leave()
    assert [(task, order.kind) for task, order in made.orders] == [("worker/0", ALONE), ("worker/1", ALONE)]


ACTIONS = st.tuples(st.sampled_from(["fail", "ask", "cut", "connect", "replace", "deliver", "wait"]), st.integers(0, 3))


@given(st.lists(ACTIONS, max_size=40))
def test_all_programs_run_in_the_end(actions: list[tuple[str, int]]) -> None:
    """Failures, breaks, new pods and a new coordinator come in any order, and messages get lost with connections."""
    made, failures = scene(4), 0
    for action, number in actions:
        task = f"worker/{number}"
        if action == "fail":
            failures += made.pods[task].code == messages.RUNS
            made.end(task, FAILED, 137)
        elif action == "ask":
            made.end(task, ASKED, 143)
        elif action == "deliver":
            made.deliver()
        elif action == "wait":
            made.deliver()
            made.wait(7.0)
        else:
            getattr(made, action)(task)
    made.settle()
    assert {code for *_, code in turns(made)} == {messages.RUNS}
    assert max(restarts for _, restarts, _ in turns(made)) <= failures


NUMBERS, WORDS = st.integers(0, 99), st.text(max_size=20)
MESSAGES = st.one_of(
    st.builds(Hello, st.just("worker/12"), WORDS, WORDS, NUMBERS, NUMBERS, st.integers(-2, 255), NUMBERS),
    st.builds(News, st.sampled_from(messages.NEWS), st.integers(-2, 255)),
    st.builds(Order, st.sampled_from(messages.ORDERS), NUMBERS, NUMBERS, WORDS, WORDS),
)


@given(MESSAGES)
def test_messages_are_read_as_they_were_written(message: Message) -> None:
    assert messages.parse(messages.to_line(message)) == message


@given(st.binary(max_size=40) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9), lambda inner: st.lists(inner, max_size=7)
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_other_lines_are_one_error(line: bytes) -> None:
    for one in (line, line + b"\n"):
        try:
            messages.parse(one)
        except BadMessage:
            continue


@pytest.mark.parametrize(
    "line",
    [
        b'["News", "failed", 2]', b'["News", "failed", 2, 3]\n', b'["News", "other", 2]\n', b"[]\n", b"1\n",
        b'["News", "failed", true]\n', b'["News", "failed", -3]\n', b'["News", "failed", 1e9]\n',
        b'["Hello", "worker", "a", "", 0, 0, -1, 9]\n', b'["Hello", "../0", "a", "", 0, 0, -1, 9]\n',
        b'["Order", "stop", 1, 0, "' + b"x" * 129 + b'", ""]\n', b"[" * 2000 + b"\n", b"x" * 2000 + b"\n",
    ],
)  # fmt: skip
def test_bad_lines_are_refused(line: bytes) -> None:
    with pytest.raises(BadMessage):
        messages.parse(line)


def test_unknown_pods_and_welcomes_change_nothing() -> None:
    made = scene(1)
    made.coordinator.learn("worker/7", News(FAILED, 1))
    made.coordinator.lose("worker/7")
    assert made.orders == []
    assert WELCOME in messages.ORDERS
