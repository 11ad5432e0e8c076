"""The patches of sessions, with stand-ins for TensorFlow's objects; real ones are in tests/local."""

from __future__ import annotations

import math
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

from tfk8s.errors import GraphTooLarge
from tfk8s.sessions import patch

FILTERS = ["/job:chief/task:0"]


class ConfigProto:
    """As TensorFlow's."""

    def __init__(self, filters: tuple[str, ...] = (), *, isolated: bool = False) -> None:
        self.device_filters, self.isolate_session_state = list(filters), isolated

    def CopyFrom(self, other: ConfigProto) -> None:  # noqa: N802 - protobuf's name
        self.__init__(tuple(other.device_filters), isolated=other.isolate_session_state)


@pytest.fixture
def _config_pb2(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorflow", "tensorflow.core", "tensorflow.core.protobuf"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["tensorflow.core.protobuf"].config_pb2 = SimpleNamespace(ConfigProto=ConfigProto)


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
    found = patch.patch_config(config, FILTERS, isolate=isolate)
    assert (found.device_filters, found.isolate_session_state) == (filters, isolated)
    assert found is not config


def test_config_stays_the_same_without_filters() -> None:
    config = ConfigProto()
    assert patch.patch_config(config, []) is config


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
    with pytest.raises(GraphTooLarge, match=r"^what is fed to the graph is 2\.1 GB: one message holds at most 2 GB$"):
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
