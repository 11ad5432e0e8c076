"""The folder of scripts that run as programs: it travels in Secrets, whose names have hashes of its parts."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfk8s import spans
from tfk8s.backends.kubernetes.api_server import objects, paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.scripts import script_archive, sent_folder
from tfk8s.backends.kubernetes.scripts.programs import archive_parts
from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests, program_job
from tfk8s.render.pods import Object

_DIGEST_LENGTH = 10


def pack(job_file: JobFile) -> list[bytes]:
    """Return the parts of the archive of the folder that the programs' scripts are in, the job file's; [] without any.

    Raises:
        InvalidInput: a script does not exist, or the folder can't be sent or is too large.
    """
    scripts = [job.program for job in job_file.jobs if job.program and job.program.is_script]
    if not scripts:
        return []
    folder = Path(scripts[0].folder)
    for program in scripts:
        sent_folder.require_script(folder, Path(program.script))
    found = sent_folder.find(folder)
    found.report_credentials()
    with spans.part("pack folder") as part:
        members = dict(script_archive.members(found))
        parts = archive_parts.cut(members, program_job.max_secret_bytes(), program_job.MAX_PARTS)
        part[spans.FOLDER_SIZE] = size = sum(map(len, parts))
    if size > program_job.MAX_ARCHIVE:
        raise InvalidInput(
            f'the folder "{folder}" has {size // 1000} kB, compressed; the pods of a program get at most '
            f"{program_job.MAX_ARCHIVE // 1000} kB",
            help=f"name in {sent_folder.IGNORE_FILE} what the programs do not need (gitignore's rules); put data "
            "into a volume, or the programs into the image",
        )
    return parts


def secrets(cluster: str, parts: Iterable[bytes]) -> list[Object]:
    """Return the Secrets of an archive's parts, in their order."""
    return [_secret(cluster, part) for part in parts]


def _secret(cluster: str, part: bytes) -> Object:
    # Versions of zlib compress differently, and the same folder is no change.
    digest = hashlib.sha256(gzip.decompress(part)).hexdigest()[:_DIGEST_LENGTH]
    made = manifests.new_object("Secret", "v1", program_job.secret_name(cluster, digest), cluster)
    return made | {"data": program_job.secret_data(part)}


def create(
    client: Client, namespace: str, secrets: Iterable[Object], config_map: Object, before: Iterable[Object | None]
) -> None:
    """Create the Secrets that do not exist. The ConfigMap of the cluster owns them: all are deleted together.

    The Secrets that Jobs needed before a change are not sent, unless somebody has deleted them.
    """
    metadata, known = config_map["metadata"], _names(filter(None, before))
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}
    for secret in secrets:
        owned = {**secret, "metadata": {**secret["metadata"], "ownerReferences": [owner]}}
        if secret["metadata"]["name"] not in known or not objects.exists(client, namespace, owned):
            objects.create_missing(client, namespace, owned)


def delete_obsolete(
    client: Client, namespace: str, cluster: str, before: Sequence[Object | None], after: Sequence[Object]
) -> None:
    """Delete the Secrets that Jobs needed before a change, and that none needs after it.

    A request by name would need another permission, to which the name in a selector is equal.
    """
    for name in sorted(_names(filter(None, before)) - _names(after)):
        query = {**paths.of_cluster(cluster), "fieldSelector": f"metadata.name={name}"}
        client.send("DELETE", paths.collection("Secret", namespace), query)


def _names(items: Iterable[Object]) -> set[str]:
    """Return the names of the Secrets that Jobs of programs need."""
    return {name for item in items if manifests.is_program(item) for name in program_job.secret_names(item)}
