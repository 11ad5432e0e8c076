"""A node with a few slots, and clusters whose tasks take one each."""

from __future__ import annotations

import os
from typing import Any

from job_files import job_file

from tfk8s.core.programs import Program
from tfk8s.core.spec import Job, JobFile

IMAGE = os.environ.get("TFK8S_TEST_IMAGE", "docker.io/tfk8s/test:dev")
SLOT = "example.com/slot"
IN_SLOT = {"containers": [{"name": "server", "resources": {"limits": {SLOT: "1"}, "requests": {SLOT: "1"}}}]}


def servers(name: str, workers: int = 2, **settings: Any) -> JobFile:
    """Return a cluster of a ps and of workers, all of them servers."""
    return job_file(name, Job(name="ps"), Job(name="worker", tasks=workers), image=IMAGE, pod=IN_SLOT, **settings)


def programs(name: str, **settings: Any) -> JobFile:
    """Return a cluster of a ps and of two workers, all of them programs."""
    sleep = Program(("sleep", "1000"))
    jobs = (Job(name="ps", program=sleep), Job(name="worker", tasks=2, program=sleep))
    return job_file(name, *jobs, image=IMAGE, pod=IN_SLOT, **settings)
