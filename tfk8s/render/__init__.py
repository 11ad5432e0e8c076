"""Rendering of a job file to Kubernetes objects, which `render` prints and `up` applies."""

from __future__ import annotations

from collections.abc import Sequence

from tfk8s.core.job_kinds import has_own_jobs
from tfk8s.core.spec import JobFile
from tfk8s.core.storage import claims
from tfk8s.errors import InvalidInput
from tfk8s.render import lifetime, manifests, package_files
from tfk8s.render.pods import Object


def text(job_file: JobFile, namespace: str | None = None) -> str:
    """Return the result of `objects` as YAML, ready for `kubectl apply -f`."""
    from tfk8s.render import yaml  # whose import takes longer than that of all else here, and few commands need it

    return yaml.dump(objects(job_file, namespace))


def objects(job_file: JobFile, namespace: str | None = None, program_secrets: Sequence[str] = ()) -> list[Object]:
    """Return the objects.

    Args:
        namespace: overrides the namespace of the job file. If both are None, the objects have no namespace.
        program_secrets: the names of the Secrets with the folder of the programs' scripts; default: `NAME-program`.

    Raises:
        InvalidInput: the job file has addresses, or a job without an image.
    """
    _require_pods(job_file)
    made = manifests.render(job_file, package_files.zip_of_tasks(), namespace, program_secrets)
    return lifetime.add(job_file, made) if has_own_jobs(job_file) else made


def _require_pods(job_file: JobFile) -> None:
    """Raise an InvalidInput if a job file makes no pods: its servers already run, or a job has no image."""
    if job_file.has_addresses:
        raise InvalidInput(f'the servers of "{job_file.name}" already run at the addresses in its job file')
    without_image = [job.name for job in job_file.jobs if not (job.image or job_file.image)]
    if without_image:
        raise InvalidInput(
            f'job "{without_image[0]}" has no image',
            help="add image: tensorflow/tensorflow:2.21.0, for all jobs or for this job",
        )
    of_machines = [volume for volume in claims.volumes(job_file) if not volume.source]
    if of_machines:
        raise InvalidInput(
            f'the volume at "{of_machines[0].path}" has only a folder, which only clusters on this machine have',
            help="add claim, with create: 100Gi if the claim does not exist",
        )
