"""Process 1 of a pod that runs a session script: unpacks the script's folder, then has the runner run it.

A pod's log is one stream: lines of the script's standard error begin with `MARK` there, so that they can be told
from its output. The last line of either says how the script ended, which kubelet says one or two seconds later.
Standard library only: this file runs in pods, from `TFK8S_ARCHIVE`, into the folder it is started in.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import site
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfk8s import polling
from tfk8s.core import naming
from tfk8s.core.addresses import host_and_port, loopback_ports
from tfk8s.errors import WaitTimeout
from tfk8s.sessions import error_names, runner
from tfk8s.sessions.forward import Forward
from tfk8s.sessions.task_monitor import TaskMonitor, connect
from tfk8s.task.config import Cluster, derive_cluster

MAX_RELAYS = 256
_SENDING_SECONDS = 600.0  # of a script's folder, at most
MARK = b"\x1e"  # ASCII's record separator; terminals do not show it
END = MARK + MARK + b"tfk8s: exit code "
_CHATTER = re.compile(rb"WARNING: All log messages before absl::InitializeLog|I0000 [0-9.: ]+[a-z_]+\.cc:[0-9]+\] ")


def main(arguments: Sequence[str]) -> int:
    """Run `runner` with these arguments in a process of its own; return its exit code as a shell would.

    Process 1 of a container ignores every signal that it has no handler for, and the script must not be it.
    """
    errors, its_errors = os.pipe()
    ready, set_ready = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(its_errors, 2)
        os.close(set_ready)
        os.read(ready, 1)  # to its end
        _run(arguments)
    os.close(its_errors)
    # Not in the script's own process: TensorFlow's `Session.list_devices` keeps all its threads from running.
    # The evaluator, which other tasks do not see, has its port on a single machine, too.
    relays = relay(_addresses(derive_cluster({**os.environ, "TFK8S_JOB": "evaluator"})))
    os.close(set_ready)
    marker = threading.Thread(target=mark, args=(errors, 2), daemon=True)
    marker.start()
    told_to_end: list[int] = []

    def interrupt(number: int, _: object) -> None:
        told_to_end.append(number)
        os.kill(child, signal.SIGINT)

    for number in (signal.SIGINT, signal.SIGTERM):
        # A deleted pod gets SIGTERM: the script sees what Ctrl-C would show it, and has five seconds.
        signal.signal(number, interrupt)
    _, status = os.waitpid(child, 0)
    marker.join(timeout=1)  # a process that the script left behind may hold its standard error
    for one in relays:
        one.close()
    code = os.waitstatus_to_exitcode(status)
    if code >= 0 and not told_to_end:  # else Kubernetes knows why, and that is what to tell
        tell_end(code)
    return code if code >= 0 else 128 - code


def tell_end(code: int) -> None:
    """Write how the script ended, as the last line of either stream: each is in order, the two are not."""
    try:
        noted = Path(os.environ[error_names.VARIABLE]).read_text()
    except (KeyError, OSError):
        noted = ""
    for stream in (1, 2):
        os.write(stream, END + f"{code} {noted}\n".encode())


def read_end(line: str) -> tuple[str, int, str] | None:
    """Return what stands before the end in a stream's last line, the exit code, and what was noted; else None."""
    rest, end, said = line.rpartition(END.decode())
    code, _, noted = said.partition(" ")
    return (rest, int(code), noted) if end and code.isdecimal() else None


def mark(source: int, sink: int) -> None:
    """Copy lines from a descriptor to another, with `MARK` before each; leave out what TensorFlow was told to omit.

    Before its log is set up, TensorFlow 2.21 writes lines of the level INFO whatever TF_CPP_MIN_LOG_LEVEL says.
    """
    quiet = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") != "0"
    with open(source, "rb") as lines:
        for line in lines:
            if not (quiet and _CHATTER.match(line)):
                os.write(sink, MARK + line)


