"""What the user says about where a cluster lives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tfk8s.errors import InvalidInput, quoted

LOCAL_VARIABLE = "TFK8S_LOCAL"
_NAMESPACE = re.compile(r"(?!.{64})[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)  # RFC 1123
_WORDS = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """What the user says about where.

    Attributes:
        local: on this machine; None leaves it to `TFK8S_LOCAL`, unless a context or a namespace is given.
        context: of the kubeconfig; None is its current one.
        namespace: in Kubernetes; None is the job file's, else the context's.
        allow_exposed_ports: as `LocalBackend` takes it.
    """

    local: bool | None = None
    context: str | None = None
    namespace: str | None = None
    allow_exposed_ports: bool = False

    def __post_init__(self) -> None:
        """Raise an InvalidInput for a namespace that Kubernetes can't have."""
        if self.namespace and not _NAMESPACE.fullmatch(self.namespace):
            raise InvalidInput(
                f"{quoted(self.namespace)} is not a namespace's name",
                help='lower-case letters, digits and "-", at most 63; `kubectl get namespaces` lists them',
            )

    def is_local(self, environment: Mapping[str, str]) -> bool:
        """Return whether it is this machine.

        Raises:
            InvalidInput: what the user says contradicts itself.
        """
        kubernetes = [name for name in ("context", "namespace") if getattr(self, name) is not None]
        if self.local and kubernetes:
            raise InvalidInput(f"--local and --{kubernetes[0]} exclude each other: the latter is Kubernetes'")
        local = self.local if self.local is not None or kubernetes else _local_by_default(environment)
        if self.allow_exposed_ports and not local:
            raise InvalidInput("--allow-exposed-ports goes with --local only")
        return bool(local)


def _local_by_default(environment: Mapping[str, str]) -> bool:
    value = environment.get(LOCAL_VARIABLE, "")
    if value.lower() not in _WORDS:
        raise InvalidInput(
            f'{LOCAL_VARIABLE} is "{value}"', help=f"set it to 1 or 0, or unset it: unset {LOCAL_VARIABLE}"
        )
    return _WORDS[value.lower()]
