"""The patches of sessions, with stand-ins for TensorFlow's objects; real ones are in tests/local."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest
from fakes import tensorflow_server

from tfk8s.errors import GraphTooLarge, InvalidInput
from tfk8s.sessions import patch
from tfk8s.sessions.cluster import elastic_sessions

FILTERS = ["/job:chief/task:0"]


class ConfigProto:
    """As TensorFlow's."""

    def __init__(self, filters: tuple[str, ...] = (), *, isolated: bool = False, soft: bool = False) -> None:
        self.device_filters, self.isolate_session_state, self.allow_soft_placement = list(filters), isolated, soft

    def CopyFrom(self, other: ConfigProto) -> None:  # noqa: N802 - protobuf's name
        own = {"isolated": other.isolate_session_state, "soft": other.allow_soft_placement}
        self.__init__(tuple(other.device_filters), **own)


@pytest.fixture
def _config_pb2(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorflow.core.protobuf", "tensorflow.python.eager"):
        for end in range(3):
            package = ".".join(name.split(".")[: end + 1])
            monkeypatch.setitem(sys.modules, package, ModuleType(package))
    sys.modules["tensorflow.core.protobuf"].config_pb2 = SimpleNamespace(ConfigProto=ConfigProto)
    context = SimpleNamespace(config=ConfigProto(soft=True))
    sys.modules["tensorflow.python.eager"].context = SimpleNamespace(context=lambda: context)


@pytest.mark.usefixtures("_config_pb2")
@pytest.mark.parametrize(
    ("config", "isolate", "filters", "isolated"),
    [
        (None, False, FILTERS, False),
        (None, True, FILTERS, True),
        (ConfigProto(("mine",)), False, ["mine"], False),
        (ConfigProto(isolated=True), False, FILTERS, True),
    ],
)
def test_config_of_the_script_is_kept(
    config: ConfigProto | None, isolate: bool, filters: list[str], isolated: bool
) -> None:
    found = elastic_sessions.patch_config(config, FILTERS, elastic_sessions.Opening(""), isolate=isolate)
    assert (found.device_filters, found.isolate_session_state) == (filters, isolated)
    assert found.allow_soft_placement is (config is None)
    assert found is not config


def test_config_stays_the_same_without_filters() -> None:
    config = ConfigProto()
    assert elastic_sessions.patch_config(config, [], elastic_sessions.Opening("")) is config


class Large:
    """Seems to have so many bytes."""

    def __init__(self, size: int) -> None:
        self.nbytes = self._size = size

    def __len__(self) -> int:
        return self._size


def session(*constants: tuple[int, int]) -> SimpleNamespace:
    """Return a session whose graph has constants, each with its size in memory and in a message."""

    def constant(elements: int, in_message: int) -> SimpleNamespace:
        output = SimpleNamespace(shape=SimpleNamespace(num_elements=lambda: elements), dtype=SimpleNamespace(size=1))
        return SimpleNamespace(type="Const", outputs=[output], _node_def=Large(in_message))

    operations = [constant(*sizes) for sizes in constants]
    return SimpleNamespace(graph=SimpleNamespace(version=len(constants), get_operations=lambda: operations))


def test_too_large_graphs_and_feeds_are_refused() -> None:
    most, half = patch.MAX_BYTES, patch.MAX_BYTES // 2 + 1
    patch.check_sizes(session(), {"x": Large(most), "y": 3.0})
    with pytest.raises(GraphTooLarge, match=r"^what is fed to the graph is 2\.1 GB: one message holds at most 2 GB"):
        patch.check_sizes(session(), {"x": Large(most), "y": Large(1)})
    patch.check_sizes(session((half, half)), None)
    patch.check_sizes(session((half, half), (half, 4)), None)  # one that repeats a value
    with pytest.raises(GraphTooLarge, match=r"^the graph, by its constants, is 2\.1 GB: "):
        patch.check_sizes(session((half, half), (half, half)), None)


def test_when_a_call_last_success_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch.time, "monotonic", lambda: 7.0)
    one = session()
    with pytest.raises(ValueError, match="shapes"):
        patch.run_checked(one, None, lambda: raises(ValueError("shapes")))
    assert patch.last_success(one) == math.inf
    assert patch.run_checked(one, None, lambda: 238) == 238
    assert patch.last_success(one) == 7.0


def test_ctrl_c_that_pybind_lost_is_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt):
        patch.run_checked(session(), None, lambda: raises(RuntimeError("MESSAGE REPLACED BY KeyboardInterrupt")))
    with pytest.raises(RuntimeError, match="other"):
        patch.run_checked(session(), None, lambda: raises(RuntimeError("other")))


def raises(error: BaseException) -> None:
    raise error


def test_hanging_close_is_given_up() -> None:
    hangs = threading.Event()
    assert not patch.close_with_timeout(lambda: hangs.wait(60), timeout=0.01)
    hangs.set()


