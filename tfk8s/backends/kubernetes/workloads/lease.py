"""The lease of a cluster: `run` renews the lease, and the cluster's own Job removes the cluster without renewals."""

from __future__ import annotations

import dataclasses
import threading
from datetime import UTC, datetime

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import FIELD_MANAGER, MERGE, Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.workloads.lifetime import MayNotLimit
from tfk8s.core import job_kinds, naming
from tfk8s.core.lifetime import RENEWALS, RENEWED, format_duration
from tfk8s.core.plan import Plan
from tfk8s.core.spec import JobFile
from tfk8s.errors import Tfk8sError
from tfk8s.log import log
from tfk8s.render.lifetime import is_job_name


def without(job_file: JobFile) -> JobFile:
    """Return a job file without a lease."""
    return dataclasses.replace(job_file, lease=None)


def is_dispensable(job_file: JobFile) -> bool:
    """Return whether a lease alone needs the cluster's own Job."""
    return job_file.lease is not None and not job_kinds.has_keeper(without(job_file))


def is_all_of(plan: Plan) -> bool:
    """Return whether changes concern the cluster's own Job alone, so that the cluster itself existed before."""
    names = {change.name for change in plan.changes}
    return all(name == naming.lifetime(plan.name) or is_job_name(plan.name, name) for name in names) and bool(names)


def say_why_none(error: MayNotLimit) -> None:
    """Say that a cluster has no lease, as the user may not create the Job."""
    log.warning(
        "%s",
        f"a lease needs a Job that may remove the cluster, and you can't create it: {error.reason}; "
        "so the cluster stays if this command is killed (`tfk8s doctor` shows the missing rights)",
    )


class Renewal:
    """Renews the lease of a cluster in a thread, from now until `end` or the end of this process.

    Args:
        namespace, name: the cluster's.
        seconds: the length of the lease.
    """

    def __init__(self, client: Client, namespace: str, name: str, seconds: float) -> None:
        account = {"kind": "ServiceAccount", "metadata": {"name": naming.lifetime(name)}}
        self._client, self._path = client, paths.path(account, namespace)
        self._name, self._seconds = name, seconds
        self._ended, self._fails = threading.Event(), False
        log.info("%s", f"the cluster is removed if this command is gone for {format_duration(seconds)}")
        threading.Thread(target=self._run, name=f"lease of {name}", daemon=True).start()

    def end(self) -> None:
        """Stop renewing."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set() and self._renew():
            self._ended.wait(self._seconds / RENEWALS)

    def _renew(self) -> bool:
        """Renew the lease once; return whether the cluster still has a lease. Says when failures begin and end."""
        # The cluster's own Job sees the change, and no clock has to be right. The time is for people.
        change = {"metadata": {"annotations": {RENEWED: datetime.now(UTC).isoformat()}}}
        try:
            self._client.send("PATCH", self._path, {"fieldManager": f"{FIELD_MANAGER}-run"}, change, MERGE)
        except Exception as error:  # the lease would run out without a word
            if isinstance(error, ApiError) and error.code == 404:
                if not self._ended.is_set():
                    log.info("%s", f'cluster "{self._name}" has no lease any more: another command took the lease')
                return False
            self._note(error)
        else:
            self._note(None)
        return True

    def _note(self, error: Exception | None) -> None:
        if error and not self._fails:
            reason = str(error) if isinstance(error, Tfk8sError) else f"{type(error).__name__}: {error}"
            after = format_duration(self._seconds)
            log.warning("%s", f"the lease is not renewed: {reason}; after {after}, the cluster is removed")
        elif self._fails and not error:
            log.warning("the lease is renewed again")
        self._fails = error is not None
