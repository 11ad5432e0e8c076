"""The program that keeps a cluster's record in a shared history. Standard library only: this file runs in pods.

It has a Job of its own: a volume that can't be mounted, hangs or is full, and a bucket that does not answer, keep no
limit of the cluster from being kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tfk8s.core import naming
from tfk8s.core.history.shared import MOUNT_PATH, WITH_LOGS
from tfk8s.core.lifetime import RemovableObject
from tfk8s.task.lifetime.object_server import ObjectServer
from tfk8s.task.lifetime.record.record_writer import RecordWriter


def keep(
    server: ObjectServer, objects: Sequence[RemovableObject], environment: Mapping[str, str],
    say: Callable[[str], object],
) -> int:  # fmt: skip
    """Keep the record that the variables of the Job's pod ask for, until the pod is ended; return the exit code.

    A volume that can't be written ends the pod, as a bucket does that has never taken anything: `tfk8s status` then
    tells of the pod's end, and the Job tries again.
    """
    mirror, volume, with_logs = None, Path(MOUNT_PATH), environment["TFK8S_HISTORY"] == WITH_LOGS
    if "TFK8S_BUCKET" in environment:
        from tfk8s.task.buckets import bucket_client  # a claim needs none of it
        from tfk8s.task.lifetime.record import record_mirror

        mirror = record_mirror.RecordMirror(lambda: bucket_client.of_environment(environment), volume, say)
    writer = RecordWriter(server, objects, volume, with_logs, say, mirror=mirror)
    say(f'keeping the record of cluster "{environment["TFK8S_NAME"]}"')
    writer.start()
    try:
        problem = writer.wait()
    except SystemExit:  # by the signal that ends the pod
        writer.end()
        raise
    with contextlib.suppress(OSError), open(naming.TERMINATION_MESSAGE, "w") as message:
        message.write(problem)
    return 1 if problem else 0
