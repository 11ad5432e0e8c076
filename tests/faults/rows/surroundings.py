"""Rows about disks, proxies, memory, and scripts that ask for the impossible."""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.command import PATIENCE, Ended
from harness.local import JOB_FILE, SCRIPTS, LocalEnvironment
from harness.row import NOTHING, USABLE, VERDICT, Row
from rows import scripts
from rows.scripts import script

NOBODY = "http://127.0.0.1:9"  # the port "discard": no proxy is there

# Commands in a mount namespace whose state folder is a small disk of its own.
_SMALL_DISK = """
set -e
mount -t tmpfs -o size=$1k none "$XDG_STATE_HOME"
mkdir -m 700 "$XDG_STATE_HOME/tfk8s"
tfk8s() { "$PYTHON" -m tfk8s "$@"; }
"""


def on_small_disk(kilobytes: int, commands: str, *, says: str = "") -> Callable[[LocalEnvironment], Ended]:
    """Run shell commands with a small disk; `$2` is the job file, `$3` the script steps.py.

    The fault begins when the commands print `says`, or at the start if `says` is "".
    """

    def run(environment: LocalEnvironment) -> Ended:
        unshare = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--mount")
        shell = ("sh", "-c", _SMALL_DISK + commands, "sh", kilobytes, environment.job_file, SCRIPTS / "steps.py")
        environment.remove()
        command = environment.start(*unshare, *shell, program=True, PYTHON=sys.executable)
        if says:
            command.until_says(says)
            command.now()
        return command.end(PATIENCE)

    return run


FULL_BEFORE = 'tfk8s up --local "$2"'
READ_ONLY = 'mount -o remount,ro "$XDG_STATE_HOME"; tfk8s up --local "$2"'
FULL_AFTER = """
tfk8s up --local "$2"
trap 'tfk8s down --local faults' EXIT
cat /dev/zero >"$XDG_STATE_HOME/filling" || true
echo full
tfk8s restart --local faults worker/1
tfk8s submit --local faults "$3" none
"""


FULL_RESULTS = """
cd "$(dirname "$2")"
tfk8s up --local "$2"
trap 'tfk8s down --local faults' EXIT
tfk8s submit --local --get results:"$XDG_STATE_HOME/copy" faults "$(dirname "$3")/results.py" 4
"""


def up_with_ps(more: str) -> Callable[[LocalEnvironment], Ended]:
    """Run `up` of a job file whose ps has these fields too; remove what remains."""

    def run(environment: LocalEnvironment) -> Ended:
        environment.remove()
        text = JOB_FILE.replace("ps: 1", f"ps: {{tasks: 1, {more}}}")
        ended = environment.start("up", "--local", environment.file("changed.yaml", text)).end(PATIENCE)
        environment.remove()
        return ended

    return run


def out_of_memory(environment: LocalEnvironment) -> Ended:
    """Run a step that needs 2.4 GB of a task that may use 1.6 GB more than now.

    On processors where TensorFlow uses oneDNN, its allocator waits 10 s for memory first (allocator_retry.cc).
    """
    environment.cluster()
    pid = environment.pid("worker/1")
    now = int(re.search(r"VmSize:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) * 1024
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (now + 1_600_000_000, before[1]))
    try:
        return script("eater.py")(environment)
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, before)


def of_clusters() -> Iterator[Row]:
    yield Row(
        fault="full disk", when="before `up`", run=on_small_disk(512, FULL_BEFORE), code=1,
        words=("can't keep clusters' state", "No space left on device", "set XDG_STATE_HOME"), left=NOTHING,
        limit=PATIENCE,
    )  # fmt: skip
    yield Row(
        fault="full disk", when="once the cluster is up: a restart, and a script",
        run=on_small_disk(2048, FULL_AFTER, says="full\n"), left=NOTHING, limit=PATIENCE,
    )  # fmt: skip
    yield Row(
        fault="full disk", when="where `submit --get` copies to", run=on_small_disk(2048, FULL_RESULTS), code=1,
        words=("the script succeeded, but its files can't be stored in", "No space left on device"), left=NOTHING,
        limit=PATIENCE,
    )  # fmt: skip
    yield Row(
        fault="read-only state folder", when="before `up`", run=on_small_disk(2048, READ_ONLY), code=1,
        words=("can't keep clusters' state", "Read-only file system"), left=NOTHING, limit=PATIENCE,
    )  # fmt: skip
    yield Row(
        fault="a task that ends again and again", when="in `up`", run=up_with_ps("env: {PYTHONHASHSEED: none}"), code=1,
        words=("can't come up: ps/0 was started again and ended again", "PYTHONHASHSEED"), left=NOTHING,
        limit=PATIENCE,
    )  # fmt: skip
    yield Row(
        fault="a module of `preload` is missing", when="in `up`", run=up_with_ps("preload: [no_such_module]"), code=1,
        words=("can't come up: ps/0 has ended", "no_such_module"), left=NOTHING, limit=PATIENCE,
    )  # fmt: skip


def in_scripts() -> Iterator[Row]:
    yield Row(
        fault="a task out of memory", when="in a step", run=out_of_memory, code=1,
        words=("worker/1 has too little memory on CPU:0",), limit=2 * VERDICT,
    )  # fmt: skip
    yield Row(
        fault="`http_proxy` leads nowhere", when="in `submit`", limit=PATIENCE,
        run=script("steps.py", "none", http_proxy=NOBODY, https_proxy=NOBODY), left=USABLE,
    )  # fmt: skip
    yield Row(
        fault="py_func pinned to a worker", when="in a step", run=script("callback.py"), code=2,
        words=("a Python function (py_func) can't run on worker/1",),
    )  # fmt: skip
    yield Row(
        fault="a feed of 2.1 GiB", when="in a step", run=script("feed.py"), code=2,
        words=("what is fed to the graph is 2.3 GB",),
    )  # fmt: skip
    yield Row(
        fault="a constant of 2.1 GiB", when="as the graph is made", run=script("large.py", "constant"), code=2,
        words=("a constant of the graph is too large",),
    )  # fmt: skip
    yield Row(
        fault="three constants of 2.1 GiB together", when="in a step", run=script("large.py", "constants"), code=2,
        words=("the graph, by its constants, is 2.3 GB",), thorough=True,
    )  # fmt: skip
    yield Row(
        fault="a result of 2.1 GiB", when="in a step", run=script("large.py", "result"), code=2,
        words=("what the session fetches is too large",), thorough=True, limit=2 * VERDICT,
    )  # fmt: skip
    yield from scripts.failures("localhost:2222")
