"""Ends the wait for a dispatcher or a worker of tf.data's service that does not come back.

An iteration asks the dispatcher for its workers, and whether it is over, and the workers for elements. TensorFlow
repeats a request without a limit (`grpc_util::Retry` in tensorflow/core/data/service/), and a request on a connection
to a process that is frozen, or whose machine or network is gone, never ends at all. So a thread of this process asks
whether they are alive. It ends the connections to a silent one, so that TensorFlow finds the one that started again
elsewhere. A process that still waits for data after minutes is ended, with the reason.

Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import functools
import re
import socket
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfk8s.core.addresses import host_and_port
from tfk8s.core.lifetime import format_duration
from tfk8s.task import wire
from tfk8s.task.peers import silent_peers
from tfk8s.task.programs import imports
from tfk8s.task.stack_frames import current_frames, stack_of

MODULE = "tensorflow.python.data.experimental.ops.data_service_ops"
SILENT, HOPELESS = 10.0, 300.0  # seconds without an answer: until connections are ended, until the process is
INTERVAL = 2.0  # between two looks; also the time for an answer

_GET_WORKERS = "/tensorflow.data.DispatcherService/GetWorkers"  # tensorflow/core/data/service/dispatcher.proto
_MAX_WORKERS = 1 << 10
_OPERATION = re.compile(r"/tensorflow/python/ops/gen_(experimental_)?dataset_ops\.py$")
EXECUTE = "/tensorflow/python/eager/execute.py"
FUNCTION = "/tensorflow/python/eager/polymorphic_function/atomic_function.py"
_SESSION = "/tensorflow/python/client/session.py"
_OF_DATA = re.compile("Dataset|Iterator")


def is_alive(address: str, timeout: float) -> bool:
    """Return whether a server of gRPC answers at an address, "host:port"; its transport does, however busy it is."""
    try:
        with socket.create_connection(host_and_port(address), timeout) as stream:
            stream.sendall(wire.PREFACE + wire.HEARTBEAT)
            return bool(stream.recv(1))
    except (OSError, ValueError):
        return False


def workers_of(address: str, timeout: float) -> list[str]:
    """Return the addresses of the workers that a dispatcher knows; empty if it does not say in time."""
    try:
        with socket.create_connection(host_and_port(address), timeout) as stream:
            answer = wire.call(stream, _GET_WORKERS, timeout)
        workers = [
            dict(wire.fields(value)) for _, value in wire.fields(answer, _MAX_WORKERS) if isinstance(value, bytes)
        ]
    except (OSError, ValueError, wire.ProbeError):
        return []
    return [name.decode(errors="replace") for worker in workers if isinstance(name := worker.get(1), bytes)]


def _find(address: str) -> silent_peers.Peers:
    try:
        return silent_peers.peers(*host_and_port(address))
    except ValueError:  # a dispatcher names its workers as it likes
        return ()


class Dispatchers:
    """The dispatchers that this process uses, and their workers. Threads may share it.

    Args:
        say: takes a line for the user.
        end: ends this process because of a dispatcher or a worker, whose name and loss it takes.
        forwards: where this process reaches those that tasks alone can reach, by their addresses. Others are then not
            watched, nor are those that leave the mapping later. None if this process reaches all.
        alive: returns whether one of them answers.
        workers: returns the workers of a dispatcher.
        waiting: returns what waits for data now, by identity.
    """

    def __init__(
        self,
        say: Callable[[str], object],
        end: Callable[[str, str], object],
        forwards: Mapping[str, str] | None = None,
        alive: Callable[[str], bool] = lambda address: is_alive(address, INTERVAL),
        workers: Callable[[str], list[str]] = lambda address: workers_of(address, INTERVAL),
        waiting: Callable[[], set[types.FrameType]] = lambda: waiting_for_data(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._end, self._alive, self._workers, self._waiting = say, end, alive, workers, waiting
        self._forwards, self._clock = forwards, clock
        self._dispatchers: set[str] = set()
        self._peers: dict[str, silent_peers.Peers] = {}  # where each was when it was last found
        self._silent_since: dict[str, float] = {}
        self._looked: dict[str, tuple[float, set[types.FrameType]]] = {}  # the last look at what waits

    def add(self, address: str) -> None:
        """Watch a dispatcher from now on, "host:port"."""
        if address not in self._dispatchers and self._reached(address):
            self._dispatchers.add(address)
            self._peers[address] = ()
            if len(self._dispatchers) == 1:
                threading.Thread(target=self._watch, name="tfk8s-dispatchers", daemon=True).start()

    def _reached(self, address: str) -> str:
        """Return the address by which this process reaches another; "" if it can't."""
        return address if self._forwards is None else self._forwards.get(address, "")

    def _watch(self) -> None:
        pause, trouble = threading.Event(), ""
        while not pause.wait(INTERVAL):
            try:
                self.check()
            except Exception as error:  # of any kind: without this thread, iterations would wait for ever
                if trouble != repr(error):
                    trouble = repr(error)
                    self._say(f"a look at the dispatcher of tf.data's service failed, and is repeated: {trouble}")

    def check(self) -> None:
        """Ask all dispatchers and workers; act on those that are silent for long."""
        for address in list(self._peers):
            if not (at := self._reached(address)):  # its forward was closed
                continue
            if not self._alive(at):
                self._judge(address, self._clock())
                continue
            self._peers[address] = _find(at)
            if self._looked.pop(address, None):
                self._say(f"{self._name(address)} answers again")
            self._silent_since.pop(address, None)
            if address in self._dispatchers:
                for worker in filter(self._reached, self._workers(at)):
                    self._peers.setdefault(worker, ())

    def _judge(self, address: str, now: float) -> None:
        """Act on one that does not answer."""
        seconds = now - self._silent_since.setdefault(address, now)
        if seconds < SILENT:
            return
        silent_peers.end_connections(self._peers[address])
        self._peers[address] = _find(self._reached(address))  # another pod may get its old address
        if address not in self._looked:
            limit = format_duration(HOPELESS)
            self._say(f"{self._name(address)} does not answer; an iteration that waits for it is ended within {limit}")
            self._looked[address] = now - seconds, set()
        # ShownClusters are rare, because reading the stacks of threads that run is not safe in CPython 3.11.
        before, waited = self._looked[address]
        if now - before >= HOPELESS / 2:
            waits = self._waiting()
            self._looked[address] = now, waits
            if waits & waited:
                self._end(self._name(address), f"has not answered for {seconds:.0f} s")

    def _name(self, address: str) -> str:
        return f"{'the dispatcher' if address in self._dispatchers else 'a worker'} of tf.data's service at {address}"


