"""What clusters on this machine need of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping

from tfk8s.backends.local import capacity, interpreter
from tfk8s.tools.doctor.check import Check, State

_ENTER = "from tfk8s.backends.local import namespace; namespace.enter()"
_ENTER_SECONDS = 20.0


def checks(environment: Mapping[str, str]) -> Iterator[Check]:
    """Yield one check after the other; where the system is another, there is nothing more to look at."""
    yield (system := _system())
    if system.state is not State.OK:
        return
    yield _namespaces()
    yield _tensorflow(interpreter.script_python(environment))
    yield _memory(capacity.available_memory())
    yield Check("GPUs", State.OK, f"{capacity.gpus() or 'none'}: tasks that ask for more run without")


def _system() -> Check:
    if sys.platform == "linux":
        return Check("system", State.OK, "Linux")
    advice = "run tfk8s in a Linux virtual machine or container, or use a Kubernetes cluster"
    return Check("system", State.MISSING, f"clusters on this machine need Linux, not {sys.platform}", advice)


def _namespaces() -> Check:
    """Enter a network namespace, in a process of its own: it may be allowed by the kernel and refused by a profile."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _ENTER], capture_output=True, text=True, timeout=_ENTER_SECONDS, check=False
    )
    if done.returncode == 0:
        return Check("namespaces", State.OK, "tasks can have a network of their own")
    reason = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
    return Check(
        "namespaces",
        State.MISSING,
        f"tasks can't have a network of their own: {reason.rpartition('] ')[2]}",
        "on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0; in a container: --cap-add SYS_ADMIN; "
        "`up --allow-exposed-ports` does without",
    )


def _tensorflow(python: str) -> Check:
    folder = interpreter.tensorflow_folder(python)
    if folder is None:
        advice = "pip install 'tfk8s[local]', or pip install tensorflow-cpu"
        return Check("TensorFlow", State.MISSING, f"not installed for {python}", advice)
    return Check("TensorFlow", State.OK, str(folder))


def _memory(available: int) -> Check:
    tasks = (available - capacity.LIBRARY) // capacity.IDLE_TASK
    free = f"{available / 1024**3:,.1f} GiB free"
    if tasks < 1:
        return Check("memory", State.MISSING, f"{free}, too little for one task", "end something else")
    return Check("memory", State.OK, f"{free}, enough for {tasks:,} idle tasks")
