"""Clusters on Kubernetes keep the promises of every backend."""

from backend_contract import BackendContract
from on_cluster import make_job, make_job_file

from tfk8s.core.spec import Job, JobFile


def make_small(name: str, *jobs: Job, **tasks: int) -> JobFile:
    small = (make_job(job.name, program=job.program) for job in jobs)
    return make_job_file(name, *small, *(make_job(job, tasks=count) for job, count in tasks.items()))


class TestKubernetesBackend(BackendContract):
    """With the fixture `backend` of all tests on a real cluster."""

    make = staticmethod(make_small)
