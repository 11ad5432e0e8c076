"""The lease of a cluster: `run` renews the lease, and the cluster's own Job removes the cluster without renewals."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.workloads import lifetime
from tfk8s.backends.kubernetes.workloads.lifetime import MayNotLimit
from tfk8s.core import job_kinds, naming
from tfk8s.core.lifetime import HOLDER, RENEWALS, RENEWED, format_duration
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
    return job_file.lease is not None and not job_kinds.has_own_jobs(without(job_file))


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
        self._client, self._namespace, self._name, self._seconds = client, namespace, name, seconds
        self._holder, self._ended, self._fails = f"{HOLDER}{uuid.uuid4().hex}", threading.Event(), False
        log.info("%s", f"the cluster is removed if this command is gone for {format_duration(seconds)}")
        self._thread = threading.Thread(target=self._run, name=f"lease of {name}", daemon=True)
        if self._renew():  # from now on, others see this holder
            self._thread.start()
        else:
            self.end()

    def end(self) -> None:
        """Stop renewing."""
        self._ended.set()

    def release(self) -> bool:
        """Stop renewing, and return whether another `run` holds the lease.

        The API server changes an object for one request after the other. So of several that give the lease back at
        once, the last sees nobody else. A `run` that was killed still counts: then the cluster's own Job removes the
        cluster.

        Raises:
            Tfk8sError: the API server can't be asked.
        """
        self.end()
        if self._thread.ident is not None:
            self._thread.join()  # a renewal that is under way would come after the end
        try:
            left = self._annotate({self._holder: None})
        except ApiError as error:
            if error.code == 404:  # another command took the lease
                return False
            raise
        return any(key.startswith(HOLDER) for key in left)

    def _run(self) -> None:
        while not self._ended.wait(self._seconds / RENEWALS) and self._renew():
            pass

    def _renew(self) -> bool:
        """Renew the lease once; return whether the cluster still has a lease. Says when failures begin and end."""
        now = datetime.now(UTC).isoformat()  # for people: the cluster's own Job sees changes, and needs no right clock
        try:
            self._annotate({RENEWED: now, self._holder: now})
        except Exception as error:  # the lease would run out without a word
            if isinstance(error, ApiError) and error.code == 404:
                if not self._ended.is_set():
                    log.info("%s", f'cluster "{self._name}" has no lease any more: another command took the lease')
                return False
            self._note(error)
        else:
            self._note(None)
        return True

    def _annotate(self, annotations: Mapping[str, str | None]) -> Mapping[str, str]:
        return lifetime.annotate(self._client, self._namespace, self._name, annotations, "run")

    def _note(self, error: Exception | None) -> None:
        if error and not self._fails:
            reason = str(error) if isinstance(error, Tfk8sError) else f"{type(error).__name__}: {error}"
            after = format_duration(self._seconds)
            log.warning("%s", f"the lease is not renewed: {reason}; after {after}, the cluster is removed")
        elif self._fails and not error:
            log.warning("the lease is renewed again")
        self._fails = error is not None


class Renewals:
    """The leases that this process renews, by the cluster's name."""

    def __init__(self, client: Client) -> None:
        self._client, self._by_name = client, dict[str, Renewal]()

    def begin(self, namespace: str, name: str, seconds: float) -> None:
        """Renew the lease of a cluster from now on; as `Renewal` has it."""
        self._by_name[name] = Renewal(self._client, namespace, name, seconds)

    def end(self, name: str) -> None:
        """Stop renewing the lease of a cluster, if this process does."""
        if renewal := self._by_name.pop(name, None):
            renewal.end()

    def holds(self, name: str) -> bool:
        """Return whether this process renews the lease of a cluster."""
        return name in self._by_name

    def release(self, name: str) -> bool:
        """Give back a lease; return whether another `run` holds the lease."""
        renewal = self._by_name.pop(name, None)
        return renewal is not None and renewal.release()
