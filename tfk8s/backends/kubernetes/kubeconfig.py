"""Where the API server is and who asks: from the kubeconfig or, in a pod without one, from the pod's own rights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kubernetes.client
import kubernetes.config
import yaml

from tfk8s.errors import InvalidInput

IN_CLUSTER = "in-cluster"
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_UNREADABLE = (kubernetes.config.ConfigException, yaml.YAMLError, OSError, KeyError, TypeError, AttributeError)


def load(context: str | None, configuration: kubernetes.client.Configuration) -> tuple[str, str]:
    """Read a context, or the current one, into `configuration`; return its name and its namespace.

    Raises:
        InvalidInput: there is no kubeconfig, or it can't be used.
    """
    # Said here each time: the client reads KUBECONFIG once, when it is imported.
    places = os.environ.get("KUBECONFIG") or "~/.kube/config"
    if not any(Path(place).expanduser().exists() for place in places.split(os.pathsep) if place):
        if context is None and _NAMESPACE.exists():
            kubernetes.config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            return IN_CLUSTER, _NAMESPACE.read_text().strip()
        raise InvalidInput(
            f"no Kubernetes cluster to talk to: there is no kubeconfig ({places})",
            help="`kind create cluster --config kind-config.yaml` makes one; or use --local, which needs none",
        )
    chosen = _context(places, context)
    try:
        kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=places, context=chosen["name"], client_configuration=configuration
        )
    except _UNREADABLE as error:
        raise InvalidInput(f'context "{chosen["name"]}" of {places} can\'t be used: {error}') from error
    return chosen["name"], chosen["context"].get("namespace") or "default"


def _context(places: str, name: str | None) -> dict[str, Any]:
    try:
        contexts, current = kubernetes.config.list_kube_config_contexts(places)  # type: ignore[no-untyped-call]
        known: dict[str, dict[str, Any]] = {context["name"]: context for context in contexts}
    except _UNREADABLE as error:
        raise InvalidInput(f"{places} can't be used as a kubeconfig: {error}", help="kubectl config view") from error
    if name is None:
        return dict(current)
    if name not in known:
        raise InvalidInput(
            f'{places} has no context "{name}"; it has {", ".join(known)}', help="kubectl config get-contexts"
        )
    return known[name]
