"""What tfk8s may need to do in a namespace, and for which command: one table for Roles, `doctor` and refusals.

Server-side apply needs `create` besides `patch` where the object is new, and `get` tells whose it is. A stream to a
pod is a WebSocket: Kubernetes asks for `get`, and since 1.35 for `create` as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tfk8s.render.pods import Object

USER_ROLE = "tfk8s-user"
SUBMIT_ROLE = "tfk8s-submit"
ROLES = (USER_ROLE, SUBMIT_ROLE)

_SUBMITTERS = frozenset({"status", "logs", "submit", "stop"})  # what the Role of those who only submit is for
_LOOK = (
    "ls", "status", "logs", "events", "devices", "submit", "stop", "connect", "scale", "restart", "down", "up",
)  # fmt: skip
_WATCHERS = ("status", "up", "scale", "restart")  # they look again and again


@dataclass(frozen=True, slots=True)
class Permission:
    """Something that a user must be allowed to do.

    Attributes:
        verb: as RBAC names it.
        resource: a kind's plural, and a subresource such as "pods/log".
        group: the API group; "" is the core's.
        commands: the commands that need it.
    """

    verb: str
    resource: str
    group: str
    commands: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")

    @property
    def roles(self) -> tuple[str, ...]:
        """The names of the Roles that have it."""
        return tuple(role for role in ROLES if role == USER_ROLE or not _SUBMITTERS.isdisjoint(self.commands))


def _table() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield group, resource, verbs, and the commands that need them."""
    yield "apps", "statefulsets", "list", _LOOK
    yield "apps", "statefulsets", "watch", _WATCHERS
    yield "", "pods", "list", ("ls", "status", "submit", "stop", "up", "scale", "restart", "down")
    yield "batch", "jobs", "list", _LOOK  # of scripts
    yield "batch", "jobs", "watch", _WATCHERS
    yield (
        "",
        "pods/log",
        "get",
        ("logs", "submit", "status", "up", "restart", "scale"),
    )  # it tells that a server listens
    yield "", "events", "list", ("events", *_WATCHERS)
    yield "", "events", "watch", ("events", *_WATCHERS)
    yield "", "pods/portforward", "get create", ("up", "devices", "connect", "restart", "scale")
    # A script's folder travels in a Secret, a large one through `exec`.
    yield "", "secrets", "create", ("submit",)
    yield "batch", "jobs", "create", ("submit",)
    yield "batch", "jobs", "delete", ("submit", "stop")
    yield "", "pods", "get", ("submit", "logs", "restart")
    # What becomes of tasks, and how a script's pod ended, even where it is gone at once.
    yield "", "pods", "watch", ("submit", "logs", "status", "up", "restart", "scale")
    yield "", "pods/exec", "get create", ("submit", "restart")
    yield "", "pods/attach", "get create", ("submit",)  # for its standard input
    yield "", "pods", "delete", ("restart",)
    yield "", "pods", "deletecollection", ("up", "restart", "scale", "down")
    yield "apps", "statefulsets", "patch", ("scale",)
    for group, resource in (
        ("networking.k8s.io", "networkpolicies"),
        ("", "configmaps"),
        ("", "services"),
        ("apps", "statefulsets"),
        ("policy", "poddisruptionbudgets"),
    ):
        yield group, resource, "get create patch", ("up", "diff")
        yield group, resource, "list deletecollection", ("down",)
    for group, resource in (("apps", "statefulsets"), ("policy", "poddisruptionbudgets")):
        yield group, resource, "list", ("up", "diff")
        yield group, resource, "delete", ("up",)  # of a job that is no longer in the job file
    yield "batch", "jobs", "deletecollection", ("down",)
    yield "", "secrets", "deletecollection", ("down",)


def _rights() -> tuple[Permission, ...]:
    commands: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for group, resource, verbs, needing in _table():
        for verb in verbs.split():
            key = (verb, resource, group)
            commands[key] = tuple(dict.fromkeys((*commands.get(key, ()), *needing)))
    return tuple(Permission(*key, needing) for key, needing in commands.items())


PERMISSIONS = _rights()


def find(verb: str, resource: str, group: str) -> Permission | None:
    """Return the right of that name, or None where tfk8s needs no such."""
    return next(
        (right for right in PERMISSIONS if (right.verb, right.resource, right.group) == (verb, resource, group)), None
    )


def roles() -> list[Object]:
    """Return the Roles: for those who use tfk8s, and for those who only submit; they name no namespace."""
    return [_role(name) for name in ROLES]


def _role(name: str) -> Object:
    verbs: dict[tuple[str, str], list[str]] = {}
    for right in PERMISSIONS:
        if name in right.roles:
            verbs.setdefault((right.group, right.resource), []).append(right.verb)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "tfk8s"}},
        "rules": [
            {"apiGroups": [group], "resources": [resource], "verbs": sorted(some)}
            for (group, resource), some in sorted(verbs.items())
        ],
    }
