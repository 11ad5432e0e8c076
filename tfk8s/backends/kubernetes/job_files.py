"""Applies a job file: asks first for what the API server, the nodes and the namespace would refuse."""

from __future__ import annotations

from collections.abc import Sequence

from tfk8s import render
from tfk8s.backends.kubernetes import apply as objects_apply
from tfk8s.backends.kubernetes import claims, default_deny, pod_refusals, shared_history
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.nodes import cluster_fit
from tfk8s.backends.kubernetes.scripts.programs import program_archives
from tfk8s.backends.kubernetes.workloads import gangs, lifetime, record_notes
from tfk8s.backends.kubernetes.workloads.record_notes import RecordNotes
from tfk8s.core.plan import Plan
from tfk8s.core.spec import JobFile
from tfk8s.render.pods import Object


def objects(namespace: str, job_file: JobFile) -> list[Object]:
    """Return the objects of a job file; errors as `KubernetesBackend.objects`."""
    return _objects(namespace, job_file, _secrets(job_file))


def apply(client: Client, namespace: str, job_file: JobFile, notes: RecordNotes, *, dry_run: bool) -> Plan:
    """Apply the objects of a job file; return the changes.

    Args:
        client: the API server.
        namespace: the namespace of the cluster.
        job_file: the job file.
        notes: learn of the cluster's record.
        dry_run: whether nothing changes.
    """
    served = client.require_version()
    job_file = gangs.decided(client, namespace, job_file, served)
    secrets = _secrets(job_file)
    job_file, keeps_record = shared_history.decided(
        client, namespace, job_file, lambda file: _objects(namespace, file, secrets)
    )
    made = _objects(namespace, job_file, secrets)
    lifetime.require_rights(client, namespace, made)
    cluster_fit.require_room(client, namespace, job_file, made)
    default_deny.require_connections(client, namespace, job_file, made)
    claims.require_driver(client, job_file)
    record_notes.require_claim(client, namespace, job_file)
    notes.applied(job_file)
    try:
        made = claims.usable(client, namespace, job_file, made)
        if not dry_run and any((job_file.pod, *(job.pod for job in job_file.jobs))):
            # The API server may refuse what users write below `pod`. Then nothing is to be changed.
            objects_apply.apply(client, namespace, job_file.name, made, dry_run=True)
        return objects_apply.apply(
            client, namespace, job_file.name, made, secrets, keeps_record=keeps_record, dry_run=dry_run
        )
    except ApiError as error:
        raise pod_refusals.in_words_of(job_file, error, made) from error


def _secrets(job_file: JobFile) -> list[Object]:
    return program_archives.secrets(job_file.name, program_archives.pack(job_file))


def _objects(namespace: str, job_file: JobFile, secrets: Sequence[Object]) -> list[Object]:
    return render.objects(job_file, namespace, [secret["metadata"]["name"] for secret in secrets])
