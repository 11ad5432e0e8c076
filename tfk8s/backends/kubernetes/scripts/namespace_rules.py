"""The resources that a namespace allows one more container, from its LimitRanges and ResourceQuotas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.core.quantity import Quantity
from tfk8s.log import log
from tfk8s.render.pods import Object
from tfk8s.render.script_resources import REQUESTS, NamespaceRule, Rules, quantity

_KINDS = ("Container", "Pod")  # of a LimitRange's items: a script's pod has one container


def read(client: Client, namespace: str) -> Rules:
    """Return the rules of a namespace, as far as the user may read them.

    Who may not read them still starts scripts: the API server checks each pod anyway.
    """
    ranges, quotas = (_items(client, namespace, plural) for plural in ("limitranges", "resourcequotas"))
    limits = [item for found in ranges for item in found["spec"].get("limits", ()) if item.get("type") in _KINDS]
    return {name: _rule(name, limits, quotas) for name in REQUESTS}


def _items(client: Client, namespace: str, plural: str) -> list[Object]:
    try:
        return list(client.get(f"/api/v1/namespaces/{namespace}/{plural}", {})["items"])
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        log.debug("%s", error)
        return []


def _rule(name: str, limits: Iterable[Object], quotas: Iterable[Object]) -> NamespaceRule:
    def amounts(key: str) -> list[Quantity]:
        return [Quantity.parse(str(item[key][name])) for item in limits if name in item.get(key, {})]

    def least(quantities: list[Quantity]) -> Quantity | None:
        return min(quantities, key=lambda amount: amount.value, default=None)

    return NamespaceRule(
        maximum=least([*amounts("max"), *_left(name, quotas)]),
        minimum=max(amounts("min"), key=lambda amount: amount.value, default=None),
        default=least(amounts("default")),
        ratio=least(amounts("maxLimitRequestRatio")),
    )


def _left(name: str, quotas: Iterable[Object]) -> Iterator[Quantity]:
    """Yield what quotas have left for limits. Where that is less than a script needs, the pod is refused for it.

    Quotas with scopes are left out, since they count some pods only.
    """
    key = f"limits.{name}"
    for quota in quotas:
        status = quota.get("status", {})
        is_scoped = "scopes" in quota["spec"] or "scopeSelector" in quota["spec"]
        if key in status.get("hard", {}) and not is_scoped:
            used = Quantity.parse(str(status.get("used", {}).get(key, "0"))).value
            left: Decimal = Quantity.parse(str(status["hard"][key])).value - used  # below 0 if the quota came later
            yield quantity(name, max(REQUESTS[name].value, left))
