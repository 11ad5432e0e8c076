"""The requests and limits of a script's container: what is named for it, within what the namespace allows.

Values that nobody names are small requests, so that the script fits on a node with tasks, and higher limits where the
master has limits. They are never above the master's limits, nor outside of what the namespace allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from tfk8s.core.quantity import Quantity
from tfk8s.core.resources import amount_text
from tfk8s.core.script import ScriptResources
from tfk8s.render import pods
from tfk8s.render.pods import Object

REQUESTS = {
    "cpu": Quantity.parse("50m"),
    "memory": Quantity.parse("512Mi"),
    pods.STORAGE: Quantity.parse(pods.STORAGE_REQUEST),
}
# The limits where the master has none, but the namespace wants one. Of CPU, the highest limit in any case.
_LIMITS = {
    "cpu": Quantity.parse("4"),
    "memory": Quantity.parse("4Gi"),
    pods.STORAGE: Quantity.parse(pods.STORAGE_LIMIT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRule:
    """The rules of a namespace for one resource of a container; None where it has no rule.

    Attributes:
        maximum: the greatest limit.
        minimum: the least request.
        default: the limit of a container that names none.
        ratio: the greatest quotient of limit and request.
    """

    maximum: Quantity | None = None
    minimum: Quantity | None = None
    default: Quantity | None = None
    ratio: Quantity | None = None


Rules = Mapping[str, NamespaceRule]  # by the name of the resource in Kubernetes


def requirements(named: ScriptResources, master: Mapping[str, str], rules: Rules, queue: str | None = None) -> Object:
    """Return the requests and limits of CPU, memory and storage.

    Args:
        named: what the job file and the command name.
        master: the limits of the master's container.
        rules: of the namespace.
        queue: the queue of Kueue in which the script waits. There, storage counts only if it is named.
    """
    pairs = {
        "cpu": _cpu(named, master, rules.get("cpu", NamespaceRule())),
        "memory": _memory(named, master, rules.get("memory", NamespaceRule())),
    }
    if storage := named.ephemeral_storage:
        pairs[pods.STORAGE] = storage, storage
    elif pods.storage(queue)["requests"]:
        rule = rules.get(pods.STORAGE, NamespaceRule())
        pairs[pods.STORAGE] = _default(pods.STORAGE, _LIMITS[pods.STORAGE], rule)
    return {
        "requests": {name: str(request) for name, (request, _) in pairs.items()},
        "limits": {name: str(limit) for name, (_, limit) in pairs.items() if limit},
    }


def described(resources: Object) -> str:
    """Return the CPU and the memory of a script's container: "50m cpu and 512Mi memory, with limits of …"."""
    wanted, of_limits = (_listed(resources.get(kind, {})) for kind in ("requests", "limits"))
    return f"{wanted}, with limits of {of_limits}" if of_limits else wanted or "nothing"


def _listed(amounts: Mapping[str, str]) -> str:
    return " and ".join(f"{amounts[name]} {name}" for name in ("cpu", "memory") if name in amounts)


Pair = tuple[Quantity, Quantity | None]  # a request and a limit


def _cpu(named: ScriptResources, master: Mapping[str, str], rule: NamespaceRule) -> Pair:
    if named.cpu is None:
        return _default("cpu", _least(_LIMITS["cpu"], _parsed(master, "cpu")) if "cpu" in master else None, rule)
    # As for a task: TensorFlow's import takes more than a second of a core.
    core = _least(Quantity.parse(pods.MIN_CPU_LIMIT), rule.maximum, _times(named.cpu, rule.ratio, "cpu"))
    return named.cpu, max(named.cpu, core, key=_value)


def _memory(named: ScriptResources, master: Mapping[str, str], rule: NamespaceRule) -> Pair:
    if named.memory:
        amount = named.memory + named.shm if named.shm else named.memory
        return amount, amount
    request, limit = _default("memory", _parsed(master, "memory"), rule)
    if named.shm:  # the kernel counts what a container writes to /dev/shm as the container's memory
        return request + named.shm, limit and limit + named.shm
    return request, limit


def _default(name: str, limit: Quantity | None, rule: NamespaceRule) -> Pair:
    """Return the request and the limit of a resource that nobody names, for a limit before the namespace's rules."""
    request = max(REQUESTS[name], rule.minimum or REQUESTS[name], key=_value)
    if limit is None and (rule.default or rule.maximum):
        limit = rule.default or _LIMITS[name]
    if limit is None:
        return request, None
    limit = _least(limit, rule.maximum)
    request = _least(request, limit)
    return request, _least(limit, _times(request, rule.ratio, name))


def _parsed(amounts: Mapping[str, str], name: str) -> Quantity | None:
    return Quantity.parse(str(amounts[name])) if name in amounts else None


def _times(request: Quantity, ratio: Quantity | None, name: str) -> Quantity | None:
    return ratio and quantity(name, request.value * ratio.value)


def _least(first: Quantity, *others: Quantity | None) -> Quantity:
    return min((first, *(other for other in others if other)), key=_value)


def _value(amount: Quantity) -> Decimal:
    return amount.value


def quantity(name: str, amount: Decimal) -> Quantity:
    """Return an amount of a resource as a quantity, rounded down."""
    return Quantity.parse(amount_text(name, amount))