def watch(
    say: Callable[[str], object], end: Callable[[str, str], object], forwards: Mapping[str, str] | None = None
) -> None:
    """Watch each dispatcher that this process names from now on; the arguments are those of `Dispatchers`."""
    imports.when_imported(MODULE, functools.partial(_patch, Dispatchers(say, end, forwards)))


def _patch(dispatchers: Dispatchers) -> None:
    from tensorflow.python.data.experimental.ops import data_service_ops

    parse = data_service_ops._parse_service

    @functools.wraps(parse)
    def parse_watched(service: Any) -> Any:
        protocol, address = parse(service)
        dispatchers.add(address)
        return protocol, address

    data_service_ops._parse_service = parse_watched


# ---- what waits for data -------------------------------------------------------------------------------------------


def waiting_for_data() -> set[types.FrameType]:
    """Return the innermost frame of each thread that waits in an operation, a function or a session with datasets."""
    own, frames = threading.get_ident(), current_frames()
    return {frame for thread, frame in frames.items() if thread != own and waits_for_data(list(stack_of(frame)))}


def waits_for_data(stack: Sequence[types.FrameType]) -> bool:
    """Return whether a stack, from its innermost frame outwards, is in such an operation, function or session."""
    file = stack[0].f_code.co_filename
    if file.endswith(_SESSION):
        sessions = [frame.f_locals["self"] for frame in stack if _is_method(frame, _SESSION)]
        graph = next((session.graph for session in sessions if hasattr(session, "graph")), None)
        return graph is not None and any(_OF_DATA.search(operation.type) for operation in graph.get_operations())
    if file.endswith(EXECUTE):
        functions = [frame.f_locals["self"] for frame in stack if _is_method(frame, FUNCTION)]
        return _reads_data(functions[0]) if functions else False
    return _OPERATION.search(file) is not None


def _is_method(frame: types.FrameType, file: str) -> bool:
    return frame.f_code.co_filename.endswith(file) and "self" in frame.f_locals


def _reads_data(function: Any) -> bool:
    """Return whether a function, or one that it calls, has operations of datasets; older versions do not tell."""
    definition = getattr(function, "cached_definition", None)
    if definition is None:
        return True
    return any(_OF_DATA.search(node.op) for node in definition.node_def) or any(map(_reads_data, function.children))
