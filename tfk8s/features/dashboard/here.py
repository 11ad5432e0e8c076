"""The back ends that the page shows, and the page."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfk8s import api
from tfk8s.backends import select
from tfk8s.backends.options import BackendOptions
from tfk8s.backends.protocol import Backend
from tfk8s.errors import InvalidInput
from tfk8s.sessions.forward import listen

if TYPE_CHECKING:
    from tfk8s.features.dashboard.site import Dashboard

HERE, KUBERNETES = "local", "kubernetes"
_PACKAGES = ("starlette", "uplot", "uvicorn")


@contextlib.contextmanager
def serve(name: str | None, local: bool, context: str | None, namespace: str | None, port: int) -> Iterator[Dashboard]:
    """Serve the page in a `with`.

    Args:
        name: show this cluster alone, by its name or its job file; None is all clusters.
        local, context, namespace: they choose the clusters; without them, those of this machine and of the current
            context's namespace.
        port: the page's port; 0 is a free one.

    Raises:
        InvalidInput: a package is missing, the port is in use, or there is nowhere to look.
        NoSuchCluster: there is no such cluster.
    """
    missing = [package for package in _PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise InvalidInput(f"the dashboard needs {', '.join(missing)}", help="pip install 'tfk8s[dashboard]'")
    from tfk8s.features.dashboard.looks import Looks
    from tfk8s.features.dashboard.site import Dashboard

    chosen = BackendOptions(local or None, context, namespace)
    if name is None:
        looks = Looks(_sources(chosen))
    else:
        cluster = api.find(name, chosen)
        cluster.status()  # an error for a name that nobody has
        looks = Looks({HERE if chosen.is_local(os.environ) else KUBERNETES: cluster.backend}, cluster.name)
    with Dashboard(looks, listen(port), secrets.token_hex(24)) as page:
        yield page


def _sources(options: BackendOptions) -> dict[str, Backend]:
    """Return the back ends of this machine and of Kubernetes, or the one that options choose."""
    if options.is_local(os.environ):
        return {HERE: select.choose(options)}
    sources: dict[str, Backend] = {}
    if not options.context and not options.namespace and sys.platform == "linux":
        sources[HERE] = select.choose(BackendOptions(local=True))
    if not sources or select.has_kubeconfig(os.environ):
        backend = select.choose(options)
        sources[KUBERNETES] = select.choose(backend.locator("") or options)  # of one namespace, as names are
    return sources
