"""Tests of the permissions and the Roles."""

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.cli.app import COMMANDS
from tfk8s.render import rbac


def verbs(role, resource):
    rules = next(item["rules"] for item in rbac.roles() if item["metadata"]["name"] == role)
    return [verb for rule in rules if rule["resources"] == [resource] for verb in rule["verbs"]]


def test_permissions_name_existing_commands():
    assert {command for permission in rbac.PERMISSIONS for command in permission.commands} <= set(COMMANDS)


def test_user_role_can_delete_all_objects():
    for _, resource in paths.GROUPS.values():
        assert "deletecollection" in verbs("tfk8s-user", resource)


def test_no_role_can_read_secrets_or_has_wildcards():
    for role in rbac.ROLES:
        assert not {"get", "list", "watch", "*"} & set(verbs(role, "secrets"))
    assert "*" not in str(rbac.roles())


def test_submit_role_can_not_change_clusters():
    assert verbs("tfk8s-submit", "statefulsets") == ["list", "watch"]
    assert verbs("tfk8s-submit", "pods") == ["get", "list", "watch"]
    assert verbs("tfk8s-submit", "jobs") == ["create", "delete", "list", "watch"]
    assert not [verb for _, kind in paths.GROUPS.values() if kind not in ("jobs", "secrets", "statefulsets")
                for verb in verbs("tfk8s-submit", kind)]  # fmt: skip


def test_find_permission():
    assert str(rbac.find("list", "statefulsets", "apps")) == "list statefulsets.apps"
    assert rbac.find("list", "nodes", "") is None
