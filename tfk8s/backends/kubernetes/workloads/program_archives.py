"""The folders of scripts that run as programs: each travels in a Secret, whose name has a hash of the folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tfk8s.backends.kubernetes import script_archive
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.core import naming
from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests, program_job
from tfk8s.render.pods import Object

MAX_BYTES = 700_000  # an object has at most 1.5 MB, and base64 adds a third
_DIGEST_LENGTH = 10
_CONFLICT = 409


def pack(job_file: JobFile) -> dict[str, bytes]:
    """Return the archive of each script's folder, by the job's name.

    Raises:
        InvalidInput: a script does not exist, or its folder is too large.
    """
    programs = {job.name: job.program for job in job_file.jobs if job.program}
    scripts = {job: Path(program.script) for job, program in programs.items() if program.is_script}
    archives = {script: script_archive.pack(script) for script in dict.fromkeys(scripts.values())}
    for script, archive in archives.items():
        if len(archive) > MAX_BYTES:
            raise InvalidInput(
                f'the folder "{script.parent}" has {len(archive) // 1000} kB, compressed; the pods of a program get '
                f"at most {MAX_BYTES // 1000} kB",
                help=f"name in {script_archive.IGNORE_FILE} what the program does not need (gitignore's rules); put "
                "data into a volume, or the program into the image",
            )
    return {job: archives[script] for job, script in scripts.items()}


def digests(archives: Mapping[str, bytes]) -> dict[str, str]:
    """Return a hash of each archive, by the job's name."""
    return {job: hashlib.sha256(archive).hexdigest()[:_DIGEST_LENGTH] for job, archive in archives.items()}


def secrets(cluster: str, archives: Mapping[str, bytes]) -> list[Object]:
    """Return the Secrets of archives."""
    hashes = digests(archives)
    made = []
    for job, archive in archives.items():
        name = program_job.secret_name(cluster, job, hashes[job])
        secret = manifests.new_object("Secret", "v1", name, cluster, naming.dns_label(job))
        made.append(secret | {"data": program_job.secret_data(archive)})
    return made


def create(client: Client, namespace: str, secrets: Iterable[Object], config_map: Object) -> None:
    """Create those Secrets that do not exist. The ConfigMap of the cluster owns them: they are deleted together."""
    metadata = config_map["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}
    for secret in secrets:
        owned = {**secret, "metadata": {**secret["metadata"], "ownerReferences": [owner]}}
        try:
            client.send("POST", paths.collection("Secret", namespace), body=owned)
        except ApiError as error:
            if error.code != _CONFLICT:
                raise


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
    return {
        volume["secret"]["secretName"]
        for item in items
        if manifests.is_program(item)
        for volume in item["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "program"
    }
