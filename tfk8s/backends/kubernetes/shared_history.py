"""The shared history of a namespace: the claim or the bucket that a ConfigMap names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.workloads import lifetime, record_notes
from tfk8s.core.job_file.mappings import SharedHistory
from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput
from tfk8s.log import log
from tfk8s.render.pods import Object

CONFIG_MAP = "tfk8s-history"
KEY = "history.yaml"

ObjectsOf = Callable[[JobFile], list[Object]]


def find(client: Client, namespace: str) -> SharedHistory | None:
    """Return the shared history of a namespace; None if nobody has named one. Of nonsense there is one warning.

    Raises:
        Tfk8sError: the API server refuses, or does not answer.
    """
    match client.find(paths.named("ConfigMap", CONFIG_MAP, namespace)):
        case {"data": {"history.yaml": str(text)}}:
            try:
                return _parse(text.encode(errors="replace"))
            except ValueError as error:
                where = f"ConfigMap {CONFIG_MAP} of namespace {namespace}, {KEY}"
                log.warning("the shared history in %s is left out: %s", where, error)
    return None


def decided(client: Client, namespace: str, job_file: JobFile, objects_of: ObjectsOf) -> tuple[JobFile, bool]:
    """Return a job file with the namespace's shared history, if the file names none.

    What keeps the record from being made, such as a right that the user lacks, costs a warning, and no start.

    Args:
        objects_of: returns the objects of a job file.

    Returns:
        Also whether a record that another user keeps of the cluster stays: this user can't tell, or can't make one.

    Raises:
        Tfk8sError: the API server does not answer, or refuses this user altogether.
    """
    if job_file.history is not None:
        return job_file, False
    try:
        found = find(client, namespace)
    except ApiError as error:
        if error.code != 403:
            raise
        return job_file, True
    if found is None:
        return job_file, False
    recorded = replace(job_file, history=found)
    try:
        record_notes.require_claim(client, namespace, recorded)
        lifetime.require_rights(client, namespace, objects_of(recorded))
    except (lifetime.MayNotLimit, InvalidInput) as error:
        reason = error.reason if isinstance(error, lifetime.MayNotLimit) else error
        log.warning("%s", f"you can't keep a record in the shared history of the namespace: {reason}")
        return job_file, True
    return recorded, False


def _parse(data: bytes) -> SharedHistory:
    """Return what a text names.

    Raises:
        ValueError: the text is wrong; says in which line.
    """
    from tfk8s.jobfile import mappings, reader, validation  # most users have no shared history

    document = reader.read(data)
    if not data.strip() or not (document.problems or isinstance(document.data, dict)):
        raise ValueError("expected keys and values, such as claim: tfk8s-history")
    validator = validation.Validator(document)
    found = validator.read(mappings.HISTORY, document.data, ()) if not document.problems else None
    if problems := [*document.problems, *validator.problems]:
        raise ValueError(f"line {problems[0].line}: {problems[0].message}")
    assert isinstance(found, SharedHistory)
    return found
