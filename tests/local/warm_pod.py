"""Starts the processes of a warm pod on this machine, and runs scripts there as `submit` does."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from clusters import children

from tfk8s import polling
from tfk8s.backends.kubernetes.scripts import script_archive
from tfk8s.backends.kubernetes.scripts.stream import arriving_files
from tfk8s.backends.kubernetes.scripts.stream.warm_stream import WarmScript
from tfk8s.core.script import Download
from tfk8s.errors import TaskUnreachable

TIMEOUT = 60.0
ENTRYPOINT = "import sys; from tfk8s.sessions.warm import entrypoint; sys.exit(entrypoint.main(int(sys.argv[1])))"
POD = {"metadata": {"namespace": "lab", "name": "demo-warm", "uid": "1"}}
CLUSTER = {"TFK8S_JOBS": "worker=0", "TFK8S_TARGET": "grpc://127.0.0.1:9"}  # no task, so that none has to answer


class WarmPod:
    """Process 1 of a warm pod, and what its scripts write."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, port: int) -> None:
        self.process, self.folder, self.port = process, folder, port
        self.connections: list[socket.socket] = []

    def dial(self, *_: object) -> socket.socket:
        try:
            connection = socket.create_connection(("127.0.0.1", self.port))
        except OSError as error:
            raise TaskUnreachable(str(error)) from error
        self.connections.append(connection)
        return connection

    def pack(
        self, text: str, *arguments: str, stdin: bool = False, wanted: Sequence[Download] = (), **environment: str
    ) -> tuple[dict[str, Any], bytes]:
        """Return what `submit` sends for a script: the request and the archive."""
        script = Path(tempfile.mkdtemp(dir=self.folder.parent)) / "script.py"
        script.write_text(text)
        archive = script_archive.pack(script)
        request = {
            "arguments": ["script.py", *arguments], "archive": len(archive), "stdin": stdin,
            "downloads": [download.path for download in wanted], "environment": {**CLUSTER, **environment},
        }  # fmt: skip
        return request, archive

    def run(self, text: str, *arguments: str, **options: Any) -> dict[str, Any]:
        request, archive = self.pack(text, *arguments, **options)
        with contextlib.closing(WarmScript(None, POD)) as running:  # type: ignore[arg-type]
            return running.run(request, archive)

    def run_and_copy(self, wanted: Sequence[Download], text: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
        """Run a script, and copy what the script leaves; return its end, and what was not copied."""
        request, archive = self.pack(text, wanted=wanted, **options)
        with contextlib.closing(WarmScript(None, POD)) as running:  # type: ignore[arg-type]
            end = running.run(request, archive)
            return end, arriving_files.copy(running, end, wanted)

    def processes(self) -> dict[int, int]:
        """Return the number of open files of process 1 and its children, 0 for a zombie."""
        found = {}
        for number in (self.process.pid, *children(self.process.pid)):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                try:
                    found[number] = len(list(Path(f"/proc/{number}/fd").iterdir()))
                except PermissionError:  # only root may look at a zombie's
                    found[number] = 0
        return found

    def rest(self) -> dict[int, int]:
        """Return `processes` once no script is left."""
        polling.wait_until(lambda: not any(self.folder.iterdir()), "the scripts' folders to go", TIMEOUT)
        polling.wait_until(lambda: len(self.processes()) == 3, "the scripts' processes to go", TIMEOUT)
        return self.processes()


def start(libraries: Path, folder: Path, entrypoint: str = ENTRYPOINT, **environment: str) -> WarmPod:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    work = folder / "work"
    work.mkdir()
    own = {
        "PYTHONPATH": os.pathsep.join([str(libraries), *sys.path]), "TFK8S_NAME": "demo", "TFK8S_NAMESPACE": "lab",
        "TFK8S_PORT": "2222",
    }  # fmt: skip
    command = [sys.executable, "-c", entrypoint, str(port)]
    process = subprocess.Popen(
        command, cwd=work, env={**os.environ, **own, **environment}, text=True, stdout=subprocess.DEVNULL
    )
    return WarmPod(process, work, port)


@contextlib.contextmanager
def running(libraries: Path, folder: Path, entrypoint: str = ENTRYPOINT) -> Iterator[WarmPod]:
    """Start a warm pod, and end it as Kubernetes does."""
    pod = start(libraries, folder, entrypoint)
    yield pod
    pod.process.send_signal(signal.SIGTERM)
    assert pod.process.wait(TIMEOUT) == 0
