"""Checks of this machine for local clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tfk8s.backends import interpreter
from tfk8s.backends.local import capacity
from tfk8s.core.network.way_out import Way
from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput
from tfk8s.features.doctor.check import Check, State

_NAMESPACES = "on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0; in a container: --cap-add SYS_ADMIN"


def checks(
    environment: Mapping[str, str], job_file: JobFile | None = None, python: str | None = None
) -> Iterator[Check]:
    """Yield the checks of this machine, which has Linux, and of its room for a job file.

    Args:
        environment: the user's environment.
        job_file: a job file whose tasks need room.
        python: the interpreter that `--python` names.
    """
    yield from _network(job_file)
    yield _tensorflow(interpreter.named(python) if python else interpreter.script_python(environment))
    yield _memory(capacity.available_memory())
    yield Check("GPUs", State.OK, f"{capacity.gpus() or 'none'}; a task that requests more GPUs runs without them")
    if job_file is not None:
        yield room(job_file)


def room(job_file: JobFile) -> Check:
    """Return whether this machine has the memory that the tasks of a job file need together."""
    try:
        capacity.check_memory(job_file)
    except InvalidInput as error:
        return Check("room", State.MISSING, str(error), error.help or "")
    return Check("room", State.OK, f'enough memory for all tasks of "{job_file.name}"')


def _network(job_file: JobFile | None) -> Iterator[Check]:
    """Yield who can connect to a cluster, and the way that its processes take to other networks."""
    from tfk8s.backends.local import isolation  # needs Linux, as the next
    from tfk8s.backends.local.way_out.supervisor_part import planned

    try:
        found = isolation.probe()
    except isolation.Refused as refusal:
        yield Check("isolation", State.MISSING, str(refusal), f"{_NAMESPACES}; {refusal.help}")
        return
    advice = f"for a network of the cluster's own, {_NAMESPACES}" if found.is_shared else ""
    yield Check("isolation", State.OK, str(found), advice)
    way = planned(job_file.network.allow_to if job_file else None, shared=found.is_shared)
    install = (
        "slirp4netns, installed, would give all protocols; so would pasta, but for root" if way is Way.PROXY else ""
    )
    yield Check("way out", State.OK, way.text, install)


def _tensorflow(python: str) -> Check:
    try:
        interpreter.require_tensorflow(python, interpreter.OTHERS)
    except InvalidInput as error:
        return Check("TensorFlow", State.MISSING, str(error), error.help or "")
    return Check("TensorFlow", State.OK, interpreter.description(python))


def _memory(available: int) -> Check:
    tasks = (available - capacity.LIBRARY_BYTES) // capacity.IDLE_TASK_BYTES
    free = f"{available / 1024**3:,.1f} GiB free"
    if tasks < 1:
        return Check("memory", State.MISSING, f"{free}, too little for one task", "stop other programs")
    return Check("memory", State.OK, f"{free}, enough for {tasks:,} idle tasks")
