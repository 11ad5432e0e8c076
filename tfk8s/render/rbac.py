"""The permissions that each command needs in a namespace: one table for Roles, `doctor` and error messages.

Server-side apply needs `create` besides `patch` for a new object, and `get` to find out the object's owner. A stream to
a pod is a WebSocket: Kubernetes requires `get`, and since 1.35 also `create`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tfk8s.render import gang
from tfk8s.render.pods import Object

USER_ROLE = "tfk8s-user"
SUBMIT_ROLE = "tfk8s-submit"
ROLES = (USER_ROLE, SUBMIT_ROLE)
LIMITS, SLEEP, PROGRAMS, CLAIMS, GANGS, QUEUES, HISTORY = FEATURES = (
    "max_duration, idle, drain: idle", "suspension while idle", "programs", "claims", "gangs", "suspension in a queue",
    "shared history",
)  # fmt: skip
RULES = "rules of the namespace"  # no job file needs the right to read them

_INSIDE = ("stacks", "top")  # these commands look at processes in containers
_SUBMITTERS = frozenset({"status", "logs", "submit", "stop", *_INSIDE})  # what the Role for submitting allows
_READERS = (
    "ls", "status", "logs", "events", "devices", "exec", *_INSIDE, "submit", "stop", "connect", "tensorboard",
    "dashboard", "scale", "restart", "suspend", "resume", "down", "up",
)  # fmt: skip
_WATCHERS = ("status", "dashboard", "up", "scale", "restart", "resume")  # these commands poll
_STARTERS = ("submit", "tensorboard")  # these commands start a pod of their own


@dataclass(frozen=True, slots=True)
class Permission:
    """A permission that a command needs.

    Attributes:
        verb: the verb in RBAC.
        resource: the plural of a kind, with or without a subresource, such as "pods/log".
        group: the API group; "" is the core group.
        commands: the commands that need it.
        features: the features of job files that need it; empty if all job files do.
    """

    verb: str
    resource: str
    group: str
    commands: tuple[str, ...]
    features: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")

    @property
    def roles(self) -> tuple[str, ...]:
        """The names of the Roles that include the permission."""
        return tuple(role for role in ROLES if role == USER_ROLE or not _SUBMITTERS.isdisjoint(self.commands))


def _table() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the group, the resource, the verbs, and the commands that need them."""
    yield "apps", "statefulsets", "list", _READERS
    yield "apps", "statefulsets", "watch", (*_WATCHERS, "logs")
    yield "", "pods", "list", ("ls", "logs", "exec", *_INSIDE, *_STARTERS, "stop", *_WATCHERS, "suspend", "down")
    yield "batch", "jobs", "list", (*_READERS, "diff")  # the Jobs of programs, of scripts and of limits
    yield "batch", "jobs", "watch", (*_WATCHERS, "logs")
    # The log shows that a server listens.
    yield "", "pods/log", "get", ("logs", *_STARTERS, *_INSIDE, *_WATCHERS, "down")
    yield "", "events", "list", ("events", *_INSIDE, *_WATCHERS)
    yield "", "events", "watch", ("events", *_WATCHERS)
    # `submit` connects to the script's pod, which gets a large folder and input, and sends the files of `--get`.
    yield "", "pods/portforward", "get create", ("up", "devices", "connect", *_STARTERS, "restart", "resume", "scale")
    # A Secret holds the script's folder.
    yield "", "secrets", "create", _STARTERS
    yield "batch", "jobs", "create", _STARTERS
    yield "batch", "jobs", "delete", (*_STARTERS, "stop", "suspend")
    yield "", "pods", "get", ("submit", "logs", "restart")
    # A watch sees why pods of tasks and scripts end, even if they are deleted at once.
    yield "", "pods", "watch", (*_STARTERS, "logs", *_WATCHERS)
    yield "", "pods/exec", "get create", ("restart", "exec", "cp", "dashboard", *_INSIDE)
    yield "", "pods", "delete", ("restart",)
    yield "", "pods", "patch", ("up", "restart", "scale")  # the notes of bad nodes, and starts away from them
    yield "", "pods", "create", ("doctor",)  # two pods test the network
    yield "", "pods", "deletecollection", ("up", "restart", "scale", "down")
    yield "apps", "statefulsets", "patch", ("scale", "suspend", "resume")
    for group, resource in (
        ("networking.k8s.io", "networkpolicies"),
        ("", "configmaps"),
        ("", "services"),
        ("apps", "statefulsets"),
        ("policy", "poddisruptionbudgets"),
    ):
        yield group, resource, "get create patch", ("up", "diff")
        yield group, resource, "list deletecollection", ("down",)
    yield "networking.k8s.io", "networkpolicies", "list", ("up", "diff")  # those of others may cut the tasks off
    for group, resource in (("apps", "statefulsets"), ("policy", "poddisruptionbudgets")):
        yield group, resource, "list", ("up", "diff")
        yield group, resource, "delete", ("up",)  # objects of a job that was removed from the job file
    yield "batch", "jobs", "deletecollection", ("down",)
    yield "", "secrets", "deletecollection", ("down",)


