"""Refusals of Roles with rights that their creator lacks: Kubernetes lets no user create such a Role."""

from __future__ import annotations

import re

_REFUSAL = re.compile(r'user "(?P<user>[^"]*)" .*is attempting to grant RBAC permissions not currently held')
_RULE = re.compile(r'APIGroups:\["([^"]*)"\], Resources:\["([^"]*)"\].* Verbs:\[([^]]*)\]')


def refused(message: str) -> tuple[str, list[str]] | None:
    """Return the user and the rights that the user lacks, such as "delete services"; None for another message."""
    match = _REFUSAL.search(message)
    if match is None:
        return None
    rights = (
        f"{' and '.join(re.findall('[a-z]+', verbs))} {resource}{f'.{group}' if group else ''}"
        for group, resource, verbs in _RULE.findall(message)
    )
    return match["user"], list(dict.fromkeys(rights))
