"""Process 1 of a pod with a session script: unpacks the script's folder, and starts the runner.

A pod's log is one stream. Lines of the script's standard error begin with `MARK` there, to distinguish them from its
output. The last line of either has the script's exit code, which kubelet reports one or two seconds later. The folder
comes as `TFK8S_ARCHIVE`, and is unpacked into the working directory. All else comes and goes by the stream of
`pod_link`: a folder that is too large for a Secret, input, an interrupt, the end, and the files of `TFK8S_DOWNLOADS`,
for which process 1 waits for the client. Standard library only: this file runs in pods.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import site
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfk8s import polling
from tfk8s.core import cluster_spec, naming
from tfk8s.core.addresses import host_and_port, loopback_ports
from tfk8s.errors import WaitTimeout
from tfk8s.sessions import error_names, failures, runner
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.cluster.create_session import SessionFields
from tfk8s.sessions.forks.escalation import catches_sigterm
from tfk8s.sessions.forward import Forward
from tfk8s.sessions.pod.end_line import MARK, end_line
from tfk8s.sessions.task_monitor import TaskMonitor, connect
from tfk8s.task.config import TaskAddresses, derive_cluster, derive_tasks, lists
from tfk8s.task.programs import archive
from tfk8s.task.stream import channel, pod_link
from tfk8s.task.stream.pod_link import PodLink

MAX_FORWARDS = 256
_ARCHIVE_TIMEOUT = 600.0  # for the transfer of a script's folder


def main(arguments: Sequence[str]) -> int:
    """Run `runner` with these arguments in another process; return its exit code as a shell would.

    Process 1 of a container ignores all signals that it has no handler for, so the script needs another process.
    """
    errors, errors_end = os.pipe()
    ready, ready_end = os.pipe()
    source, source_end = os.pipe() if os.environ.get(channel.CLIENT_VARIABLE) == channel.HAS_INPUT else (0, None)
    listener = pod_link.listen()
    child = os.fork()
    if not child:
        os.dup2(source, 0)
        os.dup2(errors_end, 2)
        os.close(ready_end)
        listener.close()
        if source_end is not None:  # else the script's input would never end
            os.close(source_end)
        os.read(ready, 1)  # to its end
        _run(arguments)
    signals = _pass_on_signals(child)
    os.close(errors_end)
    if source_end is not None:
        os.close(source)
    archive = os.environ.get("TFK8S_ARCHIVE")
    link = PodLink(listener, source_end, Path(archive) if archive else None)
    link.start()
    # Threads of the script's process can't forward: TensorFlow's `Session.list_devices` stops all of them.
    forwards = forward_loopback(lists(derive_tasks(os.environ)), derive_cluster(os.environ))
    os.close(ready_end)
    marker = threading.Thread(target=mark, args=(errors, 2), daemon=True)
    marker.start()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    marker.join(timeout=1)  # the script's standard error may be open in a process that the script left behind
    for forward in forwards:
        forward.close()
    _end(link, code, is_deleted=signal.SIGTERM in signals)
    if code >= 0 and signal.SIGTERM not in signals:  # else Kubernetes knows the reason
        write_end(code)
    elif not signals and (message := failures.ended_by_signal(_script(arguments), code)):
        os.write(2, MARK + f"tfk8s: {message}\n".encode())
    return code if code >= 0 else 128 - code


def _pass_on_signals(child: int) -> list[int]:
    """Pass the signals of this process on to the script; return the list to which they are added.

    A deleted pod gets SIGTERM: the script gets SIGINT as for Ctrl-C, and has five seconds. With `grace` in the job
    file, the script has that time, and gets SIGTERM if it catches SIGTERM. After the script's end, SIGTERM ends this
    process. SIGINT does not: it was meant for the script, whose files may still be copied.
    """
    signals: list[int] = []

    def interrupt(number: int, _: object) -> None:
        try:
            saves = number == signal.SIGTERM and naming.GRACE in os.environ and catches_sigterm(child)
            os.kill(child, signal.SIGTERM if saves else signal.SIGINT)
            signals.append(number)
        except ProcessLookupError:
            if number == signal.SIGTERM:
                sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    return signals


def _end(link: PodLink, code: int, *, is_deleted: bool) -> None:
    """Tell the client the script's end, and send the files that the client asked for when it submitted the script."""
    paths = [] if is_deleted else json.loads(os.environ.get(naming.FILES_VARIABLE, "[]"))
    result = pod_link.end({"exit": code}, note=_note(), pod_ends=is_deleted, files=bool(paths))
    if not link.end(result, paths) and paths:
        problem = f"no client copied the script's files within {channel.CLIENT_TIMEOUT:g} s"
        os.write(2, MARK + f"tfk8s: {problem}: they are lost with the pod\n".encode())


def _script(arguments: Sequence[str]) -> str:
    return next(word for word in arguments if not word.startswith("--"))


