"""What tfk8s may need to do in a namespace, as Roles."""

from tfk8s.backends.kubernetes import paths
from tfk8s.cli.app import COMMANDS
from tfk8s.render import rbac


def verbs(role, resource):
    (made,) = [one for one in rbac.roles() if one["metadata"]["name"] == role]
    return [verb for rule in made["rules"] if rule["resources"] == [resource] for verb in rule["verbs"]]


def test_every_command_that_needs_a_right_is_one():
    assert {command for right in rbac.PERMISSIONS for command in right.commands} <= set(COMMANDS)


def test_a_user_may_remove_what_up_and_submit_make():
    for _, resource in paths.GROUPS.values():
        assert "deletecollection" in verbs("tfk8s-user", resource)


def test_nobody_may_read_secrets_or_do_everything():
    for role in rbac.ROLES:
        assert not {"get", "list", "watch", "*"} & set(verbs(role, "secrets"))
    assert "*" not in str(rbac.roles())


def test_who_only_submits_may_change_no_cluster():
    assert verbs("tfk8s-submit", "statefulsets") == ["list", "watch"]
    assert verbs("tfk8s-submit", "pods") == ["get", "list", "watch"]
    assert verbs("tfk8s-submit", "jobs") == ["create", "delete", "list", "watch"]
    assert not [verb for _, kind in paths.GROUPS.values() if kind not in ("jobs", "secrets", "statefulsets")
                for verb in verbs("tfk8s-submit", kind)]  # fmt: skip


def test_a_right_is_found_by_what_the_api_server_calls_it():
    assert str(rbac.find("list", "statefulsets", "apps")) == "list statefulsets.apps"
    assert rbac.find("list", "nodes", "") is None
