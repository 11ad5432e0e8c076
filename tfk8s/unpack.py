"""Process 1 of a pod that runs a session script: unpacks the script's folder, then has the runner run it.

A pod's log is one stream: lines of the script's standard error begin with `MARK` there, so that they can be told
from its output. Standard library only: this file runs in pods, from `TFK8S_ARCHIVE`, into the folder it is started in.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tarfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tfk8s import runner
from tfk8s.member import derive_cluster

MARK = b"\x1e"  # ASCII's record separator; terminals do not show it
_CHATTER = re.compile(rb"WARNING: All log messages before absl::InitializeLog|I0000 [0-9.: ]+[a-z_]+\.cc:[0-9]+\] ")


def main(arguments: Sequence[str]) -> int:
    """Run `runner` with these arguments in a process of its own; return its exit code as a shell would.

    Process 1 of a container ignores every signal that it has no handler for, and the script must not be it.
    """
    errors, its_errors = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(its_errors, 2)
        _run(arguments)
    os.close(its_errors)
    marker = threading.Thread(target=mark, args=(errors, 2), daemon=True)
    marker.start()
    for number in (signal.SIGINT, signal.SIGTERM):
        # A deleted pod gets SIGTERM: the script sees what Ctrl-C would show it, and has five seconds.
        signal.signal(number, lambda *_: os.kill(child, signal.SIGINT))
    _, status = os.waitpid(child, 0)
    marker.join(timeout=1)  # a process that the script left behind may hold its standard error
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


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
    os.environ["TFK8S_CLUSTER"] = cluster_json()
    extract(Path(os.environ["TFK8S_ARCHIVE"]))
    runner.leave(runner.main(arguments))


def cluster_json() -> str:
    """Return the ClusterSpec as JSON, from its compact form.

    It is made here, since one variable of a new process may have 128 KiB, and the ClusterSpec more.
    """
    cluster = derive_cluster(os.environ)
    return json.dumps({job: list(tasks.values()) for job, tasks in cluster.items()}, separators=(",", ":"))


def extract(archive: Path) -> None:
    """Unpack the archive here, as soon as it is there."""
    while not archive.exists():  # it may come by a stream of its own
        time.sleep(0.05)
    with tarfile.open(archive) as files:
        if hasattr(tarfile, "data_filter"):  # Python 3.12, and later releases of older versions
            files.extraction_filter = tarfile.data_filter
        files.extractall()  # noqa: S202 - the user's own folder, made by `archive.pack`


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