def _run(arguments: Sequence[str]) -> None:
    cluster = derive_cluster(os.environ)
    os.environ["TFK8S_CLUSTER"] = cluster_json(cluster)
    try:
        extract(Path(os.environ["TFK8S_ARCHIVE"]))
    except WaitTimeout as error:
        sys.stderr.write(f"error: {error}\n")
        sys.stderr.flush()
        os._exit(error.exit_code)
    if requirements := os.environ.get("TFK8S_REQUIREMENTS"):
        install(requirements)
    runner.exit_process(runner.main([f"--events={watched(cluster)}", *arguments]))


def watched(cluster: Cluster) -> int:
    """Watch the tasks for as long as this process lives; return where the runner reads of those that are lost.

    Nobody outside need do it: who submitted the script may be gone.
    """
    losses = TaskMonitor(
        {
            naming.task(job, index): functools.partial(connect, naming.task(job, index), address)
            for job, tasks in cluster.items()
            for index, address in tasks.items()
        }
    )
    losses.start()
    return losses.news


def cluster_json(cluster: Cluster) -> str:
    """Return the ClusterSpec as JSON.

    It is made here, since one variable of a new process may have 128 KiB, and the ClusterSpec more.
    """
    return json.dumps(_addresses(cluster), separators=(",", ":"))


def _addresses(cluster: Cluster) -> dict[str, list[str]]:
    return {job: list(tasks.values()) for job, tasks in cluster.items()}


def relay(cluster: Mapping[str, Sequence[str]]) -> list[Forward]:
    """Make each task reachable at the loopback address that it would have on a single machine.

    Args:
        cluster: the master's job first, then by name.

    Returns:
        What listens, for as long as it lives. Past `MAX_RELAYS` tasks, nothing does: who wrote a script with fixed
        addresses did not write thousands of them.
    """
    servers = [host_and_port(address) for addresses in cluster.values() for address in addresses]
    ports = loopback_ports({server: server[1] for server in servers})
    return [
        Forward(functools.partial(socket.create_connection, server), ports[server]) for server in servers[:MAX_RELAYS]
    ]


def extract(archive: Path) -> None:
    """Unpack the archive here, as soon as it is there.

    Raises:
        WaitTimeout: who sends it has gone away.
    """
    # It may come by a stream of its own.
    polling.wait_until(archive.exists, "the script's folder to be sent", _SENDING_SECONDS)
    with tarfile.open(archive) as files:
        if hasattr(tarfile, "data_filter"):  # Python 3.12, and later releases of older versions
            files.extraction_filter = tarfile.data_filter
        files.extractall()  # noqa: S202 - the user's own folder, made by `script_archive.pack`


def install(requirements: str) -> None:
    """Install with pip what a file lists, for this process and those that it starts; end this process if that fails.

    It goes into the user's own folder, beside what the image has: a pod's root file system is read-only.
    """
    options = ["--user", "--quiet", "--no-input", "--no-cache-dir", "--disable-pip-version-check"]
    # An index that a NetworkPolicy keeps away would otherwise be waited for for minutes.
    patience = {"PIP_TIMEOUT": "10", "PIP_RETRIES": "1", "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--no-warn-script-location", "-r", requirements],
        env={**patience, **os.environ}, stdin=subprocess.DEVNULL, stdout=2, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.stderr.write(
            f"error: {requirements} can't be installed: pip ended with exit code {done.returncode}\n"
            "  = help: the job file's network.allow_to lets scripts reach an index, env may name one (PIP_INDEX_URL);"
            " or use an image that has the packages\n"
        )
        sys.stderr.flush()
        os._exit(1)
    known = set(sys.path)
    site.addsitedir(site.getusersitepackages())  # at the end: but what a user has installed comes first
    added = [place for place in sys.path if place not in known]
    kept = [place for place in sys.path if place in known]
    first = next((i for i, place in enumerate(kept) if place.endswith("-packages")), len(kept))
    sys.path[:] = [*kept[:first], *added, *kept[first:]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
