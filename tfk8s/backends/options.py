"""The options that select a backend."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tfk8s.errors import InvalidInput, quoted

LOCAL_VARIABLE = "TFK8S_LOCAL"
_NAMESPACE = re.compile(r"(?!.{64})[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)  # RFC 1123
_BOOLEANS = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """The user's choice of a backend.

    Attributes:
        local: True for this machine, False for Kubernetes. None means `TFK8S_LOCAL`, but Kubernetes if a context or
            a namespace is given.
        context: the context of the kubeconfig; None is the current context.
        namespace: the namespace in Kubernetes; None is the job file's, else the context's.
        allow_exposed_ports: start local clusters in this machine's own network, even if others can connect.
        python: the interpreter of local clusters, as the user names it; None is the active environment's, else tfk8s'.
    """

    local: bool | None = None
    context: str | None = None
    namespace: str | None = None
    allow_exposed_ports: bool = False
    python: str | None = None

    def __post_init__(self) -> None:
        """Raise an InvalidInput for an invalid name of a namespace."""
        if self.namespace is not None and not _NAMESPACE.fullmatch(self.namespace):
            raise InvalidInput(
                f"{quoted(self.namespace)} is not a valid name of a namespace",
                help='use at most 63 lower-case letters, digits and "-"; `kubectl get namespaces` lists the namespaces',
            )

    def is_local(self, environment: Mapping[str, str]) -> bool:
        """Return whether the options select this machine.

        Args:
            environment: the user's environment, for `TFK8S_LOCAL`.

        Raises:
            InvalidInput: the options contradict each other.
        """
        kubernetes = [name for name in ("context", "namespace") if getattr(self, name) is not None]
        if self.local and kubernetes:
            raise InvalidInput(f"--local can't be combined with --{kubernetes[0]}")
        local = self.local if self.local is not None or kubernetes else _local_by_default(environment)
        if self.allow_exposed_ports and not local:
            raise InvalidInput("--allow-exposed-ports needs --local")
        if self.python is not None and not local:
            raise InvalidInput("--python needs --local", help="elsewhere, the image or the active environment decides")
        return bool(local)


def _local_by_default(environment: Mapping[str, str]) -> bool:
    value = environment.get(LOCAL_VARIABLE, "")
    if value.lower() not in _BOOLEANS:
        raise InvalidInput(
            f'{LOCAL_VARIABLE} is "{value}"', help=f"set it to 1 or 0, or unset it: unset {LOCAL_VARIABLE}"
        )
    return _BOOLEANS[value.lower()]