def _table_of_limits() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the same for job files with `max_duration`, `idle` or `drain: idle`.

    The cluster's own Role may get and delete the cluster's objects. Kubernetes lets nobody create a Role with rights
    that they lack themselves.
    """
    yield "batch", "jobs", "get create patch", ("up", "diff")
    yield "batch", "jobs", "delete", ("up",)
    for resource in ("roles", "rolebindings"):
        yield "rbac.authorization.k8s.io", resource, "get create patch", ("up", "diff")
    yield "", "serviceaccounts", "get create patch", ("up", "diff")
    yield "", "serviceaccounts", "delete", ("up", "down")
    for group, resource in (("", "configmaps"), ("", "services")):
        yield group, resource, "delete", ("up",)
    yield "networking.k8s.io", "networkpolicies", "delete", ("up", "down")


def _table_of_sleep() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the same for job files with a time of `idle` until the suspension, besides the limits.

    The cluster's own Role may change the numbers of tasks. `resume` takes back what the cluster's own Job has noted.
    """
    yield "apps", "statefulsets/scale", "patch", ("up",)
    yield "batch", "jobs", "patch", ("up", "resume")


def _table_of_queues() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the same for clusters in a queue, which give their quota back while they are suspended."""
    yield "kueue.x-k8s.io", "workloads", "delete", ("suspend",)
    yield "kueue.x-k8s.io", "workloads", "get delete", ("up",)  # with a time of `idle` until the suspension


def _table_of_rules() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the same for namespaces with rules, within which scripts choose their limits if the user may list them."""
    yield "", "limitranges", "list", _STARTERS
    yield "", "resourcequotas", "list", _STARTERS
    yield "kueue.x-k8s.io", "workloads", "list watch", ("status", "up", *_STARTERS)  # why Kueue lets pods wait


def _table_of_programs() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the same for job files with programs. A Job whose program changes is created again."""
    yield "batch", "jobs", "get patch", ("up", "diff", "scale", "restart", "suspend", "resume")
    yield "batch", "jobs", "create delete", ("up", "scale", "restart")
    yield "", "secrets", "create deletecollection", ("up",)


def _table_of_claims() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the same for job files with `create` in volumes."""
    yield "", "persistentvolumeclaims", "get create patch", ("up", "diff")
    yield "", "persistentvolumeclaims", "list", ("ls", "down")
    yield "", "persistentvolumeclaims", "delete", ("down",)


def _table_of_history() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the same for a history in a claim, which a pod of the command reads."""
    yield "", "configmaps", "get", ("history",)  # one names the claim
    yield "", "persistentvolumeclaims", "get", ("history", "up", "diff")
    yield "", "pods", "create delete get list", ("history",)
    yield "", "pods/exec", "get create", ("history",)
    yield "", "events", "list", ("history",)


def _table_of_gangs() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the same for clusters that are gangs."""
    yield gang.GROUP, "podgroups", "get create patch", ("up", "diff", "scale")
    yield gang.GROUP, "podgroups", "delete", ("up", "down")


def _permissions() -> tuple[Permission, ...]:
    commands: dict[tuple[str, str, str], tuple[str, ...]] = {}
    features: dict[tuple[str, str, str], tuple[str, ...]] = {}
    tables = {
        "": _table,
        LIMITS: _table_of_limits,
        SLEEP: _table_of_sleep,
        PROGRAMS: _table_of_programs,
        CLAIMS: _table_of_claims,
        GANGS: _table_of_gangs,
        QUEUES: _table_of_queues,
        HISTORY: _table_of_history,
        RULES: _table_of_rules,
    }
    for feature, table in tables.items():
        for group, resource, verbs, needed_by in table():
            for verb in verbs.split():
                key = (verb, resource, group)
                commands[key] = tuple(dict.fromkeys((*commands.get(key, ()), *needed_by)))
                features[key] = (*features.get(key, ()), feature)
    return tuple(
        Permission(*key, needed_by, () if "" in features[key] else features[key]) for key, needed_by in commands.items()
    )


PERMISSIONS = _permissions()


def find(verb: str, resource: str, group: str) -> Permission | None:
    """Return a permission, or None if no command needs it."""
    return next((p for p in PERMISSIONS if (p.verb, p.resource, p.group) == (verb, resource, group)), None)


def roles() -> list[Object]:
    """Return the Roles for all of tfk8s and for submitting only. The Roles have no namespace."""
    return [_role(name) for name in ROLES]


def _role(name: str) -> Object:
    verbs: dict[tuple[str, str], list[str]] = {}
    for permission in PERMISSIONS:
        if name in permission.roles:
            verbs.setdefault((permission.group, permission.resource), []).append(permission.verb)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "tfk8s"}},
        "rules": [
            {"apiGroups": [group], "resources": [resource], "verbs": sorted(group_verbs)}
            for (group, resource), group_verbs in sorted(verbs.items())
        ],
    }
