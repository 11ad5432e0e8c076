"""The resources that LimitRanges and ResourceQuotas leave for a script."""

from __future__ import annotations

import pytest

from tfk8s.backends.kubernetes.api_server import errors
from tfk8s.backends.kubernetes.scripts import namespace_rules
from tfk8s.core.quantity import Quantity
from tfk8s.render.pods import Object
from tfk8s.render.script_resources import NamespaceRule


class Namespace:
    """An API server with LimitRanges and ResourceQuotas of a namespace, or without the right to list them."""

    def __init__(self, ranges: list[Object], quotas: list[Object], code: int = 0) -> None:
        self.lists, self.code = {"limitranges": ranges, "resourcequotas": quotas}, code

    def get(self, path: str, query: object) -> Object:
        if self.code:
            raise errors.from_response(self.code, b"{}", "test")
        return {"items": self.lists[path.removeprefix("/api/v1/namespaces/ns/")]}


def limit_range(**item: object) -> Object:
    return {"spec": {"limits": [{"type": "Container", **item}]}}


def quota(hard: Object, used: Object, **spec: object) -> Object:
    return {"spec": spec, "status": {"hard": hard, "used": used}}


def read(*arguments: object) -> dict[str, NamespaceRule]:
    return dict(namespace_rules.read(Namespace(*arguments), "ns"))  # type: ignore[arg-type]


def q(text: str) -> Quantity:
    return Quantity.parse(text)


def test_the_strictest_rule_counts() -> None:
    ranges = [
        limit_range(max={"cpu": "2", "memory": "2Gi"}, default={"memory": "1Gi"}),
        limit_range(type="Pod", max={"cpu": "1500m"}, min={"cpu": "100m"}, maxLimitRequestRatio={"cpu": "4"}),
        limit_range(type="PersistentVolumeClaim", max={"cpu": "1m"}),
    ]
    quotas = [
        quota({"limits.memory": "4Gi", "pods": "3"}, {"limits.memory": "2600Mi"}),
        quota({"limits.cpu": "1"}, {}, scopes=["BestEffort"]),
    ]
    found = read(ranges, quotas)
    assert found["cpu"] == NamespaceRule(maximum=q("1500m"), minimum=q("100m"), ratio=q("4"))
    assert found["memory"] == NamespaceRule(maximum=q("1496Mi"), default=q("1Gi"))
    assert found["ephemeral-storage"] == NamespaceRule()


@pytest.mark.parametrize("used", ["4Gi", "3584Mi", "3900Mi", "8Gi"])
def test_a_quota_that_is_used_up_leaves_the_request_so_that_the_api_server_refuses_it(used: str) -> None:
    found = read([], [quota({"limits.memory": "4Gi", "limits.cpu": "1"}, {"limits.memory": used, "limits.cpu": "3"})])
    assert (found["memory"].maximum, found["cpu"].maximum) == (q("512Mi"), q("50m"))


@pytest.mark.parametrize("code", [403, 404])
def test_users_who_may_not_read_the_rules_start_scripts_all_the_same(code: int) -> None:
    assert set(read([], [], code).values()) == {NamespaceRule()}
