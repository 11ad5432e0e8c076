"""The choice of a backend: this machine, Kubernetes, or the addresses of a job file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tfk8s import platforms
from tfk8s.backends.options import LOCAL_VARIABLE, BackendOptions
from tfk8s.backends.protocol import Backend
from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput


def choose(options: BackendOptions, job_file: JobFile | None = None) -> Backend:
    """Return the backend of a cluster.

    Args:
        options: the user's choice.
        job_file: the job file, if the user named one. Its addresses override the choice.

    Raises:
        InvalidInput: the backend can't be used here.
    """
    if job_file is not None and job_file.has_addresses:
        from tfk8s.backends.external import ExternalBackend

        return ExternalBackend(job_file)
    if options.is_local(os.environ):
        platforms.require_linux(
            "clusters on this machine", f"run tfk8s {platforms.in_container()}; or use a Kubernetes cluster"
        )
        from tfk8s.backends.local.backend import LocalBackend

        return LocalBackend(allow_exposed_ports=options.allow_exposed_ports, python=options.python)
    namespace = options.namespace or (job_file.namespace if job_file else None)
    return _kubernetes(options.context, namespace, os.environ)


def _kubernetes(context: str | None, namespace: str | None, environment: Mapping[str, str]) -> Backend:
    use_local = f"--local runs clusters on this machine ({LOCAL_VARIABLE}=1 makes --local the default)"
    if not has_kubeconfig(environment):
        named = environment.get("KUBECONFIG")
        missing = f'KUBECONFIG names "{named}", which does not exist' if named else "there is no kubeconfig"
        raise InvalidInput(
            f"no Kubernetes cluster is configured: {missing}",
            help=f"{use_local}; for Kubernetes, name a kubeconfig in KUBECONFIG, or put it at ~/.kube/config",
        )
    try:
        from tfk8s.backends.kubernetes.backend import KubernetesBackend
    except ImportError as error:
        raise InvalidInput(f"this installation of tfk8s can't use Kubernetes: {error}", help=use_local) from error
    return KubernetesBackend(context=context, namespace=namespace)


def has_kubeconfig(environment: Mapping[str, str]) -> bool:
    """Return whether a kubeconfig exists, or this process runs in a pod with a ServiceAccount's token."""
    if environment.get("KUBERNETES_SERVICE_HOST") and Path("/var/run/secrets/kubernetes.io/serviceaccount").exists():
        return True
    paths = [path for path in environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    # Path.expanduser fails if the user has no home.
    return any(os.path.exists(os.path.expanduser(path)) for path in paths or ["~/.kube/config"])  # noqa: PTH110, PTH111