def test_errors_of_close_are_ignored() -> None:
    closed = []

    def close() -> None:
        closed.append(True)
        raise RuntimeError("Session 38f42b is not found. Possibly, this master has restarted.")

    patch.close_with_timeout(close)
    assert closed


TASKS = {"chief/0": "localhost:2222", "worker/0": "localhost:2223"}
PODS = {"chief/0": "m-chief-0.m.ns.svc:2222", "worker/0": "m-worker-0.m.ns.svc:2222"}


@pytest.fixture
def server() -> Iterator[str]:
    """The address of something that answers as a TensorFlow server does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            stream = listener.accept()[0]
            with stream:
                stream.sendall(tensorflow_server.answer([tensorflow_server.device("/job:own")]))
                stream.recv(1 << 16)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"localhost:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    ("target", "tasks", "in_pod"),
    [
        ("grpc://localhost:2223", TASKS, False),
        (b"grpc://127.0.0.1:2223", TASKS, False),
        ("grpc://m-worker-0.m.ns.svc:2222", PODS, True),
        ("grpc://localhost:2223", PODS, True),
        ("", PODS, True),  # this process computes
        (7, PODS, True),  # TensorFlow refuses it
    ],
)
def test_tasks_and_what_tensorflow_refuses_are_not_probed(target: object, tasks: dict[str, str], in_pod: bool) -> None:
    patch.check_target(target, tasks, in_pod=in_pod)


def test_a_server_of_the_scripts_own_is_a_target(server: str) -> None:
    patch.check_target(f"grpc://{server}", TASKS)


def test_an_address_without_a_server_is_refused_with_those_of_the_tasks(nobody: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        patch.check_target(f"grpc://{nobody}", TASKS)
    assert str(caught.value) == f"no TensorFlow server answers at {nobody}: Connection refused"
    assert caught.value.help == (
        "this cluster's tasks are chief/0 at localhost:2222, worker/0 at localhost:2223; "
        "TFK8S_TARGET is the master's address"
    )


@pytest.mark.parametrize("target", ["localhost:2222", b"localhost:2222", "http://localhost:2222", "grpc://localhost"])
def test_a_target_of_another_form_is_refused_with_the_addresses_of_the_tasks(target: str | bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        patch.check_target(target, TASKS)
    text = target.decode() if isinstance(target, bytes) else target
    assert str(caught.value) == f'"{text}" is not an address of the form grpc://HOST:PORT'
    assert caught.value.help == (
        "this cluster's tasks are chief/0 at localhost:2222, worker/0 at localhost:2223; "
        "TFK8S_TARGET is the master's address"
    )


def test_a_silent_address_is_refused_with_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def time_out(*_: object, **__: object) -> None:
        raise ExceptionGroup("create_connection failed", [TimeoutError("timed out")])

    monkeypatch.setattr(socket, "create_connection", time_out)
    with pytest.raises(InvalidInput, match=r"^no TensorFlow server answers at 10\.9\.8\.7:2222: timed out"):
        patch.check_target("grpc://10.9.8.7:2222", TASKS)


def test_few_of_many_tasks_are_listed(nobody: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        patch.check_target(f"grpc://{nobody}", {f"w/{i}": f"h{i}:1" for i in range(10)})
    assert caught.value.help is not None
    assert "w/7 at h7:1 and 2 more; TFK8S_TARGET" in caught.value.help


@pytest.mark.parametrize("address", ["localhost:99999", f"{'x' * 64}.invalid:1"])
def test_an_impossible_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match=f"^no TensorFlow server answers at {address}: "):
        patch.check_target(f"grpc://{address}", {})


@pytest.mark.programs
def test_a_server_that_a_child_process_starts_is_waited_for(nobody: str) -> None:
    answer = tensorflow_server.answer([tensorflow_server.device("/job:own")])
    text = (
        f"import socket; stream = socket.create_server(('127.0.0.1', {nobody.partition(':')[2]})).accept()[0]; "
        f"stream.sendall({answer!r}); stream.recv(1 << 16)"
    )
    with subprocess.Popen([sys.executable, "-c", text]):
        patch.check_target(f"grpc://{nobody}", TASKS)


@pytest.mark.parametrize(
    ("opened", "words"),
    [((0, 0), ""), ((2, 1), ""), ((0, 1), "its session has no target"), ((0, 3), "all 3 have no target")],
)
def test_sessions_that_never_touch_the_cluster_are_told(
    monkeypatch: pytest.MonkeyPatch, opened: tuple[int, int], words: str
) -> None:
    monkeypatch.setattr(patch, "opened_sessions", dict(zip((True, False), opened, strict=True)))
    text = patch.unused_cluster()
    assert bool(text) == bool(words)
    assert words in text
