"""The back ends that the page shows, and the page."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tfk8s import api
from tfk8s.backends import select
from tfk8s.backends.options import BackendOptions
from tfk8s.backends.protocol import Backend
from tfk8s.errors import InvalidInput
from tfk8s.sessions.forward import listen

if TYPE_CHECKING:
    from tfk8s.features.dashboard.shown_clusters import ShownClusters
    from tfk8s.features.dashboard.site import Dashboard

HERE, KUBERNETES = "local", "kubernetes"
MAX_NAMESPACES = 16  # each costs the requests of a list
_PACKAGES = ("starlette", "uplot", "uvicorn")


@contextlib.contextmanager
def serve(
    name: str | None, local: bool, context: str | None, namespaces: Sequence[str], port: int, *,
    all_namespaces: bool = False,
) -> Iterator[Dashboard]:  # fmt: skip
    """Serve the page in a `with`.

    Args:
        name: show this cluster alone, by its name or its job file; None is all clusters.
        local, context, namespaces: they choose the clusters; without them, those of this machine and of the current
            context's namespace.
        port: the page's port; 0 is a free one.
        all_namespaces: show the clusters of all namespaces that the user may read.

    Raises:
        InvalidInput: a package is missing, the port is in use, the arguments contradict each other, or there is
            nowhere to look.
        NoSuchCluster: there is no such cluster.
    """
    missing = [package for package in _PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise InvalidInput(f"the dashboard needs {', '.join(missing)}", help="pip install 'tfk8s[dashboard]'")
    from tfk8s.features.dashboard.site import Dashboard

    shown = find(name, local, context, namespaces, all_namespaces=all_namespaces)
    with Dashboard(shown, listen(port), secrets.token_hex(24)) as page:
        yield page


def find(
    name: str | None, local: bool, context: str | None, namespaces: Sequence[str], *, all_namespaces: bool = False
) -> ShownClusters:
    """Return the chosen clusters; arguments and errors as of `serve`."""
    from tfk8s.features.dashboard.shown_clusters import ShownClusters

    named = list(dict.fromkeys(namespaces))
    _require_combination(name, named, local=local, all_namespaces=all_namespaces)
    if all_namespaces:
        here = {} if context else _here()
        every = select.choose(BackendOptions(local=False, context=context))
        return ShownClusters({**here, KUBERNETES: every}, of_namespace=functools.partial(_of_namespace, context))
    chosen = BackendOptions(local or None, context, named[0] if named else None)
    if name is not None:
        cluster = api.find(name, chosen)
        cluster.status()  # an error for a name that nobody has
        return ShownClusters({_key(cluster.backend, cluster.name): cluster.backend}, cluster.name)
    if len(named) > 1 and not chosen.is_local(os.environ):
        backends = [_of_namespace(context, namespace) for namespace in named]
        return ShownClusters({_key(backend): backend for backend in backends})
    return ShownClusters(_sources(chosen))


def _require_combination(name: str | None, namespaces: Sequence[str], *, local: bool, all_namespaces: bool) -> None:
    """Raise an InvalidInput if arguments contradict each other."""
    for is_given, other in ((local, "--local"), (namespaces, "--namespace")):
        if all_namespaces and is_given:
            raise InvalidInput(f"--all-namespaces can't be combined with {other}")
    if name is not None and (all_namespaces or len(namespaces) > 1):
        raise InvalidInput(f'"{name}" may be in several namespaces', help="name one of them: -n NAMESPACE")
    if len(namespaces) > MAX_NAMESPACES:
        raise InvalidInput(
            f"{len(namespaces)} namespaces are too many: the page shows at most {MAX_NAMESPACES} by their names",
            help="--all-namespaces shows all",
        )


def _of_namespace(context: str | None, namespace: str) -> Backend:
    return select.choose(BackendOptions(local=False, context=context, namespace=namespace))


def _key(backend: Backend, cluster: str = "") -> str:
    """Return the place of a back end's clusters, as the page's addresses have it: "kubernetes/team-a"."""
    located = backend.locator(cluster)
    return f"{KUBERNETES}/{located.namespace}" if located and located.namespace else backend.name


def _here() -> dict[str, Backend]:
    return {HERE: select.choose(BackendOptions(local=True))} if sys.platform == "linux" else {}


def _sources(options: BackendOptions) -> dict[str, Backend]:
    """Return the back ends of this machine and of Kubernetes, or the one that options choose."""
    if options.is_local(os.environ):
        return {HERE: select.choose(options)}
    sources = {} if options.context or options.namespace else _here()
    if not sources or select.has_kubeconfig(os.environ):
        backend = select.choose(options)
        located = backend.locator("")
        sources[_key(backend)] = select.choose(located or options)  # of one namespace, as names are
    return sources
