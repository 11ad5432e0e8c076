"""Where a cluster lives: on this machine or on Kubernetes, as the user says, or where its job file's addresses are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tfk8s.backends.options import LOCAL_VARIABLE, BackendOptions
from tfk8s.backends.protocol import Backend
from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput


def choose(where: BackendOptions, job_file: JobFile | None = None) -> Backend:
    """Return the backend that `where` means; the one of the job file's addresses where it gives some.

    Raises:
        InvalidInput: there is no such here.
    """
    if job_file is not None and job_file.has_addresses:
        from tfk8s.backends.external import ExternalBackend

        return ExternalBackend(job_file)
    if where.is_local(os.environ):
        from tfk8s.backends.local import LocalBackend

        return LocalBackend(allow_exposed_ports=where.allow_exposed_ports)
    namespace = where.namespace or (job_file.namespace if job_file else None)
    return _kubernetes(where.context, namespace, os.environ)


def _kubernetes(context: str | None, namespace: str | None, environment: Mapping[str, str]) -> Backend:
    here = f"--local runs clusters on this machine ({LOCAL_VARIABLE}=1 makes that the default)"
    if not has_kubeconfig(environment):
        raise InvalidInput(
            "no Kubernetes cluster is known here: there is no kubeconfig",
            help=f"{here}; for Kubernetes, name a kubeconfig in KUBECONFIG, or put it at ~/.kube/config",
        )
    try:
        from tfk8s.backends.kubernetes import KubernetesBackend
    except ImportError as error:
        raise InvalidInput(f"this installation of tfk8s can't use Kubernetes: {error}", help=here) from error
    return KubernetesBackend(context=context, namespace=namespace)


def has_kubeconfig(environment: Mapping[str, str]) -> bool:
    """Return whether there is a kubeconfig, or this process runs in a pod that may use the API."""
    if environment.get("KUBERNETES_SERVICE_HOST") and Path("/var/run/secrets/kubernetes.io/serviceaccount").exists():
        return True
    paths = [path for path in environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    # Not Path.expanduser, which fails where there is no such home.
    return any(os.path.exists(os.path.expanduser(path)) for path in paths or ["~/.kube/config"])  # noqa: PTH110, PTH111