def write_end(code: int) -> None:
    """Write the exit code as the last line of both streams. Each stream is in order, the two together are not."""
    for stream in (1, 2):
        os.write(stream, end_line(code, _note()) + b"\n")


def _note() -> str:
    """Return the note that the script's runner has left; "" without one."""
    try:
        return Path(os.environ[error_names.VARIABLE]).read_text()
    except (KeyError, OSError):
        return ""


def mark(source: int, sink: int) -> None:
    """Copy lines from a descriptor to another, with `MARK` before each."""
    with open(source, "rb") as lines:
        for line in lines:
            os.write(sink, MARK + line)


def _run(arguments: Sequence[str]) -> None:
    runner.exit_process(runner.main([*prepare(), *arguments]))


def prepare() -> list[str]:
    """Unpack the script's folder, install its requirements, and monitor the tasks; return arguments for the runner."""
    cluster = derive_cluster(os.environ)
    os.environ["TFK8S_CLUSTER"] = cluster_spec.cluster_spec(lists(cluster))
    try:
        if path := os.environ.get("TFK8S_ARCHIVE"):  # else it is unpacked already
            extract(Path(path))
    except WaitTimeout as error:
        sys.stderr.write(f"error: {error}\n")
        sys.stderr.flush()
        os._exit(error.exit_code)
    if requirements := os.environ.get("TFK8S_REQUIREMENTS"):
        install(requirements)
    return [f"--events={monitor_tasks(cluster)}", "--pod"]


def monitor_tasks(cluster: TaskAddresses) -> int:
    """Monitor the tasks for as long as this process lives; return the descriptor of their events.

    The pod does this itself, since the process that submitted the script may be gone.
    """
    monitor = TaskMonitor(
        {
            naming.task(job, index): functools.partial(connect, naming.task(job, index), address)
            for job, tasks in cluster.items()
            for index, address in tasks.items()
        }
    )
    monitor.start()
    return monitor.events


def forward_loopback(tasks: Mapping[str, Sequence[str]], cluster: TaskAddresses) -> list[Forward]:
    """Forward to each task from the loopback address that it would have on a single machine.

    Args:
        tasks: the addresses of all tasks, the master's job first, then by name.
        cluster: the ClusterSpec. Sessions of the script's child processes get it if they lack one.

    Returns:
        The forwards of the first `MAX_FORWARDS` tasks: scripts with fixed addresses are written for few tasks. They
        share their ports, because `tfk8s.strategy` listens on the pod's own address at a task's port.
    """
    servers = [host_and_port(address) for addresses in tasks.values() for address in addresses]
    ports = loopback_ports({server: server[1] for server in servers})
    view = ClusterView({naming.task(job, index): at for job, found in cluster.items() for index, at in found.items()})
    names = {host_and_port(address): task for task, address in view.addresses.items()}

    def get_fields(task: str) -> SessionFields | None:
        return SessionFields(view.addresses, task) if view.is_elastic else None

    return [
        Forward(
            functools.partial(socket.create_connection, server),
            ports[server],
            shared=True,
            get_fields=functools.partial(get_fields, names[server]) if server in names else None,
        )
        for server in servers[:MAX_FORWARDS]
    ]


def extract(path: Path) -> None:
    """Unpack an archive here, as soon as its transfer ends.

    Raises:
        WaitTimeout: the transfer was aborted.
    """
    polling.wait_until(path.exists, "the script's folder to be sent", _ARCHIVE_TIMEOUT)
    archive.unpack(path)


def install(requirements: str) -> None:
    """Install a requirements file with pip, for this process and its children; end this process if that fails.

    The packages go into the user's folder, since a pod's root file system is read-only.
    """
    options = ["--user", "--quiet", "--no-input", "--no-cache-dir", "--disable-pip-version-check"]
    # Else pip would wait for minutes if a NetworkPolicy drops the packets to the index.
    limits = {"PIP_TIMEOUT": "10", "PIP_RETRIES": "1", "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--no-warn-script-location", "-r", requirements],
        env={**limits, **os.environ}, stdin=subprocess.DEVNULL, stdout=2, check=False,
    )  # fmt: skip
    if pip.returncode:
        sys.stderr.write(
            f"error: {requirements} can't be installed: pip ended with exit code {pip.returncode}\n"
            "  = help: if the job file has network.allow_to, the list must allow an index; env may name another one"
            " (PIP_INDEX_URL); or use an image that has the packages\n"
        )
        sys.stderr.flush()
        os._exit(1)
    before = list(sys.path)
    site.addsitedir(site.getusersitepackages())  # at the end, but the user's packages come first
    added = [folder for folder in sys.path if folder not in before]
    first = next((i for i, folder in enumerate(before) if folder.endswith("-packages")), len(before))
    sys.path[:] = [*before[:first], *added, *before[first:]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
