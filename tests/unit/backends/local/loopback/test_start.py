"""The start of Python processes that bind their ports by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tfk8s.backends.local.isolation import Isolation, Kind
from tfk8s.backends.local.loopback.start import listening

CONFINED = Isolation(Kind.LOOPBACK, "")
SCRIPT = """
import asyncio, multiprocessing, socket, sys

def device(server):
    return server.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)

async def serve():
    server = await asyncio.start_server(print, "", 0)
    return [device(stream) for stream in server.sockets]

own = socket.socket()
own.listen()
unix = socket.socket(socket.AF_UNIX)
unix.bind("\\0tfk8s-test-%d" % id(unix))
unix.listen()
print({device(own), *asyncio.run(serve())}, [path for path in sys.path if "loopback" in path])
print(getattr(sys.modules["sitecustomize"], "THEIRS", "no other"))
"""


def python(tmp_path: Path, *options: str, environment: dict[str, str] | None = None) -> str:
    variables = CONFINED.confined({"PYTHONPATH": str(tmp_path), **(environment or {})})
    return subprocess.run(
        [sys.executable, *options, "-c", SCRIPT], env=variables, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.programs
def test_sockets_of_python_are_bound_before_they_listen(tmp_path: Path) -> None:
    assert python(tmp_path) == "{b'lo\\x00'} []\nno other\n"


@pytest.mark.programs
def test_a_users_own_start_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("THEIRS = 'the user\\'s'\n")
    assert python(tmp_path, "-P").splitlines()[1] == "the user's"


@pytest.mark.programs
def test_a_python_without_ctypes_binds_its_sockets_too(tmp_path: Path) -> None:
    (tmp_path / "ctypes.py").write_text("raise ImportError('no libffi')\n")
    assert python(tmp_path) == "{b'lo\\x00'} []\nno other\n"


def test_variables_of_a_confined_process() -> None:
    once = CONFINED.confined({"PYTHONPATH": "/own"})
    assert once["PYTHONPATH"].endswith("loopback/start:/own")
    assert CONFINED.confined(once) == once
    assert CONFINED.confined({"PYTHONPATH": ":/own"})["PYTHONPATH"].endswith("start::/own")  # the working folder
    assert CONFINED.confined({"PYTHONPATH": ""})["PYTHONPATH"].endswith("loopback/start")
    assert Isolation().confined({"A": "1"}) == {"A": "1"}


@pytest.mark.programs
def test_a_library_without_listen_stays_as_it_is() -> None:
    code = f"from {listening.__name__} import hook_libraries; raise SystemExit(hook_libraries())"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # TensorFlow is not loaded there
