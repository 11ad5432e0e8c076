"""A job file as Kubernetes objects: what `render` prints and `up` applies."""

from __future__ import annotations

from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests, package_files, yaml
from tfk8s.render.pods import Object


def text(job_file: JobFile, namespace: str | None = None) -> str:
    """Return the objects as YAML, ready for `kubectl apply -f`.

    Raises:
        InvalidInput: the job file lacks what Kubernetes needs.
    """
    return yaml.dump(objects(job_file, namespace))


def objects(job_file: JobFile, namespace: str | None = None) -> list[Object]:
    """Return the objects; without a namespace here or in the job file, they go where they are applied.

    Raises:
        InvalidInput: the job file lacks what Kubernetes needs.
    """
    if job_file.has_addresses:
        raise InvalidInput(f'the servers of "{job_file.name}" run already: its job file gives their addresses')
    without = [job.name for job in job_file.jobs if not (job.image or job_file.image)]
    if without:
        raise InvalidInput(
            f"job {without[0]} has no image to run in",
            help="image: tensorflow/tensorflow:2.21.0, for all jobs or for one",
        )
    return manifests.render(job_file, package_files.of_tasks(), namespace)
